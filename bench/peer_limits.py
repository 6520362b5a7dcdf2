"""The least seconds in which a machine could do a load: what it must read and multiply, at the rates measured now.

Prompts are computed once each, a shared prefix once in all; every output token but the first is a step of its own, in
which all weights and all keys and values are read. Products with keys and values count, everything smaller does not.
"""

import os
from typing import Any

from ramet.bench.loads import Load

WEIGHT_BYTES = {"two-byte": 2.0, "int8": 1.0, "int4": 0.5 + 2 / 128}  # int4: a scale of two bytes for 128
KV_BYTES = 2


def limit_s(load: Load, shape: dict[str, Any], weights: str) -> float:
    """Seconds on all cores of this machine."""
    from ramet.kernels.cpu.build import load_library
    from ramet.kernels.cpu.limits import measure
    from ramet.kernels.cpu.tile_check import tiles_work

    library = load_library()
    limits = measure(library, len(os.sched_getaffinity(0)), tiles=tiles_work(library))
    return least_seconds(load, shape, WEIGHT_BYTES[weights], limits.read_bytes_per_s, products_per_s(limits, weights))


def products_per_s(limits: Any, weights: str) -> float:
    """Twice the products a second of what such weights are multiplied by."""
    if weights == "two-byte":
        return float(limits.flops)
    # whole numbers of 8 bits: where their rate is not measured, products count as nothing
    rate = getattr(limits, "int8_flops", 0.0)
    return max(float(rate), float(limits.flops)) if rate else float("inf")


def least_seconds(load: Load, shape: dict[str, Any], weight_bytes: float, bytes_per_s: float, flops: float) -> float:
    hidden, inner, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
    kv = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    body = layers * (2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner)
    head = hidden * shape["vocab_size"]
    prompt = load.shared + load.requests * load.own  # tokens that are computed
    pairs = load.shared**2 / 2 + load.requests * (load.shared * load.own + load.own**2 / 2)  # of a query and a key
    prefill = 2 * (body * prompt + head * load.requests) + 4 * hidden * layers * pairs
    seconds = max(prefill / flops, (body + head) * weight_bytes / bytes_per_s)
    for step in range(1, load.output):
        own = load.requests * (load.own + step)
        keys = kv_token_bytes(shape) * (load.shared + own)  # a shared prefix is read once for all
        read = (body + head) * weight_bytes + keys
        products = 2 * (body + head) * load.requests + 4 * hidden * layers * (load.requests * load.shared + own)
        seconds += max(read / bytes_per_s, products / flops)
    return seconds


def kv_token_bytes(shape: dict[str, Any]) -> int:
    """Of the keys and values of a token in all layers."""
    head = shape["hidden_size"] // shape["num_attention_heads"]
    return int(2 * head * shape["num_key_value_heads"] * shape["num_hidden_layers"] * KV_BYTES)


def kv_bytes(load: Load, shape: dict[str, Any]) -> int:
    """Of all that a load has in the pool at its end."""
    return kv_token_bytes(shape) * (load.shared + load.requests * (load.own + load.output))
