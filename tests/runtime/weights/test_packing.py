"""Which form weights are kept in: what is asked for, what a checkpoint says, and how many bytes it comes to."""

from pathlib import Path
from typing import Any

import pytest
import torch
from compiled import KERNELS
from quantised_checkpoints import Kind, quantise_folder
from tiny_model import make_tiny

from ramet.kernels import gpu_ops, reference
from ramet.kernels.cpu.packed import PackedInt4, PackedInt8
from ramet.kernels.linear_fp8 import Fp8Weight
from ramet.kernels.linear_int4 import GpuInt4Weight
from ramet.kernels.reference_weights import Int4Weight, Int8Weight
from ramet.runtime.errors import ConfigError
from ramet.runtime.llm import LLM
from ramet.runtime.models.registry import family_of, read_shape
from ramet.runtime.models.shape import CheckpointQuantization
from ramet.runtime.weights.packing import FORMS, WeightForm, form_of, pack_model, packer_of, weight_bytes
from ramet.runtime.weights.random import fill_random

AWQ = CheckpointQuantization("awq", "int4", 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny(tmp_path / "model", hidden=128, heads=4, kv_heads=2, intermediate=176, vocab=300, tied=False)


def build(folder: Path, ops: Any) -> Any:
    shape = read_shape(folder)
    model = family_of(shape.architecture).decoder(shape, torch.float32, ops)
    fill_random(model, 0)
    return model


@pytest.mark.parametrize("ops", KERNELS)
def test_int4_takes_the_groups_that_fit_and_8_bits_elsewhere(folder: Path, ops: Any) -> None:
    model = build(folder, ops)
    pack_model(model, FORMS["int4"], ops)
    fours, eights = (Int4Weight, Int8Weight) if ops is reference else (PackedInt4, PackedInt8)
    layer = model.layers[0]
    assert isinstance(layer.attention.qkv.packed, fours) and isinstance(layer.mlp.gate_up.packed, fours)
    assert isinstance(layer.mlp.down.packed, eights), "176 is no multiple of 32"
    assert isinstance(model.head.packed, eights) and model.embed.weight is not None
    x = torch.ones(2, 128)
    assert torch.isfinite(layer.mlp.gate_up(x)).all() and model.head.wide(x).shape == (2, 300)


def test_4_bits_for_a_gpu_are_what_the_reference_has(folder: Path) -> None:
    """In the interpreter, and without rounding inputs, as the reference does."""
    models = [build(folder, ops) for ops in (reference, gpu_ops)]
    for model, ops in zip(models, (reference, gpu_ops), strict=True):
        pack_model(model, FORMS["int4"], ops)
    theirs, ours = (model.layers[0].mlp.gate_up for model in models)
    assert isinstance(ours.packed, GpuInt4Weight)
    every, x = torch.arange(352), torch.randn(3, 128, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ours.packed.rows(every), theirs.packed.rows(every))
    torch.testing.assert_close(ours(x), x @ theirs.packed.rows(every).T, rtol=1e-5, atol=1e-5)


def test_float8_is_of_the_layers_alone_and_near_the_plain_model(folder: Path) -> None:
    plain, rounded = build(folder, gpu_ops), build(folder, gpu_ops)
    pack_model(rounded, FORMS["fp8"], gpu_ops)
    assert isinstance(rounded.layers[1].mlp.down.packed, Fp8Weight) and rounded.head.packed is None
    x = torch.randn(5, 128, generator=torch.Generator().manual_seed(0))
    exact = plain.layers[1].mlp.gate_up(x)
    assert (rounded.layers[1].mlp.gate_up(x) - exact).std() < 0.05 * exact.std()
    layers = 2 * (256 * 128 + 128 * 128 + 352 * 128 + 128 * 176)
    assert weight_bytes(plain, torch.bfloat16, FORMS["fp8"]) == layers + 2 * (2 * 300 * 128 + 5 * 128)


def test_float8_names_a_layer_that_tensor_cores_do_not_take() -> None:
    packer = packer_of("fp8", 128, gpu_ops)
    assert packer is not None
    with pytest.raises(ConfigError, match="--quantization is fp8, but the model has a layer of 100 inputs"):
        packer(torch.ones(48, 100))


def test_float8_is_refused_on_a_cpu(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--quantization is fp8, which no kernel for a CPU multiplies: use int8"):
        LLM(model_path=str(folder), quantization="fp8", load_format="dummy", log_level="error")


def test_bytes_of_weights_are_those_of_their_form(folder: Path) -> None:
    model = build(folder, reference)
    qkv, o, gate_up, down, head = 256 * 128, 128 * 128, 352 * 128, 128 * 176, 300 * 128
    rest = 300 * 128 + 5 * 128  # the embedding, and norms
    layers = 2 * (qkv + o + gate_up + down)
    two = torch.bfloat16
    assert weight_bytes(model, two, FORMS[None]) == 2 * (layers + head + rest)
    assert (
        weight_bytes(model, two, FORMS["int8"]) == weight_bytes(model, two, FORMS["int8wo"]) == layers + head + 2 * rest
    )
    fours = 2 * (qkv + o + gate_up)
    assert weight_bytes(model, two, FORMS["int4"]) == fours * (0.5 + 4 / 128) + 2 * down + head + 2 * rest
    assert weight_bytes(model, two, form_of(None, AWQ)) == fours * (0.5 + 4 / 64) + 2 * down + 2 * (head + rest)


def test_what_a_checkpoint_says_of_itself_counts() -> None:
    assert form_of("int4", None) == WeightForm("int4", "int8", 128) and form_of(None, None) == WeightForm(
        "plain", "plain", 128
    )
    assert form_of(None, AWQ) == form_of("awq", AWQ) == WeightForm("int4", "plain", 64)
    with pytest.raises(ConfigError, match="--quantization is gptq, must be awq or left out"):
        form_of("gptq", AWQ)
    with pytest.raises(ConfigError, match="--quantization is awq, but config"):
        form_of("awq", None)


def test_dummy_weights_of_a_quantised_checkpoint_have_its_form(folder: Path, tmp_path: Path) -> None:
    quantise_folder(folder, tmp_path / "4", tmp_path / "meant", Kind("awq"), modules="self_attn")
    options = {"model_path": str(tmp_path / "4"), "random_seed": 0, "log_level": "error"}
    with LLM(**options, load_format="dummy") as dummy:
        assert dummy.resolved["quantization"] == "awq"
        assert dummy.generate([[1, 2, 3]], {"max_new_tokens": 3, "ignore_eos": True})[0]["output_ids"]
    with pytest.raises(ConfigError, match="--quantization is int8, must be awq or left out"):
        LLM(**options, quantization="int8")
