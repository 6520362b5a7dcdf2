"""Films as they are decoded: which frames are taken, when they are shown, and what is refused before and while."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import media_files
import pytest
from PIL import Image

from ramet.runtime.errors import ClientError
from ramet.runtime.media.formats.base import Frames, MediaFormat
from ramet.runtime.media.video import decode_film
from ramet.runtime.options.media_options import MediaArgs

SHADES = [10 + 6 * i for i in range(30)]  # three seconds
FORMS = {
    "mp4": dict(form="mp4", codec="libx264", options={"g": "7", "bf": "2"}),
    "mp4 without B-frames": dict(form="mp4", codec="libx264", options={"g": "5", "bf": "0"}),
    "mp4 with one keyframe": dict(form="mp4", codec="libx264", options={"g": "300"}),
    "webm": dict(form="webm", codec="libvpx-vp9", options={"g": "6", "crf": "10", "b": "0"}),
    "mkv": dict(form="matroska", codec="mpeg4", options={"g": "6"}),
    "avi": dict(form="avi", codec="mjpeg"),
    "mpegts": dict(form="mpegts", codec="mpeg2video", options={"g": "6"}, rate=25),
    "gif": dict(form="gif", codec="gif"),
}


class Takes(MediaFormat):
    """A model that takes so many frames."""

    folder, tokens, settings = Path(), {}, b""

    def __init__(self, fps: float | None = None, max_frames: int = 768) -> None:
        self.fps, self.max_frames = fps, max_frames

    def prepare(self, *_: Any) -> Any:
        raise AssertionError("only decoded here")

    received = prepare


def decoded(data: bytes | Sequence[bytes], takes: MediaFormat | None = None, **options: Any) -> Frames:
    return decode_film(data, options, takes or Takes(), MediaArgs())


def bounded(data: bytes, **limits: Any) -> Frames:
    return decode_film(data, {}, Takes(), MediaArgs(**limits))


def shades(film: Frames) -> list[int]:
    return [media_files.shade_of(image) for image in film.images]


def nearly(one: Sequence[int], other: Sequence[int], most: int = 6) -> bool:
    return len(one) == len(other) and all(abs(a - b) <= most for a, b in zip(one, other))


@pytest.mark.parametrize("name", FORMS)
def test_every_frame_is_the_one_of_its_time(name: str):
    form = {"rate": 10, **FORMS[name]}
    film = decoded(media_files.film(SHADES, **form))
    assert nearly(shades(film), SHADES)
    assert film.times == pytest.approx([i / form["rate"] for i in range(30)], abs=1e-3)


REORDERED = {"x264-params": "scenecut=0:b-adapt=0:bframes=2", "g": "10"}  # every third frame is coded ahead of two
UNTIMED = {
    "avi": dict(form="avi", codec="libx264", options=REORDERED, rate=25),
    "avi of MPEG-4": dict(form="avi", codec="mpeg4", options={"g": "10", "bf": "2"}, rate=25),
    "mpeg": dict(form="mpeg", codec="libx264", options=REORDERED, rate=25),
    "mpeg of MPEG-2": dict(form="mpeg", codec="mpeg2video", options={"g": "10", "bf": "2"}, rate=25),
}


@pytest.mark.parametrize("name", UNTIMED)
@pytest.mark.parametrize("num", [1, 3, 29, 768])
def test_frames_that_are_coded_ahead_are_taken_in_the_order_of_display(name: str, num: int):
    """Their packets tell in which order they are decoded, or nothing."""
    film = decoded(media_files.film(SHADES, **UNTIMED[name]), max_frames=num)
    taken = list(range(30)) if num > 30 else [0] if num == 1 else [i * 29 // (num - 1) for i in range(num)]
    assert nearly(shades(film), [SHADES[i] for i in taken])
    assert film.times == pytest.approx([i / 25 for i in taken], abs=1e-3)


PIPED = {
    **{name: FORMS[name] for name in ("avi", "mkv", "webm", "mpegts")},
    "flv": dict(form="flv", codec="libx264"),
    "avi with B-frames": UNTIMED["avi"],
    "mpeg": UNTIMED["mpeg"],
    "mp4 in fragments": dict(form="mp4", codec="libx264", container_options={"movflags": "frag_keyframe+empty_moov"}),
}


@pytest.mark.parametrize("name", PIPED)
def test_a_film_from_a_pipe_has_the_frames_that_are_there(name: str):
    """Its header could not be corrected at the end: it has no number of frames, or a placeholder."""
    film = decoded(media_files.film(SHADES, piped=True, **PIPED[name]))
    assert nearly(shades(film), SHADES)


@pytest.mark.parametrize("name", ["avi", "mpeg"])
def test_a_film_without_times_that_takes_longer_than_it_may_is_refused(name: str):
    data = media_files.film(SHADES, **UNTIMED[name])
    with pytest.raises(ClientError, match="must take at most 1 s") as refused:
        bounded(data, max_video_seconds=1.0)
    assert refused.value.status == 413
    assert len(bounded(data, max_video_seconds=2.0).images) == 30


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("num", [1, 2, 3, 7, 29])
def test_frames_that_are_taken_are_those_of_the_whole_film(name: str, num: int):
    """Where decoding skips to a keyframe, it finds the frames that it would have come to."""
    data = media_files.film(SHADES, **FORMS[name])
    whole, some = decoded(data), decoded(data, max_frames=num)
    taken = [0] if num == 1 else [i * 29 // (num - 1) for i in range(num)]
    assert [image.tobytes() for image in some.images] == [whole.images[i].tobytes() for i in taken]
    assert some.times == [whole.times[i] for i in taken]


def test_what_lies_between_two_frames_is_not_decoded():
    """A film may be broken there."""
    data = bytearray(media_files.film([20] * 200, options={"g": "10", "bf": "0"}))
    with av.open(io.BytesIO(data)) as container:
        packets = {packet.pts: (packet.pos, packet.size) for packet in container.demux(video=0) if packet.size}
    at, size = packets[sorted(packets)[55]]
    data[at + 4 : at + size] = bytes(size - 4)
    assert decoded(bytes(data), max_frames=3).times == pytest.approx([0.0, 9.9, 19.9])


@pytest.mark.parametrize(
    ("fps", "most", "total", "rate", "taken"),
    [
        (2.0, 768, 30, 10.0, [0, 5, 11, 17, 23, 29]),
        (2.0, 4, 30, 10.0, [0, 9, 19, 29]),
        (2.0, 768, 3, 10.0, [0]),
        (60.0, 768, 5, 10.0, [0, 1, 2, 3, 4]),
        (None, 3, 100, 25.0, [0, 49, 99]),
        (None, 8, 5, 25.0, [0, 1, 2, 3, 4]),
        (1.0, 1, 100, 25.0, [0]),
    ],
)
def test_which_frames_are_taken(fps: float | None, most: int, total: int, rate: float, taken: list[int]):
    assert Takes().frames_of(total, rate, fps, most) == taken


def test_a_request_says_how_many_and_else_the_model():
    data = media_files.film(SHADES)
    assert len(decoded(data, Takes(fps=2.0)).images) == 6
    assert len(decoded(data, Takes(fps=2.0, max_frames=4)).images) == 4
    assert len(decoded(data, Takes(fps=2.0), fps=1).images) == 3
    assert len(decoded(data, Takes(fps=2.0, max_frames=4), fps=5.0, max_frames=9).images) == 9
    assert len(decoded(data, Takes(fps=2.0), num_frames=11).images) == 11


@pytest.mark.parametrize("turned", [90, 180, 270, -90])
def test_a_film_is_turned_as_it_says(turned: int):
    """The light corner is the first one of what is stored, counterclockwise of it in what is seen."""
    film = decoded(media_files.film([20, 20], turned=turned))
    image = film.images[0]
    assert image.size == ((64, 48) if turned % 180 == 0 else (48, 64))
    corners = [(0, 0), (0, image.height - 1), (image.width - 1, image.height - 1), (image.width - 1, 0)]
    lights = [sum(image.getpixel(corner)) > 384 for corner in corners]  # type: ignore[arg-type]
    assert lights.index(True) == turned % 360 // 90 and sum(lights) == 1


def test_a_film_may_be_a_list_of_pictures():
    """All are taken as they are."""
    pictures = [media_files.picture(Image.new("RGB", (8, 6), (i, i, i))) for i in range(5)]
    film = decoded(pictures, Takes(fps=2.0, max_frames=3))
    assert shades(film) == [0, 1, 2, 3, 4] and film.times == [0.0, 0.5, 1.0, 1.5, 2.0]
    with pytest.raises(ClientError, match="8 x 6 and of 9 x 6 pixels"):
        decoded([*pictures, media_files.picture(Image.new("RGB", (9, 6)))])
    with pytest.raises(ClientError, match="without a picture"):
        decoded([])


@pytest.mark.parametrize("form", ["GIF", "WEBP"])
def test_an_animation_is_a_film(form: str):
    frames = [Image.new("RGB", (8, 8), (40 * i, 40 * i, 40 * i)) for i in range(5)]
    data = media_files.picture(
        frames[0], form, save_all=True, append_images=frames[1:], duration=[100, 200, 300, 100, 100], lossless=True
    )
    film = decoded(data)
    assert nearly(shades(film), [0, 40, 80, 120, 160], most=1)
    assert film.times == pytest.approx([0.0, 0.1, 0.3, 0.6, 0.7])


@pytest.mark.parametrize("name", FORMS)
def test_a_film_that_takes_longer_than_it_may_is_refused(name: str):
    with pytest.raises(ClientError, match="must take at most 1 s") as refused:
        bounded(media_files.film(SHADES, **FORMS[name]), max_video_seconds=1.0)
    assert refused.value.status == 413 and "--max-video-seconds" in str(refused.value)


def test_what_a_header_says_is_no_way_around_the_limit():
    """Its duration is one frame's; its frames are there all the same."""
    data = bytearray(media_files.film(SHADES))
    for name, at in ((b"mvhd", 20), (b"mdhd", 20), (b"tkhd", 24)):
        where = data.index(name) + at
        data[where : where + 4] = (1).to_bytes(4, "big")
    with pytest.raises(ClientError, match="must take at most 2 s"):
        bounded(bytes(data), max_video_seconds=2.0)


