"""A tower alone makes what the whole model of transformers makes of the same arrays, several pieces at once or one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tiny_media import FAMILIES
from torch import Tensor

from ramet.ipc.media import MediaKind
from ramet.runtime.media.formats.base import Frames, Sound
from ramet.runtime.media.formats.registry import format_of
from ramet.runtime.models.registry import read_config, read_shape, weights_of
from ramet.runtime.models.towers.base import Tower, load_tower
from ramet.runtime.models.towers.registry import tower_of
from ramet.runtime.weights.containers import opened

CASES = [
    *((name, MediaKind.IMAGE) for name in ("llava", "llava-next", "llava-onevision", "idefics3", "smolvlm")),
    *((name, MediaKind.IMAGE) for name in ("internvl", "gemma3")),
    ("llava-onevision", MediaKind.VIDEO),
    ("internvl", MediaKind.VIDEO),
    ("qwen2-audio", MediaKind.AUDIO),
]


def pieces_of(kind: MediaKind) -> list[Any]:
    random = np.random.RandomState(0)

    def picture(width: int, height: int) -> Any:
        return Image.fromarray(random.randint(0, 256, (height, width, 3), dtype=np.uint8))

    if kind is MediaKind.IMAGE:
        return [picture(40, 30), picture(90, 35), picture(64, 64)]
    if kind is MediaKind.VIDEO:
        return [Frames([picture(40, 30) for _ in range(num)], [i / 2 for i in range(num)]) for num in (3, 2)]
    return [Sound(random.randn(num).astype(np.float32) / 10, 16_000) for num in (16_000, 32_000, 900)]


def tower_at(folder: Path) -> Tower:
    shape = read_shape(folder)
    own = weights_of(shape).ignored
    tensors = ((n, t) for n, t in opened(folder).tensors(torch.float32) if n.startswith(own))
    return load_tower(tower_of(shape), folder, "", torch.float32, torch.device("cpu"), tensors)


def merged(whole: Any, text_model: str, token: int, num: int, arrays: dict[str, Tensor]) -> Tensor:
    """[num, N]: what the class's own `forward` gives its text model in the place of the tokens."""
    seen: list[Tensor] = []

    def stop(module: Any, args: Any, kwargs: Any) -> None:
        seen.append(kwargs["inputs_embeds"])
        raise InterruptedError

    hook = getattr(whole.model, text_model).register_forward_pre_hook(stop, with_kwargs=True)
    with hook, pytest.raises(InterruptedError):
        whole(input_ids=torch.tensor([[5, *[token] * num, 6]]), attention_mask=torch.ones(1, num + 2).long(), **arrays)
    return seen[0][0, 1:-1]


@pytest.mark.parametrize(("family", "kind"), CASES)
@torch.inference_mode()
def test_a_tower_makes_what_the_whole_model_does(family: str, kind: MediaKind, tmp_path: Path) -> None:
    folder = FAMILIES[family](tmp_path)
    media, tower = format_of(folder), tower_at(folder)
    assert media is not None
    whole = getattr(transformers, read_config(folder)["architectures"][0]).from_pretrained(folder, dtype=torch.float32)
    pieces = [media.prepare(kind, piece, {}) for piece in pieces_of(kind)]
    arrays = [{name: torch.from_numpy(array) for name, array in piece.arrays.items()} for piece in pieces]
    made = tower.features(kind, arrays)
    for piece, each, features in zip(pieces, arrays, made, strict=True):
        num = sum(part for part in piece.expansion if isinstance(part, int))
        expected = merged(whole, tower.text_model, media.tokens[kind].id, num, each)
        assert features.shape == expected.shape == (num, tower.width)
        assert torch.allclose(features, expected, atol=1e-5)
        assert torch.allclose(tower.features(kind, [each])[0], features, atol=1e-5)
        assert num == 1 or not torch.equal(features[0], features[-1])
