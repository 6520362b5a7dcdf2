"""What config.json says about rotary embeddings, in both of its forms.

published before 2026   "rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 4.0}
newer                   "rope_parameters": {"rope_theta": 1e6, "rope_type": "linear", "factor": 4.0}
one for each layer type "rope_parameters": {"full_attention": {...}, "sliding_attention": {...}}
"""

from dataclasses import replace

from ramet.runtime.layers.rope import RopeShape
from ramet.runtime.models.config_json import ConfigObject

KINDS = ("default", "linear", "dynamic", "llama3")


def read_rope(config: ConfigObject, head_dim: int, context: int, default_theta: float = 10000.0) -> RopeShape:
    """The one rope of a model. `rope_scaling` wins over `rope_parameters`, and what they hold over the top level."""
    inner = config.object("rope_scaling")
    if inner.is_empty:
        inner = config.object("rope_parameters")
    config.get("rope_parameters")
    original = config.optional_count("original_max_position_embeddings", None)
    rope = rope_of(inner, head_dim, context, config.positive("rope_theta", default_theta))
    return replace(rope, original_context=original) if original is not None else rope


def rope_of(inner: ConfigObject, head_dim: int, context: int, default_theta: float) -> RopeShape:
    """From one object that says everything about a rope; an empty one is the default."""
    plain = RopeShape(
        kind="default",
        theta=inner.positive("rope_theta", default_theta),
        rotary_dim=head_dim,
        original_context=inner.count("original_max_position_embeddings", context),
    )
    match inner.choice(("rope_type", "type"), KINDS, "default"):
        case "linear" | "dynamic" as kind:
            return replace(plain, kind=kind, factor=inner.positive("factor"))
        case "llama3":
            return replace(
                plain,
                kind="llama3",
                factor=inner.positive("factor"),
                low_freq_factor=inner.positive("low_freq_factor"),
                high_freq_factor=inner.positive("high_freq_factor"),
            )
        case _:
            if inner.positive("factor", 1.0) != 1.0:
                raise inner.error("factor", f"needs a rope_type that scales: {', '.join(KINDS[1:])}")
            return plain
