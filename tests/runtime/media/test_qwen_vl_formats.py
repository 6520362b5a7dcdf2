"""Qwen-VL's pictures and films: as many tokens as transformers' processors say, films' patches as theirs, options, and
arrays of clients.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_media import FAMILIES

from ramet.ipc.media import Grid, MediaKind
from ramet.runtime.errors import ClientError
from ramet.runtime.media.formats.base import Frames, MediaFormat, Processed
from ramet.runtime.media.formats.registry import format_of

NAMES = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl")
SIZES = [(1, 1), (16, 16), (17, 300), (40, 70), (90, 91), (200, 120), (7, 1400)]  # width, height
IMAGE, VIDEO = MediaKind.IMAGE, MediaKind.VIDEO
LEAST, MOST, MAX_OF_FILM = 512, 8192, 4096  # pixels, as scripts/tiny_media.py has them


@pytest.fixture(scope="module", params=NAMES)
def media(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MediaFormat:
    found = format_of(FAMILIES[request.param](tmp_path_factory.mktemp("qwen")))
    assert found is not None
    return found


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def film(num: int, width: int = 40, height: int = 40, fps: float = 2.0) -> Frames:
    return Frames([picture(width, height, i) for i in range(num)], [i / fps for i in range(num)])


def is_qwen3(media: MediaFormat) -> bool:
    return type(media).__name__.startswith("Qwen3")


def theirs() -> Any:
    """The class for Qwen3-VL's films, as far as it works without torchvision."""
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    size = {"shortest_edge": LEAST, "longest_edge": MAX_OF_FILM}
    own = SimpleNamespace(size=size, patch_size=8, merge_size=2, temporal_patch_size=2, cap_pixels_per_frame=None)
    own.patchify = Qwen3VLVideoProcessor.patchify.__get__(own)
    own.count = Qwen3VLVideoProcessor.get_num_of_video_patches.__get__(own)
    return own


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_picture_has_as_many_tokens_as_its_processor_says(media: MediaFormat, size: tuple[int, int]) -> None:
    from transformers import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil.from_pretrained(media.folder)
    made = media.prepare(IMAGE, picture(*size), {})
    (grid,) = made.grids
    assert made.expansion == (grid.num_tokens,) == (processor.get_number_of_image_patches(size[1], size[0]) // 4,)
    assert (made.arrays["pixel_values"] == processor(picture(*size), return_tensors="np")["pixel_values"]).all()


@pytest.mark.parametrize("num", [1, 2, 3, 8, 30])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_film_has_as_many_tokens_as_its_processor_says(media: MediaFormat, size: tuple[int, int], num: int) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    made = media.prepare(VIDEO, film(num, *size), {})
    if is_qwen3(media):  # which takes no film of one frame: that is one of two that are the same
        patches = theirs().count(max(num, 2), size[1], size[0], {})
    else:
        height, width = smart_resize(size[1], size[0], 16, LEAST, MAX_OF_FILM)
        patches = -(-num // 2) * (height // 8) * (width // 8)
    assert sum(each for each in made.expansion if isinstance(each, int)) == patches // 4
    assert sum(grid.num_tokens for grid in made.grids) == patches // 4
    assert made.arrays["pixel_values_videos"].shape == (patches, 3 * 2 * 8 * 8)


@pytest.mark.parametrize("num", [1, 4, 5])
def test_patches_of_a_film_are_in_the_order_of_transformers(media: MediaFormat, num: int) -> None:
    frames = film(num, 48, 16)  # pixels that need no resizing
    made = media.prepare(VIDEO, frames, {"min_pixels": 1})
    _, rows, columns = made.arrays["video_grid_thw"][0].tolist()
    assert (rows, columns) == (2, 6)
    mean, std = (np.array(each)[:, None, None] for each in own_scale(media))
    pixels = [(np.asarray(each).transpose(2, 0, 1) / 255 - mean) / std for each in frames.images]
    want, *_ = theirs().patchify(torch.from_numpy(np.stack(pixels)[None]), 8, 2, 2)
    assert np.abs(made.arrays["pixel_values_videos"] - want[0].numpy()).max() < 1e-5


def own_scale(media: MediaFormat) -> Any:
    from transformers.image_utils import (
        IMAGENET_STANDARD_MEAN,
        IMAGENET_STANDARD_STD,
        OPENAI_CLIP_MEAN,
        OPENAI_CLIP_STD,
    )

    return (IMAGENET_STANDARD_MEAN, IMAGENET_STANDARD_STD) if is_qwen3(media) else (OPENAI_CLIP_MEAN, OPENAI_CLIP_STD)


@pytest.mark.parametrize("fps", [0.5, 2.0, 3.3, 60.0, None])
@pytest.mark.parametrize("rate", [1.0, 24.0, 29.97])
@pytest.mark.parametrize("total", [1, 2, 3, 7, 48, 500])
def test_frames_are_taken_as_the_processor_takes_them(
    media: MediaFormat, total: int, rate: float, fps: float | None
) -> None:
    most = 33 if fps is None else 20
    got = media.frames_of(total, rate, fps, most)
    assert got == sorted(set(got)) and got[0] == 0 and got[-1] < total and len(got) <= most
    if is_qwen3(media):
        from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

        own = SimpleNamespace(fps=None, min_frames=4, max_frames=most)
        told = SimpleNamespace(total_num_frames=total, fps=rate)
        num = min(most, total) if fps is None else None
        assert got == Qwen3VLVideoProcessor.sample_frames(own, told, num, fps).tolist()
    elif total > 1:  # as the class for Qwen2-VL's films says, which cannot be imported without torchvision
        least = most if fps is None else max(total / rate * fps, 4)
        num = int(min(least, most // 2 * 2, total // 2 * 2) / 2) * 2
        assert got == [int(at) for at in np.arange(num) * total / num + 1e-9]


def test_a_film_of_equal_pairs_is_a_row_of_pictures(media: MediaFormat) -> None:
    if is_qwen3(media):  # whose films are scaled otherwise than its pictures here
        return
    one, two = picture(64, 32, 1), picture(64, 32, 2)
    made = media.prepare(VIDEO, Frames([one, one, two, two], [0.0, 0.5, 1.0, 1.5]), {})
    rows = [media.prepare(IMAGE, each, {}).arrays["pixel_values"] for each in (one, two)]
    assert np.abs(made.arrays["pixel_values_videos"] - np.concatenate(rows)).max() < 1e-5


def test_times_of_a_film(media: MediaFormat) -> None:
    made = media.prepare(VIDEO, film(5, fps=1.0), {})
    if is_qwen3(media):
        from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

        own = SimpleNamespace(video_processor=SimpleNamespace(merge_size=2, temporal_patch_size=2))
        own.video_token, own.vision_start_token, own.vision_end_token = "*", "<|vision_start|>", "<|vision_end|>"
        own._calculate_timestamps = Qwen3VLProcessor._calculate_timestamps.__get__(own)
        given = SimpleNamespace(fps=1.0, frames_indices=np.arange(5))
        inputs = {"video_grid_thw": made.arrays["video_grid_thw"], "video_metadata": [given]}
        want = Qwen3VLProcessor.replace_video_token(own, inputs, 0)
        assert "".join(each if isinstance(each, str) else "*" * each for each in made.expansion) == want
        assert {grid.times for grid in made.grids} == {(0,)} and len(made.grids) == 3
    else:  # 2 a second in the tiny 2.5-VL, and frames are joined by two
        step = 4 if b"tokens_per_second" in media.settings else 1
        assert [grid.times for grid in made.grids] == [(0, step, 2 * step)]


def test_options_make_a_picture_smaller_or_larger_within_the_processors_bounds(media: MediaFormat) -> None:
    shown = picture(128, 64)
    assert [media.prepare(IMAGE, shown, {}).grids[0].num_tokens] == [32]
    assert media.prepare(IMAGE, shown, {"max_pixels": 2048}).grids[0].num_tokens == 8
    assert media.prepare(IMAGE, picture(32, 16), {"min_pixels": 2048}).grids[0].num_tokens == 8
    assert media.prepare(IMAGE, shown, {"detail": "low"}).grids[0].num_tokens == 32  # which is no more than that
    for wrong in ({"max_pixels": MOST + 1}, {"min_pixels": 0.5}, {"max_pixels": True}, {"min_pixels": MOST + 1}):
        with pytest.raises(ClientError, match="must be an integer from 1 to 8192"):
            media.prepare(IMAGE, shown, wrong)


@pytest.mark.parametrize("kind", [IMAGE, VIDEO])
def test_a_picture_that_is_too_long_is_refused(media: MediaFormat, kind: MediaKind) -> None:
    long = picture(402, 2)
    with pytest.raises(ClientError, match="402 x 2 pixels, must be at most 200 times as long as wide"):
        media.prepare(kind, long if kind is IMAGE else Frames([long] * 2, [0.0, 1.0]), {})


@pytest.mark.parametrize("kind", [IMAGE, VIDEO])
def test_arrays_of_a_processor_are_what_it_makes_here(media: MediaFormat, kind: MediaKind) -> None:
    made = media.prepare(kind, picture(40, 70) if kind is IMAGE else film(4, fps=2.0), {})
    got = media.received(kind, made.arrays, False)
    numbers = tuple(each for each in made.expansion if isinstance(each, int))
    assert (got.grids, got.expansion) == (made.grids, numbers)
    assert all((got.arrays[name] == made.arrays[name]).all() for name in made.arrays)


def embedded(tokens: int, size: int, grid: Any, name: str = "image_grid_thw") -> dict[str, Any]:
    return {"feature": np.zeros((tokens, size), np.float32), name: np.array(grid)}


def test_features_of_a_client_need_their_grid(media: MediaFormat) -> None:
    size = 64 * (3 if is_qwen3(media) else 1)
    got = media.received(IMAGE, embedded(6, size, [[1, 4, 6]]), True)
    assert got == Processed(got.arrays, (6,), (Grid((0,), 2, 3),)) and got.arrays["feature"].shape == (6, size)
    wrong = [
        (embedded(6, size, [[2, 4, 6]]), "must be 1 to 1"),
        (embedded(6, size, [[1, 4, 5]]), "multiples of 2"),
        (embedded(6, size, [[1, -4, -6]]), "multiples of 2"),
        (embedded(6, size, [[1, 1 << 40, 2]]), "multiples of 2"),
        (embedded(6, size, [[1.0, 4.0, 6.0]]), "must be integers"),
        (embedded(7, size, [[1, 4, 6]]), r"feature of shape \[7"),
        (embedded(6, size + 1, [[1, 4, 6]]), r"must be \[6"),
        ({"feature": np.zeros((6, size), np.float32)}, "has no 'image_grid_thw'"),
    ]
    for arrays, why in wrong:
        with pytest.raises(ClientError, match=why):
            media.received(IMAGE, arrays, True)


@pytest.mark.parametrize("seconds", [np.nan, np.inf, -1.0, 1e9])
def test_seconds_that_are_none_are_refused(media: MediaFormat, seconds: float) -> None:
    made = media.prepare(VIDEO, film(4), {})
    with pytest.raises(ClientError, match="second_per_grid_ts"):
        media.received(VIDEO, {**made.arrays, "second_per_grid_ts": np.array([seconds])}, False)


def test_settings_are_those_of_every_file(media: MediaFormat) -> None:
    file = media.folder / "video_preprocessor_config.json"
    before, text = media.settings, file.read_text()
    try:
        file.write_text(text.replace("4096", "8192"))
        assert media.settings != before
    finally:
        file.write_text(text)
