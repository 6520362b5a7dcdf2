"""Models with latents: what they cache, what is left out of a checkpoint, forms that agree, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from compiled import compiled_kernels
from hub_configs import HUB
from safetensors.torch import load_file, save_file
from stored_checkpoints import Stored, store_folder
from tiny_families import VOCABULARY, make_family

from ramet.runtime.attention.latent import expanded_bytes
from ramet.runtime.config import make_args
from ramet.runtime.engine import startup
from ramet.runtime.engine.devices.cpu import CpuDevice
from ramet.runtime.engine.devices.cuda import CudaDevice
from ramet.runtime.errors import ConfigError
from ramet.runtime.llm import LLM
from ramet.runtime.models.registry import parse_shape

PROMPTS = [[(7 * i + n) % VOCABULARY for i in range(n)] for n in (5, 33, 90)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_family(tmp_path_factory.mktemp("latents"), "deepseek-v3")


def scored(folder: Path, **options: Any) -> list[float]:
    """Log-probabilities of prompts."""
    settled: dict[str, Any] = {"random_seed": 0, "max_total_tokens": 512, "log_level": "error", "dtype": "float32"}
    with LLM(str(folder), **{**settled, **options}) as llm:
        replies = llm.generate(PROMPTS, {"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0)
    return [value for reply in replies for value, *_ in reply["meta_info"]["input_token_logprobs"][1:]]


@pytest.mark.parametrize(("quantization", "near"), [("int8wo", 1e-4), ("int8", 0.1), ("int4", 1e-4)])
def test_rounded_weights_give_the_same_in_both_forms(folder: Path, quantization: str, near: float) -> None:
    """A prompt whole is expanded, by two tokens it meets latents; what makes heads of them is not rounded.

    Inputs that are rounded to 8 bits may fall on either side, as in any family.
    """
    compiled_kernels()
    whole, pieces = (scored(folder, quantization=quantization, chunked_prefill_size=size) for size in (-1, 2))
    assert pieces == pytest.approx(whole, abs=near)
    assert whole != pytest.approx(scored(folder), abs=0.2)


@pytest.mark.parametrize(
    ("form", "modules"),
    [(Stored("fp8_inverse", "block"), ""), (Stored("packed", 32), r"\.kv_b_proj")],
    ids=str,
)
def test_weights_in_fewer_bits_are_those_of_the_plain_form(tmp_path: Path, form: Stored, modules: str) -> None:
    """Float8 blocks, as V3 is published, and int4 of what expands latents, whose inputs are not rounded."""
    make_family(tmp_path / "plain", "deepseek-v3", kv_lora_rank=32)
    store_folder(tmp_path / "plain", tmp_path / "stored", tmp_path / "meant", form, modules)
    found = {
        size: scored(tmp_path / "stored", attention_backend="reference", chunked_prefill_size=size) for size in (2, -1)
    }
    assert found[-1] == pytest.approx(scored(tmp_path / "meant", attention_backend="reference"), abs=1e-3)
    assert found[2] == pytest.approx(found[-1], abs=1e-3)
    compiled_kernels()
    assert scored(tmp_path / "stored") == pytest.approx(found[-1], abs=1e-3)


def test_layers_that_predict_further_tokens_are_left_out(folder: Path, tmp_path: Path) -> None:
    wanted = scored(folder)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    further = {name.replace("layers.2.", "layers.3."): t.clone() for name, t in tensors.items() if "layers.2." in name}
    further |= {"model.layers.3.eh_proj.weight": torch.zeros(64, 128), "model.layers.3.enorm.weight": torch.zeros(64)}
    save_file(tensors | further, tmp_path / "model.safetensors")
    assert scored(tmp_path) == wanted


def test_a_missing_projection_is_named(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.self_attn.kv_b_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=r"layers\.1\.self_attn\.kv_b_proj\.weight"):
        scored(tmp_path)


def test_the_plan_counts_latents_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    for device in (CpuDevice, CudaDevice):
        monkeypatch.setattr(device, "available_bytes", lambda _: 80 << 30)
    shape = parse_shape(HUB["DeepSeek-V2-Lite"])
    args = make_args(max_total_tokens=1000, page_size=16, context_length=900)
    plan = startup.plan_of(args, shape, torch.bfloat16, CudaDevice())
    (pool,) = (size for what, size, _ in plan.rows if what.startswith("KV pool"))
    assert plan.max_total_tokens == 992 and pool == (992 + 16) * 27 * 576 * 2
    on_cpu = startup.plan_of(args, shape, torch.bfloat16, CpuDevice())
    assert shape.latent is not None
    expanded = expanded_bytes(900, 16, shape.latent, 2)
    assert on_cpu.needs.activations - plan.needs.activations == expanded == 900 * (576 + 16 * 256) * 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kv_cache_dtype": "int8"}, "--kv-cache-dtype is int8, but a DeepseekV3ForCausalLM caches latents"),
    ({"kv_cache_dtype": "fp8", "attention_backend": "reference"}, "--kv-cache-dtype is fp8, but a Deepseek"),
    ({"attention_backend": "gather"}, "--attention-backend is gather, which reads no latents"),
]


@pytest.mark.parametrize(("options", "named"), REFUSED)
def test_what_latents_cannot_be_is_refused_by_name(folder: Path, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        scored(folder, **options)
