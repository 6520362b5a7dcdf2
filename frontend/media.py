"""Pictures, films and sound as a program gives them: what stands in its prompt, and what is sent of it.

A path or a URL stays what it is until a backend asks; what is in memory is kept as it was at the program's line. Needs
neither Pillow nor numpy: whoever gives a picture or an array has imported what made it.
"""

import base64
import hashlib
import os
import re
import struct
import sys
import zlib
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ramet.ipc.errors import ClientError
from ramet.ipc.params import shown

URL = re.compile(r"(https?|data):", re.IGNORECASE)
MAX_NAME = 255  # of a file
TAKES = {
    "image": "a path, a URL, bytes, an image of Pillow, or an array [height, width, 3] of uint8",
    "video": "a path, a URL or bytes",
    "audio": "a path, a URL, bytes, or an array of samples with its sample_rate",
}
OF_PNG = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")  # Pillow's modes that the format has
CHANNELS = {1: 0, 3: 2, 4: 6}  # of an array -> the colour type of a PNG
SAMPLES = {"<i2": (1, 2), "<f4": (3, 4)}  # an array's type -> the format of a WAV file, and bytes of a sample
SIGNS = (  # a file begins so, with the second part at a place of its own -> its type
    (b"\x89PNG", 0, b"", "image/png"),
    (b"\xff\xd8\xff", 0, b"", "image/jpeg"),
    (b"GIF8", 0, b"", "image/gif"),
    (b"RIFF", 8, b"WEBP", "image/webp"),
    (b"BM", 0, b"", "image/bmp"),
    (b"II*\x00", 0, b"", "image/tiff"),
    (b"MM\x00*", 0, b"", "image/tiff"),
    (b"RIFF", 8, b"WAVE", "audio/wav"),
    (b"RIFF", 8, b"AVI ", "video/x-msvideo"),
    (b"fLaC", 0, b"", "audio/flac"),
    (b"OggS", 0, b"", "audio/ogg"),
    (b"ID3", 0, b"", "audio/mpeg"),
    (b"\x1a\x45\xdf\xa3", 0, b"", "video/webm"),
    (b"", 4, b"ftypM4A", "audio/mp4"),
    (b"", 4, b"ftyp", "video/mp4"),
)


class InMemory:
    """What an object showed when the program gave it. Equal ones show the same."""

    def __init__(self, form: str, content: bytes, encode: Callable[[], bytes]) -> None:
        """`content`: all that it shows, in the `form`; `encode` makes a file of it."""
        self.sha256 = hashlib.sha256(form.encode() + b" " + content).hexdigest()
        self._encode = encode

    @cached_property
    def file(self) -> bytes:
        return self._encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InMemory) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __reduce__(self) -> Any:
        return _reread, (self.sha256, self.file)


Source: TypeAlias = str | bytes | InMemory


class SentMedia(NamedTuple):
    """What is sent of a piece: a URL, or its bytes as base64."""

    mime: str = ""
    data: str = ""
    url: str = ""  # "": its bytes are sent

    @property
    def as_url(self) -> str:
        return self.url or f"data:{self.mime};base64,{self.data}"


def source_of(kind: str, given: Any, sample_rate: int | None = None) -> Source:
    """What does not change any more. Raises TypeError and ValueError."""
    if kind == "audio" and is_array(given):
        return _samples(given, sample_rate)
    if sample_rate is not None:
        raise ValueError(f"sample_rate is {sample_rate!r}, and belongs to an array of samples")
    if isinstance(given, InMemory):
        return given
    if isinstance(given, str | os.PathLike):
        place = os.fsdecode(given)
        if not place:
            raise ValueError(f"{kind}() is given an empty text, must be {TAKES[kind]}")
        return url2pathname(urlsplit(place).path) if place[:7].lower() == "file://" else place
    if isinstance(given, bytes | bytearray | memoryview):
        if not given:
            raise ValueError(f"{kind}() is given no bytes")
        return bytes(given)
    if kind == "image" and is_picture(given):
        return _picture(given)
    if kind == "image" and is_array(given):
        return _pixels(given)
    raise TypeError(f"{kind}() takes {TAKES[kind]}, not {type(given).__name__}")


