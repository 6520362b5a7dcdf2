"""The least seconds in which a machine could do a load: what it must read and multiply, at the rates measured now.

Prompts are computed once each, a shared prefix once in all; every output token but the first is a step of its own, in
which all weights and all keys and values are read. Products with keys and values count, everything smaller does not.
Of a prompt's tokens but the last, the last layer needs keys and values alone.
"""

import os
from typing import Any

from ramet.bench.loads import Load

WEIGHT_BYTES = {"two-byte": 2.0, "int8": 1.0, "int4": 0.5 + 2 / 128}  # int4: a scale of two bytes for 128
SCALE_BYTES = 4  # of a head of 8-bit keys or values, which ramet has beside 8-bit weights


def limit_s(load: Load, shape: dict[str, Any], weights: str) -> float:
    """Seconds on all cores of this machine."""
    from ramet.kernels.cpu.build import load_library
    from ramet.kernels.cpu.limits import int8_flops, measure
    from ramet.kernels.cpu.tile_check import tiles_work

    library, threads = load_library(), len(os.sched_getaffinity(0))
    limits = measure(library, threads, tiles=tiles_work(library))
    flops = limits.flops if weights == "two-byte" else max(limits.flops, int8_flops(library, threads))
    return least_seconds(
        load, shape, WEIGHT_BYTES[weights], kv_token_bytes(shape, weights), limits.read_bytes_per_s, flops
    )


def least_seconds(
    load: Load, shape: dict[str, Any], weight_bytes: float, token_bytes: int, bytes_per_s: float, flops: float
) -> float:
    """`token_bytes`: of the keys and values of a token in all layers."""
    hidden, inner, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
    kv = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    body = layers * (2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner)
    head = hidden * shape["vocab_size"]
    prompt = load.shared + load.requests * load.own  # tokens that are computed
    pairs = load.shared**2 / 2 + load.requests * (load.shared * load.own + load.own**2 / 2)  # of a query and a key
    spared = (prompt - load.requests) * (2 * hidden * hidden + 3 * hidden * inner)  # see above
    prefill = 2 * (body * prompt - spared + head * load.requests) + 4 * hidden * (layers - 1) * pairs
    seconds = max(prefill / flops, (body + head) * weight_bytes / bytes_per_s)
    for step in range(1, load.output):
        own = load.requests * (load.own + step)
        keys = token_bytes * (load.shared + own)  # a shared prefix is read once for all
        read = (body + head) * weight_bytes + keys
        products = 2 * (body + head) * load.requests + 4 * hidden * layers * (load.requests * load.shared + own)
        seconds += max(read / bytes_per_s, products / flops)
    return seconds


def kv_token_bytes(shape: dict[str, Any], weights: str) -> int:
    """Of the keys and values of a token in all layers, as ramet keeps them beside such weights."""
    head = shape["hidden_size"] // shape["num_attention_heads"]
    head_bytes = head + SCALE_BYTES if weights == "int8" else 2 * head
    return int(2 * head_bytes * shape["num_key_value_heads"] * shape["num_hidden_layers"])


def kv_bytes(load: Load, shape: dict[str, Any], weights: str) -> int:
    """Of all that a load has in the pool at its end."""
    return kv_token_bytes(shape, weights) * (load.shared + load.requests * (load.own + load.output))
