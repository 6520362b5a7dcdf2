"""Arrays that a client computed in the place of media: what each family takes, and what it refuses by name."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tiny_media import FAMILIES, IMAGE_SIZE

from ramet.ipc.media import MediaKind, Prepared
from ramet.runtime.engine.features import Media
from ramet.runtime.errors import ClientError
from ramet.runtime.media.arrays import write_arrays
from ramet.runtime.media.formats.base import Frames, MediaFormat, Processed, Sound
from ramet.runtime.media.formats.registry import format_of
from ramet.runtime.media.worker import MediaJob, MediaRefused, Preparer
from ramet.runtime.models.registry import read_config
from ramet.runtime.models.towers.registry import TOWERS
from ramet.runtime.options.media_options import MediaArgs

IMAGE, VIDEO, AUDIO = MediaKind
HIDDEN = 64
SIZES = [(32, 32), (90, 30), (33, 100), (64, 64)]  # width, height
CASES = [  # family, kind, tokens that features are a multiple of
    ("llava", IMAGE, 1),
    ("llava-next", IMAGE, 1),
    ("llava-onevision", IMAGE, 1),
    ("llava-onevision", VIDEO, 1),
    ("idefics3", IMAGE, 4),
    ("smolvlm", IMAGE, 4),
    ("internvl", IMAGE, 4),
    ("internvl", VIDEO, 4),
    ("gemma3", IMAGE, 16),
    ("qwen2-audio", AUDIO, 1),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    names = dict.fromkeys([name for name, *_ in CASES] + ["qwen2.5-vl"])
    return {name: FAMILIES[name](tmp_path_factory.mktemp(name)) for name in names}


def own_of(folder: Path) -> MediaFormat:
    made = format_of(folder)
    assert made is not None
    return made


def noise(width: int, height: int, seed: int = 0) -> Any:
    pixels = np.random.RandomState(seed).randint(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def decoded(kind: MediaKind, size: tuple[int, int] = (90, 30)) -> Any:
    if kind is VIDEO:
        return Frames([noise(*size, seed) for seed in range(4)], [0.0, 0.5, 1.0, 1.5])
    samples = np.random.RandomState(0).randn(90 * size[0]).astype(np.float32) / 10
    return Sound(samples, 16_000) if kind is AUDIO else noise(*size)


def numbers(made: Processed) -> list[int]:
    return [part for part in made.expansion if isinstance(part, int)]


def same(one: Processed, other: Processed) -> bool:
    return list(one.arrays) == list(other.arrays) and all(
        np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays
    )


@pytest.mark.parametrize(("family", "kind", "unit"), CASES)
def test_arrays_of_a_processor_are_what_it_makes_here(
    family: str, kind: MediaKind, unit: int, folders: dict[str, Path]
) -> None:
    own = own_of(folders[family])
    for size in SIZES:
        made = own.prepare(kind, decoded(kind, size), {})
        got = own.received(kind, made.arrays, False)
        assert same(got, made) and numbers(got) == numbers(made)
        assert got.is_expanded == (len(made.expansion) > 3 and unit == 4 and kind is IMAGE)
        assert got.is_expanded or got.expansion == made.expansion


@pytest.mark.parametrize(("family", "kind", "unit"), CASES)
def test_features_stand_as_what_they_were_made_of(
    family: str, kind: MediaKind, unit: int, folders: dict[str, Path]
) -> None:
    own = own_of(folders[family])
    made = own.prepare(kind, decoded(kind), {})
    features = {"feature": np.zeros((sum(numbers(made)), HIDDEN), np.float32)}
    got = own.received(kind, features, True)
    assert got.expansion == made.expansion or (got.is_expanded and numbers(got) == numbers(made))
    with pytest.raises(ClientError, match=r"shape \[64, 7\], must be \[any, 64\]"):
        own.received(kind, {"feature": np.zeros((HIDDEN, 7), np.float32)}, True)
    with pytest.raises(ClientError, match="has feature of int64, must be floats"):
        own.received(kind, {"feature": np.zeros((unit, HIDDEN), np.int64)}, True)
    if unit > 1:
        with pytest.raises(ClientError, match=f"feature of {unit + 1} tokens, must be a multiple of {unit}"):
            own.received(kind, {"feature": np.zeros((unit + 1, HIDDEN), np.float32)}, True)


@pytest.mark.parametrize("family", ["idefics3", "smolvlm"])
def test_rows_and_columns_say_what_stands_between_tiles(family: str, folders: dict[str, Path]) -> None:
    own: Any = own_of(folders[family])
    for width, height in SIZES:
        image = noise(width, height)
        seen = own.image_processor(images=[[image]], return_tensors="np", return_row_col_info=True)
        made = own.prepare(IMAGE, image, {})
        got = own.received(IMAGE, {name: np.array(each) for name, each in seen.items()}, False)
        assert got.expansion == made.expansion and not got.is_expanded and same(got, made)


def test_padding_of_several_pictures_is_left_out(folders: dict[str, Path]) -> None:
    """As a processor pads the tiles of each to those of the one that has most."""
    images = [noise(90, 30), noise(64, 64)]
    for family in ("llava-next", "llava-onevision", "idefics3", "smolvlm"):
        own: Any = own_of(folders[family])
        nested = [[each] for each in images] if family in ("idefics3", "smolvlm") else images
        seen = own.image_processor(images=nested, return_tensors="np")
        for i, image in enumerate(images):
            got = own.received(IMAGE, {name: np.array(each)[i : i + 1] for name, each in seen.items()}, False)
            assert same(got, own.prepare(IMAGE, image, {}))


def test_one_of_several_pictures_is_a_square(folders: dict[str, Path]) -> None:
    own: Any = own_of(folders["llava-onevision"])
    images = [noise(40, 30), noise(33, 100, seed=1)]
    seen = own.image_processor(images=[images, images[:1]], return_tensors="np")  # padded to tiles of the last one
    for i, image in enumerate(images):
        made = own.prepare(IMAGE, image, {"num_pictures": 2})
        arrays = {name: np.array(seen[name])[i : i + 1] for name in ("pixel_values", "image_sizes")}
        got = own.received(IMAGE, {**arrays, "batch_num_images": np.array([2])}, False)
        assert got.expansion == made.expansion and same(got, made)


def test_frames_may_have_the_name_of_the_class_for_films(folders: dict[str, Path]) -> None:
    own = own_of(folders["internvl"])
    made = own.prepare(VIDEO, decoded(VIDEO), {})
    got = own.received(VIDEO, {"pixel_values_videos": made.arrays["pixel_values"][None]}, False)
    assert got.expansion == made.expansion and same(got, made)


def edge(value: float, *shape: int) -> Any:
    return np.full(shape, value, np.float32)


S = IMAGE_SIZE
SQUARES = (1, 2, S, S)
WRONG: list[tuple[str, MediaKind, dict[str, Any], str]] = [
    ("llava", IMAGE, {"pixel_values": edge(0, 2, 3, S, S)}, r"must be \[1, 3, 32, 32\]"),
    ("llava", IMAGE, {"pixel_values": np.ones((1, 3, S, S), np.int64)}, "has pixel_values of int64, must be floats"),
    ("llava-next", IMAGE, {"image_sizes": None}, "has no 'image_sizes', which this model needs"),
    ("llava-next", IMAGE, {"image_sizes": np.array([[0, 30]])}, r"image_sizes \[\[0, 30\]\], must be from 1"),
    ("llava-next", IMAGE, {"image_sizes": np.array([[1 << 40, 30]])}, "must be from 1 to 1048576"),
    ("llava-next", IMAGE, {"image_sizes": np.array([[30.0, 90.0]])}, "has image_sizes of float64, must be integers"),
    ("llava-next", IMAGE, {"image_sizes": np.array([30, 90])}, r"image_sizes of shape \[2\], must be \[1, 2\]"),
    ("llava-next", IMAGE, {"image_sizes": np.array([[64, 64]])}, "has 3 tiles of pixel_values, must have the 5"),
    ("llava-next", IMAGE, {"pixel_values": edge(0, 3, 3, S, S)}, r"must be \[1, any, 3, 32, 32\]"),
    ("llava-onevision", IMAGE, {"batch_num_images": np.array([0])}, r"batch_num_images \[0\], must be from 1"),
    ("llava-onevision", IMAGE, {"batch_num_images": np.array([1, 1])}, r"of shape \[2\], must be \[1\]"),
    ("llava-onevision", IMAGE, {"image_sizes": np.array([[64, 64]])}, "must have the 5 of its image_sizes"),
    ("llava-onevision", VIDEO, {"pixel_values_videos": edge(0, 3, 3, S, S)}, r"must be \[1, any, 3, 32, 32\]"),
    ("llava-onevision", VIDEO, {"pixel_values_videos": None}, "has no 'pixel_values_videos'"),
    ("idefics3", IMAGE, {"pixel_attention_mask": None}, "has no 'pixel_attention_mask'"),
    ("idefics3", IMAGE, {"pixel_attention_mask": np.ones((1, 2, S, S), np.int64)}, r"must be \[1, 3, 32, 32\]"),
    ("idefics3", IMAGE, {"pixel_attention_mask": np.zeros((1, 3, S, S), bool)}, "pixel_attention_mask that is not 1"),
    ("idefics3", IMAGE, {"pixel_attention_mask": np.eye(S, dtype=np.int64)[None, None].repeat(3, 1)}, "is not 1 for"),
    ("idefics3", IMAGE, {"pixel_attention_mask": 2 * np.ones((1, 3, S, S), np.int64)}, "is not 1 for what is there"),
    ("idefics3", IMAGE, {"pixel_attention_mask": edge(0.5, 1, 3, S, S)}, "is not 1 for what is there"),
    ("idefics3", IMAGE, {"pixel_values": edge(0, 1, 3, 3, S, S)}, "has pixel_values of zeros alone"),
    ("idefics3", IMAGE, {"pixel_values": edge(1e-30, 1, 3, 3, S, S)}, "has pixel_values of zeros alone"),
    ("idefics3", IMAGE, {"rows": np.array([[1]])}, "has no 'cols'"),
    ("idefics3", IMAGE, {"rows": np.array([[1]]), "cols": np.array([[3]])}, "1 rows and 3 cols, which make 4 tiles"),
    ("idefics3", IMAGE, {"rows": np.array([[-1]]), "cols": np.array([[-2]])}, "must be from 0 to 16384"),
    ("internvl", IMAGE, {"num_patches": np.array([2])}, "has num_patches 2, but the pixel_values have"),
    ("internvl", IMAGE, {"pixel_values": edge(0, 1, 1, 3, S, S)}, r"must be \[any, 3, 32, 32\]"),
    ("internvl", VIDEO, {"pixel_values": edge(0, 1, 3, S, 30)}, r"must be \[any, 3, 32, 32\]"),
    ("gemma3", IMAGE, {"num_crops": np.array([1])}, "has num_crops 1, but the pixel_values have 0"),
    ("gemma3", IMAGE, {"pixel_values": edge(0, 1, 4, S, S)}, r"must be \[any, 3, 32, 32\]"),
    ("qwen2-audio", AUDIO, {"feature_attention_mask": None}, "has no 'feature_attention_mask'"),
    ("qwen2-audio", AUDIO, {"feature_attention_mask": np.zeros((1, 200), bool)}, "feature_attention_mask that is not"),
    ("qwen2-audio", AUDIO, {"feature_attention_mask": np.eye(1, 200, 5)}, "feature_attention_mask that is not 1"),
    ("qwen2-audio", AUDIO, {"feature_attention_mask": np.eye(1, 200)}, "of 1 frames, too few for this model"),
    ("qwen2-audio", AUDIO, {"input_features": edge(0, 1, 16, 100)}, r"must be \[1, 16, 200\]"),
    ("qwen2.5-vl", IMAGE, {"pixel_values": np.zeros((48, 384), np.int64)}, "has pixel_values of int64, must be floats"),
]


@pytest.mark.parametrize(("family", "kind", "changed", "fact"), WRONG)
def test_wrong_arrays_are_refused_by_name(
    family: str, kind: MediaKind, changed: dict[str, Any], fact: str, folders: dict[str, Path]
) -> None:
    own = own_of(folders[family])
    arrays = {**own.prepare(kind, decoded(kind), {}).arrays, **changed}
    with pytest.raises(ClientError, match=fact):
        own.received(kind, {name: array for name, array in arrays.items() if array is not None}, False)


def mutated(random: np.random.RandomState, arrays: dict[str, Any]) -> dict[str, Any]:
    """One of them changed: its sizes, its type, its numbers."""
    name = list(arrays)[random.randint(len(arrays))]
    array, axis = arrays[name], random.randint(arrays[name].ndim)
    flat = array.copy().reshape(-1)
    flat[random.randint(len(flat))] = random.choice([-1, 0, 1, 2, 7, 1e4])
    changed: list[Any] = [
        flat.reshape(array.shape),
        np.zeros_like(array),
        np.concatenate([array, array], axis=axis),
        np.take(array, [0], axis=axis),
        array[None],
        array[0],
        array.swapaxes(axis, 0),
        array.astype(random.choice(["int64", "int32", "float64", "float16", "bool"])),
        array + random.choice([1e3, -1.0]).astype(array.dtype),
        np.where(array == array, random.choice([np.nan, np.inf, 1e30, 1e4]), array),
    ]
    return {**arrays, name: np.atleast_1d(changed[random.randint(len(changed))])}


def media_of(folder: Path) -> Media:
    """What computes features, with the model's tower."""
    name = read_config(folder)["architectures"][0]
    whole = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()
    tower = import_module(f"ramet.runtime.models.towers.{TOWERS[name]}").TOWER(whole.model)
    return Media(tower, own_of(folder).tokens, 1 << 24)


