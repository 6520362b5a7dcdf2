"""`ramet bench contexts`: documents as parallel contexts against the same documents in sequence.

One process and one 160M-shaped model with made-up weights answer both, in turn, round by round, so that a noisy machine
is noisy for both. Documents are new in every round. Times are of a whole request with one new token: that is nearly all
for the prompt. Section 6.2.5 of the SGLang paper encodes documents apart, to save the quadratic part of attention.

  new      documents that were never seen
  turned   the same documents in another order, with another question: contexts are cached, a sequence only up to where
           the orders differ

Operations are counted, not measured: two for each weight of a token's way through the layers, and for each pair of a
query and a key it sees four for each number of a head.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.loads import SHAPE
from ramet.bench.offline import make_checkpoint
from ramet.bench.values import positive

QUESTION = 64  # tokens, before the documents and after them
SIDES = ("contexts", "sequence")
LOADS = ("new", "turned")


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench contexts", description="Documents side by side or in sequence.")
    p.add_argument("--documents", type=positive, default=10, help="default 10")
    p.add_argument("--tokens", type=positive, default=1200, help="of each document, default 1200")
    p.add_argument("--rounds", type=positive, default=3, help="default 3")
    p.add_argument("--num-threads", type=positive, help="default: one per core")
    p.add_argument("--output-file", type=Path, default=report.results_file("contexts"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    if options.documents < 2:
        p.error("--documents is 1, must be at least 2: a single context is text like any other")
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        record = measure(Path(folder), options, SHAPE)
    made = stamp.stamp(stamp.command_line("contexts", argv))
    report.append_line(options.output_file, {"bench": "contexts", **made, **record})
    return 0


def measure(folder: Path, options: argparse.Namespace, shape: dict[str, Any]) -> dict[str, Any]:
    from ramet.runtime.llm import LLM

    num, length = options.documents, options.tokens
    whole = num * length + 2 * QUESTION
    make_checkpoint(folder, {**shape, "max_position_embeddings": whole + 16})
    seconds: dict[str, list[float]] = {f"{load} {side}": [] for load in LOADS for side in SIDES}
    cached: dict[str, int] = {}
    with LLM(
        str(folder), max_total_tokens=4 * whole, num_threads=options.num_threads, random_seed=0, log_level="warning"
    ) as llm:
        threads = llm.resolved["num_threads"]
        for number in range(-1, options.rounds):  # the first one warms everything
            documents = ContextDocuments(
                random.Random(number), num, length if number >= 0 else min(length, 64), shape["vocab_size"]
            )
            for side in SIDES if number % 2 else SIDES[::-1]:
                llm.flush_cache()
                for load in LOADS:
                    ids, asked = documents.prompt(load == "turned"), documents.asked(side)
                    started = time.perf_counter()
                    (reply,) = llm.generate(ids, {"max_new_tokens": 1, "temperature": 0}, **asked)
                    if number >= 0:
                        seconds[f"{load} {side}"].append(time.perf_counter() - started)
                    cached[f"{load} {side}"] = reply["meta_info"]["cached_tokens"]
    return _outcome(seconds, cached, {side: operations(shape, side, num, length) for side in SIDES}, threads, options)


class ContextDocuments:
    def __init__(self, draw: random.Random, num: int, length: int, vocab_size: int) -> None:
        self._pieces = [draw.choices(range(3, vocab_size), k=length) for _ in range(num)]
        self._before, *self._questions = (draw.choices(range(3, vocab_size), k=QUESTION) for _ in range(3))

    def prompt(self, turned: bool) -> list[int]:
        pieces = self._pieces[::-1] if turned else self._pieces
        return [*self._before, *(token for piece in pieces for token in piece), *self._questions[turned]]

    def asked(self, side: str) -> dict[str, Any]:
        return {"contexts": [[QUESTION, *map(len, self._pieces)]]} if side == "contexts" else {}


def operations(shape: dict[str, Any], side: str, num: int, length: int) -> dict[str, float]:
    """Of a prompt that is not cached, in 10^9: all, and those of attention."""
    hidden, inner, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
    kv = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    tokens = num * length + 2 * QUESTION
    weights = layers * (2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner)
    sees = _pairs(0, QUESTION) + _pairs(tokens - QUESTION, QUESTION)
    sees += num * _pairs(QUESTION, length) if side == "contexts" else _pairs(QUESTION, num * length)
    attention = 4 * layers * hidden * sees
    return {"all": round((2 * weights * tokens + attention) / 1e9, 1), "attention": round(attention / 1e9, 1)}


def _pairs(before: int, new: int) -> int:
    """Of new tokens, each of which sees those before and itself."""
    return new * before + new * (new + 1) // 2


def _outcome(
    seconds: dict[str, list[float]],
    cached: dict[str, int],
    operations: dict[str, dict[str, float]],
    threads: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    print(f"{options.documents} documents of {options.tokens} tokens, {threads} threads, {options.rounds} rounds")
    for name, values in seconds.items():
        print(f"{name:<16} {statistics.median(values):8.2f} s  {cached[name]:6d} tokens cached", flush=True)
    ratios = {
        load: round(statistics.median(b / a for a, b in zip(*(seconds[f"{load} {side}"] for side in SIDES))), 2)
        for load in LOADS
    }
    for load, ratio in ratios.items():
        print(f"{load:<16} contexts are {ratio:.2f} times as fast")
    for side, count in operations.items():
        print(f"{side:<16} {count['all']:9.1f} * 10^9 operations, {count['attention']:.1f} of attention")
    return {
        "documents": options.documents,
        "tokens": options.tokens,
        "rounds": options.rounds,
        "threads": threads,
        "seconds": {name: [round(s, 3) for s in values] for name, values in seconds.items()},
        "cached_tokens": cached,
        "operations_1e9": operations,
        "ratios": ratios,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
