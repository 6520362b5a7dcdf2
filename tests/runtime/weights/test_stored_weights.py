"""compressed-tensors and float8 blocks: each weight is what the checkpoint says, kept by a kernel or widened; outputs
are those of its plain form; what is wrong with a checkpoint is named.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compiled import compiled_kernels
from safetensors.torch import load_file, save_file
from stored_checkpoints import Stored, store_folder
from tiny_families import make_family
from tiny_model import make_tiny

from ramet.kernels import gpu_ops, reference
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.modules import Linear
from ramet.runtime.llm import LLM
from ramet.runtime.models.registry import family_of, read_shape
from ramet.runtime.weights import bundle
from ramet.runtime.weights.files import check_weights, load_weights

KEPT = {
    "int4, channel": Stored("packed"),
    "int4, groups of 32": Stored("packed", 32),
    "int4, groups of 96": Stored("packed", 96),
    "int4, with zeros": Stored("packed", 32, symmetric=False),
    "int4, by activations": Stored("packed", 32, symmetric=False, ordered=True),
    "int4, scales in bfloat16": Stored("packed", 32, scales=torch.bfloat16),
    "int4, scales in float32": Stored("packed", 32, scales=torch.float32),
    "int8": Stored("int8", weight_only=False),
    "int8, weights alone": Stored("int8", scales=torch.bfloat16),
    "int8, tensor": Stored("int8", "tensor"),
}
WIDENED = {
    "int4, groups of 16": Stored("packed", 16),
    "int3": Stored("packed", 32, bits=3, symmetric=False),
    "int5, by activations": Stored("packed", 32, bits=5, ordered=True),
    "int8, packed": Stored("packed", 32, bits=8),
    "int8, groups": Stored("int8", 32),
    "fp8, tensor": Stored("fp8", "tensor"),
    "fp8, channel": Stored("fp8", scales=torch.bfloat16, weight_only=False),
    "fp8, block": Stored("fp8", "block"),
    "fp8, inverse": Stored("fp8_inverse", "block"),
    "fp8, inverse, large blocks": Stored("fp8_inverse", "block", block=(128, 128)),
}
ALL = {**KEPT, **WIDENED}
HIDDEN, INTERMEDIATE = 96, 192
PROMPTS = [[5, 9, 200, 31, 7], list(range(20, 60)), [100] * 9]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain") / "model"
    return make_tiny(folder, hidden=HIDDEN, heads=4, kv_heads=2, intermediate=INTERMEDIATE, vocab=300, tied=False)


def made(plain: Path, folder: Path, form: Stored, modules: str = "") -> tuple[Path, Path]:
    """The stored checkpoint, and the plain one that it means."""
    store_folder(plain, folder / "stored", folder / "meant", form, modules)
    return folder / "stored", folder / "meant"


def loaded(folder: Path, packer: Callable[..., Any] | None = None, dtype: torch.dtype = torch.float32) -> Any:
    shape = read_shape(folder)
    model = family_of(shape.architecture).decoder(shape, dtype, reference)
    load_weights(model, folder, packer)
    return model


def same_weights(model: Any, wanted: Any, rounded: float = 0.0) -> int:
    """How many layers are kept in few bits; `rounded`: what part of a scale is lost."""
    num_kept = 0
    for at, layer in model.named_modules():
        if isinstance(layer, Linear):
            weight = wanted.get_parameter(f"{at}.weight")
            kept = layer.packed is not None
            found = layer.packed.rows(torch.arange(len(weight))) if layer.packed is not None else layer.weight
            assert torch.allclose(found, weight, rtol=rounded, atol=0), at
            num_kept += kept
    return num_kept


@pytest.mark.parametrize("device", ["reference", "cpu", "gpu"])
@pytest.mark.parametrize("name", KEPT)
def test_what_a_kernel_reads_keeps_the_numbers_of_the_checkpoint(
    plain: Path, tmp_path: Path, name: str, device: str
) -> None:
    stored, meant = made(plain, tmp_path, KEPT[name])
    packer = ({"reference": reference, "gpu": gpu_ops}.get(device) or compiled_kernels()).packers.words
    rounded = 2**-11 if KEPT[name].form == "packed" and KEPT[name].scales == torch.float32 else 0.0
    assert same_weights(loaded(stored, packer), loaded(meant), rounded) == 8


@pytest.mark.parametrize("chunk", [1 << 22, 1000])
@pytest.mark.parametrize("name", WIDENED)
def test_what_no_kernel_reads_is_widened(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk: int
) -> None:
    monkeypatch.setattr(bundle, "CHUNK_NUMBERS", chunk)
    stored, meant = made(plain, tmp_path, WIDENED[name])
    assert same_weights(loaded(stored), loaded(meant)) == 0


def test_experts_are_what_the_checkpoint_says(tmp_path: Path) -> None:
    plain = make_family(tmp_path / "plain", "qwen3-moe", moe_intermediate_size=32)
    stored, meant = made(plain, tmp_path, Stored("packed", 32))
    assert same_weights(loaded(stored, compiled_kernels().packers.words), loaded(meant)) == 2 * (2 * 6 + 2)


def test_scales_that_float16_cannot_hold_are_widened(plain: Path, tmp_path: Path) -> None:
    stored, meant = made(plain, tmp_path, Stored("packed", 32), "down_proj")
    rewrite(stored, {f"{DOWN}weight_scale": torch.full((HIDDEN, INTERMEDIATE // 32), 3e-7)})
    model = loaded(stored, compiled_kernels().packers.words)
    assert model.layers[0].mlp.down.packed is None and model.layers[1].mlp.down.packed is not None
    numbers = loaded(meant).layers[0].mlp.down.weight
    assert torch.equal(model.layers[0].mlp.down.weight.sign(), numbers.sign())


def test_zeros_of_8_bits_are_widened(plain: Path, tmp_path: Path) -> None:
    stored, _ = made(plain, tmp_path, Stored("int8"), "down_proj")
    zeros = torch.zeros(HIDDEN, 1, dtype=torch.int8)
    rewrite(stored, {f"{DOWN}weight_zero_point": zeros, f"{DOWN_1}weight_zero_point": zeros + 3})
    first, second = (layer.mlp.down for layer in loaded(stored).layers)
    tensors = load_file(stored / "model.safetensors")
    assert first.packed is not None and second.packed is None
    wanted = (tensors[f"{DOWN_1}weight"].float() - 3) * tensors[f"{DOWN_1}weight_scale"]
    assert torch.equal(second.weight, wanted)


def test_scales_of_inputs_and_of_cached_keys_are_passed_over(plain: Path, tmp_path: Path) -> None:
    stored, meant = made(plain, tmp_path, Stored("fp8", "tensor"))
    rewrite(stored, {f"{DOWN}input_scale": torch.ones(1), "model.layers.0.self_attn.k_scale": torch.ones(1)})
    assert same_weights(loaded(stored), loaded(meant)) == 0


def likelihoods(folder: Path, **options: Any) -> tuple[torch.Tensor, Any]:
    with LLM(model_path=str(folder), dtype="float32", random_seed=0, log_level="error", **options) as llm:
        replies = llm.generate(PROMPTS, {"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0)
        resolved = llm.resolved["quantization"]
    found = [v for reply in replies for v, *_ in reply["meta_info"]["input_token_logprobs"] if v is not None]
    return torch.tensor(found), resolved


@pytest.mark.parametrize("name", ["int4, by activations", "int8", "int8, weights alone", "fp8, inverse"])
def test_outputs_are_those_of_the_plain_form(plain: Path, tmp_path: Path, name: str) -> None:
    stored, meant = made(plain, tmp_path, ALL[name])
    ours, method = likelihoods(stored)
    wanted, _ = likelihoods(meant)
    assert method == ALL[name].config["quant_method"]
    rounds_inputs = name in ("int4, by activations", "int8")
    bound = 0.01 * wanted.abs().mean() if rounds_inputs else 1e-4
    assert (ours - wanted).abs().mean() <= bound


def test_a_widened_checkpoint_may_be_rounded_again(plain: Path, tmp_path: Path) -> None:
    stored, meant = made(plain, tmp_path, WIDENED["fp8, inverse"])
    (ours, method), (wanted, _) = (likelihoods(folder, quantization="int8") for folder in (stored, meant))
    assert method == "int8" and torch.equal(ours, wanted)


def rewrite(folder: Path, change: dict[str, torch.Tensor], without: tuple[str, ...] = ()) -> None:
    tensors = {**load_file(folder / "model.safetensors"), **change}
    save_file({name: tensor for name, tensor in tensors.items() if name not in without}, folder / "model.safetensors")


DOWN, DOWN_1, UP = (f"model.layers.{at}_proj." for at in ("0.mlp.down", "1.mlp.down", "0.mlp.up"))
INT4, INT8, FP8 = Stored("packed", 32, symmetric=False, ordered=True), Stored("int8"), Stored("fp8_inverse", "block")
WRONG: list[tuple[Stored, dict[str, torch.Tensor], tuple[str, ...], str]] = [
    (INT4, {}, (f"{DOWN}weight_scale",), r"down_proj\.weight_packed is there and .*weight_scale is not"),
    (INT4, {}, (f"{DOWN}weight_shape",), r"down_proj\.weight_packed is there and .*weight_shape is not"),
    (INT4, {}, (f"{DOWN}weight_packed",), r"down_proj\.weight_scale is there and .*down_proj\.weight is not"),
    (INT4, {f"{DOWN}weight_shape": torch.tensor([96, 200])}, (), r"must be \[96, 25\], as .*holds \[96, 200\]"),
    (INT4, {f"{DOWN}weight_shape": torch.tensor([-96, -192])}, (), r"weight_shape holds \[-96, -192\]"),
    (INT4, {f"{DOWN}weight_scale": torch.ones(96, 7)}, (), r"weight_scale is \[96, 7\], must be \[96, groups of 192"),
    (INT4, {f"{DOWN}weight_packed": torch.zeros(96, 24)}, (), r"weight_packed is float32, must be int32"),
    (INT4, {f"{DOWN}weight_zero_point": torch.zeros(96, 6)}, (), r"weight_zero_point is float32, must be int32"),
    (INT4, {f"{DOWN}weight_g_idx": torch.full((192,), 6).int()}, (), r"g_idx of .* must name each of its groups"),
    (Stored("packed", 16, ordered=True), {f"{DOWN}weight_g_idx": torch.full((192,), 12).int()}, (),
     r"weight_g_idx must be from 0 to 11"),
    (INT4, {f"{DOWN}weight_scale": torch.full((96, 6), torch.nan)}, (), r"has scales that are not finite"),
    (INT8, {f"{DOWN}weight_scale": torch.ones(95, 1)}, (), r"weight_scale is \[95, 1\], must be \[1\] or \[96, 1\]"),
    (INT8, {f"{DOWN}weight": torch.zeros(96, 192)}, (), r"down_proj\.weight is float32, must be int8 or"),
    (INT8, {f"{DOWN}weight": torch.zeros(96, 190, dtype=torch.int8)}, (),
     r"is of a weight \[96, 190\], config\.json asks for \[96, 192\]"),
    (FP8, {f"{DOWN}weight_scale_inv": torch.ones(3, 11)}, (), r"must be \[1\] or \[96, 1\] or \[3, 12\] beside"),
    (FP8, {f"{DOWN}weight_scale_inv": torch.full((3, 12), torch.inf)}, (), r"down_proj\.weight is nan|is -?inf at"),
    (FP8, {f"{DOWN}weight": torch.zeros(96, 190).to(torch.float8_e4m3fn)}, (),
     r"is \[96, 190\], config\.json asks for \[96, 192\]"),
    (FP8, {}, (f"{UP}weight_scale_inv",), r"up_proj\.weight is float8_e4m3fn, weights must be"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "change", "without", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_what_is_wrong_with_a_tensor_is_named(
    plain: Path, tmp_path: Path, form: Stored, change: dict[str, torch.Tensor], without: tuple[str, ...], message: str
) -> None:
    stored, _ = made(plain, tmp_path, form)
    rewrite(stored, change, without)
    with pytest.raises(ConfigError, match=message):
        loaded(stored)


@pytest.mark.parametrize("form", [INT4, INT8, FP8], ids=lambda form: form.form)
def test_headers_are_checked_before_memory_is_taken(plain: Path, tmp_path: Path, form: Stored) -> None:
    stored, _ = made(plain, tmp_path, form)
    shape = read_shape(stored)

    def check() -> None:
        with torch.device("meta"):
            check_weights(family_of(shape.architecture).decoder(shape, torch.float32, reference), stored)

    check()
    file = stored / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-7])
    with pytest.raises(ConfigError, match="not a readable safetensors file"):
        check()
    file.write_bytes(content)
    rewrite(stored, {"model.norm.weight": torch.ones(HIDDEN + 1)})
    with pytest.raises(ConfigError, match=r"model\.norm\.weight is \[97\], config\.json asks for \[96\]"):
        check()


CONFIGS: list[tuple[list[str], Any, str]] = [
    (["format"], "nvfp4-pack-quantized", r"quantization_config\.format is 'nvfp4-pack-quantized', must be one of pack"),
    (["config_groups"], {}, r"config_groups is \{\}, must have a group"),
    (["sparsity_config"], {"format": "sparse-24-bitmask"}, r"sparsity_config\.format is 'sparse-24-bitmask'"),
    (["transform_config"], {"config_groups": {"r1": {}}}, r"quantization_config\.transform_config is"),
    (["config_groups", "group_0", "weights", "num_bits"], 16, r"group_0\.weights\.num_bits is 16, must be from 1 to 8"),
    (["config_groups", "group_0", "weights", "strategy"], "token", r"group_0\.weights\.strategy is 'token'"),
    (["config_groups", "group_0", "weights"], None, r"group_0\.weights is None, must be an object"),
    (["config_groups", "group_0"], None, r"group_0\.weights is None, must be an object"),
]


@pytest.mark.parametrize(("path", "value", "message"), CONFIGS, ids=[message for *_, message in CONFIGS])
def test_a_config_that_is_not_served_is_named(
    plain: Path, tmp_path: Path, path: list[str], value: Any, message: str
) -> None:
    quantization = INT4.config
    inner = quantization
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    config = json.loads((plain / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    with pytest.raises(ConfigError, match=message):
        read_shape(tmp_path)
