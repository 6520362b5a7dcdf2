"""A family is one file and one line: a new one is served without a change anywhere else."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from safetensors.torch import load_file, save_file
from tiny_model import make_tiny, write_json

from ramet.runtime.llm import LLM
from ramet.runtime.models import llama
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.family import Family
from ramet.runtime.models.registry import FAMILIES
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.weight_map import Rows, WeightMap, usual_layer

GREEDY = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}


def read_shape(config: ConfigObject) -> ModelShape:
    return replace(llama.read_shape(config), logit_softcap=config.positive("lid"))


def weights(shape: ModelShape) -> WeightMap:
    """Everything has another name, and keys, values and queries are one tensor."""
    layer = {
        **usual_layer(shape),
        "attention.qkv": "attn.fused",
        "mlp.gate_up": (Rows("ffn.gate", shape.intermediate), Rows("ffn.up", shape.intermediate)),
    }
    top = {"embed": "model.tokens", "norm": "model.norm", "head": "lm_head"}
    return WeightMap(layer, top, renamed=(("trunk.block.", "model.layers."),), ignored=("picture.",))


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weights of a Llama as another family would store them."""
    folder = make_tiny(tmp_path / "strange", vocab=300)
    tensors = load_file(folder / "model.safetensors")
    for i in range(2):
        at = f"model.layers.{i}."
        qkv = [tensors.pop(f"{at}self_attn.{x}_proj.weight") for x in "qkv"]
        tensors[f"{at}attn.fused.weight"] = qkv[0].new_tensor([row for part in qkv for row in part.tolist()])
        for x in ("gate", "up"):
            tensors[f"{at}ffn.{x}.weight"] = tensors.pop(f"{at}mlp.{x}_proj.weight")
    tensors["model.tokens.weight"] = tensors.pop("model.embed_tokens.weight")
    tensors["picture.patch.weight"] = tensors["model.norm.weight"].clone()
    renamed = {name.replace("model.layers.", "trunk.block."): tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {**config, "architectures": ["StrangeForCausalLM"], "lid": 1e6})

    module = ModuleType("ramet.runtime.models.strange")
    module.FAMILY = Family(read_shape, weights=weights)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ramet.runtime.models.strange", module)
    monkeypatch.setitem(FAMILIES, "StrangeForCausalLM", "strange")
    return folder


def test_a_new_family_gives_the_outputs_of_its_arithmetic(strange: Path, tmp_path: Path) -> None:
    prompts = [[5, 9, 33], list(range(40, 90))]
    with LLM(str(make_tiny(tmp_path / "llama", vocab=300)), max_total_tokens=512) as llm:
        wanted = [reply["output_ids"] for reply in llm.generate(prompts, GREEDY)]
    with LLM(str(strange), max_total_tokens=512) as llm:
        assert [reply["output_ids"] for reply in llm.generate(prompts, GREEDY)] == wanted
