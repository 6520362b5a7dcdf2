"""What cannot be served through transformers is refused by its name, before weights are read; what can says so."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_others import DYNAMIC, LONG, REFUSED, SERVED, config_of, make_other

from ramet.runtime.config import make_args
from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.registry import FAMILIES
from ramet.runtime.models.transformers.apart import AloneAnswers, check_apart
from ramet.runtime.models.transformers.classes import NotServed
from ramet.runtime.models.transformers.facts import window_of
from ramet.runtime.models.transformers.implementation import implementation_of
from ramet.runtime.models.transformers.interface import ANSWERS, ATTENTION, LAYER

STATEFUL = ["mamba", "mamba2", "jamba", "qwen3_next", "qwen3_5", "lfm2"]


def values_of(model_type: str, changes: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """As config.json has them."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    config = config_of(model_type, changes)
    classes = MODEL_FOR_CAUSAL_LM_MAPPING
    name = classes[type(config)].__name__ if type(config) in classes else "T5ForConditionalGeneration"
    return {**json.loads(json.dumps(config.to_dict(), default=str)), "architectures": [name], **keys}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_is_refused(name: str) -> None:
    model_type, changes, word = REFUSED[name]
    found = implementation_of(values_of(model_type, changes), "config.json", "transformers")
    assert found.name == "refused" and found.shape is None
    assert word in found.why


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        (
            {"architectures": ["FooForCausalLM"], "auto_map": {"AutoModelForCausalLM": "foo.Foo"}},
            "such code is never run",
        ),
        ({"architectures": ["FooForCausalLM"]}, "FooForCausalLM is unknown to transformers"),
        ({"architectures": []}, "architectures is []"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config is set"),
        ({"hidden_size": -64}, "hidden_size is -64, must be an integer >= 1"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, must be an integer >= 1"),
        ({"num_key_value_heads": 3}, "4 query heads, which 3 key/value heads do not divide"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"max_position_embeddings": 1}, "max_position_embeddings is 1, must be an integer >= 2"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is true"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "layer_types has chunked_attention"),
        ({"dtype": "float8_e4m3fn"}, "dtype is float8_e4m3fn"),
    ],
)
def test_a_wrong_value_is_named(keys: dict[str, Any], word: str) -> None:
    found = implementation_of(values_of("olmo2", {}, **keys))
    assert found.name == "refused"
    assert word in found.why


def test_each_way_of_a_model_that_is_refused_says_why() -> None:
    why = implementation_of(values_of("bloom", dict(n_layer=2, n_head=4))).why
    assert "architecture BloomForCausalLM is not supported" in why
    assert "through transformers: config.json: 0 of 2 layers of BloomForCausalLM" in why


def test_the_implementation_follows_what_is_asked_for() -> None:
    llama, olmo = (values_of(*SERVED[name]) for name in ("llama", "olmo2"))
    assert [implementation_of(llama, asked=each).name for each in ("auto", "native", "transformers")] == [
        "native", "native", "transformers"
    ]  # fmt: skip
    assert [implementation_of(olmo, asked=each).name for each in ("auto", "native", "transformers")] == [
        "transformers", "refused", "transformers"
    ]  # fmt: skip


def test_a_config_that_its_family_does_not_read_is_read_by_transformers() -> None:
    found = implementation_of(values_of("gemma2", dict(SERVED["gemma2"][1]), odd_key=1))
    assert found.name == "transformers" and "odd_key" in found.why
    assert found.shape is not None and found.shape.architecture in FAMILIES


@pytest.mark.parametrize(
    ("name", "changes", "trained"),
    [
        ("phi3", dict(original_max_position_embeddings=64, rope_parameters=LONG), 64),
        ("llama", dict(rope_parameters=dict(DYNAMIC, original_max_position_embeddings=128)), 128),
    ],
)
def test_the_context_ends_where_a_rope_would_turn_all_keys_anew(
    caplog: pytest.LogCaptureFixture, name: str, changes: dict[str, Any], trained: int
) -> None:
    with caplog.at_level(logging.WARNING, "ramet"):
        found = implementation_of(values_of(name, changes), f"{name}.json", "transformers")
    assert found.shape is not None and found.shape.context_length == trained
    assert f"the context is {trained} tokens instead of 256" in caplog.text


