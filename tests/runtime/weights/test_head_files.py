"""The files of heads: what is read, and what is refused by name before anything runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ramet.ipc.spec import PoolingTask
from ramet.runtime.engine.pooler import HostPooler
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.registry import parse_shape, read_shape
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.weights.heads import ACTIVATIONS, load_heads

WIDTH, OUT, LABELS = 8, 5, 3
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForSequenceClassification"], "vocab_size": 16, "hidden_size": WIDTH,
    "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8,
    "id2label": {"0": "a", "1": "b", "2": "c"},
}  # fmt: skip
DENSE = {"in_features": WIDTH, "out_features": OUT, "bias": True, "activation_function": "torch.nn.modules.Tanh"}


def shape(**changes: Any) -> ModelShape:
    return parse_shape({**CONFIG, **changes})


def written(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    save_file(tensors, folder / "model.safetensors")
    return folder


def sentence(folder: Path, config: Any = DENSE, tensors: dict[str, torch.Tensor] | None = None) -> Path:
    """With a dense layer."""
    types = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    (folder / "modules.json").write_text(json.dumps([{"path": at, "type": f"x.{name}"} for at, name in types.items()]))
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text(json.dumps(config))
    usual = {"linear.weight": torch.randn(OUT, WIDTH), "linear.bias": torch.randn(OUT)}
    if tensors != {}:
        save_file(usual if tensors is None else tensors, folder / "2_Dense" / "model.safetensors")
    return folder


def test_a_classifiers_layer_is_float32_whatever_the_file_is(tmp_path: Path) -> None:
    weight = torch.randn(LABELS, WIDTH, dtype=torch.bfloat16)
    pooler = HostPooler(load_heads(written(tmp_path, {"score.weight": weight}), shape()))
    assert pooler.sizes == {PoolingTask.CLASSIFY: LABELS}
    states = torch.randn(2, WIDTH)
    made = pooler.apply(PoolingTask.CLASSIFY, states.numpy())
    torch.testing.assert_close(torch.from_numpy(made), states @ weight.float().T)


def test_random_weights_make_a_classifier_without_a_file(tmp_path: Path) -> None:
    first, again = (load_heads(tmp_path, shape(), dummy_seed=seed)[PoolingTask.CLASSIFY][0] for seed in (1, 1))
    assert first.weight.equal(again.weight) and first.weight.shape == (LABELS, WIDTH)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_dense_layers_follow_one_another(tmp_path: Path, name: str) -> None:
    folder = sentence(tmp_path, {**DENSE, "activation_function": f"torch.nn.modules.activation.{name}"})
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "3_Dense").mkdir()
    second = {"in_features": OUT, "out_features": 2, "bias": False, "activation_function": "torch.nn.Identity"}
    (folder / "3_Dense" / "config.json").write_text(json.dumps(second))
    last = torch.randn(2, OUT)
    save_file({"linear.weight": last}, folder / "3_Dense" / "model.safetensors")
    (folder / "modules.json").write_text(json.dumps([*modules, {"path": "3_Dense", "type": "x.Dense"}]))
    pooler = HostPooler(load_heads(folder, shape(architectures=["LlamaModel"])))
    assert pooler.sizes == {PoolingTask.EMBED: 2}
    given = torch.nn.Linear(WIDTH, OUT)
    from safetensors.torch import load_file

    tensors = load_file(folder / "2_Dense" / "model.safetensors")
    given.load_state_dict({key.removeprefix("linear."): value for key, value in tensors.items()})
    layer = torch.nn.Sequential(given, getattr(torch.nn, name)())
    states = torch.randn(4, WIDTH)
    made = torch.from_numpy(pooler.apply(PoolingTask.EMBED, states.numpy()))
    torch.testing.assert_close(made, layer(states).detach() @ last.T)


SCORES: list[tuple[dict[str, torch.Tensor], tuple[str, ...]]] = [
    ({"model.norm.weight": torch.ones(2)}, ("score.weight", "none")),
    ({"score.weight": torch.ones(LABELS, WIDTH + 1)}, ("score.weight", f"[{LABELS}, {WIDTH + 1}]", f"[{LABELS}, 8]")),
    ({"score.weight": torch.ones(2, WIDTH)}, ("score.weight", "[2, 8]")),
    ({"score.dense.weight": torch.ones(2, WIDTH)}, ("score.dense.weight", "score.0 and score.2")),
    ({"score.0.weight": torch.ones(8, 8), "score.2.bias": torch.ones(LABELS)}, ("score.2.weight", "missing")),
    ({"score.weight": torch.full((LABELS, WIDTH), torch.nan)}, ("score.weight", "finite")),
    ({"score.weight": torch.ones(LABELS, WIDTH, dtype=torch.int8)}, ("score.weight", "int8")),
]


@pytest.mark.parametrize("tensors, pieces", SCORES, ids=range(len(SCORES)))
def test_a_classifier_that_does_not_fit_is_refused(
    tmp_path: Path, tensors: dict[str, torch.Tensor], pieces: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_heads(written(tmp_path, tensors), shape())
    assert all(piece in str(refused.value) for piece in pieces), refused.value


LAYERS: list[tuple[dict[str, Any], dict[str, torch.Tensor] | None, tuple[str, ...]]] = [
    ({"in_features": 9}, None, ("in_features is 9", "must be 8")),
    ({"in_features": "8"}, None, ('in_features is "8"', "integer")),
    ({"out_features": 0}, None, ("out_features is 0", ">= 1")),
    ({"out_features": 4}, None, ("linear.weight is [5, 8]", "[4, 8]")),
    ({"activation_function": "torch.nn.Softplus"}, None, ("torch.nn.Softplus", "Tanh")),
    ({}, {"linear.weight": torch.ones(OUT, WIDTH)}, ("linear.bias", "missing")),
    ({}, {}, ("2_Dense", "model.safetensors")),
]


@pytest.mark.parametrize("change, tensors, pieces", LAYERS, ids=range(len(LAYERS)))
def test_a_dense_layer_that_does_not_fit_is_refused(
    tmp_path: Path, change: dict[str, Any], tensors: dict[str, torch.Tensor] | None, pieces: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_heads(sentence(tmp_path, {**DENSE, **change}, tensors), shape(architectures=["LlamaModel"]))
    assert all(piece in str(refused.value) for piece in pieces), refused.value


def test_a_pickled_layer_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = sentence(tmp_path, tensors={})
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"pytorch_model\.bin is a pickle"):
        load_heads(folder, shape(architectures=["LlamaModel"]))


# -- which head a model has --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture, base, generates, num_labels", [
    ("LlamaForCausalLM", "LlamaForCausalLM", True, 0), ("LlamaModel", "LlamaForCausalLM", False, 0),
    ("LlamaForSequenceClassification", "LlamaForCausalLM", False, 2),
    ("Qwen2ForRewardModel", "Qwen2ForCausalLM", False, 1),
    ("MixtralForSequenceClassification", "MixtralForCausalLM", False, 2),
])  # fmt: skip
def test_the_class_says_which_head(architecture: str, base: str, generates: bool, num_labels: int) -> None:
    config = {name: value for name, value in CONFIG.items() if name != "id2label"}
    made = parse_shape({**config, "architectures": [architecture]})
    assert (made.architecture, made.generates, made.num_labels) == (base, generates, num_labels)
    assert made.tied_head == (not generates)


@pytest.mark.parametrize("architecture", ["BertModel", "LlamaForTokenClassification", "Gemma3nTextModel", "Model"])
def test_what_is_of_no_family_is_refused(architecture: str) -> None:
    with pytest.raises(ConfigError, match=f"{architecture} is not supported"):
        shape(architectures=[architecture])


@pytest.mark.parametrize("change, num", [({"id2label": None}, 2), ({"id2label": None, "num_labels": 5}, 5), ({}, 3)])
def test_labels_are_counted_as_transformers_counts_them(change: dict[str, Any], num: int) -> None:
    assert shape(**change).num_labels == num


@pytest.mark.parametrize("change, piece", [
    ({"id2label": []}, "id2label"), ({"id2label": None, "num_labels": 0}, "num_labels"),
    ({"is_causal": False}, "causal"),
])  # fmt: skip
def test_a_config_that_says_no_such_thing_is_refused(change: dict[str, Any], piece: str) -> None:
    with pytest.raises(ConfigError, match=piece):
        shape(**change)


def test_vllms_keys_leave_a_reranker_the_causal_model_that_it_is() -> None:
    keys = {"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": True}
    made = shape(architectures=["Qwen3ForSequenceClassification"], **keys)
    assert (made.architecture, made.generates, made.num_labels) == ("Qwen3ForCausalLM", True, 0)


@pytest.mark.parametrize("names, generates", [
    (["embed_tokens.weight", "norm.weight"], False), (["model.embed_tokens.weight", "model.norm.weight"], True),
    (["embed_tokens.weight", "lm_head.weight"], True),
])  # fmt: skip
@pytest.mark.parametrize("form", ["file", "index"])
def test_names_say_whether_an_untied_model_has_a_head(
    tmp_path: Path, names: list[str], generates: bool, form: str
) -> None:
    config = {**CONFIG, "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if form == "index":
        index = {"weight_map": dict.fromkeys(names, "a.safetensors")}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        written(tmp_path, {name: torch.ones(1) for name in names})
    assert read_shape(tmp_path).generates is generates


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 8, (5).to_bytes(8, "little") + b"[1]  ", b"\x02" + b"\0" * 7 + b"{}"]
)
def test_a_file_that_is_broken_is_left_to_the_loader(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "architectures": ["LlamaForCausalLM"]}))
    (tmp_path / "model.safetensors").write_bytes(content)
    assert read_shape(tmp_path).generates