def is_picture(value: Any) -> bool:
    """Of Pillow, which is imported where there is one."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def is_array(value: Any) -> bool:
    """Of numpy, or what numpy reads as one."""
    return hasattr(value, "__array_interface__") and not is_picture(value)


def is_url(source: Source) -> bool:
    return isinstance(source, str) and URL.match(source) is not None


def is_path(source: Source) -> bool:
    return isinstance(source, str) and URL.match(source) is None


def check_file(kind: str, source: Source) -> None:
    """Raises ClientError for a path where no file is."""
    if isinstance(source, str) and is_path(source) and not os.path.isfile(source):
        if os.path.isdir(source):
            raise ClientError(kind, f"is {shown(source)}, which is a folder, must be a file")
        hint = "of base64 give the bytes, or a data URI" if len(source) > MAX_NAME else ""
        raise ClientError(kind, f"is {shown(source)}, and there is no such file", hint)


def digest(source: Source) -> str:
    """Of its content; "" of what is elsewhere."""
    if isinstance(source, InMemory):
        return source.sha256
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    if source[:5].lower() == "data:":
        head, _, data = source.partition(",")
        if not head.lower().endswith(";base64"):
            return hashlib.sha256(source.encode()).hexdigest()
        return hashlib.sha256(base64.b64decode(data)).hexdigest()
    if is_path(source) and os.path.isfile(source):
        return hashlib.sha256(_read("media", source)).hexdigest()
    return ""


def sent(kind: str, source: Source) -> SentMedia:
    """Reads a file. Raises ClientError where that fails."""
    if isinstance(source, str) and is_url(source):
        head, comma, data = source.partition(",")
        if head[:5].lower() != "data:":
            return SentMedia(url=source)
        if not comma or not head.lower().endswith(";base64"):
            raise ClientError(kind, "is a data URI without base64, must be data:TYPE;base64,DATA")
        return SentMedia(head[5:-7].partition(";")[0], data)
    if isinstance(source, InMemory):
        content = source.file
    else:
        content = source if isinstance(source, bytes) else _read(kind, source)
    return SentMedia(mime_of(kind, content), base64.b64encode(content).decode())


def mime_of(kind: str, content: bytes) -> str:
    """By its first bytes; where these are of nothing that is known, a type that says the kind alone."""
    head = content[:16]
    for begin, at, then, mime in SIGNS:
        if head.startswith(begin) and head[at:].startswith(then):
            return mime
    if kind == "audio" and len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return "audio/mpeg"  # without tags before its first frame
    return f"{kind}/*"


def _read(kind: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ClientError(kind, f"is {path!r}, which cannot be read: {error.strerror or error}") from error


def _reread(sha256: str, file: bytes) -> InMemory:
    made = InMemory("", b"", lambda: file)
    made.sha256 = sha256
    return made


# -- pictures and sound in memory --------------------------------------------------------------------------------------


def _picture(given: Any) -> InMemory:
    """Turned as its camera says, which a file of it would say as well."""
    from PIL import ImageOps

    picture = ImageOps.exif_transpose(given)  # a copy
    form = f"{picture.mode} {picture.size} {picture.getpalette()} {picture.info.get('transparency')}"
    return InMemory(form, picture.tobytes(), lambda: _png_of_picture(picture))


def _png_of_picture(picture: Any) -> bytes:
    from io import BytesIO

    file = BytesIO()
    known = picture if picture.mode in OF_PNG else picture.convert("RGB")
    known.save(file, "PNG", compress_level=1)
    return file.getvalue()


def _pixels(given: Any) -> InMemory:
    import numpy

    array = numpy.asarray(given)
    shape = array.shape if array.ndim == 3 else (*array.shape, 1)
    if array.dtype != numpy.uint8 or array.ndim not in (2, 3) or shape[-1] not in CHANNELS or 0 in shape:
        fact = f"is given an array {list(array.shape)} of {array.dtype}"
        raise ValueError(f"image() {fact}, must be [height, width] or [height, width, 1, 3 or 4] of uint8")
    height, width, channels = shape
    content = array.tobytes()
    return InMemory(f"pixels {shape}", content, lambda: _png(width, height, channels, content))


def _png(width: int, height: int, channels: int, pixels: bytes) -> bytes:
    row = width * channels
    rows = b"".join(b"\0" + pixels[at : at + row] for at in range(0, len(pixels), row))  # each without a filter
    head = struct.pack(">IIBBBBB", width, height, 8, CHANNELS[channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part)) for name, part in parts
    )


def _samples(given: Any, rate: int | None) -> InMemory:
    import numpy

    array = numpy.asarray(given)
    if array.dtype == numpy.float64:
        array = array.astype(numpy.float32)
    kind = array.dtype.newbyteorder("<").str
    if kind not in SAMPLES or array.ndim not in (1, 2) or 0 in array.shape:
        fact = f"is given an array {list(array.shape)} of {array.dtype}"
        raise ValueError(f"audio() {fact}, must be [samples] or [samples, channels] of int16 or floats")
    if rate is None or isinstance(rate, bool) or not isinstance(rate, int) or rate < 1:
        raise ValueError(f"sample_rate is {rate!r}, must be an integer >= 1 where samples are given")
    channels = array.shape[1] if array.ndim == 2 else 1
    content = array.astype(kind).tobytes()
    return InMemory(f"{kind} {array.shape} {rate}", content, lambda: _wav(kind, channels, rate, content))


def _wav(kind: str, channels: int, rate: int, samples: bytes) -> bytes:
    form, size = SAMPLES[kind]
    head = struct.pack("<HHIIHH", form, channels, rate, rate * channels * size, channels * size, 8 * size)
    parts = b"WAVE" + b"fmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", len(samples))
    return b"RIFF" + struct.pack("<I", len(parts) + len(samples)) + parts + samples
