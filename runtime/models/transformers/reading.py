"""From config.json to the numbers that the engine plans with, for a model of transformers' modules."""

import json
from typing import Any

from ramet.runtime.cache.pool import KVShape
from ramet.runtime.layers.rope import RopeShape
from ramet.runtime.models.decoder_config import DTYPES
from ramet.runtime.models.shape import LayerShape, ModelShape
from ramet.runtime.models.transformers.classes import NotServed
from ramet.runtime.models.transformers.facts import facts_of

THEIR_ROPE = RopeShape(kind="default", theta=1.0, rotary_dim=0, original_context=0)  # modules turn by themselves


def read_shape(values: dict[str, Any], place: str) -> ModelShape:
    """Runs the model once without numbers. Raises NotServed."""
    text = json.dumps(values)
    facts = facts_of(text, place)
    if facts.dtype not in DTYPES:
        raise NotServed(f"{place}: dtype is {facts.dtype}, must be one of {', '.join(DTYPES)}")
    widest = max(facts.layers, key=lambda layer: layer.kv_heads * max(layer.key_dim, layer.value_dim))
    return ModelShape(
        values["architectures"][0],
        facts.vocab_size,
        facts.width,
        heads=max(layer.heads for layer in facts.layers),
        kv_heads=widest.kv_heads,
        head_dim=max(widest.key_dim, widest.value_dim),
        intermediate=facts.intermediate,
        context_length=facts.context_length,
        rms_eps=0.0,
        activation="",
        layers=tuple(
            LayerShape(layer.attention, THEIR_ROPE, kv=KVShape(layer.kv_heads, layer.key_dim, layer.value_dim))
            for layer in facts.layers
        ),
        tied_head=facts.tied_head,
        dtype=facts.dtype,
        of_transformers=text,
    )
