"""MXFP4: the numbers that the format's tables mean, equal to those of transformers; what is wrong with one is named."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ramet.runtime.errors import ConfigError
from ramet.runtime.models.shape import CheckpointQuantization
from ramet.runtime.weights import bundle, mxfp4
from ramet.runtime.weights.containers import opened
from ramet.runtime.weights.widening import Widening, bundles_of

NAME = "model.layers.0.mlp.experts.gate_up_proj"
EXPERTS, OUT, BLOCKS = 3, 5, 2


def made(seed: int = 0) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (EXPERTS, OUT, BLOCKS, 16), dtype=torch.uint8, generator=random)
    scales = torch.randint(96, 140, (EXPERTS, OUT, BLOCKS), dtype=torch.uint8, generator=random)
    return {f"{NAME}_blocks": blocks, f"{NAME}_scales": scales, "model.norm.weight": torch.ones(4)}


def widening_of(folder: Path, dtype: torch.dtype) -> Widening:
    facts = dict(opened(folder).facts())
    return Widening(list(bundles_of(facts, facts, CheckpointQuantization("mxfp4", None))), dtype)


def number(code: int) -> float:
    """Of 4 bits: a sign, two of the exponent, one of the mantissa; below 1 the step is a half."""
    sign, exponent, mantissa = code >> 3, code >> 1 & 3, code & 1
    size = mantissa * 0.5 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
    return -size if sign else size


@pytest.mark.parametrize("chunk", [bundle.CHUNK_NUMBERS, 64])
def test_numbers_are_those_of_the_format(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(bundle, "CHUNK_NUMBERS", chunk)
    tensors = made()
    blocks, scales = tensors[f"{NAME}_blocks"], tensors[f"{NAME}_scales"]
    found = mxfp4.widened(blocks, scales, torch.float32)
    assert found.shape == (EXPERTS, OUT, 32 * BLOCKS)
    for at in torch.cartesian_prod(torch.arange(EXPERTS), torch.arange(OUT), torch.arange(BLOCKS)).tolist():
        codes = [code for byte in blocks[tuple(at)].tolist() for code in (byte & 15, byte >> 4)]
        wanted = [number(code) * 2.0 ** (int(scales[tuple(at)]) - 127) for code in codes]
        assert found[at[0], at[1], 32 * at[2] : 32 * at[2] + 32].tolist() == wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_those_of_transformers(tmp_path: Path, dtype: torch.dtype) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    tensors = made()
    save_file(tensors, tmp_path / "model.safetensors")
    widening = widening_of(tmp_path, dtype)
    taken = [widening.take(name, tensor) for name, tensor in tensors.items()]
    assert taken[0] is None and taken[2] == ("model.norm.weight", tensors["model.norm.weight"])
    assert taken[1] is not None and taken[1][0] == NAME
    wanted = convert_moe_packed_tensors(tensors[f"{NAME}_blocks"], tensors[f"{NAME}_scales"], dtype=dtype)
    assert torch.equal(taken[1][1], wanted)


WRONG: list[tuple[dict[str, torch.Tensor | None], str]] = [
    ({"_scales": None}, "_blocks is there and .*_scales is not"),
    (
        {"_blocks": torch.zeros(3, 5, 2, 15, dtype=torch.uint8)},
        r"_blocks is \[3, 5, 2, 15\], must be ",
    ),
    ({"_blocks": torch.zeros(3, 5, 2, 16)}, "_blocks is float32, must be uint8"),
    ({"_scales": torch.zeros(3, 5, 3, dtype=torch.uint8)}, r"_scales is \[3, 5, 3\], must be \[3, 5, 2\] beside"),
    ({"_scales": torch.full((3, 5, 2), 255, dtype=torch.uint8)}, "_scales has a scale of 255"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, torch.Tensor | None], message: str) -> None:
    tensors = {**made(), **{NAME + kind: tensor for kind, tensor in change.items()}}
    whole = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(whole, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=message):
        widening = widening_of(tmp_path, torch.float32)
        for name, tensor in whole.items():
            widening.take(name, tensor)
