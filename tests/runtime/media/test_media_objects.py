"""Pictures and arrays of a program in this process reach a worker as they are."""

import asyncio
import io
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

from ramet.ipc.media import MediaKind
from ramet.runtime.errors import ClientError
from ramet.runtime.media.fetch import Fetcher
from ramet.runtime.media.image import decode_picture
from ramet.runtime.media.objects import RATE
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.options.media_options import MediaArgs

COLOURS = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)


def fetched(kind: MediaKind, written: Any) -> Any:
    return asyncio.run(Fetcher(MediaArgs()).fetch(GivenMedia(kind, "image_data", written)))


@pytest.mark.parametrize("written", [COLOURS, torch.from_numpy(COLOURS), Image.fromarray(COLOURS)], ids=type)
def test_a_picture_keeps_its_pixels(written: Any) -> None:
    assert (np.asarray(decode_picture(fetched(MediaKind.IMAGE, written), 100)) == COLOURS).all()


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "I;16", "CMYK", "YCbCr", "HSV", "F"]
)
def test_a_picture_of_every_mode_is_taken(mode: str) -> None:
    image = decode_picture(fetched(MediaKind.IMAGE, Image.new(mode, (3, 2))), 100)
    assert image.size == (3, 2)
    if mode in ("LA", "PA", "RGBA", "RGBa"):  # clear all over
        assert image.getpixel((0, 0)) == (255, 255, 255)


def test_a_picture_of_a_camera_is_turned(tmp_path: Any) -> None:
    tags = Image.Exif()
    tags[0x0112] = 6
    Image.fromarray(COLOURS).save(tmp_path / "a.png", exif=tags)
    with Image.open(tmp_path / "a.png") as image:
        assert decode_picture(fetched(MediaKind.IMAGE, image), 100).size == (5, 7)


def test_a_film_is_its_pictures_and_a_sound_its_samples() -> None:
    film = np.stack([COLOURS, 255 - COLOURS])
    pictures = fetched(MediaKind.VIDEO, film)
    assert [(np.asarray(decode_picture(data, 100)) == frame).all() for data, frame in zip(pictures, film)] == [True] * 2
    samples = np.linspace(-1, 1, 101, dtype=np.float32)
    read, rate = soundfile.read(io.BytesIO(fetched(MediaKind.AUDIO, samples)), dtype="float32")
    assert rate == RATE and (read == samples).all()


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (MediaKind.IMAGE, COLOURS.astype(np.float32)),
        (MediaKind.IMAGE, COLOURS[:, :, :2]),
        (MediaKind.IMAGE, COLOURS[:0]),
        (MediaKind.IMAGE, np.array(None)),
        (MediaKind.IMAGE, Image.new("La", (2, 2))),
        (MediaKind.VIDEO, COLOURS),
        (MediaKind.VIDEO, COLOURS[None][:0]),
        (MediaKind.AUDIO, COLOURS),
        (MediaKind.AUDIO, np.zeros(3, np.int16)),
    ],
)
def test_another_array_is_refused_with_its_shape(kind: MediaKind, written: Any) -> None:
    with pytest.raises(ClientError, match=r"^image_data is an array \[.* must be \[|that cannot be read"):
        fetched(kind, written)
