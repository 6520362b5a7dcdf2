"""What stands for media in a prompt is what the model's own processor in transformers writes, whatever their sizes.

Its classes need torchvision to be made as a whole; the methods that write texts need only what is given them here.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import media_files
import numpy as np
import pytest
import transformers
from PIL import Image
from tiny_media import FAMILIES, IMAGE_SIZE, PATCH

from ramet.ipc.media import MediaKind
from ramet.runtime.errors import ClientError
from ramet.runtime.media.formats.base import Frames, Processed, Sound
from ramet.runtime.media.formats.pictures import PictureFormat
from ramet.runtime.media.formats.qwen2_audio import Qwen2AudioFormat
from ramet.runtime.media.formats.registry import format_of
from ramet.runtime.media.worker import MediaDone, MediaJob, Preparer
from ramet.runtime.options.media_options import MediaArgs

SIZES = [(32, 32), (40, 30), (90, 30), (33, 100), (64, 64), (200, 190), (1, 1), (63, 500)]  # width, height
LLAVA = dict(image_token="<image>", patch_size=PATCH, num_additional_image_tokens=1, num_image_tokens=16)
PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {  # class, and what its methods read of it
    "llava-next": ("LlavaNextProcessor", {**LLAVA, "vision_feature_select_strategy": "default"}),
    "llava-onevision": (
        "LlavaOnevisionProcessor",
        dict(
            **LLAVA, vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_2", video_token="<video>",
        ),
    ),
    "idefics3": (
        "Idefics3Processor",
        dict(
            image_token="<image>", fake_image_token="<fake_token_around_image>", global_image_tag="<global-img>",
            image_seq_len=4,
        ),
    ),
    "smolvlm": (
        "SmolVLMProcessor",
        dict(
            image_token="<image>", fake_image_token="<fake_token_around_image>", global_image_token="<global-img>",
            image_seq_len=4,
        ),
    ),
    "internvl": (
        "InternVLProcessor",
        dict(image_token="<IMG_CONTEXT>", start_image_token="<img>", end_image_token="</img>", image_seq_length=4),
    ),
    "gemma3": (
        "Gemma3Processor",
        dict(full_image_sequence="\n\n<start_of_image>" + "<image_soft_token>" * 16 + "<end_of_image>\n\n"),
    ),
    "qwen2-audio": ("Qwen2AudioProcessor", dict(audio_token="<|AUDIO|>")),
}  # fmt: skip


PICTURES = [name for name in PROCESSORS if name != "qwen2-audio"]
ASKED: dict[str, dict[str, Any]] = {  # of image processors, by the classes above
    "internvl": {"crop_to_patches": True},
    "idefics3": {"return_row_col_info": True},
    "smolvlm": {"return_row_col_info": True},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: FAMILIES[name](tmp_path_factory.mktemp(name)) for name in PROCESSORS}


def own_of(folder: Path) -> PictureFormat:
    made = format_of(folder)
    assert isinstance(made, PictureFormat)
    return made


def theirs_of(family: str, image_processor: Any = None) -> Any:
    name, fields = PROCESSORS[family]
    made = object.__new__(getattr(transformers, name))
    for field, value in {**fields, "image_processor": image_processor}.items():
        setattr(made, field, value)
    return made


def picture(width: int, height: int, seed: int = 0) -> Any:
    pixels = np.random.RandomState(seed).randint(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def written(made: Processed, text: str) -> str:
    return "".join(part if isinstance(part, str) else text * part for part in made.expansion)


@pytest.mark.parametrize("family", PICTURES)
def test_a_picture_stands_as_its_processor_writes_it(family: str, folders: dict[str, Path]) -> None:
    own = own_of(folders[family])
    theirs = theirs_of(family, own.image_processor)
    for width, height in SIZES:
        image = picture(width, height)
        inputs = own.image_processor(images=[image], return_tensors="np", **ASKED.get(family, {}))
        made = own.prepare(MediaKind.IMAGE, image, {})
        assert written(made, own.tokens[MediaKind.IMAGE].text) == theirs.replace_image_token(inputs, 0)
        assert all(np.array_equal(array, inputs[name]) for name, array in made.arrays.items())


def test_one_of_several_pictures_is_a_square(folders: dict[str, Path]) -> None:
    own = own_of(folders["llava-onevision"])
    images = [picture(40, 30), picture(33, 100, seed=1)]
    inputs = own.image_processor(images=[images], return_tensors="np")
    theirs = theirs_of("llava-onevision", own.image_processor)
    for number, image in enumerate(images):
        made = own.prepare(MediaKind.IMAGE, image, {"num_pictures": 2})
        assert written(made, "<image>") == theirs.replace_image_token(inputs, number)
        assert np.array_equal(made.arrays["pixel_values"][0], inputs["pixel_values"][number])
        low = own.prepare(MediaKind.IMAGE, image, {"detail": "low"})
        assert np.array_equal(low.arrays["pixel_values"], made.arrays["pixel_values"])


@pytest.mark.parametrize("family", ["llava-onevision", "internvl"])
def test_a_film_stands_as_its_processor_writes_it(family: str, folders: dict[str, Path]) -> None:
    own = own_of(folders[family])
    film = Frames([picture(50, 40, seed) for seed in range(3)], [0.0, 0.5, 1.0])
    made = own.prepare(MediaKind.VIDEO, film, {})
    (frames,) = made.arrays.values()
    frames = frames.reshape(-1, 3, IMAGE_SIZE, IMAGE_SIZE)
    assert written(made, own.tokens[MediaKind.VIDEO].text) == theirs_of(family).replace_video_token(
        {"pixel_values_videos": [frames]}, 0
    )
    mean = own.image_processor.image_mean if family == "internvl" else [0.5] * 3
    mirrored = film.images[1].resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BICUBIC)
    std = own.image_processor.image_std if family == "internvl" else [0.5] * 3
    expected = (np.asarray(mirrored, np.float32) / 255 - np.asarray(mean)) / np.asarray(std)
    assert np.allclose(frames[1], expected.transpose(2, 0, 1), atol=1e-5)


@pytest.mark.parametrize("seconds", [0.05, 0.5, 1.0, 2.0])
def test_sound_stands_as_its_processor_writes_it(folders: dict[str, Path], seconds: float) -> None:
    own = own_of(folders["qwen2-audio"])
    assert isinstance(own, Qwen2AudioFormat)
    samples = np.random.RandomState(0).randn(int(16_000 * seconds)).astype(np.float32) / 10
    made = own.prepare(MediaKind.AUDIO, Sound(samples, 16_000), {})
    theirs = theirs_of("qwen2-audio")
    theirs.feature_extractor = own.extractor
    inputs, (text,) = theirs._process_audio([samples], sampling_rate=16_000, return_tensors="np")
    assert written(made, "<|AUDIO|>") == text
    assert all(np.array_equal(array, inputs[name]) for name, array in made.arrays.items())


@pytest.mark.parametrize(
    ("seconds", "fact"), [(2.5, "is 2.5 s long, this model takes at most 2 s"), (0.01, "too short")]
)
def test_sound_that_the_model_does_not_read_whole_is_refused(
    folders: dict[str, Path], seconds: float, fact: str
) -> None:
    samples = np.zeros(int(16_000 * seconds), np.float32)
    with pytest.raises(ClientError, match=fact):
        own_of(folders["qwen2-audio"]).prepare(MediaKind.AUDIO, Sound(samples, 16_000), {})


def test_samples_whose_spectrum_is_not_finite_are_refused(folders: dict[str, Path]) -> None:
    loud = np.sin(np.arange(16_000, dtype=np.float32)) * np.float32(1e30)
    with pytest.raises(ClientError, match=r"has samples up to 1e\+30, must be in \[-1, 1\]"):
        own_of(folders["qwen2-audio"]).prepare(MediaKind.AUDIO, Sound(loud, 16_000), {})


def test_options_say_how_many_tiles_there_are(folders: dict[str, Path]) -> None:
    own, image = own_of(folders["internvl"]), picture(200, 190)
    num = {
        str(options): len(own.prepare(MediaKind.IMAGE, image, options).arrays["pixel_values"])
        for options in (
            {},
            {"detail": "low"},
            {"max_dynamic_patch": 2},
            {"max_dynamic_patch": 6, "min_dynamic_patch": 6},
        )
    }
    assert list(num.values()) == [5, 1, 1, 7]
    with pytest.raises(ClientError, match="asks for 5 to 2 tiles, must be 1 or more"):
        own.prepare(MediaKind.IMAGE, image, {"max_dynamic_patch": 2, "min_dynamic_patch": 5})
    low = own_of(folders["idefics3"]).prepare(MediaKind.IMAGE, image, {"detail": "low"})
    assert low.arrays["pixel_values"].shape[:2] == (1, 1) and sum(each == 4 for each in low.expansion) == 1


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("internvl", {"detail": "low"}), ("internvl", {"max_dynamic_patch": 2}), ("idefics3", {"detail": "low"}),
        ("llava-onevision", {"num_pictures": 2}),
    ],
)  # fmt: skip
def test_a_picture_is_another_with_an_option_that_changes_it(
    family: str, options: dict[str, Any], folders: dict[str, Path], tmp_path: Path
) -> None:
    preparer, data = Preparer(folders[family], MediaArgs()), media_files.picture(picture(200, 190))
    plain, other = (
        preparer.run(MediaJob(MediaKind.IMAGE, str(tmp_path / f"{i}"), 1 << 24, data, each))
        for i, each in enumerate(({}, options))
    )
    assert isinstance(plain, MediaDone) and isinstance(other, MediaDone)
    assert plain.key != other.key and plain.expansion != other.expansion


def test_long_pictures_are_cropped_where_the_checkpoint_asks_for_it(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["gemma3"], tmp_path / "cropping")
    file = folder / "preprocessor_config.json"
    crops = {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 16, "pan_and_scan_max_num_crops": 4}
    file.write_text(json.dumps({**json.loads(file.read_text()), **crops, "pan_and_scan_min_ratio_to_activate": 1.2}))
    own = own_of(folder)
    theirs = theirs_of("gemma3")
    for (width, height), num in {(90, 30): 3, (32, 32): 0, (30, 64): 2}.items():
        made = own.prepare(MediaKind.IMAGE, picture(width, height), {})
        assert written(made, "<image_soft_token>") == theirs.replace_image_token({"num_crops": [num]}, 0)
        assert len(made.arrays["pixel_values"]) == 1 + num
