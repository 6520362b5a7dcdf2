"""Keys of a GGUF file that change nothing are accepted, others are refused by name or left out by an option."""

import json
from pathlib import Path
from typing import Any

import pytest
from gguf_checkpoints import write_gguf
from tiny_families import make_family
from tiny_model import make_tiny

from ramet.runtime.config import Args, make_args, resolve
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.registry import read_shape

NEUTRAL: list[tuple[str, Any]] = [
    ("logit_scale", 1.0), ("logit_scale", 0.0), ("embedding_scale", 1.0), ("residual_scale", 1.0),
    ("attention.output_scale", 1.0), ("attention.scale", 0.0), ("attention.scale", 16**-0.5),
    ("attention.clamp_kqv", 0.0), ("attention.max_alibi_bias", 0.0),
    ("attention.sliding_window", 0), ("attention.sliding_window_pattern", False),
    ("attention.temperature_scale", 0.0), ("attn_logit_softcapping", 0.0), ("final_logit_softcapping", 0.0),
    ("expert_count", 0), ("expert_used_count", 0), ("expert_feed_forward_length", 0), ("expert_shared_count", 0),
    ("expert_group_count", 0), ("expert_weights_scale", 1.0), ("expert_weights_norm", False),
    ("leading_dense_block_count", 0), ("nextn_predict_layers", 0), ("rescale_every_n_layers", 0),
    ("rope.scaling.factor", 1.0), ("rope.scaling.attn_factor", 1.0), ("rope.scaling.original_context_length", 0),
    ("rope.scale_linear", 1.0), ("rope.scaling.yarn_beta_fast", 32.0), ("use_parallel_residual", False),
    ("tensor_data_layout", "Meta AI original pth"),
]  # fmt: skip
OTHER: list[tuple[str, Any]] = [
    ("logit_scale", 0.5), ("attention.scale", 1.0), ("attention.sliding_window", 16), ("expert_shared_count", 1),
    ("attn_logit_softcapping", 50.0), ("use_parallel_residual", True), ("own", 0), ("rope.scaling.yarn_beta_fast", 8.0),
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def resolved(file: Path, **options: Any) -> Args:
    return resolve(make_args(model_path=str(file), **options))


def config_of(args: Args) -> dict[str, Any]:
    read_shape(args.model_folder, args.model.json_model_override_args)
    config: dict[str, Any] = json.loads((args.model_folder / "config.json").read_text())
    return config


@pytest.mark.parametrize("family", ["mistral", "qwen3"])
def test_a_neutral_key_changes_nothing(tmp_path: Path, family: str) -> None:
    folder = make_family(tmp_path / "model", family, head_dim=16)
    wanted = config_of(resolved(write_gguf(folder, tmp_path / "plain.gguf")))
    for name, value in NEUTRAL:
        found = config_of(resolved(write_gguf(folder, tmp_path / "model.gguf", **{name: value})))
        assert found == wanted, (name, value)


@pytest.mark.parametrize(("name", "value"), OTHER)
def test_another_value_is_refused_by_name_and_with_a_way_out(tmp_path: Path, name: str, value: Any) -> None:
    file = write_gguf(make_tiny(tmp_path / "model"), tmp_path / "model.gguf", **{name: value})
    instead = json.dumps({f"llama.{name}": None})
    with pytest.raises(ConfigError) as caught:
        resolved(file)
    assert f"llama.{name} is {value!r}, a key that ramet does not know" in str(caught.value)
    assert str(caught.value).endswith(f"leave it out with --json-model-override-args '{instead}'")


def test_a_key_that_is_left_out_has_the_default_of_its_class(tmp_path: Path) -> None:
    folder = make_family(tmp_path / "model", "mistral", rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    file = write_gguf(folder, tmp_path / "model.gguf", **{"attention.scale": 1.0})
    left_out = {"llama.attention.scale": None, "llama.rope.freq_base": None, "llama.unknown": None}
    for more in ({}, {"max_position_embeddings": 48}):
        args = resolved(file, json_model_override_args=json.dumps({**left_out, **more}))
        assert args.model.json_model_override_args == (json.dumps(more) if more else "")
        assert config_of(args)["rope_theta"] == 10000
    keeps_theta = resolved(file, json_model_override_args='{"llama.attention.scale": null}')
    assert config_of(keeps_theta)["rope_theta"] == 5e5


def test_wrong_overrides_of_a_file_are_named(tmp_path: Path) -> None:
    file = write_gguf(make_tiny(tmp_path / "model"), tmp_path / "model.gguf")
    for text, fact in (
        ("{", "is not valid JSON"),
        ("[]", "must hold an object"),
        ('{"llama.own": 5}', "llama.own is 5"),
    ):
        with pytest.raises(ConfigError, match=fact):
            config_of(resolved(file, json_model_override_args=text))


def test_no_window_and_no_caps_of_those_that_may_have_them(tmp_path: Path) -> None:
    phi = make_family(tmp_path / "phi", "phi3", sliding_window=None)
    file = write_gguf(phi, tmp_path / "phi.gguf", **{"attention.sliding_window": 0})
    assert "sliding_window" not in config_of(resolved(file))
    for family, cap in (("gemma2", "final_logit_softcapping"), ("gemma3", "final_logit_softcapping")):
        folder = make_family(tmp_path / family, family, **{cap: None})
        file = write_gguf(folder, tmp_path / f"{family}.gguf", **{cap: 0.0})
        assert config_of(resolved(file)).get(cap, "default of the class") is None


def test_a_gemma_has_a_window(tmp_path: Path) -> None:
    folder = make_family(tmp_path / "model", "gemma2", sliding_window=None)
    file = write_gguf(folder, tmp_path / "model.gguf", **{"attention.sliding_window": 0})
    with pytest.raises(ConfigError, match=r"gemma2\.attention\.sliding_window is 0, must be an integer >= 1"):
        resolved(file)


def test_weights_of_chosen_experts_are_normed_as_the_class_does(tmp_path: Path) -> None:
    more = {"norm_topk_prob": True, "mlp_only_layers": [], "decoder_sparse_step": 1}
    folder = make_family(tmp_path / "model", "qwen3-moe", **more)
    keys = {"expert_gating_func": 1, "expert_weights_norm": True, "expert_group_count": 1}
    assert config_of(resolved(write_gguf(folder, tmp_path / "model.gguf", **keys)))["norm_topk_prob"] is True
    for name, value in (("expert_weights_norm", False), ("expert_gating_func", 2)):
        with pytest.raises(ConfigError, match=rf"qwen3moe\.{name} is {value}, "):
            resolved(write_gguf(folder, tmp_path / "other.gguf", **{name: value}))
