"""The numbers of a model, read once from a Hugging Face config.json and checked.

Decides what a config field means and which values can be served. Knows no tensor and no family: a family that differs
(a bias, another activation) says so by its fields. Reads the older form (`rope_theta`, `rope_scaling`, `torch_dtype`)
and the newer one (`rope_parameters`, `dtype`).
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.rope import RopeShape

DTYPES = ("float32", "bfloat16", "float16")
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh")


@dataclass(frozen=True, slots=True)
class ModelShape:
    architecture: str
    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    context_length: int
    rms_eps: float
    activation: str
    rope: RopeShape
    tied_head: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    dtype: str

    @property
    def query_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_dim


def read_shape(folder: Path) -> ModelShape:
    """The shape of the model in `folder`. Raises ConfigError that names the field."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path} holds {type(config).__name__}, must hold an object")
    return parse_shape(config)


def parse_shape(config: dict[str, Any]) -> ModelShape:
    architecture = _architecture(config)
    hidden = _count(config, "hidden_size")
    heads = _count(config, "num_attention_heads")
    kv_heads = _count(config, "num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise ConfigError(
            f"config.json: num_attention_heads is {heads}, must be a multiple of {kv_heads} (key/value heads)"
        )
    if config.get("head_dim") is None and hidden % heads:
        raise ConfigError(f"config.json: hidden_size is {hidden}, must be a multiple of num_attention_heads ({heads})")
    head_dim = _count(config, "head_dim", default=hidden // heads)
    context = _count(config, "max_position_embeddings")
    attention_bias = bool(config.get("attention_bias", False))
    return ModelShape(
        architecture=architecture,
        vocab_size=_count(config, "vocab_size"),
        hidden=hidden,
        layers=_count(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=_count(config, "intermediate_size"),
        context_length=context,
        rms_eps=_positive(config, "rms_norm_eps", default=1e-6),
        activation=_choice(config, ("hidden_act", "hidden_activation"), ACTIVATIONS, default="silu"),
        rope=_rope(config, head_dim, context),
        tied_head=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        dtype=_choice(config, ("dtype", "torch_dtype"), DTYPES, default="float32"),
    )


def _architecture(config: dict[str, Any]) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise ConfigError(f"config.json: architectures is {names!r}, must be a list with the name of the model class")
    return names[0]


def _rope(config: dict[str, Any], head_dim: int, context: int) -> RopeShape:
    """The newer form holds everything in rope_parameters, the older one splits it into rope_theta and rope_scaling."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        raise ConfigError(f"config.json: rope_scaling is {scaling!r}, must be an object or null")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    partial = _positive({**config, **scaling}, "partial_rotary_factor", default=1.0)
    plain = RopeShape(
        kind="default",
        theta=_positive({**config, **scaling}, "rope_theta", default=10000.0),
        rotary_dim=int(head_dim * partial),
        original_context=int(_positive(scaling, "original_max_position_embeddings", default=context)),
    )
    match kind:
        case "default":
            return plain
        case "linear" | "dynamic":
            return replace(plain, kind=kind, factor=_positive(scaling, "factor"))
        case "llama3":
            return replace(
                plain,
                kind=kind,
                factor=_positive(scaling, "factor"),
                low_freq_factor=_positive(scaling, "low_freq_factor"),
                high_freq_factor=_positive(scaling, "high_freq_factor"),
            )
        case _:
            raise ConfigError(f"config.json: rope_type is {kind!r}, must be default, linear, dynamic or llama3")


def _count(config: dict[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"config.json: {name} is {value!r}, must be an integer >= 1")
    return value


def _positive(config: dict[str, Any], name: str, default: float | None = None) -> float:
    value = config.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ConfigError(f"config.json: {name} is {value!r}, must be a number above 0")
    return float(value)


def _choice(config: dict[str, Any], names: tuple[str, ...], valid: tuple[str, ...], default: str) -> str:
    """The first of `names` that is set."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if value not in valid:
            raise ConfigError(f"config.json: {name} is {value!r}, must be one of {', '.join(valid)}")
        return str(value)
    return default
