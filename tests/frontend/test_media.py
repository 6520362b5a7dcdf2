"""Pictures, films and sound of a program: what is taken, what of it is sent, and that it is known by its content."""

import asyncio
import base64
import io
import pickle
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from PIL import Image

from ramet import ClientError, Endpoint, Mock, OpenAI, assistant, audio, function, gen, image, user, video
from ramet.frontend.backends.held import HeldPrefixes
from ramet.frontend.hints import WORTH_CHARS
from ramet.frontend.media import check_file, digest, mime_of, sent, source_of
from ramet.frontend.prompt import EMPTY, MediaPiece, common_prefix
from ramet.frontend.run_keys import RunKeys
from ramet.frontend.runnable import RunOptions
from tests.fakes.exchanges import Exchange, Service

PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)


def opened(source: Any) -> Image.Image:
    """The picture that a service sees."""
    return Image.open(io.BytesIO(base64.b64decode(sent("image", source).data)))


# -- what is taken -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I", "CMYK", "YCbCr", "HSV"])
def test_a_picture_of_pillow_is_sent_as_it_looks(mode: str):
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)).convert(mode)
    seen = opened(source_of("image", picture))
    assert seen.format == "PNG" and seen.size == (7, 5)
    assert seen.convert("RGB").tobytes() == picture.convert("RGB").tobytes()


@pytest.mark.parametrize("channels", [None, 1, 3, 4])
def test_an_array_is_sent_as_a_picture(channels: int | None):
    shape = (5, 7) if channels is None else (5, 7, channels)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    seen = opened(source_of("image", pixels[::-1, ::2]))
    assert np.array_equal(np.asarray(seen), pixels[::-1, ::2].squeeze())


def test_what_changes_later_is_sent_as_it_was():
    picture, pixels, content = Image.fromarray(PIXELS.copy()), PIXELS.copy(), bytearray(b"\x89PNG")
    given = [source_of("image", each) for each in (picture, pixels, content)]
    picture.putpixel((0, 0), (255, 255, 255))
    pixels[:] = 0
    content[:] = b"1234"
    assert np.array_equal(np.asarray(opened(given[0])), PIXELS)
    assert np.array_equal(np.asarray(opened(given[1])), PIXELS)
    assert given[2] == b"\x89PNG"


def test_a_picture_is_turned_as_its_file_would_be():
    file = io.BytesIO()
    exif = Image.Exif()
    exif[274] = 6  # a quarter turn
    Image.fromarray(PIXELS).save(file, "PNG", exif=exif)
    seen = opened(source_of("image", Image.open(file)))
    assert np.array_equal(np.asarray(seen), np.rot90(PIXELS, -1))
    assert 274 not in seen.getexif()


@pytest.mark.parametrize("kind", ["<i2", "<f4", ">f4", "<f8"])
def test_samples_are_sent_as_a_sound(kind: str):
    import soundfile

    stereo = (np.random.default_rng(0).normal(size=(50, 2)) * (3000 if kind == "<i2" else 0.1)).astype(kind)
    for samples in (stereo, stereo[:, 0]):
        found = sent("audio", source_of("audio", samples, 8000))
        heard, rate = soundfile.read(
            io.BytesIO(base64.b64decode(found.data)), dtype=stereo.dtype.newbyteorder("=").name
        )
        assert found.mime == "audio/wav" and rate == 8000
        assert np.array_equal(heard, samples.astype("<f4") if kind == "<f8" else samples)


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "object": (lambda: image(object()), TypeError, "image() takes a path, a URL, bytes, an image of Pillow"),
    "no path": (lambda: image(""), ValueError, "image() is given an empty text"),
    "no bytes": (lambda: video(b""), ValueError, "video() is given no bytes"),
    "None": (lambda: audio(None), TypeError, "audio() takes a path, a URL, bytes, or an array of samples"),
    "floats": (lambda: image(np.zeros((2, 2, 3))), ValueError, "is given an array [2, 2, 3] of float64"),
    "channels first": (lambda: image(np.zeros((3, 9, 9), np.uint8)), ValueError, "is given an array [3, 9, 9]"),
    "nothing to see": (lambda: image(np.zeros((0, 9), np.uint8)), ValueError, "is given an array [0, 9]"),
    "frames": (lambda: video(np.zeros((2, 9, 9, 3))), TypeError, "video() takes a path, a URL or bytes, not ndarray"),
    "num_frames": (lambda: video("a", num_frames=0), ValueError, "num_frames is 0, must be an integer >= 1"),
    "half a frame": (lambda: video("a", num_frames=1.5), ValueError, "num_frames is 1.5, must be"),  # type: ignore
    "no rate": (lambda: audio(np.zeros(3, np.int16)), ValueError, "sample_rate is None, must be an integer >= 1"),
    "rate of a file": (lambda: audio("a.wav", 8000), ValueError, "sample_rate is 8000, and belongs to an array"),
    "bytes as samples": (lambda: audio(np.zeros(3, np.uint8), 8000), ValueError, "is given an array [3] of uint8"),
}


