"""Updated weights of every kind of layer, in every form that they are kept in: outputs are those of a fresh engine."""

import gc
import json
from pathlib import Path
from typing import Any

import pytest
from adapters import make_adapter
from media_here import with_media_here
from PIL import Image
from samples import sampled, slow
from tiny_families import FAMILIES, make_family
from tiny_media import FIRST_TOKEN, make_llava
from tiny_model import make_tiny

from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM
from ramet.runtime.machine import collect_all
from ramet.runtime.models.decoder import Decoder

PROMPTS = [[5, 9, 200, 31, 7], list(range(20, 60)), [100] * 9]
PARAMS = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
OPTIONS: dict[str, Any] = {"max_total_tokens": 2048, "log_level": "error", "check_invariants": True}


def outputs_of(llm: LLM, **more: Any) -> list[list[int]]:
    return [reply["output_ids"] for reply in llm.generate(PROMPTS, PARAMS, **more)]


def outputs_are_those_of_a_fresh_engine(a: Path, b: Path, **options: Any) -> None:
    with LLM(b, **OPTIONS, **options) as fresh:
        expected = outputs_of(fresh)
    with LLM(a, **OPTIONS, **options) as llm:
        assert outputs_of(llm) != expected
        llm.update_weights_from_disk(str(b))
        assert outputs_of(llm) == expected
        llm.update_weights_from_disk(str(b))
        assert outputs_of(llm) == expected


FORMS: list[dict[str, Any]] = [
    {"quantization": "int8"}, {"quantization": "int8wo"}, {"quantization": "int4"}, {"dtype": "bfloat16"},
    {"disable_cuda_graph": True}, {"kv_cache_dtype": "int8"}, {"prefix_cache": "list"}, {"disable_radix_cache": True},
    {"overlap": "on"}, {"overlap": "off"}, {"page_size": 16}, {"attention_backend": "reference"},
]  # fmt: skip


@pytest.mark.parametrize("options", sampled(FORMS, 4), ids=str)
def test_in_every_form(tmp_path: Path, options: dict[str, Any]) -> None:
    a, b = (make_tiny(tmp_path / name, seed=seed) for seed, name in enumerate("ab"))
    outputs_are_those_of_a_fresh_engine(a, b, **options)


QUICK = ("qwen3-next", "gpt-oss", "deepseek-v2")  # states, experts, latents


@pytest.mark.parametrize("family", [each if each in QUICK else slow(each) for each in FAMILIES])
def test_of_every_family(tmp_path: Path, family: str) -> None:
    a, b = (make_family(tmp_path / name, family, seed) for seed, name in enumerate("ab"))
    outputs_are_those_of_a_fresh_engine(a, b)


def test_an_adapter_stays_and_changes_the_other_weights(tmp_path: Path) -> None:
    a, b = (make_tiny(tmp_path / name, seed=seed, tied=False) for seed, name in enumerate("ab"))
    adapter = make_adapter(a, tmp_path / "adapter", 3, merges=False, r=4, target_modules=["q_proj", "down_proj"])
    options = {**OPTIONS, "lora_paths": (f"own={adapter.folder}",)}
    with LLM(b, **options) as fresh:
        expected = outputs_of(fresh), outputs_of(fresh, lora_path="own")
    with LLM(a, **options) as llm:
        outputs_of(llm, lora_path="own")
        llm.update_weights_from_disk(str(b))
        assert (outputs_of(llm), outputs_of(llm, lora_path="own")) == expected


def test_an_adapter_that_is_loaded_later_changes_the_other_weights(tmp_path: Path) -> None:
    a, b = (make_tiny(tmp_path / name, seed=seed, tied=False) for seed, name in enumerate("ab"))
    adapter = make_adapter(a, tmp_path / "adapter", 3, merges=False, r=4, target_modules=["q_proj", "down_proj"])
    with LLM(b, **OPTIONS, lora_paths=(f"own={adapter.folder}",)) as fresh:
        expected = outputs_of(fresh, lora_path="own")
    with LLM(a, **OPTIONS) as llm:
        llm.update_weights_from_disk(str(b))
        llm.load_lora_adapter("own", str(adapter.folder))
        assert outputs_of(llm, lora_path="own") == expected


def test_the_old_model_is_gone(tmp_path: Path) -> None:
    def models() -> int:
        return sum(isinstance(each, Decoder) for each in gc.get_objects())

    a, b = (make_tiny(tmp_path / name, seed=seed) for seed, name in enumerate("ab"))
    collect_all()  # models of tests before this one
    before = models()
    with LLM(a, **OPTIONS) as llm:
        outputs_of(llm)
        llm.update_weights_from_disk(str(b))
        outputs_of(llm)
        gc.collect()
        assert models() == before + 1


def test_the_heads_of_a_classifier_change_with_it(tmp_path: Path) -> None:
    kind = "AutoModelForSequenceClassification"
    a, b = (make_family(tmp_path / name, "qwen3", seed, kind) for seed, name in enumerate("ab"))
    with LLM(b, **OPTIONS) as fresh:
        expected = fresh.classify(PROMPTS, use_activation=False)
    with LLM(a, **OPTIONS) as llm:
        before = llm.classify(PROMPTS, use_activation=False)
        llm.update_weights_from_disk(str(b))
        assert llm.classify(PROMPTS, use_activation=False) == expected != before


def test_a_model_through_transformers_is_refused_by_name(tmp_path: Path) -> None:
    folder = make_tiny(tmp_path / "a")
    with LLM(folder, model_impl="transformers", **OPTIONS) as llm:
        with pytest.raises(ClientError, match="served through transformers"):
            llm.update_weights_from_disk(str(folder))
        assert len(outputs_of(llm)) == len(PROMPTS)


def test_a_tower_and_what_it_has_made_are_of_the_other_weights_too(tmp_path: Path) -> None:
    a, b = (make_llava(tmp_path / name, seed=seed) for seed, name in enumerate("ab"))
    picture = Image.effect_noise((48, 40), 90).convert("RGB")

    def seen(llm: LLM) -> list[int]:
        (reply,) = llm.generate([[5, 9, FIRST_TOKEN, 31]], PARAMS, image_data=[picture])
        ids: list[int] = reply["output_ids"]
        return ids

    with with_media_here(LLM(b, **OPTIONS), tmp_path) as fresh:
        expected = seen(fresh)
    with with_media_here(LLM(a, **OPTIONS), tmp_path) as llm:
        assert seen(llm) != expected
        llm.update_weights_from_disk(str(b))
        assert seen(llm) == expected == seen(llm)


def test_another_tower_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    a, b = (make_llava(tmp_path / name) for name in "ab")
    config = json.loads((b / "config.json").read_text())
    config["vision_config"]["hidden_act"] = "gelu"
    (b / "config.json").write_text(json.dumps(config))
    with LLM(a, **OPTIONS) as llm:
        before = outputs_of(llm)
        with pytest.raises(ClientError, match=r"vision_config of its config\.json is different"):
            llm.update_weights_from_disk(str(b))
        assert outputs_of(llm) == before
