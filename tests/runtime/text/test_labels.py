"""What config.json says of labels, probabilities and padding, and which model is a reranker."""

import json
from pathlib import Path
from typing import Any

import pytest

from ramet.runtime.config import Args, make_args
from ramet.runtime.errors import ConfigError
from ramet.runtime.text.labels import RERANKER_SENTENCE, Activation, Labels, read_labels

VLLMS = {"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": True}


def args_of(folder: Path, config: dict[str, Any], **options: Any) -> Args:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text("{}")
    return make_args(model_path=str(folder), **options)


@pytest.mark.parametrize("config, expected", [
    ({}, Labels()),
    ({"id2label": {"0": "no", "1": "yes"}, "pad_token_id": 3}, Labels({0: "no", 1: "yes"}, None, 3)),
    ({"pad_token_id": None}, Labels()), ({"pad_token_id": -1}, Labels()),
    ({"problem_type": "regression"}, Labels(activation=Activation.NONE)),
    ({"problem_type": "multi_label_classification"}, Labels(activation=Activation.SIGMOID)),
    ({"problem_type": "single_label_classification"}, Labels()),
    ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, Labels({}, Activation.NONE)),
    ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid", "problem_type": "regression"},
     Labels({}, Activation.SIGMOID)),
    (VLLMS, Labels(is_reranker=True)),
])  # fmt: skip
def test_the_config_says_what_numbers_mean(tmp_path: Path, config: dict[str, Any], expected: Labels) -> None:
    assert read_labels(args_of(tmp_path, config)) == expected


def test_options_replace_keys_of_the_file(tmp_path: Path) -> None:
    args = args_of(tmp_path, {"problem_type": "regression"}, json_model_override_args=json.dumps(VLLMS))
    assert read_labels(args) == Labels({}, Activation.NONE, is_reranker=True)


def test_a_template_with_its_sentence_is_a_rerankers(tmp_path: Path) -> None:
    args = args_of(tmp_path, {})
    (tmp_path / "chat_template.jinja").write_text(RERANKER_SENTENCE + " based on the Query.")
    assert read_labels(args).is_reranker


@pytest.mark.parametrize("config, named", [
    ({"id2label": {"x": "a"}}, "id2label"), ({"id2label": [1]}, "id2label"),
    ({"sentence_transformers": {"activation_fn": "torch.nn.Softplus"}}, r"torch\.nn\.Softplus"),
    ({"classifier_from_token": ["false", "true"]}, "classifier_from_token"),
    ({"classifier_from_token": ["no", "yes"]}, "is_original_qwen3_reranker"),
])  # fmt: skip
def test_what_is_not_served_is_named(tmp_path: Path, config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read_labels(args_of(tmp_path, config))


def test_one_number_is_a_sigmoid_and_several_a_softmax() -> None:
    assert [Labels().activation_of(num) for num in (1, 2)] == [Activation.SIGMOID, Activation.SOFTMAX]
    assert Labels({1: "b"}).name_of(1) == "b" and Labels({1: "b"}).name_of(0) == "LABEL_0"
