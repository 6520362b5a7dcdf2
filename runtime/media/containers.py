"""Files of films and sound that FFmpeg reads: which ones, by their first bytes, and with what it may do.

FFmpeg is never left to guess: some of its formats are lists of addresses that it would open. Nothing but the bytes at
hand is read. For worker processes alone.
"""

import io
from typing import Any

import av

from ramet.runtime.errors import ClientError

MPEG_TS_PACKET = 188  # bytes
UNKNOWN_SIZE = 0x7FFF0000  # of a RIFF that was written as a stream, or more
CODECS = (  # that are decoded
    "h264", "hevc", "vp8", "libvpx", "vp9", "libvpx-vp9", "av1", "libdav1d", "mpeg4", "mpeg2video", "mpeg1video",
    "mjpeg", "theora", "prores", "gif", "apng", "png", "h263", "flv", "aac", "aac_fixed", "mp3", "mp3float", "opus",
    "libopus", "vorbis", "flac", "alac", "ac3", "eac3", "pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be",
    "pcm_s32le", "pcm_s32be", "pcm_f32le", "pcm_f32be", "pcm_u8", "pcm_mulaw", "pcm_alaw", "amrnb", "amrwb",
)  # fmt: skip


def container_of(data: bytes | memoryview) -> str | None:
    """FFmpeg's name of the format. None: it is not one that is read."""
    head = bytes(data[:12])
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        return "mp4"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    starts = {
        b"\x1aE\xdf\xa3": "matroska",
        b"OggS": "ogg",
        b"GIF8": "gif",
        b"\x00\x00\x01\xba": "mpeg",
        b"FLV\x01": "flv",
        b"#!AM": "amr",
    }
    if head[:4] == b"\x89PNG":
        return "apng" if b"acTL" in bytes(data) else None  # the chunk that an animation has
    if head[:4] in starts:
        return starts[head[:4]]
    if head[:1] == b"G" and bytes(data[MPEG_TS_PACKET : MPEG_TS_PACKET + 1]) == b"G":
        return "mpegts"
    if head[:1] == b"\xff" and head[1:2] and head[1] & 0xF6 == 0xF0:
        return "aac"
    return None


def check_whole(data: bytes | memoryview, name: str) -> None:
    """Raises ClientError for a file that ends before one of its outermost parts does, as far as they say where."""
    match name:
        case "mp4":
            end = _end_of_boxes(data)
        case "matroska":
            end = _end_of_segment(data)
        case "avi" | "wav":
            size = int.from_bytes(data[4:8], "little")
            end = size + 8 if size < UNKNOWN_SIZE else 0
        case _:
            return
    if end > len(data):
        raise ClientError("", f"is cut off: it has {len(data)} of {end} bytes")


def _end_of_boxes(data: bytes | memoryview) -> int:
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size == 1:
            size = int.from_bytes(data[at + 8 : at + 16], "big")
        if size < 8:  # 0: to the end of the file; else it is broken, and FFmpeg says so
            return at
        at += size
    return at


def _end_of_segment(data: bytes | memoryview) -> int:
    """Of Matroska's first element, the header, and the second one, all that is in it."""
    at = 0
    for _ in range(2):
        at += _length_of_number(data, at)
        width = _length_of_number(data, at)
        size = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
        if width > 8 or size == (1 << 7 * width) - 1:  # unknown: it was written as a stream
            return 0
        at += width + size
    return at


def _length_of_number(data: bytes | memoryview, at: int) -> int:
    """Bytes of a number that says by its leading zeros how many follow."""
    return 9 - data[at].bit_length() if at < len(data) else 1


def opened(data: bytes | memoryview, name: str) -> Any:
    """A container of PyAV. Raises what FFmpeg raises."""
    options = {"protocol_whitelist": "none", "codec_whitelist": ",".join(CODECS)}
    return av.open(io.BytesIO(data), format=name, container_options=options, metadata_errors="ignore")


def stream_of(container: Any, kind: str) -> Any:
    """The first one that is `video` or `audio`, decoded by one thread. Raises ClientError."""
    found = getattr(container.streams, kind)
    if not found:
        raise ClientError("", f"has no {kind} in it")
    stream = found[0]
    if stream.codec_context is None or stream.codec_context.name not in CODECS:
        name = "an unknown codec" if stream.codec_context is None else stream.codec_context.name
        raise ClientError("", f"has {kind} in {name}, which is not decoded")
    stream.codec_context.thread_count, stream.codec_context.thread_type = 1, "NONE"
    return stream


def check_seconds(seconds: float, most: float, option: str) -> None:
    if seconds > most:
        raise ClientError("", f"takes {seconds:g} s, must take at most {most:g} s ({option})", status=413)