@pytest.mark.parametrize(("make", "kind", "why"), WRONG.values(), ids=WRONG.keys())
def test_what_is_no_medium_is_refused_where_it_is_given(make: Any, kind: type[Exception], why: str):
    with pytest.raises(kind) as refused:
        make()
    assert why in str(refused.value)


def test_the_language_needs_neither_pillow_nor_numpy():
    program = (
        "import sys, ramet\n"
        "@ramet.function\n"
        "def look(s):\n"
        "    s += ramet.image(b'1') + ramet.video('a.mp4', 3) + ramet.audio('data:;base64,AA==') + ramet.gen()\n"
        "look.run(backend=ramet.Mock()).sync()\n"
        "assert not {'PIL', 'numpy', 'torch'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# -- what is sent ------------------------------------------------------------------------------------------------------

BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": ("image", "image/png"),
    b"\xff\xd8\xff\xe0": ("image", "image/jpeg"),
    b"GIF89a": ("image", "image/gif"),
    b"RIFF\x00\x00\x00\x00WEBPVP8 ": ("image", "image/webp"),
    b"BM\x00\x00": ("image", "image/bmp"),
    b"RIFF\x00\x00\x00\x00WAVEfmt ": ("audio", "audio/wav"),
    b"\xff\xfb\x90\x00": ("audio", "audio/mpeg"),
    b"ID3\x04": ("audio", "audio/mpeg"),
    b"fLaC": ("audio", "audio/flac"),
    b"\x00\x00\x00\x18ftypisom": ("video", "video/mp4"),
    b"\x00\x00\x00\x18ftypM4A ": ("audio", "audio/mp4"),
    b"\x1a\x45\xdf\xa3": ("video", "video/webm"),
    b"what": ("video", "video/*"),
}


@pytest.mark.parametrize(("begin", "told"), BEGINNINGS.items(), ids=lambda value: str(value))
def test_the_type_of_a_file_is_told_by_its_beginning(begin: bytes, told: tuple[str, str]):
    assert mime_of(told[0], begin) == told[1]


def test_a_file_is_read_by_the_program_and_a_url_is_not(tmp_path: Path):
    file = tmp_path / "a b.png"
    file.write_bytes(b"\x89PNG")
    for given in (str(file), file, file.as_uri(), b"\x89PNG", memoryview(b"\x89PNG")):
        assert sent("image", source_of("image", given)).as_url == "data:image/png;base64,iVBORw=="
    for url in ("https://a.example/b.png", "data:image/jpeg;base64,iVBORw=="):
        assert sent("image", source_of("image", url)).as_url == url
    with pytest.raises(ClientError, match="image is a data URI without base64"):
        sent("image", source_of("image", "data:image/svg+xml,<svg/>"))


def test_a_file_that_is_not_there_is_refused_at_its_line():
    asked = OpenAI("gpt-4.1", api_key="k", base_url="http://127.0.0.1:9/v1", flavor="openai")

    def body(s):
        s += user("a")
        with pytest.raises(ClientError, match=r"image is 'no.png', and there is no such file"):
            s += user("b" + image("no.png")) + assistant(gen("x"))

    state = function(body).run(backend=asked)
    assert state.error() is None and state.text() == "a"


def test_what_is_no_file_is_named_in_short(tmp_path: Path):
    with pytest.raises(ClientError, match=r"is a folder"):
        check_file("image", str(tmp_path))
    with pytest.raises(ClientError, match=r"of base64 give the bytes, or a data URI") as refused:
        check_file("image", "iVBORw0KGgo" * 1000)
    assert len(str(refused.value)) < 300


# -- prompts -----------------------------------------------------------------------------------------------------------


def test_placeholders_stand_in_the_text_that_is_shown():
    def body(s):
        s += user("a" + image(b"1") + "b" + video(b"2") + audio(b"3"))
        with s.var_scope("scope"):
            s += image(b"4") + "c"
        s += gen("x")

    mock = Mock(["d"])
    state = function(body).run(backend=mock)
    assert state.text() == "a<image>b<video><audio><image>cd"
    assert mock.calls[0][0] == "a<image>b<video><audio><image>c"
    assert state["scope"] == "c"  # a text that may be appended


def test_messages_have_media_as_parts():
    def body(s):
        s += user(image(b"\x89PNG") + "What?") + assistant("A cat.")

    assert function(body).run(backend=Mock()).messages() == [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
                {"type": "text", "text": "What?"},
            ],
        },
        {"role": "assistant", "content": "A cat."},
    ]


