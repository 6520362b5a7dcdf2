"""AWQ and GPTQ checkpoints: every weight is what the checkpoint says, outputs are those of transformers on it, and
what is wrong with one is named.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compiled import compiled_kernels
from quantised_checkpoints import Kind, quantise_folder
from safetensors.torch import load_file, save_file
from tiny_families import make_family
from tiny_model import make_tiny

from ramet.kernels import gpu_ops, reference
from ramet.kernels.reference_weights import Int4Weight
from ramet.runtime.config import Args, ModelArgs
from ramet.runtime.engine.devices.cpu import CpuDevice
from ramet.runtime.engine.startup import needs_of
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.modules import Linear
from ramet.runtime.llm import LLM
from ramet.runtime.models.registry import family_of, read_shape
from ramet.runtime.weights.files import linears_in_few_bits, load_weights
from ramet.runtime.weights.packing import form_of, weight_bytes

KINDS = {
    "awq": Kind("awq"),
    "awq, groups of 64": Kind("awq", 64),
    "awq, short last group": Kind("awq", 128),
    "awq, one group": Kind("awq", -1),
    "gptq": Kind("gptq"),
    "gptq, symmetric": Kind("gptq", symmetric=True),
    "gptq, by activations": Kind("gptq", ordered=True),
    "gptq, by activations, groups of 96": Kind("gptq", 96, ordered=True),
    "gptq, one group": Kind("gptq", -1, symmetric=True, ordered=True),
    "gptq v2": Kind("gptq", form="gptq_v2"),
    "gptq v2 that says gptq": Kind("gptq", symmetric=True, stored_as="gptq_v2"),
}
HIDDEN, INTERMEDIATE = 96, 160  # groups of 64 and 128 leave a rest
PROMPTS = [[5, 9, 200, 31, 7], list(range(20, 60)), [100] * 9]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain") / "model"
    return make_tiny(
        folder,
        hidden=HIDDEN,
        heads=4,
        kv_heads=2,
        intermediate=INTERMEDIATE,
        vocab=300,
        tied=False,
        attention_bias=True,
    )


def made(plain: Path, folder: Path, kind: Kind, modules: str = "") -> tuple[Path, Path]:
    """The quantised checkpoint, and the plain one that it means."""
    quantise_folder(plain, folder / "quantised", folder / "meant", kind, modules)
    return folder / "quantised", folder / "meant"


def loaded(folder: Path, packer: Callable[..., Any] = Int4Weight.of_words) -> Any:
    shape = read_shape(folder)
    model = family_of(shape.architecture).decoder(shape, torch.float32, reference)
    load_weights(model, folder, packer)
    return model


@pytest.mark.parametrize("device", ["reference", "cpu", "gpu"])
@pytest.mark.parametrize("name", KINDS)
def test_each_weight_is_what_the_checkpoint_says(plain: Path, tmp_path: Path, name: str, device: str) -> None:
    quantised, meant = made(plain, tmp_path, KINDS[name])
    packer = ({"reference": reference, "gpu": gpu_ops}.get(device) or compiled_kernels()).packers.words
    model, wanted = loaded(quantised, packer), loaded(meant)
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, Linear)]
    assert len(layers) == 2 * 4 + 1
    for at, layer in layers:
        weight = wanted.get_parameter(f"{at}.weight")
        if at == "head":
            assert torch.equal(layer.weight, weight)
        else:
            assert layer.weight is None and torch.equal(layer.packed.rows(torch.arange(len(weight))), weight)


@pytest.mark.parametrize("name", ["awq", "gptq, by activations"])
def test_experts_are_what_the_checkpoint_says(tmp_path: Path, name: str) -> None:
    plain = make_family(tmp_path / "plain", "qwen3-moe", moe_intermediate_size=32)
    quantised, meant = made(plain, tmp_path, KINDS[name])
    model, wanted = loaded(quantised, compiled_kernels().packers.words), loaded(meant)
    experts = [(at, layer) for at, layer in model.named_modules() if isinstance(layer, Linear) and ".mlp." in at]
    assert len(experts) == 2 * (2 * 6 + 1)
    for at, layer in experts:
        weight = wanted.get_parameter(f"{at}.weight")
        if at.endswith("router"):
            assert torch.equal(layer.weight, weight)
        else:
            assert torch.equal(layer.packed.rows(torch.arange(len(weight))), weight)
    ours = [LLM(model_path=str(folder), dtype="float32", log_level="error") for folder in (quantised, meant)]
    first, second = (likelihoods(llm) for llm in ours)
    assert (first - second).abs().mean() < 0.02 * second.abs().mean()


@pytest.mark.parametrize("name", ["awq", "gptq, by activations"])
def test_outputs_that_are_reordered_are_widened(tmp_path: Path, name: str) -> None:
    plain = make_family(tmp_path / "plain", "glm4")
    quantised, meant = made(plain, tmp_path, KINDS[name], "q_proj|k_proj|v_proj")
    model, wanted = loaded(quantised), loaded(meant)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), wanted.parameters(), strict=True))


def test_a_layer_of_which_a_part_is_plain_is_widened(plain: Path, tmp_path: Path) -> None:
    quantised, meant = made(plain, tmp_path, Kind("gptq"), "q_proj|k_proj|down_proj")
    model, wanted = loaded(quantised), loaded(meant)
    assert torch.equal(model.layers[0].attention.qkv.weight, wanted.layers[0].attention.qkv.weight)
    assert model.layers[0].mlp.down.weight is None


def test_what_is_widened_counts_as_such_in_the_memory_plan(plain: Path, tmp_path: Path) -> None:
    quantised, _ = made(plain, tmp_path, Kind("awq", 32), modules="layers.0.self_attn")
    shape, model = read_shape(quantised), loaded(quantised)
    with torch.device("meta"):
        skeletons = [family_of(shape.architecture).decoder(shape, torch.float32, reference) for _ in range(2)]
    few = linears_in_few_bits(skeletons[0], quantised)
    assert few == {name for name, layer in model.named_modules() if isinstance(layer, Linear) and layer.weight is None}
    assert len(few) == 2 and all(name.startswith("layers.0.attention.") for name in few)
    in_bits = sum(skeletons[1].get_parameter(f"{name}.weight").numel() for name in few)
    wanted = sum(4 * parameter.numel() for parameter in model.parameters()) + in_bits * (0.5 + 4 / 32)
    form = form_of(None, shape.quantization)
    assert weight_bytes(skeletons[1], torch.float32, form, few) == wanted
    args = Args(model=ModelArgs(model_path=str(quantised)))
    assert needs_of(args, shape, torch.float32, CpuDevice()).weights == wanted


def likelihoods(llm: LLM) -> torch.Tensor:
    replies = llm.generate(PROMPTS, {"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0)
    return torch.tensor(
        [v for reply in replies for v, *_ in reply["meta_info"]["input_token_logprobs"] if v is not None]
    )


@pytest.mark.parametrize("name", ["awq", "gptq", "gptq, by activations"])
def test_outputs_are_those_of_transformers_on_the_same_weights(plain: Path, tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForCausalLM

    quantised, meant = made(plain, tmp_path, KINDS[name])
    theirs = AutoModelForCausalLM.from_pretrained(meant, dtype=torch.float32).eval()
    wanted = []
    with torch.inference_mode():
        for prompt in PROMPTS:
            scores = theirs(torch.tensor([prompt])).logits[0].log_softmax(-1)
            wanted.append(scores[range(len(prompt) - 1), prompt[1:]])
    with LLM(model_path=str(quantised), dtype="float32", random_seed=0, log_level="error") as llm:
        assert llm.resolved["quantization"] == KINDS[name].method
        ours = likelihoods(llm)
    difference = ours - torch.cat(wanted)
    assert difference.abs().mean() < 0.01 * torch.cat(wanted).abs().mean() and difference.abs().max() < 0.3


def test_layers_that_a_checkpoint_has_plain_stay_plain(plain: Path, tmp_path: Path) -> None:
    quantised, meant = made(plain, tmp_path, Kind("awq"), modules="layers.0.self_attn")
    model, wanted = loaded(quantised), loaded(meant)
    assert model.layers[0].attention.qkv.weight is None
    assert torch.equal(model.layers[1].attention.qkv.weight, wanted.layers[1].attention.qkv.weight)
    assert torch.equal(model.layers[0].mlp.down.weight, wanted.layers[0].mlp.down.weight)


def test_a_bias_of_zeros_of_a_layer_that_has_none_is_passed_over(plain: Path, tmp_path: Path) -> None:
    quantised, _ = made(plain, tmp_path, Kind("gptq"))
    bias = "model.layers.0.mlp.down_proj.bias"
    rewrite(quantised, {bias: torch.zeros(HIDDEN)})
    assert loaded(quantised).layers[0].mlp.down.weight is None
    rewrite(quantised, {bias: torch.ones(HIDDEN)})
    with pytest.raises(ConfigError, match=r"mlp\.down_proj\.bias does not belong"):
        loaded(quantised)


def rewrite(folder: Path, change: dict[str, torch.Tensor], without: tuple[str, ...] = ()) -> None:
    tensors = {**load_file(folder / "model.safetensors"), **change}
    save_file({name: tensor for name, tensor in tensors.items() if name not in without}, folder / "model.safetensors")


Q = "model.layers.0.self_attn.q_proj."
WRONG: list[tuple[dict[str, torch.Tensor], tuple[str, ...], str]] = [
    ({}, (f"{Q}scales",), r"q_proj\.qweight is there and .*q_proj\.scales is not"),
    ({}, (f"{Q}qweight",), r"q_proj\.(g_idx|qzeros|scales) .*must be|does not belong"),
    ({f"{Q}qweight": torch.zeros(96, 12, dtype=torch.int32)}, (), r"scales is \[3, 96\], must be \[24, 12\] beside"),
    ({f"{Q}qzeros": torch.zeros(3, 12)}, (), r"q_proj\.qzeros is float32, must be int32"),
    ({f"{Q}scales": torch.zeros(2, 96)}, (), r"q_proj\.scales is \[2, 96\], must be \[3, 96\] beside"),
    ({f"{Q}scales": torch.full((3, 96), torch.nan)}, (), r"q_proj\.qweight has scales that are not finite"),
    ({f"{Q}scales": torch.zeros(3, 96, dtype=torch.int32)}, (), r"q_proj\.scales is int32, must be float32 or"),
    ({f"{Q}g_idx": torch.arange(95, -1, -1).int() // 32}, (), r"g_idx of .*q_proj, .*v_proj must be the same"),
    (
        {"model.layers.0.mlp.down_proj.g_idx": torch.zeros(160, dtype=torch.int32)}, (),
        r"g_idx of .*down_proj must name each of its groups 32 times",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "without", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_what_is_wrong_with_a_tensor_is_named(
    plain: Path, tmp_path: Path, change: dict[str, torch.Tensor], without: tuple[str, ...], message: str
) -> None:
    quantised, _ = made(plain, tmp_path, Kind("gptq"))
    rewrite(quantised, change, without)
    with pytest.raises(ConfigError, match=message):
        loaded(quantised)


CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"quant_method": "bitsandbytes"}, "quantization_config.quant_method is .bitsandbytes., must be one of awq, gptq"),
    ({"quant_method": None}, "quantization_config.quant_method is None, must be one of awq, gptq"),
    ({"bits": 8}, "quantization_config.bits is 8, must be 4"),
    ({"group_size": 48}, "quantization_config.group_size is 48, must be -1 or a multiple of 32"),
    ({"quant_method": "awq", "version": "gemv"}, "quantization_config.version is 'gemv', must be one of gemm"),
    ({"quant_method": "awq", "zero_point": False}, "quantization_config.zero_point is False, must be true"),
    ({"checkpoint_format": "marlin"}, "quantization_config.checkpoint_format is 'marlin'"),
    ({"dynamic": {"-:.*down.*": {}}}, "quantization_config.dynamic is"),
]


@pytest.mark.parametrize(("change", "message"), CONFIGS, ids=[message for _, message in CONFIGS])
def test_a_config_that_is_not_served_is_named(
    plain: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    config = json.loads((plain / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "quantization_config": {**Kind("gptq").config, **change}})
    )
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        read_shape(tmp_path)