@pytest.mark.parametrize(("form", "codec"), [("mp4", "mpeg4"), ("matroska", "mpeg4")])
def test_more_frames_than_a_film_has_are_refused(form: str, codec: str):
    """So many each second that no limit of seconds is passed; the second one's header does not say how many."""
    data = media_files.film([9] * 5000, form, codec, (16, 16), rate=50_000)
    with pytest.raises(ClientError, match="frames or more, must have at most 480") as refused:
        bounded(data, max_video_seconds=2.0)
    assert refused.value.status == 413


def test_pixels_of_a_film_are_bounded_by_its_header():
    with pytest.raises(ClientError, match="has 64 x 48 pixels, which are 3072, must be at most 3000") as refused:
        bounded(media_files.film(SHADES), max_image_pixels=3000)
    assert refused.value.status == 413


def test_frames_that_would_fill_the_memory_are_refused():
    data = media_files.film([9] * 40, size=(1024, 1024), options={"preset": "ultrafast"})
    with pytest.raises(ClientError, match="40 frames of 1024 x 1024 pixels, which take 120 MiB, must be at most 32"):
        bounded(data, media_memory_mb=64)
    assert len(decode_film(data, {"max_frames": 10}, Takes(), MediaArgs(media_memory_mb=64)).images) == 10


