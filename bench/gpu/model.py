"""`python -m ramet.bench.gpu.model`: what a decode step on a card must take, kernel by kernel, by its data sheet.

A prediction, not a measurement. Each kernel takes as long as its bytes or its operations do at the rate that its kind
reaches, whichever is longer; between two kernels of a graph there is a gap. Every rate is a share of the data sheet's.
Beside the sum stands the limit: reading all weights, keys and values once and multiplying, at rates that nothing
exceeds. What lies between the two is given to its causes.

R rows, one new token each; the first `shared` tokens of their contexts may be the same. Numbers are bfloat16, 2 bytes,
where nothing else is said. No torch is loaded.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ramet.bench.loads import SHAPE_8B

BATCHES = (1, 8, 32, 64, 128, 256, 512)
CONTEXTS = (384, 1024, 4096)
PROMPT, FEW, MANY = 384, 32, 160  # tokens before the steps that steps.py measures, and new ones of its two runs
MEASURED_CONTEXT = PROMPT + (FEW + MANY) // 2  # of their mean step
NUMBER = 2  # bytes
SLOT = 4  # bytes of an entry of the slot table
MIN_SHARERS = 8  # rows from which on attention looks for what they share, as kernels/shared_attention.py
SHARERS, SHARED, OWN = 256, 8192, 256  # the load of steps.py whose rows share a prefix


@dataclass(frozen=True, slots=True)
class Sheet:
    """A card as its maker's data sheet has it: bytes and bfloat16 operations a second, without sparsity."""

    name: str
    bytes_per_s: float
    flops_per_s: float
    memory_gib: float


CARDS = (
    Sheet("H200", 4.8e12, 989e12, 141),
    Sheet("H100", 3.35e12, 989e12, 80),
    Sheet("A100", 2.039e12, 312e12, 80),
    Sheet("L4", 0.3e12, 121e12, 24),
    Sheet("RTX 4090", 1.008e12, 165e12, 24),
)