@pytest.mark.parametrize(("family", "kind", "unit"), CASES)
def test_mutated_arrays_are_refused_or_read(
    family: str, kind: MediaKind, unit: int, folders: dict[str, Path], tmp_path: Path
) -> None:
    """What is not refused by name the model's tower can read, or its numbers are too large."""
    folder, random = folders[family], np.random.RandomState(0)
    own, preparer, media = own_of(folder), Preparer(folder, MediaArgs()), media_of(folder)
    arrays = dict(own.prepare(kind, decoded(kind), {}).arrays)
    num_read = 0
    for number in range(60):
        given = {
            field: (str(each.dtype), each.shape, each.tobytes()) for field, each in mutated(random, arrays).items()
        }
        file = str(tmp_path / str(number))
        done = preparer.run(MediaJob(kind, file, 1 << 26, b"", {}, given))
        if isinstance(done, MediaRefused):
            assert done.status == 400 and "cannot be prepared" not in done.fact
            continue
        (made,) = media.compute([Prepared(kind, done.key, done.expansion, done.arrays, file)])
        assert not isinstance(made, str) or "not all finite" in made
        num_read += 1
    assert 0 < num_read < 60


def test_numbers_beyond_what_a_model_reads_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    feature = np.zeros((4, HIDDEN), np.float32)
    for number, fact in ((1e5, "has feature with a number outside [-10000, 10000]"), (np.nan, "must be finite")):
        feature[1, 2] = -number
        given = {"feature": ("float32", feature.shape, feature.tobytes())}
        preparer = Preparer(folders["llava"], MediaArgs())
        done = preparer.run(MediaJob(IMAGE, str(tmp_path / "file"), 1 << 20, b"", {}, given, are_features=True))
        assert isinstance(done, MediaRefused) and done.status == 400 and fact in done.fact


def test_features_that_are_not_finite_are_none(folders: dict[str, Path], tmp_path: Path) -> None:
    made = own_of(folders["llava"]).prepare(IMAGE, noise(32, 32), {})
    pixels, pieces = made.arrays["pixel_values"], []
    for name, number in (("sound", 0.5), ("broken", 1e38)):
        pixels[0, 0, 0, 0] = number
        arrays, _ = write_arrays(file := str(tmp_path / name), {"pixel_values": pixels}, 1 << 24)
        pieces.append(Prepared(IMAGE, name.encode(), made.expansion, arrays, file))
    sound, broken = media_of(folders["llava"]).compute(pieces)
    assert not isinstance(sound, str) and broken == "could not be computed: the features are not all finite"
