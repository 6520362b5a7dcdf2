"""A film's bytes to some of its frames: in a worker process alone. Decides which frames are taken.

As many as `fps` asks for, `max_frames` at most, spread evenly from the first frame to the last. The packets of the
whole file are read first, without decoding: they say how many frames there are and when each is shown, and headers
lie. Only what leads to a frame that is taken is decoded. Where packets do not say when a frame is shown (AVI has no
such times, an MPEG program stream has few), frames are shown in the order in which they leave the decoder, which is
then followed from the first one on. A film may be a list of pictures, all of which are taken.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import av
from PIL import Image

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError, describe
from ramet.runtime.media.containers import check_seconds, check_whole, container_of, opened, stream_of
from ramet.runtime.media.formats.base import Frames, MediaFormat
from ramet.runtime.media.image import check_pixels, decode_picture, flattened
from ramet.runtime.media.image import opened as opened_picture
from ramet.runtime.options.media_options import MediaArgs

MAX_FPS = 240.0  # of a file: more frames than this for each second of the limit are no film
BYTES_OF_PIXEL = 3


class FrameChoice(NamedTuple):
    """How many frames are taken."""

    media: MediaFormat
    fps: float | None  # None: max_frames, if there are as many
    max_frames: int

    def of(self, total: int, rate: float) -> list[int]:
        """Indices of a film of `total` frames, `rate` each second."""
        return self.media.frames_of(total, rate, self.fps, self.max_frames)


def choice_of(options: Mapping[str, Any], media: MediaFormat, limits: MediaArgs) -> FrameChoice:
    """Raises ClientError."""
    fps, most, exact = options.get("fps"), options.get("max_frames"), options.get("num_frames")
    if fps is not None and (isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps <= MAX_FPS):
        raise ClientError("", f"has fps {shown(fps)}, must be a number in (0, {MAX_FPS:g}]")
    for name, value in (("max_frames", most), ("num_frames", exact)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ClientError("", f"has {name} {shown(value)}, must be a whole number from 1 on")
        if value is not None and value > limits.max_video_frames:
            fact = f"has {name} {value}, must be at most {limits.max_video_frames}"
            raise ClientError("", fact, "ask for fewer, or start the server with a larger --max-video-frames", 413)
    if exact is not None:
        return FrameChoice(media, None, exact)
    frames = most or min(media.max_frames, limits.max_video_frames)
    return FrameChoice(media, media.fps if fps is None else float(fps), frames)


def decode_film(
    data: bytes | memoryview | Sequence[bytes | memoryview],
    options: Mapping[str, Any],
    media: MediaFormat,
    limits: MediaArgs,
) -> Frames:
    """Raises ClientError without a place."""
    choice = choice_of(options, media, limits)
    if not isinstance(data, bytes | memoryview):
        return _of_pictures(data, choice, limits)
    try:
        if bytes(data[:4]) == b"RIFF" and bytes(data[8:12]) == b"WEBP":
            return _of_animation(data, choice, limits)
        name = container_of(data)
        if name is None:
            raise ClientError("", "is not a video, or is damaged; MP4, WebM, AVI, MPEG, GIF and animated WebP are read")
        check_whole(data, name)
        return _of_container(data, name, choice, limits)
    except (ClientError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - a decoder raises anything; its words go to the client
        raise ClientError("", f"is a broken film: {describe(error)}") from None


def _of_pictures(pictures: Sequence[bytes | memoryview], choice: FrameChoice, limits: MediaArgs) -> Frames:
    if not pictures:
        raise ClientError("", "is a list without a picture")
    if len(pictures) > limits.max_video_frames:
        fact = f"is a list of {len(pictures)} pictures, must be at most {limits.max_video_frames}"
        raise ClientError("", fact, "send fewer, or start the server with a larger --max-video-frames", 413)
    images: list[Image.Image] = []
    for data in pictures:
        images.append(decode_picture(data, limits.max_image_pixels))
        _check_memory(len(pictures), *images[0].size, limits)
        if images[-1].size != images[0].size:
            raise ClientError("", f"has pictures of {_shown(images[0].size)} and of {_shown(images[-1].size)} pixels")
    return Frames(images, [i / (choice.fps or 1.0) for i in range(len(images))])


def _of_animation(data: bytes | memoryview, choice: FrameChoice, limits: MediaArgs) -> Frames:
    """WebP, which FFmpeg does not read. Each frame is shown for a while of its own."""
    with opened_picture(data, limits.max_image_pixels) as image:
        total = getattr(image, "n_frames", 1)
        _check_total(total, limits)
        times, shown = [0.0], list[Image.Image]()
        indices = set(choice.of(total, _rate_of_animation(image, total, times, limits)))
        _check_memory(len(indices), *image.size, limits)
        for i in sorted(indices):
            image.seek(i)
            shown.append(flattened(image))
        return Frames(shown, [times[i] for i in sorted(indices)])


def _rate_of_animation(image: Image.Image, total: int, times: list[float], limits: MediaArgs) -> float:
    """Frames per second. WRITES times: when each frame ends."""
    for i in range(total):
        image.seek(i)
        image.load()
        times.append(times[-1] + image.info.get("duration", 0) / 1000)
        check_seconds(times[-1], limits.max_video_seconds, "--max-video-seconds")
    image.seek(0)
    return total / times[-1] if times[-1] else 1.0


class _Packets(NamedTuple):
    shown: list[int]  # when each frame is shown, in ticks of its stream, in order
    keys: list[int]  # those of them that are decoded without others
    total: int  # frames, of which some may have no time


def _of_container(data: bytes | memoryview, name: str, choice: FrameChoice, limits: MediaArgs) -> Frames:
    with opened(data, name) as container:
        stream = stream_of(container, "video")
        check_pixels(stream.codec_context.width, stream.codec_context.height, limits.max_image_pixels)
        packets = _packets(container, stream, limits)
        tick = float(stream.time_base)
        if not packets.total:
            raise ClientError("", "has no frame")
        rate = _rate(stream, packets, tick)
        indices = choice.of(packets.total, rate)
        _check_memory(len(indices), stream.codec_context.width, stream.codec_context.height, limits)
        lacks_times = len(packets.shown) < packets.total or (name == "avi" and stream.codec_context.has_b_frames)
    if lacks_times:
        return _in_order(data, name, packets.total, rate, choice, limits)
    wanted = [packets.shown[i] for i in indices]
    images = _decoded(data, name, wanted, packets.keys, limits)
    if images is None:
        images = _decoded(data, name, wanted, [], limits)
    assert images is not None, "a film was decoded from its first frame on and is imprecise"
    return Frames(images, [(at - packets.shown[0]) * tick for at in wanted])


def _packets(container: Any, stream: Any, limits: MediaArgs) -> _Packets:
    """Reads to the end. Raises ClientError for a film that takes longer than one may."""
    shown, keys, total = [], [], 0
    start = 0.0 if container.start_time is None else container.start_time / av.time_base
    for packet in container.demux(stream):
        if packet.pts is not None:
            seconds = float(packet.pts * packet.time_base) - start
            check_seconds(seconds, limits.max_video_seconds, "--max-video-seconds")
        if packet.is_discard or not packet.size:
            continue
        total += 1
        _check_total(total, limits)
        if packet.pts is None:
            continue
        shown.append(packet.pts)
        if packet.is_keyframe:
            keys.append(packet.pts)
    return _Packets(sorted(shown), sorted(keys), total)


def _in_order(
    data: bytes | memoryview, name: str, total: int, rate: float, choice: FrameChoice, limits: MediaArgs
) -> Frames:
    """Frames of a file that does not say when each is shown. `total`: packets, of which a frame may have two."""
    check_seconds((total - 1) / rate, limits.max_video_seconds, "--max-video-seconds")
    taken, found = _taken_in_order(data, name, choice.of(total, rate), limits)
    if found < total and len(taken) < len(choice.of(total, rate)):
        if not found:
            raise ClientError("", "is broken: no frame could be decoded")
        taken, _ = _taken_in_order(data, name, choice.of(found, rate), limits)
    return Frames(list(taken.values()), [i / rate for i in taken])


def _taken_in_order(
    data: bytes | memoryview, name: str, indices: Sequence[int], limits: MediaArgs
) -> tuple[dict[int, Image.Image], int]:
    """({index: frame}, how many frames were decoded), up to the last index or to the end of the file."""
    taken: dict[int, Image.Image] = {}
    left, num = set(indices), 0
    with opened(data, name) as container:
        stream = stream_of(container, "video")
        stream.codec_context.options = {"max_pixels": str(max(limits.max_image_pixels, 1))}
        for frame in container.decode(stream):
            if num in left:
                taken[num] = _image(frame, limits)
            num += 1
            if len(taken) == len(left):
                break
    return taken, num


def _rate(stream: Any, packets: _Packets, tick: float) -> float:
    if stream.average_rate:
        return float(stream.average_rate)
    if len(packets.shown) < 2:
        return float(stream.guessed_rate or 1.0)
    lasts = (packets.shown[-1] - packets.shown[0]) * tick
    return (len(packets.shown) - 1) / lasts if lasts > 0 else 1.0


def _decoded(
    data: bytes | memoryview, name: str, wanted: Sequence[int], keys: Sequence[int], limits: MediaArgs
) -> list[Image.Image] | None:
    """The frames that are shown at these ticks. None: the file led elsewhere than to a frame of `keys`."""
    images: list[Image.Image] = []
    with opened(data, name) as container:
        stream = stream_of(container, "video")
        stream.codec_context.options = {"max_pixels": str(max(limits.max_image_pixels, 1))}
        frames, last, sought = container.decode(stream), None, False
        frame: Any = None
        for ticks in wanted:
            found = bisect_right(keys, ticks)
            if found and last is not None and keys[found - 1] > last:
                container.seek(keys[found - 1], stream=stream, backward=True)
                frames, sought = container.decode(stream), True
                frame = None
            while frame is None or frame.pts is None or frame.pts < ticks:
                frame = next(frames, None)
                if frame is None and sought:
                    return None
                if frame is None:
                    raise ClientError("", f"is broken: {len(images)} of {len(wanted)} frames could be decoded")
            if sought and frame.pts > ticks:
                return None
            last, sought = frame.pts, False
            images.append(_image(frame, limits))
    return images


def _image(frame: Any, limits: MediaArgs) -> Image.Image:
    """As it is meant to be seen."""
    check_pixels(frame.width, frame.height, limits.max_image_pixels)
    seen = frame.to_image() if not _is_clear(frame) else flattened(Image.fromarray(frame.to_ndarray(format="rgba")))
    turns = round(frame.rotation / 90) % 4  # counterclockwise
    names = (None, Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)
    turn = names[turns]
    image: Image.Image = seen if turn is None else seen.transpose(turn)
    return image


def _is_clear(frame: Any) -> bool:
    return any(component.is_alpha for component in frame.format.components) or frame.format.name == "pal8"


def _check_total(total: int, limits: MediaArgs) -> None:
    most = math.ceil(limits.max_video_seconds * MAX_FPS)
    if total > most:
        fact = f"has {total} frames or more, must have at most {most}: {MAX_FPS:g} for each second"
        raise ClientError("", fact, "send a shorter one, or start the server with a larger --max-video-seconds", 413)


def _check_memory(num: int, width: int, height: int, limits: MediaArgs) -> None:
    """Of all frames together: half of a worker's is for what a model's processor makes of them."""
    takes, most = num * width * height * BYTES_OF_PIXEL / (1 << 20), limits.media_memory_mb / 2
    if takes > most:
        fact = f"has {num} frames of {width} x {height} pixels, which take {takes:.0f} MiB, must be at most {most:.0f}"
        raise ClientError("", fact, "ask for fewer (max_frames, fps), or send smaller ones", 413)


def _shown(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
