"""The bytes of a recording to samples of one channel: in a worker process alone.

Channels are averaged, and the mean is resampled by soxr in its quality HQ, as librosa loads a file. WAV and Ogg are
read by libsndfile, other files and MP3 within WAV by FFmpeg. A header's length is an estimate in some files and a
placeholder in others, so the samples are counted as they are decoded. Where a header does know the length, a file that
has less is refused. Bytes of an MP3 that are no frame are passed over, as players do: lyrics and zeros follow many.
"""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import soundfile
import soxr

from ramet.runtime.errors import ClientError, describe
from ramet.runtime.media.containers import check_seconds, check_whole, container_of, opened, stream_of
from ramet.runtime.media.formats.base import Sound
from ramet.runtime.media.mpeg_audio import after_tags, is_mp3, length_of
from ramet.runtime.options.media_options import MediaArgs

BLOCK = 1 << 16  # samples of each channel that are decoded at once
MIN_RATE, MAX_RATE = 1000, 384_000
MAX_CHANNELS = 64
OPTION = "--max-audio-seconds"
UNKNOWN_FRAMES = 1 << 60  # libsndfile has this number or more for a length that no header tells


def decode_sound(data: bytes | memoryview, rate: int, limits: MediaArgs) -> Sound:
    """Raises ClientError without a place."""
    try:
        if _is_sndfile(data):
            own, blocks = _of_sndfile(data, limits)
        else:
            name = _container_of(data)
            if name is None:
                raise ClientError("", "is not audio, or is damaged; WAV, FLAC, Ogg, MP3, M4A and WebM are read")
            check_whole(data, name)
            own, blocks = _of_container(data, name, limits)
    except (ClientError, MemoryError):
        raise
    except soundfile.LibsndfileError as error:  # its text has an address of this process, too
        raise ClientError("", f"is broken sound: {error.error_string}") from None
    except Exception as error:  # noqa: BLE001 - a decoder raises anything; its words go to the client
        raise ClientError("", f"is broken sound: {describe(error)}") from None
    samples = np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
    if not samples.size:
        raise ClientError("", "has no sample")
    if not np.isfinite(samples).all():
        raise ClientError("", "has samples that are not finite numbers")
    return Sound(samples if own == rate else soxr.resample(samples, own, rate), rate)


def _is_sndfile(data: bytes | memoryview) -> bool:
    head = bytes(data[:12])
    return head[:4] == b"OggS" or (head[:4] == b"RIFF" and head[8:12] == b"WAVE")


def _container_of(data: bytes | memoryview) -> str | None:
    """FFmpeg's name of the format. None: it is not one that is read."""
    behind = data[after_tags(data) :]
    if bytes(behind[:4]) == b"fLaC":
        return "flac"
    name = container_of(behind)
    return name if name == "aac" else "mp3" if is_mp3(data) else container_of(data)


def _file_of(data: bytes | memoryview) -> io.BytesIO:
    """The file, with the largest size for the samples of a WAV in the place of none: libsndfile reads none of them."""
    file = io.BytesIO(data)
    at = _part_of_wav(data, b"data")
    if at is None or any(data[at + 4 : at + 8]) or _part_of_wav(data, None) == len(data):
        return file  # in the last case there are no samples, but further parts
    file.seek(at + 4)
    file.write(b"\xff" * 4)
    file.seek(0)
    return file


def _part_of_wav(data: bytes | memoryview, name: bytes | None) -> int | None:
    """Where the part of a WAV begins that has this name; None instead of a name: where its last part ends."""
    at = 12 if bytes(data[:4]) == b"RIFF" else len(data)
    while at + 8 <= len(data):
        if bytes(data[at : at + 4]) == name:
            return at
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    return at if name is None else None


def _of_sndfile(data: bytes | memoryview, limits: MediaArgs) -> tuple[int, list[Any]]:
    """(rate, means of the channels)."""
    if bytes(data[:4]) == b"RIFF":
        check_whole(data, "wav")
    with soundfile.SoundFile(_file_of(data)) as file:
        if file.subtype == "MPEG_LAYER_III":
            return _of_container(data, "wav", limits)
        _check_form(file.samplerate, file.channels)

        def blocks() -> Iterator[Any]:
            while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
                yield block.mean(axis=1)

        read = _bounded(blocks(), file.samplerate, limits)
        num = sum(map(len, read))
        if num < file.frames < UNKNOWN_FRAMES:
            raise ClientError("", f"is cut off: it has {num} of {file.frames} samples")
        return file.samplerate, read


def _of_container(data: bytes | memoryview, name: str, limits: MediaArgs) -> tuple[int, list[Any]]:
    import av

    with opened(data, name) as container:
        stream = stream_of(container, "audio")
        rate = stream.codec_context.sample_rate
        _check_form(rate, stream.codec_context.channels)
        to_float = av.AudioResampler(format="flt", rate=rate)  # PyAV reads beyond eight planes

        is_lenient = stream.codec_context.name.startswith("mp3")
        packets, failed = 0, None

        def frames() -> Iterator[Any]:
            nonlocal packets, failed
            for packet in container.demux(stream):
                packets += packet.size > 0  # the last one is empty: it takes out what the decoder still has
                try:
                    yield from packet.decode()
                except av.error.InvalidDataError as error:
                    if not is_lenient:
                        raise
                    failed = error

        def blocks() -> Iterator[Any]:
            for frame in frames():
                _check_form(frame.sample_rate, frame.layout.nb_channels)
                for each in to_float.resample(frame):
                    yield each.to_ndarray().reshape(-1, each.layout.nb_channels).mean(axis=1)

        read = _bounded(blocks(), rate, limits)
        if failed and not read:
            raise failed
        if name == "flac" and stream.duration and (num := sum(map(len, read))) < stream.duration:
            raise ClientError("", f"is cut off: it has {num} of {stream.duration} samples")
        if name == "mp3" and (length := length_of(data)) is not None:
            is_short = packets + 1 < length.num_frames  # some count the tag's own frame
            if is_short and (length.end is None or length.end > len(data)):  # otherwise it is damaged within
                raise ClientError("", f"is cut off: it has {packets} of {length.num_frames} frames")
    return rate, read


def _bounded(blocks: Iterator[Any], rate: int, limits: MediaArgs) -> list[Any]:
    """Headers lie: counted while it is decoded."""
    read, num = [], 0
    for block in blocks:
        num += len(block)
        check_seconds(num / rate, limits.max_audio_seconds, OPTION)
        read.append(block)
    return read


def _check_form(rate: int, channels: int) -> None:
    if not MIN_RATE <= rate <= MAX_RATE:
        raise ClientError("", f"has {rate} samples per second, must be in [{MIN_RATE}, {MAX_RATE}]")
    if not 1 <= channels <= MAX_CHANNELS:
        raise ClientError("", f"has {channels} channels, must be in [1, {MAX_CHANNELS}]")
