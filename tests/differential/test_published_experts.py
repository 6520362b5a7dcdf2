"""A GPT-OSS in the form of its publication, experts in MXFP4, equals transformers on the same numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import Oracle
from safetensors.torch import load_file, save_file
from tiny_families import VOCABULARY, make_family
from tiny_model import write_json

from ramet.runtime.errors import ConfigError
from ramet.runtime.llm import LLM
from ramet.runtime.weights.mxfp4 import widened

NUM_NEW = 12
QUANTIZATION = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
EXPERTS = ("gate_up_proj", "down_proj")


def made(folder: Path) -> tuple[Path, Path]:
    """Plain, and with experts in blocks of the same numbers."""
    plain = make_family(folder / "plain", "gpt-oss", intermediate_size=64)
    published = make_family(folder / "published", "gpt-oss", intermediate_size=64)
    tensors, chance = load_file(plain / "model.safetensors"), torch.Generator().manual_seed(5)
    blocked = dict(tensors)
    for name in [name for name in tensors if name.endswith(EXPERTS)]:
        num, num_in, num_out = tensors[name].shape
        blocks = torch.randint(0, 256, (num, num_out, num_in // 32, 16), generator=chance).to(torch.uint8)
        scales = torch.randint(122, 126, (num, num_out, num_in // 32), generator=chance).to(torch.uint8)
        blocked |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        tensors[name] = widened(blocks, scales, torch.float32).mT.contiguous()
        del blocked[name]
    save_file(tensors, plain / "model.safetensors", {"format": "pt"})
    save_file(blocked, published / "model.safetensors", {"format": "pt"})
    config = json.loads((published / "config.json").read_text())
    write_json(published / "config.json", {**config, "quantization_config": QUANTIZATION})
    return plain, published


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return made(tmp_path_factory.mktemp("experts"))


def greedy(llm: LLM, prompts: list[list[int]], num_new: int) -> list[list[int]]:
    replies = llm.generate(prompts, {"temperature": 0, "max_new_tokens": num_new, "ignore_eos": True})
    return [reply["output_ids"] for reply in replies]


def test_greedy_tokens_are_those_of_the_widened_numbers(folders: tuple[Path, Path]) -> None:
    plain, published = folders
    oracle = Oracle.load(plain)
    llm = LLM(model_path=str(published), dtype="float32", chunked_prefill_size=16, max_total_tokens=1024)
    chance = np.random.default_rng(1)
    prompts = [chance.integers(0, VOCABULARY, n).tolist() for n in (3, 20, 45)]
    for prompt, output in zip(prompts, greedy(llm, prompts, NUM_NEW), strict=True):
        oracle.check(prompt, output, oracle.greedy(prompt, NUM_NEW), lambda p, n: greedy(llm, [p], n)[0])
    assert oracle.ties == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t[:4], "tensors are missing"),
        (lambda t: torch.cat((t, t[:1])), "experts.5"),
        (lambda t: t[:, :32], "is"),
        (lambda t: t[0], "model.layers.0.mlp.experts.down_proj"),
    ],
    ids=["an expert less", "an expert more", "fewer inputs", "no experts"],
)
def test_a_stack_of_another_shape_is_refused(tmp_path: Path, change, named: str) -> None:
    folder = make_family(tmp_path, "gpt-oss")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.experts.down_proj"
    tensors[name] = change(tensors[name]).contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ConfigError, match=named):
        LLM(model_path=str(folder), dtype="float32", max_total_tokens=256)
