"""Media as files that tests decode: made here, small, and broken by hand where a test needs that."""

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile
from PIL import Image


def picture(image: Image.Image, form: str = "PNG", **more: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **more)
    return out.getvalue()


def noise(width: int, height: int, seed: int = 0, mode: str = "RGB") -> Image.Image:
    shape = (height, width, len(mode)) if len(mode) > 1 else (height, width)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8), mode)


def png_of(width: int, height: int, rows: bytes = b"", depth: int = 8, color: int = 2) -> bytes:
    """A PNG whose header says this, whatever `rows` has."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*each) for each in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def gif_of(width: int, height: int) -> bytes:
    """Of one pixel, on a screen that is this large."""
    small = picture(Image.new("P", (1, 1)), "GIF")
    return small[:6] + struct.pack("<HH", width, height) + small[10:]


def bmp_of(width: int, height: int) -> bytes:
    small = picture(Image.new("RGB", (1, 1)), "BMP")
    return small[:18] + struct.pack("<ii", width, height) + small[26:]


def jpeg_of(width: int, height: int) -> bytes:
    small = picture(Image.new("RGB", (8, 8)), "JPEG")
    at = small.index(b"\xff\xc0") + 5
    return small[:at] + struct.pack(">HH", height, width) + small[at + 4 :]


def webp_of(width: int, height: int) -> bytes:
    """Without loss; its header has room for 14 bits of each."""
    small = picture(Image.new("RGB", (1, 1)), "WEBP", lossless=True)
    at = small.index(b"VP8L") + 9
    size = (width - 1) | (height - 1) << 14
    return (
        small[:at]
        + struct.pack("<I", size | int.from_bytes(small[at : at + 4], "little") & 0xF0000000)
        + small[at + 4 :]
    )


class Pipe(io.RawIOBase):
    """A file that is only ever appended to, as a pipe is: what was written cannot be corrected at the end."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += data
        return len(data)


def film(
    shades: Sequence[int],
    form: str = "mp4",
    codec: str = "libx264",
    size: tuple[int, int] = (64, 48),
    rate: int = 10,
    options: dict[str, str] | None = None,
    turned: int = 0,
    file: Path | None = None,
    piped: bool = False,
    **more: Any,
) -> bytes:
    """Each frame is grey of a shade. `file`: it is written there instead."""
    out: Any = Pipe() if piped else io.BytesIO()
    with av.open(file or out, "w", format=form, **more) as container:
        stream: Any = container.add_stream(codec, rate=rate, options=options or {})
        stream.width, stream.height, stream.pix_fmt = *size, {"gif": "gray", "mjpeg": "yuvj420p"}.get(codec, "yuv420p")
        if turned:
            stream.set_display_rotation(turned)
        for shade in shades:
            pixels = np.full((size[1], size[0], 3), shade, np.uint8)
            pixels[: size[1] // 2, : size[0] // 2] = 255 - shade  # so that a turn shows
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        container.mux(stream.encode())
    return bytes(out.data) if piped else out.getvalue()


def shade_of(image: Image.Image) -> int:
    """Of the last pixel of a frame of `film`."""
    pixel = image.getpixel((image.width - 1, image.height - 1))
    assert isinstance(pixel, tuple)
    return round(sum(pixel) / 3)


def tone(seconds: float, rate: int = 16_000, channels: int = 1, hertz: float = 440.0) -> Any:
    """[n] or [n, channels] float32."""
    wave = 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate).astype(np.float32)
    return wave if channels == 1 else np.stack([wave * (i + 1) / channels for i in range(channels)], 1)


def sound(samples: Any, rate: int = 16_000, form: str = "WAV", **more: Any) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=form, **more)
    return out.getvalue()


def sound_in_container(samples: Any, rate: int, form: str, codec: str, piped: bool = False, **more: Any) -> bytes:
    """`more`: what the codec's context is set to, and `container_options`."""
    out: Any = Pipe() if piped else io.BytesIO()
    with av.open(out, "w", format=form, container_options=more.pop("container_options", {})) as container:
        stream: Any = container.add_stream(codec, rate=rate, layout="mono")
        for name, value in more.items():
            setattr(stream.codec_context, name, value)
        frame = av.AudioFrame.from_ndarray(samples[None], "fltp", "mono")
        frame.sample_rate = rate
        for each in av.AudioResampler(stream.codec_context.format, "mono", rate).resample(frame):
            container.mux(stream.encode(each))
        container.mux(stream.encode())
    return bytes(out.data) if piped else out.getvalue()


def cut(data: bytes) -> list[bytes]:
    """At every sixteenth."""
    return [data[: len(data) * i // 16] for i in range(16)]
