"""A picture's bytes to pixels: in a worker process alone. Decides which formats are read and what becomes of alpha.

Formats are those that browsers show and Pillow decodes by itself; none that runs a program or reads another file. The
size is checked before a pixel is decoded. What is transparent shows white.
"""

import io
import re
import warnings
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from ramet.runtime.errors import ClientError, describe

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
UNREAD = [  # how files begin that clients take for pictures
    (re.compile(rb".{4}ftyp(?:he|mif|msf)", re.S), "HEIC, as phones write it"),
    (re.compile(rb".{4}ftypavi", re.S), "AVIF"),
    (re.compile(rb".{4}ftyp|\x1aE\xdf\xa3", re.S), "a film"),
    (re.compile(rb"II\*\0|MM\0\*"), "TIFF"),
    (re.compile(rb"%PDF"), "PDF"),
    (re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<svg"), "SVG"),
    (re.compile(rb"\s*<(?:!doctype )?html", re.I), "a web page"),
]
MAX_BEGIN = 256  # bytes that are looked at
ORIENTATION = 0x0112  # of EXIF
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
Image.MAX_IMAGE_PIXELS = None  # `check_pixels` knows the limit


def decode_picture(data: bytes | memoryview, max_pixels: int) -> Image.Image:
    """In RGB, as it is meant to be seen; of an animation the first frame. Raises ClientError without a place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow, about what it reads anyway
        try:
            with opened(data, max_pixels) as image:
                image.load()
                check_pixels(*image.size, max_pixels)  # a frame may be larger than the header says
                return flattened(turned(image))
        except (ClientError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - a decoder raises anything; its words go to the client
            raise ClientError("", f"is a broken picture: {describe(error)}") from None


def opened(data: bytes | memoryview, max_pixels: int) -> Image.Image:
    """Its header alone is read."""
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise ClientError("", f"is {_unread(data)}; {', '.join(FORMATS)} are read") from None
    check_pixels(*image.size, max_pixels)
    return image


def _unread(data: bytes | memoryview) -> str:
    """What is not read, so far as its begin says."""
    begin = bytes(data[:MAX_BEGIN])
    name = next((name for pattern, name in UNREAD if pattern.match(begin)), None)
    return f"no picture that is read, but {name}" if name else "no picture, or broken"


def check_pixels(width: int, height: int, most: int) -> None:
    if width * height > most:
        fact = f"has {width} x {height} pixels, which are {width * height}, must be at most {most}"
        raise ClientError("", fact, "send a smaller one, or start the server with a larger --max-image-pixels", 413)


def flattened(image: Image.Image) -> Image.Image:
    """In RGB, on white."""
    if image.mode.startswith("I"):
        image = _of_sixteen_bits(image)
    if not image.has_transparency_data:
        return image.convert("RGB")
    seen = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")


def _of_sixteen_bits(image: Image.Image) -> Image.Image:
    """Grey, of which Pillow would cut off what is above 255."""
    values: Any = np.asarray(image).astype(np.int64)
    grey = Image.fromarray(np.clip(values >> 8, 0, 255).astype(np.uint8))
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        grey.putalpha(Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)))
    return grey


def turned(image: Image.Image) -> Image.Image:
    """By its EXIF; what cannot be read of that says nothing, as in browsers."""
    try:
        orientation = image.getexif().get(ORIENTATION)
    except Exception:  # noqa: BLE001 - a parser of whatever a camera wrote raises anything
        return image
    turn = TURNS.get(orientation) if isinstance(orientation, int) else None
    return image if turn is None else image.transpose(turn)
