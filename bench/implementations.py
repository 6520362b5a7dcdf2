"""`ramet bench implementations`: a family of our own, the same model through transformers' modules, and transformers.

Three checkpoints with made-up weights (Llama, Qwen3, Qwen3-MoE), each served in this process natively and with
`--model-impl transformers`, and by transformers' `generate` as a batch of prompts of one length. Rounds go in turn,
and within a round the order turns, so that a noisy machine is noisy for all. Every side computes in float32 on as many
threads. Tokens per second are of a whole call, prompts included: the median over rounds.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ramet.bench import report, stamp
from ramet.bench.offline import make_folder
from ramet.bench.rounds import turned
from ramet.bench.values import positive
from ramet.runtime.llm import LLM

VOCABULARY, POOL_TOKENS = 8192, 4096
SIZES = dict(
    vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
    num_key_value_heads=4, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1, pad_token_id=None,
)  # fmt: skip
EXPERTS = dict(num_experts=16, num_experts_per_tok=2, moe_intermediate_size=352, norm_topk_prob=True)
MODELS: dict[str, dict[str, Any]] = {  # model_type -> what differs from SIZES
    "llama": {}, "qwen3": dict(head_dim=64), "qwen3_moe": dict(EXPERTS, head_dim=64),
}  # fmt: skip
BATCHES = (1, 8)
Prompts = list[list[int]]
Side = Callable[[Prompts, int], int]  # prompts and tokens wanted of each -> tokens made


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench implementations", description="Native, through transformers, and it.")
    p.add_argument("--model", choices=list(MODELS), action="append", help="default: all")
    p.add_argument("--rounds", type=positive, default=5, help="default 5")
    p.add_argument("--input-len", type=positive, default=64, help="tokens of a prompt, default 64")
    p.add_argument("--output-len", type=positive, default=32, help="tokens made of each, default 32")
    p.add_argument(
        "--threads", type=positive, default=os.cpu_count() or 1, help="of each side, default: as many as cores"
    )
    p.add_argument("--layers", type=positive, default=SIZES["num_hidden_layers"], help="of each model, default 8")
    p.add_argument("--output-file", type=Path, default=report.results_file("implementations"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    results = {name: measure(name, options) for name in options.model or MODELS}
    made = stamp.stamp(stamp.command_line("implementations", argv))
    record = {"threads": options.threads, "input": options.input_len, "output": options.output_len, "models": results}
    report.append_line(options.output_file, {"bench": "implementations", **made, **record})
    return 0


def measure(name: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Of each batch and side, tokens/s; prints them."""
    measured: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        theirs = make_checkpoint(Path(folder), name, options.layers)
        sides: dict[str, Side] = {
            "native": ours(folder, "native", options.threads),
            "transformers' modules": ours(folder, "transformers", options.threads),
            "generate": of_transformers(theirs, options.threads),
        }
        for size in BATCHES:
            speeds: dict[str, list[float]] = {side: [] for side in sides}
            for number in range(-1, options.rounds):  # the first one warms
                prompts = prompts_of(size, options.input_len, seed=number + 1)
                for side in turned(list(sides), number + 1):
                    start = time.perf_counter()
                    tokens = sides[side](prompts, options.output_len)
                    seconds = time.perf_counter() - start
                    assert tokens == size * options.output_len, (side, tokens)
                    speeds[side] += [tokens / seconds] if number >= 0 else []
            medians = measured[f"batch {size}"] = {k: round(statistics.median(v), 1) for k, v in speeds.items()}
            shown = ", ".join(f"{side} {speed:.1f}" for side, speed in medians.items())
            print(f"{name:<10} batch {size}: {shown} tokens/s", flush=True)
    return measured


def make_checkpoint(folder: Path, name: str, layers: int) -> Any:
    """Write it; returns the model of transformers."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **{**SIZES, **MODELS[name], "num_hidden_layers": layers})
    model = AutoModelForCausalLM.from_config(config).eval()
    make_folder(folder, {"vocab_size": VOCABULARY})  # a tokenizer, and a config that the next line replaces
    model.save_pretrained(folder)
    return model


def prompts_of(size: int, length: int, seed: int) -> Prompts:
    prompts: Prompts = np.random.default_rng(seed).integers(2, VOCABULARY, (size, length)).tolist()
    return prompts


def ours(folder: str, implementation: str, threads: int) -> Side:
    llm = LLM(
        model_path=folder, model_impl=implementation, num_threads=threads, max_total_tokens=POOL_TOKENS,
        dtype="float32", random_seed=0, log_level="warning",
    )  # fmt: skip

    def run(prompts: Prompts, wanted: int) -> int:
        replies = llm.generate(prompts, {"temperature": 0, "max_new_tokens": wanted, "ignore_eos": True})
        return sum(len(reply["output_ids"]) for reply in replies)

    return run


def of_transformers(model: Any, threads: int) -> Side:
    import torch

    def run(prompts: Prompts, wanted: int) -> int:
        torch.set_num_threads(threads)
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            made = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=wanted, max_new_tokens=wanted
            )
        return int(made[:, ids.shape[1] :].numel())

    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