@dataclass(frozen=True, slots=True)
class Reached:
    """What kernels reach of a data sheet, and what lies between two of them.

    The first three are what an H200 was measured to do at all (docs/gpu.md: a kernel that only reads, a large matrix
    product, a copy), attention's is its best case there. A product with few rows reads weights at the rate of a copy.
    The gap is Hazy Research's for kernels of a graph on an H100 (2025).
    """

    read: float = 0.98
    multiply: float = 0.72
    copy: float = 0.85
    attention: float = 0.74
    gap_s: float = 1.3e-6


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch, or `launches` alike. Bytes and operations are of one."""

    name: str
    kind: str  # "product", "attention" or "small"
    read: float
    written: float
    flops: float = 0.0
    once: float = 0.0  # bytes of those read that no design does without: weights, keys and values
    launches: int = 1

    def seconds(self, sheet: Sheet, reached: Reached) -> float:
        """Of all launches, without gaps."""
        share = reached.attention if self.kind == "attention" else reached.copy
        moved = (self.read + self.written) / (sheet.bytes_per_s * share)
        return self.launches * max(moved, self.flops / (sheet.flops_per_s * reached.multiply))


def norm(rows: int, hidden: int) -> Kernel:
    """With the residual sum: reads both and the weight, writes both."""
    return Kernel("norm and residual", "small", NUMBER * hidden * (2 * rows + 1), NUMBER * hidden * 2 * rows)


def product(name: str, rows: int, num_in: int, num_out: int) -> Kernel:
    weights = num_in * num_out
    read, written = NUMBER * (weights + rows * num_in), NUMBER * rows * num_out
    return Kernel(name, "product", read, written, 2.0 * rows * weights, NUMBER * weights)


def place(rows: int, heads: int, kv_heads: int, head_dim: int) -> Kernel:
    """Turns queries and keys where they are, stores keys and values. Cosines and sines are float32, places 8 bytes."""
    turned, stored = rows * (heads + kv_heads) * head_dim, rows * 2 * kv_heads * head_dim
    read = NUMBER * (turned + rows * kv_heads * head_dim) + rows * (4 * head_dim + 16)
    return Kernel("rope and store", "small", read, NUMBER * (turned + stored))


def attention(rows: int, context: int, heads: int, kv_heads: int, head_dim: int) -> Kernel:
    """Keys, values and their places once; of each row its queries, and what it gives."""
    kept, queries = NUMBER * rows * context * 2 * kv_heads * head_dim, NUMBER * rows * heads * head_dim
    read = kept + SLOT * rows * context + queries
    return Kernel("attention", "attention", read, queries, 4.0 * rows * context * heads * head_dim, kept)


def shared_attention(rows: int, shared: int, heads: int, kv_heads: int, head_dim: int) -> Kernel:
    """Keys, values and places once for all rows; of each row its queries, and its part of the sum in float32."""
    kept, queries = NUMBER * shared * 2 * kv_heads * head_dim, NUMBER * rows * heads * head_dim
    flops, parts = 4.0 * rows * shared * heads * head_dim, 16 if shared else 0
    read = kept + SLOT * shared + (queries if shared else 0)
    return Kernel("shared attention", "attention", read, parts * rows * heads * (4 * head_dim + 4), flops, kept)


def gated(rows: int, inner: int) -> Kernel:
    return Kernel("gated activation", "small", NUMBER * 2 * rows * inner, NUMBER * rows * inner)


def epilogue(rows: int, vocabulary: int) -> tuple[Kernel, Kernel]:
    """The pass over all logits, and the draw from one block of each row."""
    return (
        Kernel("logits epilogue", "small", NUMBER * rows * vocabulary, 0.0),
        Kernel("draw", "small", NUMBER * rows * 4096, 8.0 * rows),
    )


def kernels_of(shape: Mapping[str, Any], rows: int, context: int, shared: int = 0) -> list[Kernel]:
    """A prepared decode step: those of a layer, once for each, then the rest."""
    hidden, inner, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
    heads, kv_heads = shape["num_attention_heads"], shape["num_key_value_heads"]
    head_dim = hidden // heads
    layer = (
        norm(rows, hidden),
        product("qkv", rows, hidden, (heads + 2 * kv_heads) * head_dim),
        place(rows, heads, kv_heads, head_dim),
        *([shared_attention(rows, shared, heads, kv_heads, head_dim)] if rows >= MIN_SHARERS else ()),
        attention(rows, context - shared, heads, kv_heads, head_dim),
        product("o", rows, heads * head_dim, hidden),
        norm(rows, hidden),
        product("gate and up", rows, hidden, 2 * inner),
        gated(rows, inner),
        product("down", rows, inner, hidden),
    )
    each = [replace(kernel, launches=layers) for kernel in layer]
    inputs = rows * (64.0 + NUMBER * hidden)
    begins = (
        Kernel("inputs and embedding", "small", inputs, inputs, launches=3),
        Kernel("plan of attention", "small", 16.0 * rows, 16.0 * rows, launches=3 if rows >= MIN_SHARERS else 1),
    )
    ends = (norm(rows, hidden), product("head", rows, hidden, shape["vocab_size"]))
    return [*begins, *each, *ends, *epilogue(rows, shape["vocab_size"])]


@dataclass(frozen=True, slots=True)
class ModelStep:
    """Seconds. `lost` has causes: what each takes beyond the limit."""

    seconds: float
    limit: float
    lost: dict[str, float]

    @property
    def share(self) -> float:
        return self.limit / self.seconds


def predict(
    sheet: Sheet,
    shape: Mapping[str, Any],
    rows: int,
    context: int,
    reached: Reached | None = None,
    shared: int = 0,
) -> ModelStep:
    reached, kernels = reached or Reached(), kernels_of(shape, rows, context, shared)
    read_rate, flop_rate = sheet.bytes_per_s * reached.read, sheet.flops_per_s * reached.multiply
    took, least, flops = (defaultdict[str, float](float) for _ in range(3))
    for kernel in kernels:
        took[kernel.kind] += kernel.seconds(sheet, reached)
        least[kernel.kind] += kernel.launches * kernel.once / read_rate
        flops[kernel.kind] += kernel.launches * kernel.flops / flop_rate
    products = max(least["product"], flops["product"])
    lost = {
        "products": took["product"] - products,
        "attention": took["attention"] - least["attention"],
        "small kernels": took["small"],
        "gaps": reached.gap_s * sum(kernel.launches for kernel in kernels),
    }
    limit = products + least["attention"]
    return ModelStep(limit + sum(lost.values()), limit, lost)


def fits(sheet: Sheet, shape: Mapping[str, Any], rows: int, context: int) -> bool:
    """Weights, keys and values, and a tenth of the memory for the rest."""
    held = sum(kernel.launches * kernel.once for kernel in kernels_of(shape, rows, context))
    return held < 0.9 * sheet.memory_gib * 2**30


def table(
    shape: Mapping[str, Any], batches: Sequence[int] = BATCHES, contexts: Sequence[int] = CONTEXTS
) -> Iterator[str]:
    """In Markdown, of all cards, with what fits them. Causes are shares of the step."""
    yield "| card | rows x context | ms | tokens/s | of the limit | products | attention | small kernels | gaps |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for sheet in CARDS:
        for context in contexts:
            for rows in batches:
                if fits(sheet, shape, rows, context):
                    step = predict(sheet, shape, rows, context)
                    parts = " | ".join(f"{lost / step.seconds:.1%}" for lost in step.lost.values())
                    rate = f"{step.seconds * 1e3:.2f} | {rows / step.seconds:,.0f} | {step.share:.0%}"
                    yield f"| {sheet.name} | {rows} x {context} | {rate} | {parts} |"


def shared_table(shape: Mapping[str, Any]) -> Iterator[str]:
    """In Markdown: rows that share a prefix, each reading it for itself, and together; of cards that hold them."""
    yield "| card | each row for itself, ms | together, ms | tokens/s | of the limit |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    context = SHARED + OWN + (FEW + MANY) // 2
    for sheet in CARDS:
        if fits(sheet, shape, SHARERS, context - SHARED):
            alone = predict(sheet, shape, SHARERS, context)
            step = predict(sheet, shape, SHARERS, context, shared=SHARED)
            rates = f"{SHARERS / step.seconds:,.0f} | {step.share:.0%}"
            yield f"| {sheet.name} | {alone.seconds * 1e3:.1f} | {step.seconds * 1e3:.1f} | {rates} |"


def main(argv: Sequence[str]) -> int:
    about = "Predicted decode steps of an 8B shape."
    p = argparse.ArgumentParser(prog="python -m ramet.bench.gpu.model", description=about)
    p.parse_args(list(argv))
    print("\n".join(table(SHAPE_8B)))
    print(f"\n{SHARERS} rows of {SHARED} shared tokens and {OWN} of their own\n")
    print("\n".join(shared_table(SHAPE_8B)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
