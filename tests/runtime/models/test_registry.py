"""config.json in both its forms, what is refused by name, and what stands in the place of its keys."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_model import make_tiny

from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.llm import LLM
from ramet.runtime.models.registry import family_of, parse_shape, read_shape

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 2048,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}


def test_older_and_newer_form_are_one_shape() -> None:
    older = parse_shape(
        {**CONFIG, "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}, "torch_dtype": "bfloat16"}
    )
    newer = parse_shape(
        {**CONFIG, "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **LLAMA3}, "dtype": "bfloat16"}
    )
    assert older == newer
    assert (older.layers[0].rope.theta, older.layers[0].rope.original_context, older.dtype) == (5e5, 512, "bfloat16")


def test_what_a_config_leaves_out() -> None:
    shape = parse_shape(CONFIG)
    assert (shape.kv_heads, shape.head_dim, shape.tied_head, shape.qkv_bias, shape.dtype) == (
        4,
        16,
        False,
        False,
        "float32",
    )
    assert (shape.layers[0].rope.kind, shape.layers[0].rope.theta, shape.layers[0].rope.original_context) == (
        "default",
        10000.0,
        2048,
    )


def test_older_name_of_a_rope_kind() -> None:
    assert parse_shape({**CONFIG, "rope_scaling": {"type": "linear", "factor": 2.0}}).layers[0].rope.kind == "linear"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": None}, "hidden_size is None"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_key_value_heads": 3}, "num_attention_heads is 4, must be a multiple of 3"),
        ({"hidden_size": 66}, "hidden_size is 66"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"torch_dtype": "int8"}, "torch_dtype is 'int8'"),
        ({"rms_norm_eps": -1}, "rms_norm_eps is -1"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "rope_type is 'spiral'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is None"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        ({"architectures": []}, "architectures is"),
    ],
)
def test_a_bad_field_is_named_with_its_value(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=r"config\.json") as caught:
        parse_shape({**CONFIG, **change})
    assert named in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", None])
def test_a_file_that_is_no_config(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_shape(tmp_path)


def test_read_shape_reads_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert read_shape(tmp_path) == parse_shape(CONFIG)


def test_an_unknown_architecture_is_told_what_is_supported() -> None:
    with pytest.raises(ConfigError, match=r"BertModel is not supported.*LlamaForCausalLM"):
        family_of("BertModel")


def test_a_key_of_the_file_is_replaced_and_the_file_stays(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "time_steps": 12}))
    with pytest.raises(ConfigError, match=r"time_steps is 12.*json-model-override-args '\{.time_steps.: null\}'"):
        read_shape(tmp_path)
    shape = read_shape(tmp_path, '{"time_steps": null, "rope_theta": 7.0}')
    assert shape.layers[0].rope.theta == 7.0


def test_the_option_reaches_the_model(tmp_path: Path) -> None:
    folder = make_tiny(tmp_path)
    options = {"max_total_tokens": 64, "json_model_override_args": '{"max_position_embeddings": 24}'}
    with LLM(str(folder), **options) as llm, pytest.raises(ClientError, match="maximum context length is 24"):
        llm.generate([[5] * 30])


@pytest.mark.parametrize("overrides", ["{", "[1]"])
def test_overrides_that_are_no_object(tmp_path: Path, overrides: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ConfigError, match=r"^--json-model-override-args "):
        read_shape(tmp_path, overrides)
