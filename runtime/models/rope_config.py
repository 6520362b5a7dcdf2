"""What config.json says about rotary embeddings, in both of its forms.

published before 2026   "rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 4.0}
newer                   "rope_parameters": {"rope_theta": 1e6, "rope_type": "linear", "factor": 4.0}
one for each layer type "rope_parameters": {"full_attention": {...}, "sliding_attention": {...}}
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from ramet.runtime.layers.rope import RopeShape
from ramet.runtime.models.config_json import ConfigObject

KINDS = ("default", "linear", "dynamic", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class RopeDefaults:
    """What the class of a family has where config.json says nothing, and which kinds of rope it knows."""

    theta: float = 10000.0
    partial: float | None = None  # of a family that may turn a part of each head: which part
    original: int | None = None  # the trained length
    kinds: tuple[str, ...] = KINDS
    # names for longrope; a family has some where a sequence that grows beyond the trained length is computed anew
    longropes: tuple[str, ...] = ()
    parameters: dict[str, Any] | None = None  # where neither object is in the file
    sections: tuple[int, ...] = ()  # of a family that turns by time, height and width


PLAIN = RopeDefaults()


def read_rope(config: ConfigObject, head_dim: int, context: int, of: RopeDefaults = PLAIN) -> RopeShape:
    """The one rope of a model. `rope_scaling` wins over `rope_parameters`, and what they hold over the top level."""
    inner = config.object("rope_scaling")
    if inner.is_empty:
        inner = config.object("rope_parameters", of.parameters)
    config.get("rope_parameters")
    original = config.optional_count("original_max_position_embeddings", of.original)
    theta = config.positive("rope_theta", of.theta)
    rope = rope_of(inner, head_dim, context, theta, original, of.kinds, of.longropes)
    if of.partial is not None:
        rope = replace(rope, rotary_dim=_turned(config, inner, head_dim, of.partial))
    if of.sections:
        rope = replace(rope, sections=_sections(inner, of.sections, rope.rotary_dim // 2))
    return _longrope(inner, rope, context) if rope.kind == "longrope" else rope


def _sections(inner: ConfigObject, usual: tuple[int, ...], num: int) -> tuple[int, ...]:
    """Of the `num` that turn."""
    given = inner.get("mrope_section")
    found = list(usual) if given is None else given
    fit = isinstance(found, list) and len(found) == 3 and all(type(each) is int and each > 0 for each in found)
    if not fit or sum(found) != num:
        raise inner.error("mrope_section", f"must be 3 integers >= 1 with a sum of {num}, half of what turns of a head")
    return tuple(found)


def _turned(config: ConfigObject, inner: ConfigObject, head_dim: int, usual: float) -> int:
    """Numbers of a head."""
    outer = config.positive("partial_rotary_factor", usual)
    part = inner.positive("partial_rotary_factor", outer)
    turned = int(head_dim * part)
    if part > 1 or turned < 2 or turned % 2:
        said = inner if inner.has("partial_rotary_factor") else config
        raise said.error("partial_rotary_factor", f"must turn an even number of the {head_dim} numbers of a head")
    return turned


def rope_of(
    inner: ConfigObject,
    head_dim: int,
    context: int,
    default_theta: float,
    original: int | None = None,
    kinds: tuple[str, ...] = KINDS,
    longropes: tuple[str, ...] = (),
) -> RopeShape:
    """From one object that says everything about a rope; an empty one is the default. `original` counts for its own."""
    own = inner.count("original_max_position_embeddings", context)
    plain = RopeShape(
        kind="default",
        theta=inner.positive("rope_theta", default_theta),
        rotary_dim=head_dim,
        original_context=own if original is None else original,
    )
    match inner.choice(("rope_type", "type"), (*kinds, *longropes), "default"):
        case named if named in longropes:
            return replace(plain, kind="longrope")
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
        case "proportional":
            part = inner.positive("partial_rotary_factor", 1.0)
            if part > 1:
                raise inner.error("partial_rotary_factor", "must be at most 1")
            return replace(plain, kind="proportional", factor=inner.positive("factor", 1.0), turned=part)
        case "yarn":
            return _yarn(inner, plain, context)
        case _:
            if inner.positive("factor", 1.0) != 1.0:
                raise inner.error("factor", f"needs a rope_type that scales: {', '.join(KINDS[1:])}")
            return plain


def _yarn(inner: ConfigObject, plain: RopeShape, context: int) -> RopeShape:
    """Without a factor it is how much longer the context is than what was trained."""
    factor = inner.optional_positive("factor", None) or context / plain.original_context
    given = inner.optional_positive("attention_factor", None)
    own, of_all = (inner.optional_positive(name, None) for name in ("mscale", "mscale_all_dim"))
    of_scores = _grown(factor, own) / _grown(factor, of_all) if own and of_all else _grown(factor, 1.0)
    if plain.theta == 1.0:
        raise inner.error("rope_theta", "must not be 1 where the rope is yarn")
    return replace(
        plain,
        kind="yarn",
        factor=factor,
        fast_turns=inner.optional_positive("beta_fast", None) or 32.0,
        slow_turns=inner.optional_positive("beta_slow", None) or 1.0,
        whole_bounds=inner.flag("truncate", True),
        attention_factor=given or of_scores,
        score_factor=_grown(factor, of_all) ** 2 if of_all else 1.0,
    )


def _longrope(inner: ConfigObject, rope: RopeShape, context: int) -> RopeShape:
    """Without a factor it is how much longer the context is than what was trained."""
    factor = inner.optional_positive("factor", None) or context / rope.original_context
    usual = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(rope.original_context))
    return replace(
        rope,
        factor=factor,
        attention_factor=inner.optional_positive("attention_factor", None) or usual,
        short_factors=inner.positives("short_factor", rope.rotary_dim // 2),
        long_factors=inner.positives("long_factor", rope.rotary_dim // 2),
    )


def _grown(factor: float, by: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0