def test_a_prefix_ends_where_pictures_differ():
    one, other = (EMPTY.extended("a").extended(MediaPiece("image", source_of("image", np.full((2, 2), n, np.uint8))))
                  for n in (1, 2))  # fmt: skip
    same = EMPTY.extended("a").extended(MediaPiece("image", source_of("image", np.full((2, 2), 1, np.uint8))))
    assert common_prefix(one, other).pieces() == ["a"]
    assert common_prefix(one.extended("b"), same).num_chars == one.num_chars >= WORTH_CHARS
    assert common_prefix(one, EMPTY.extended("a")).num_chars < one.num_chars


def test_a_held_prefix_is_known_by_what_it_shows():
    told = []

    async def hold(prompt: Any, seconds: float) -> None:
        told.append(seconds > 0)

    async def take() -> None:
        held = HeldPrefixes()
        for pixels in (PIXELS, PIXELS.copy(), PIXELS + 1):
            await held.take(hold, EMPTY.extended(MediaPiece("image", source_of("image", pixels))))

    asyncio.run(take())
    assert told == [True, True]


def test_arguments_that_are_pictures_are_known_again():
    @function
    def look(s: Any, picture: Any) -> None:
        s += image(picture) + gen("x")

    keys = RunKeys(look, look.function, RunOptions({}, {}))
    key = lambda picture: keys.of("", (picture,), {})  # noqa: E731
    assert key(PIXELS) == key(PIXELS.copy()) != key(PIXELS + 1)
    assert key(Image.fromarray(PIXELS)) == key(Image.fromarray(PIXELS)) != key(Image.fromarray(PIXELS + 1))
    assert key(PIXELS[:, :2]) != key(PIXELS)


def test_a_batch_with_pictures_goes_on_where_it_ended(tmp_path: Path):
    @function
    def look(s: Any, picture: Any) -> None:
        s += user(image(picture) + "What?") + assistant(gen("x"))

    path, given = tmp_path / "done", [(PIXELS,), (PIXELS + 1,)]
    first = look.run_batch(given, backend=Mock([" a", " b"]), num_threads=1, resume=path)
    again = look.run_batch(given, backend=Mock([]), resume=path)
    assert [state["x"] for state in again] == [state["x"] for state in first] == [" a", " b"]
    assert again[1].text() == "<image>What? b"


def test_what_is_in_memory_is_pickled_with_its_prompt():
    prompt = EMPTY.extended(MediaPiece("image", source_of("image", PIXELS)))
    copied = pickle.loads(pickle.dumps(prompt))
    [piece], [original] = copied.media(), prompt.media()
    assert piece == original and sent("image", piece.source) == sent("image", original.source)
    assert digest(piece.source) == digest(original.source)


def test_nothing_larger_than_a_picture_is_made_of_it():
    """A picture of noise is as large as its pixels; its file has a few bytes more."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    file = base64.b64decode(sent("image", source_of("image", pixels)).data)
    assert len(file) < pixels.nbytes + 256 and struct.unpack(">II", file[16:24]) == (64, 64)


def test_media_stand_in_turns_that_are_rendered_here():
    prompt = [
        "<|im_start|>user\nSee ",
        {"image": "data:image/*;base64,MQ=="},
        "and",
        {"image": "data:image/*;base64,Mg=="},
        "<|im_end|>\n<|im_start|>assistant\n",
    ]
    reply = {"text": " a cat", "meta_info": {"finish_reason": {"type": "stop"}}}
    with Service(Exchange("/language/generate", ANY, reply)) as service:
        backend = Endpoint(service.url, chat_template_name="chatml", server="ramet")
        backend.capabilities = replace(backend.capabilities, follow_ups=False)
        backend._takes = frozenset({"image"})
        state = function(
            lambda s: s.extend(user("See " + image(b"1") + "and" + image(b"2")) + assistant(gen("x")))
        ).run(backend=backend)
        assert state["x"] == " a cat"
        assert service.requests[0][1]["prompt"] == prompt


def test_a_server_is_asked_which_media_its_model_takes():
    @function
    def look(s: Any, kind: Any) -> None:
        s += kind(b"1") + gen("x")

    model = Exchange(
        "/get_model_info",
        None,
        {"model_path": "m", "has_image_understanding": True, "has_audio_understanding": False},
        method="GET",
    )
    prompt = [{"image": "data:image/*;base64,MQ=="}]
    reply = {"text": " a cat", "meta_info": {"finish_reason": {"type": "stop"}}}
    with Service(model, Exchange("/language/generate", ANY, reply)) as service:
        backend = Endpoint(service.url)
        backend.capabilities = replace(backend.capabilities, follow_ups=False)
        assert look.run(image, backend=backend)["x"] == " a cat"
        with pytest.raises(Exception, match=r"audio: the server at .* takes no audio input"):
            look.run(audio, backend=backend)
        [asked] = [body for path, body in service.requests if path == "/language/generate"]
        assert asked["prompt"] == prompt
