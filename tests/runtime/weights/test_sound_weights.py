"""What no weight can be is found while it is loaded, and named: its file, its tensor, its place."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import make_family
from tiny_model import make_tiny
from torch.profiler import ProfilerActivity, profile

from ramet.kernels import reference
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.registry import family_of, read_shape
from ramet.runtime.weights.files import load_weights
from ramet.runtime.weights.sound import copy_weights

LAYER = "model.layers.1."
KINDS = (
    "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
    f"{LAYER}input_layernorm.weight", f"{LAYER}self_attn.q_proj.weight", f"{LAYER}self_attn.k_proj.weight",
    f"{LAYER}self_attn.v_proj.weight", f"{LAYER}self_attn.o_proj.weight", f"{LAYER}mlp.gate_proj.weight",
    f"{LAYER}mlp.up_proj.weight", f"{LAYER}mlp.down_proj.weight",
)  # fmt: skip
NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
FLOATS = (torch.bfloat16, torch.float16, torch.float32)
NO_WEIGHTS = (
    torch.int16, torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.uint16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.complex64,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny(tmp_path / "model", hidden=32, heads=4, kv_heads=2, intermediate=48, vocab=300, tied=False)


def build(folder: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    shape = read_shape(folder)
    return family_of(shape.architecture).decoder(shape, dtype, reference)


def change(folder: Path, name: str, tensor: torch.Tensor) -> Path:
    path = folder / "model.safetensors"
    save_file({**load_file(path), name: tensor}, path)
    return path


def spoiled(folder: Path, name: str, value: float, dtype: torch.dtype) -> str:
    """Puts the value somewhere into the tensor. Returns the place as an error shows it."""
    tensor = load_file(folder / "model.safetensors")[name].to(dtype)
    place = [random.Random(f"{name} {value}").randrange(size) for size in tensor.shape]
    tensor[tuple(place)] = value
    change(folder, name, tensor)
    return str(place)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("value", NOT_FINITE)
def test_one_number_that_is_not_finite_is_named_in_every_kind_of_tensor(folder: Path, name: str, value: str) -> None:
    place = spoiled(folder, name, NOT_FINITE[value], torch.float32)
    with pytest.raises(ConfigError) as caught:
        load_weights(build(folder), folder)
    assert str(caught.value) == (
        f"{folder / 'model.safetensors'}: tensor {name} is {value} at {place}, weights must be finite"
    )


@pytest.mark.parametrize("kept", FLOATS)
@pytest.mark.parametrize("loaded", FLOATS)
@pytest.mark.parametrize("value", NOT_FINITE)
def test_it_is_found_in_every_dtype(folder: Path, kept: torch.dtype, loaded: torch.dtype, value: str) -> None:
    place = spoiled(folder, KINDS[4], NOT_FINITE[value], kept)
    with pytest.raises(ConfigError) as caught:
        load_weights(build(folder, loaded), folder)
    assert f"q_proj.weight is {value} at {place}" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "kept", "loaded", "said"),
    [
        (70_000.0, torch.float32, torch.float16, "70000.0"),
        (-70_144.0, torch.bfloat16, torch.float16, "-70144.0"),
        (3.4e38, torch.float32, torch.bfloat16, "3.3999999521443642e+38"),
        (1e300, torch.float64, torch.float32, "1e+300"),
    ],
)
def test_a_number_that_the_dtype_of_the_model_cannot_hold_is_named(
    folder: Path, value: float, kept: torch.dtype, loaded: torch.dtype, said: str
) -> None:
    place = spoiled(folder, KINDS[0], value, kept)
    with pytest.raises(ConfigError) as caught:
        load_weights(build(folder, loaded), folder)
    name = str(loaded).removeprefix("torch.")
    assert f"embed_tokens.weight is {said} at {place}, which {name} cannot hold" in str(caught.value)
    assert "--dtype" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "dtype"), [(65_504.0, torch.float16), (3.38e38, torch.bfloat16), (-3.4e38, torch.float32)]
)
def test_finite_numbers_whose_sum_is_not_are_weights(folder: Path, value: float, dtype: torch.dtype) -> None:
    tensor = torch.full((300, 32), value, dtype=dtype)
    change(folder, "lm_head.weight", tensor)
    model = build(folder, dtype)
    load_weights(model, folder)
    assert torch.equal(model.get_parameter("head.weight"), tensor)


@pytest.mark.parametrize("dtype", NO_WEIGHTS, ids=str)
@pytest.mark.parametrize("name", [KINDS[0], KINDS[2], KINDS[5], KINDS[8]])
def test_a_dtype_that_is_no_weight_is_named(folder: Path, name: str, dtype: torch.dtype) -> None:
    path = change(folder, name, load_file(folder / "model.safetensors")[name].to(dtype))
    with pytest.raises(ConfigError) as caught:
        load_weights(build(folder), folder)
    assert str(caught.value) == (
        f"{path}: tensor {name} is {str(dtype).removeprefix('torch.')}, "
        "weights must be bfloat16, float16, float32 or float64"
    )


def test_a_head_that_repeats_the_embedding_is_looked_at_as_well(tmp_path: Path) -> None:
    folder = make_family(tmp_path, "gemma3")
    embedding = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    change(folder, "lm_head.weight", embedding.clone())
    spoiled(folder, "lm_head.weight", float("nan"), torch.float32)
    with pytest.raises(ConfigError, match=r"lm_head\.weight is nan at \["):
        load_weights(build(folder), folder)


def test_a_tensor_that_no_parameter_needs_may_hold_anything(folder: Path) -> None:
    change(folder, "model.layers.0.self_attn.rotary_emb.inv_freq", torch.full((4,), float("nan")))
    load_weights(build(folder), folder)


def test_the_file_of_a_sharded_checkpoint_is_named(folder: Path) -> None:
    spoiled(folder, KINDS[9], float("inf"), torch.float32)
    tensors = load_file(folder / "model.safetensors")
    parts = {name: f"part-{i % 3}.safetensors" for i, name in enumerate(sorted(tensors))}
    for file in set(parts.values()):
        save_file({name: tensors[name] for name in parts if parts[name] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    with pytest.raises(ConfigError, match=rf"{parts[KINDS[9]]}: tensor {KINDS[9]} is inf"):
        load_weights(build(folder), folder)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("at", [(0, 0), (1023, 4095), (511, 4095), (512, 0), (700, 3)])
def test_every_place_of_a_large_tensor_is_looked_at(dtype: torch.dtype, at: tuple[int, int]) -> None:
    tensor, target = torch.zeros(1024, 4096, dtype=dtype), torch.empty(1024, 4096, dtype=dtype)
    copy_weights(target, tensor, "x")
    tensor[at] = float("-inf")
    with pytest.raises(ConfigError, match=rf"x is -inf at \[{at[0]}, {at[1]}\]"):
        copy_weights(target, tensor, "x")


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_check_takes_no_memory_of_the_tensors_size(dtype: torch.dtype) -> None:
    tensor, target = torch.full((1024, 4096), 60_000.0, dtype=torch.float32), torch.empty(1024, 4096, dtype=dtype)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        copy_weights(target, tensor, "x")
    largest = max(event.cpu_memory_usage for event in trace.events())
    assert largest < target.nbytes / 16


@pytest.mark.parametrize("what", ["nan", "int16"])
def test_the_server_does_not_start_and_says_in_one_line_why(folder: Path, what: str) -> None:
    if what == "nan":
        spoiled(folder, KINDS[6], float("nan"), torch.float32)
    else:
        change(folder, KINDS[6], torch.zeros(16, 32, dtype=torch.int16))
    done = subprocess.run(
        [sys.executable, "-m", "ramet", "serve", "--model-path", str(folder), "--port", "0", "--dtype", "float32",
         "--max-total-tokens", "512", "--context-length", "64"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode != 0 and not any("http://" in line or "Traceback" in line for line in lines)
    assert len([line for line in lines if f"v_proj.weight is {what}" in line]) == 1