def test_layers_are_read_of_what_the_modules_do() -> None:
    gemma, deepseek = (
        implementation_of(values_of(*SERVED[n]), n, "transformers").shape for n in ("gemma2", "deepseek_v2")
    )
    assert gemma is not None and deepseek is not None
    rules = [layer.attention for layer in gemma.layers]
    assert [rule.window for rule in rules] == [8, None] and {rule.softcap for rule in rules} == {4.0}
    assert {rule.scale for rule in rules} == {24**-0.5}
    assert {(kv.heads, kv.key, kv.value) for kv in deepseek.kv_shapes} == {(4, 24, 16)}


@pytest.mark.parametrize("window", [1, 2, 8, 127, 4096, None])
def test_a_window_is_found_by_asking_the_mask(window: int | None) -> None:
    from transformers.masking_utils import causal_mask_function, sliding_window_causal_mask_function

    mask = causal_mask_function if window is None else sliding_window_causal_mask_function(window)
    assert window_of(mask) == window


def test_masks_that_are_no_window_are_named() -> None:
    from transformers.masking_utils import bidirectional_mask_function, chunked_causal_mask_function

    with pytest.raises(ValueError, match="not causal"):
        window_of(bidirectional_mask_function)
    for chunk in (3, 64, 8192):
        with pytest.raises(ValueError, match="does not see as others do"):
            window_of(chunked_causal_mask_function(chunk, torch.zeros(1, dtype=torch.int)))


@pytest.mark.parametrize("name", [*STATEFUL, "dynamic"])
def test_modules_that_mix_tokens_outside_attention_are_found_out(name: str) -> None:
    """Whatever their config says: the check that is made once weights are in."""
    model_type, changes = ("llama", dict(rope_parameters=DYNAMIC)) if name == "dynamic" else REFUSED[name][:2]
    with pytest.raises(NotServed, match="depend on the other tokens of a step"):
        ask_alone(model_type, changes, 1024 if name == "dynamic" else 256)


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3_moe", "gemma3", "opt"])
def test_modules_whose_tokens_meet_in_attention_alone_pass(name: str) -> None:
    ask_alone(*SERVED[name], 256)


def ask_alone(model_type: str, changes: dict[str, Any], num_positions: int) -> None:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    config = config_of(model_type, changes)
    config._attn_implementation = ATTENTION
    model = AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and "emb" not in name:
            parameter.data.mul_(6)
    for module in model.modules():
        setattr(module, LAYER, 0)
        setattr(module, ANSWERS, AloneAnswers())
    takes_positions = model_type not in ("mamba", "mamba2")

    def states(ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        own = {"position_ids": positions[None]} if takes_positions else {}
        found: torch.Tensor = model.base_model(input_ids=ids[None], use_cache=False, **own)[0][0]
        return found

    with torch.no_grad():
        check_apart(states, num_positions, 384, torch.device("cpu"), model_type)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_other(tmp_path_factory.mktemp("olmo2"), "olmo2")


class TestWeights:
    def start(self, folder: Path, tmp_path: Path, change: Any) -> None:
        from safetensors.torch import load_file, save_file

        for path in folder.iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        tensors = load_file(tmp_path / "model.safetensors")
        change(tensors)
        save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
        ModelRunner(make_args(model_path=str(tmp_path), max_total_tokens=64), lambda name, seconds: None)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda t: t.pop("model.norm.weight"), "1 tensors are missing, among them model.norm.weight"),
            (lambda t: t.update(odd=torch.zeros(2)), "1 tensors do not belong to a Olmo2ForCausalLM .* odd"),
            (
                lambda t: t.update({"model.norm.weight": torch.zeros(9)}),
                r"model.norm.weight of \[9\] instead of \[64\]",
            ),
            (lambda t: t["model.norm.weight"].fill_(float("nan")), "tensor model.norm.weight has .*nan"),
        ],
    )
    def test_what_is_wrong_with_them_is_named(self, folder: Path, tmp_path: Path, change: Any, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            self.start(folder, tmp_path, change)

    def test_buffers_of_older_files_are_no_weights(self, folder: Path, tmp_path: Path) -> None:
        name = "model.layers.0.self_attn.rotary_emb.inv_freq"
        self.start(folder, tmp_path, lambda tensors: tensors.update({name: torch.zeros(8)}))
