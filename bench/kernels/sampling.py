"""`ramet bench sampling`: time that each feature of sampling takes in a step, beside one read of the logits.

In process, with a model that is little more than its vocabulary: 32 requests draw 128 tokens each, with every feature
in turn, round by round. A figure is the sampling phase of a step: the median over rounds, and what it takes more than
the plain greedy step of the same round. One read is a sum over logits of that size in the same run, with as many
threads: all four penalties together should cost no more.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ramet.bench import report, stamp
from ramet.bench.loads import SHAPE
from ramet.bench.offline import make_checkpoint
from ramet.bench.values import positive

if TYPE_CHECKING:
    from ramet.runtime.llm import LLM

PLAIN = "nothing, greedy"
PENALTIES: dict[str, Any] = {
    "frequency_penalty": 1.1, "presence_penalty": 1.1, "repetition_penalty": 1.1, "min_new_tokens": 100,
}  # fmt: skip
WARM = {"temperature": 0.8}
FEATURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # sampling parameters, other fields
    PLAIN: ({}, {}),
    **{name: ({name: value}, {}) for name, value in PENALTIES.items()},
    "all four together": (PENALTIES, {}),
    "logit_bias, 8 tokens": ({"logit_bias": {str(i): 1 for i in range(8)}}, {}),
    "return_logprob": ({}, {"return_logprob": True}),
    "return_logprob, 5 best": ({}, {"return_logprob": True, "top_logprobs_num": 5}),
    "temperature": (WARM, {}),
    "temperature, top_p": (WARM | {"top_p": 0.9}, {}),
    "temperature, top_k": (WARM | {"top_k": 50}, {}),
    "temperature, min_p": (WARM | {"min_p": 0.05}, {}),
}


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench sampling", description="Time of each feature of sampling.")
    p.add_argument("--rows", type=positive, default=32, help="requests that run together, default 32")
    p.add_argument("--vocab-size", type=positive, default=32000, help="default 32000")
    p.add_argument("--output-len", type=positive, default=128, help="tokens, default 128")
    p.add_argument("--rounds", type=positive, default=7, help="default 7")
    p.add_argument("--num-threads", type=positive, default=1, help="default 1")
    p.add_argument("--output-file", type=Path, default=report.results_file("sampling"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        make_checkpoint(Path(folder), small_shape(options.vocab_size))
        figures = measure(Path(folder), options)
    for name, (whole, more) in figures["features"].items():
        print(f"{name:<28}{whole:>10.1f} us a step{more:>10.1f} us more")
    print(f"{'one read of the logits':<28}{figures['read_us']:>10.1f} us")
    made = stamp.stamp(stamp.command_line("sampling", argv))
    chosen = {name: getattr(options, name) for name in ("rows", "vocab_size", "output_len", "rounds", "num_threads")}
    report.append_line(options.output_file, {"bench": "sampling", **made, **chosen, **figures})
    return 0


def small_shape(vocab_size: int) -> dict[str, Any]:
    own = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4}
    return SHAPE | own | {"intermediate_size": 64, "vocab_size": vocab_size, "torch_dtype": "float32"}


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Name -> (microseconds of a step's sampling, those beyond the plain step's), and one read's."""
    from ramet.runtime.llm import LLM

    spent: dict[str, list[float]] = {name: [] for name in FEATURES}
    reads: list[float] = []
    with LLM(str(folder), num_threads=options.num_threads, max_total_tokens=16384, random_seed=0) as llm:
        for number in range(options.rounds + 1):
            for name in FEATURES:
                microseconds = step_us(llm, name, options.rows, options.output_len)
                if number:  # the first round warms
                    spent[name].append(microseconds)
            reads.append(read_us(options.rows, options.vocab_size))
    more = {name: [a - b for a, b in zip(times, spent[PLAIN], strict=True)] for name, times in spent.items()}
    features = {
        name: (round(statistics.median(spent[name]), 1), round(statistics.median(more[name]), 1)) for name in FEATURES
    }
    return {"features": features, "read_us": round(statistics.median(reads), 1)}


def step_us(llm: "LLM", name: str, rows: int, output_len: int) -> float:
    """Mean time of a step's sampling with this feature in every row."""
    params, fields = FEATURES[name]
    least = {"min_new_tokens": min(params["min_new_tokens"], output_len)} if "min_new_tokens" in params else {}
    llm.flush_cache()
    before = llm.phase_seconds()
    llm.generate(
        [[5, 6, 7 + row] for row in range(rows)],
        {"temperature": 0, "top_p": 1, "ignore_eos": not least, "max_new_tokens": output_len} | params | least,
        **fields,
    )
    after = llm.phase_seconds()
    return (after["sample"] - before["sample"]) / (after["steps"] - before["steps"]) * 1e6


def read_us(rows: int, vocab_size: int) -> float:
    """One sum over logits that are not in the cache of the core from the step before: the median of nine."""
    import torch

    logits = [torch.randn(rows, vocab_size) for _ in range(9)]
    times = []
    for each in logits:
        started = time.perf_counter()
        each.sum()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
