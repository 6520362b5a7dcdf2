"""`ramet bench adapters`: what a step costs whose rows have adapters of their own, against one whose rows have none.

One process and one 160M-shaped model with made-up weights answer both, in turn, round by round, so that a noisy machine
is noisy for both. Every adapter changes all linear layers of every layer, and rows have them in turn. Prompts are a few
tokens and cached, so nearly all time is that of decode steps.
"""

import argparse
import json
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

PROMPT = 8  # tokens
SIDES = ("model", "adapters")


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench adapters", description="Steps of rows with and without adapters.")
    p.add_argument("--rows", type=positive, default=32, help="default 32")
    p.add_argument("--adapters", type=positive, default=4, help="default 4")
    p.add_argument("--rank", type=positive, default=16, help="default 16")
    p.add_argument("--tokens", type=positive, default=32, help="steps of a round, default 32")
    p.add_argument("--rounds", type=positive, default=5, help="default 5")
    p.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="default bfloat16")
    p.add_argument("--num-threads", type=positive, help="default: one per core")
    p.add_argument("--output-file", type=Path, default=report.results_file("adapters"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        record = measure(Path(folder), options, SHAPE)
    made = stamp.stamp(stamp.command_line("adapters", argv))
    report.append_line(options.output_file, {"bench": "adapters", **made, **record})
    return 0


def measure(folder: Path, options: argparse.Namespace, shape: dict[str, Any]) -> dict[str, Any]:
    from ramet.runtime.llm import LLM

    make_checkpoint(folder, shape)
    names = [f"adapter-{i}" for i in range(options.adapters)]
    for seed, name in enumerate(names):
        make_adapter(folder / name, shape, options.rank, seed)
    paths = tuple(f"{name}={folder / name}" for name in names)
    prompts = [[3 + row] * PROMPT for row in range(options.rows)]
    asked = {"model": None, "adapters": [names[row % len(names)] for row in range(options.rows)]}
    params = {"temperature": 0, "max_new_tokens": options.tokens, "ignore_eos": True}
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    with LLM(
        str(folder), max_total_tokens=2 * options.rows * (PROMPT + options.tokens + 16), dtype=options.dtype,
        num_threads=options.num_threads, lora_paths=paths, max_loras_per_batch=len(names), random_seed=0,
        log_level="warning", weights_cache_gb=0,
    ) as llm:  # fmt: skip
        threads = llm.resolved["num_threads"]
        for number in range(-1, options.rounds):  # the first one warms everything
            for side in SIDES if number % 2 else SIDES[::-1]:
                started = time.perf_counter()
                llm.generate(prompts, params, lora_path=asked[side])
                if number >= 0:
                    seconds[side].append((time.perf_counter() - started) / options.tokens)
    return _outcome(seconds, threads, options)


def make_adapter(folder: Path, shape: dict[str, Any], rank: int, seed: int) -> None:
    """A folder as PEFT writes it, of random numbers."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    size, inner = shape["hidden_size"], shape["intermediate_size"]
    kv = size // shape["num_attention_heads"] * shape["num_key_value_heads"]
    layers = {
        "self_attn.q_proj": (size, size), "self_attn.k_proj": (size, kv), "self_attn.v_proj": (size, kv),
        "self_attn.o_proj": (size, size), "mlp.gate_proj": (size, inner), "mlp.up_proj": (size, inner),
        "mlp.down_proj": (inner, size),
    }  # fmt: skip
    tensors = {}
    for layer in range(shape["num_hidden_layers"]):
        for name, (num_in, num_out) in layers.items():
            at = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{at}.lora_A.weight"] = torch.randn(rank, num_in) / num_in**0.5
            tensors[f"{at}.lora_B.weight"] = torch.randn(num_out, rank) * 0.01
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": [*layers]}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def _outcome(seconds: dict[str, list[float]], threads: int, options: argparse.Namespace) -> dict[str, Any]:
    ratio = statistics.median(b / a for a, b in zip(*(seconds[side] for side in SIDES), strict=True))
    print(
        f"{options.rows} rows, {options.adapters} adapters of rank {options.rank}, {options.dtype}, {threads} threads"
    )
    for side, values in seconds.items():
        print(f"{side:<10} {statistics.median(values) * 1e3:8.2f} ms a step", flush=True)
    print(f"a step with adapters takes {ratio:.2f} times as long")
    return {
        "rows": options.rows, "adapters": options.adapters, "rank": options.rank, "dtype": options.dtype,
        "threads": threads, "rounds": options.rounds,
        "step_ms": {side: [round(value * 1e3, 3) for value in values] for side, values in seconds.items()},
        "ratio": round(ratio, 3),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