@pytest.mark.parametrize("name", ["mp4", "mp4 that begins with its table", "webm", "mkv", "avi"])
def test_a_film_that_is_cut_off_is_refused(name: str, tmp_path: Path):
    if name in FORMS:
        data = media_files.film(SHADES, **FORMS[name])
    else:
        file = tmp_path / "film.mp4"
        media_files.film(SHADES, file=file, container_options={"movflags": "faststart"})
        data = file.read_bytes()
    assert len(decoded(data).images) == 30
    for part in media_files.cut(data):
        with pytest.raises(ClientError) as refused:
            decoded(part)
        assert refused.value.status == 400, refused.value


PLAYLISTS = [
    b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nhttp://127.0.0.1:21100/a.ts\n#EXT-X-ENDLIST\n",
    b"ffconcat version 1.0\nfile /etc/passwd\n",
    b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"></MPD>',
    b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 21100 RTP/AVP 96\n",
]


PICTURE = media_files.picture(media_files.noise(8, 8))


@pytest.mark.parametrize("data", [b"", b"abc", bytes(400), PICTURE, *PLAYLISTS])
def test_what_is_no_film_is_refused(data: bytes):
    with pytest.raises(ClientError, match="is not a video"):
        decoded(data)


def test_sound_alone_is_no_film():
    data = media_files.sound_in_container(media_files.tone(0.5), 16_000, "mp4", "aac")
    with pytest.raises(ClientError, match="has no video"):
        decoded(data)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fps": 0}, "fps 0"),
        ({"fps": "2"}, "fps '2'"),
        ({"fps": float("nan")}, "fps nan"),
        ({"max_frames": 0}, "max_frames 0"),
        ({"max_frames": 1.5}, "max_frames 1.5"),
        ({"num_frames": True}, "num_frames True"),
        ({"max_frames": 10**6}, "must be at most 768"),
    ],
)
def test_options_are_checked(options: dict[str, Any], says: str):
    with pytest.raises(ClientError, match=says):
        decoded(media_files.film(SHADES[:2]), **options)
