"""Pictures of Pillow, and arrays, as a program in this process has them: to the encoded bytes that workers take.

Pixels and samples stay what they are: PNG and WAV of floats lose nothing.
"""

from io import BytesIO
from typing import Any

from ramet.ipc.media import MediaKind
from ramet.runtime.errors import ClientError, describe

RATE = 16000  # samples per second of an array: what models of sound were trained on
FAST = 1  # of zlib: a piece is decoded at once


def encoded(kind: MediaKind, written: Any) -> bytes | list[bytes]:
    """Of a film, its pictures. Raises ClientError without a place."""
    from PIL import Image

    if isinstance(written, Image.Image) and kind is MediaKind.IMAGE:
        return _png(written)
    array = _array(written)
    match kind:
        case MediaKind.IMAGE:
            return _png_of(array, "[height, width] or [height, width, 3 or 4]")
        case MediaKind.VIDEO:
            if array.ndim != 4 or not len(array):
                raise _unlike(array, "[frames, height, width, 3] uint8")
            return [_png_of(frame, "[frames, height, width, 3]") for frame in array]
        case MediaKind.AUDIO:
            return _wav(array)


def _array(written: Any) -> Any:
    import numpy as np

    if hasattr(written, "detach"):  # a tensor of torch
        written = written.detach().cpu()
        written = written.float() if written.is_floating_point() else written
    return np.asarray(written)


def _png_of(array: Any, shapes: str) -> bytes:
    from PIL import Image

    of_colours = array.ndim == 3 and array.shape[2] in (3, 4)
    if str(array.dtype) != "uint8" or not array.size or not (array.ndim == 2 or of_colours):
        raise _unlike(array, f"{shapes} uint8")
    return _png(Image.fromarray(array))


def _png(image: Any) -> bytes:
    out = BytesIO()
    try:
        if image.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
            image = image.convert("RGBA" if image.has_transparency_data else "RGB")
        image.save(out, "PNG", compress_level=FAST, exif=image.getexif())
    except (OSError, ValueError) as error:  # a file that is broken, a mode that nothing converts
        raise ClientError("", f"is a picture that cannot be read: {describe(error)}") from None
    return out.getvalue()


def _wav(array: Any) -> bytes:
    import soundfile

    if array.ndim != 1 or array.dtype.kind != "f" or not array.size:
        raise _unlike(array, "[samples] of floats")
    out = BytesIO()
    soundfile.write(out, array.astype("float32"), RATE, "FLOAT", format="WAV")
    return out.getvalue()


def _unlike(array: Any, wanted: str) -> ClientError:
    return ClientError("", f"is an array {list(array.shape)} {array.dtype}, must be {wanted}")
