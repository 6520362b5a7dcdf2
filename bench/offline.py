"""`ramet bench offline`: throughput inside one process, against transformers' `generate` on the same checkpoint.

Both sides load the same weights, made by seed in a temporary folder, and run in turn within one process, round by
round, so that a noisy machine is noisy for both. Figures are medians over rounds; the ratio is taken per round, then
its median. Prompts are new in every round: no cache carries over from one to the next.

  single   1 request    256 in                          128 out
  batch    32 requests  256 in                          128 out
  shared   64 requests  1,024 shared + 128 own in        16 out

transformers runs with its dynamic cache and SDPA attention, without compilation, each load as one batch of equal
lengths, but `shared` in batches of 8: with all 64 at once (73,728 tokens of activations) it runs at half the speed.

With --grow ramet runs alone: batches of 1 to 64 such requests, prompts of 128 to 8,192 tokens with one new token, and
64 new tokens after prompts of such lengths that are in the cache. The last lines say what the dearest doubling costs.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.loads import GROWN_SHAPE, GROWTH, LOADS, SHAPE, Load
from ramet.bench.values import positive

POOL_TOKENS = 32768
MAX_DOUBLING = 2.2

Side = Callable[[list[list[int]], int], list[int]]  # prompts, new tokens -> how many tokens each got


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(prog="ramet bench offline", description="Throughput in process, against transformers.")
    p.add_argument("--rounds", type=positive, default=3, help="default 3")
    p.add_argument("--load", choices=[load.name for load in LOADS], action="append", help="default: all")
    p.add_argument("--num-threads", type=positive, help="of both sides; default: one per core")
    p.add_argument("--phases", action="store_true", help="only: what share of a step each phase takes, 32 running")
    p.add_argument("--grow", action="store_true", help="only: ramet with ever larger batches and longer prompts")
    p.add_argument("--ours-only", action="store_true", help="without transformers")
    p.add_argument("--output-file", type=Path, default=report.results_file("offline"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        make_checkpoint(Path(folder), GROWN_SHAPE if options.grow else SHAPE)
        record = measure(Path(folder), options)
    made = stamp.stamp(stamp.command_line("offline", argv))
    report.append_line(options.output_file, {"bench": "offline", **made, **record})
    return 0


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    if options.phases:
        return _phases(folder, options)
    return grow(folder, options) if options.grow else _compare(folder, options)


def make_checkpoint(folder: Path, shape: dict[str, Any] = SHAPE, seed: int = 0) -> None:
    """A Hugging Face folder of that shape: seeded random weights, a tokenizer of as many made-up words."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    save_file(
        {name: _weight(size) for name, size in _weight_sizes(shape).items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    make_folder(folder, shape)


def make_folder(folder: Path, shape: dict[str, Any]) -> None:
    """What a checkpoint has beside its weights: for --load-format dummy it is enough."""
    (folder / "config.json").write_text(json.dumps(shape))
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, shape["vocab_size"])}
    special = [
        {"id": i, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for i, token in enumerate(("<unk>", "<s>", "</s>"))
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def _weight_sizes(shape: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name -> size of every tensor of a Llama checkpoint."""
    hidden, inner, vocab = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    kv = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    sizes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    if not shape["tie_word_embeddings"]:
        sizes["lm_head.weight"] = (vocab, hidden)
    for layer in range(shape["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        sizes |= {f"{at}self_attn.{n}_proj.weight": (hidden, hidden) for n in "qo"}
        sizes |= {f"{at}self_attn.{n}_proj.weight": (kv, hidden) for n in "kv"}
        sizes |= {f"{at}mlp.{n}_proj.weight": (inner, hidden) for n in ("gate", "up")}
        sizes |= {f"{at}mlp.down_proj.weight": (hidden, inner)}
        sizes |= {f"{at}{n}_layernorm.weight": (hidden,) for n in ("input", "post_attention")}
    return sizes | {"model.norm.weight": (hidden,)}


def _weight(size: tuple[int, ...]) -> Any:
    import torch

    return (torch.ones(size) if len(size) == 1 else torch.randn(size) * 0.02).to(torch.bfloat16)


def ours(folder: Path, threads: int | None) -> tuple[Any, Side]:
    from ramet.runtime.llm import LLM

    llm = LLM(
        model_path=str(folder), max_total_tokens=POOL_TOKENS, num_threads=threads, random_seed=0, log_level="warning"
    )

    def generate(prompts: list[list[int]], output: int) -> list[int]:
        params = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
        return [len(reply["output_ids"]) for reply in llm.generate(prompts, params)]

    return llm, generate


def theirs(folder: Path, threads: int) -> Side:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()

    @torch.inference_mode()
    def generate(prompts: list[list[int]], output: int) -> list[int]:
        ids = torch.tensor(prompts)  # [requests, input]; equal lengths, so there is no padding
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), min_new_tokens=output, max_new_tokens=output, do_sample=False,
            pad_token_id=0,
        )  # fmt: skip
        return [made.shape[1] - ids.shape[1]] * len(prompts)

    return generate


def _compare(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    llm, generate = ours(folder, options.num_threads)
    threads = llm.resolved["num_threads"]
    sides = {"ramet": generate}
    if not options.ours_only:
        sides["transformers"] = theirs(folder, threads)
    loads = [load for load in LOADS if not options.load or load.name in options.load]
    _warm(sides)
    return {"threads": threads, "rounds": options.rounds, "loads": [_run(load, sides, options) for load in loads]}


def grow(folder: Path, options: argparse.Namespace, loads: Sequence[Load] = GROWTH) -> dict[str, Any]:
    llm, generate = ours(folder, options.num_threads)
    sides = {"ramet": generate}
    _warm(sides)
    record = {
        "threads": llm.resolved["num_threads"],
        "rounds": options.rounds,
        "growth": [_run(load, sides, options) for load in loads],
    }
    for what, (cost, where) in doublings(record["growth"]).items():
        held = "holds" if cost <= MAX_DOUBLING else "MISSED"
        print(f"{what}: the dearest doubling, to {where}, takes {cost:.2f} times as long (≤ {MAX_DOUBLING}: {held})")
    return record


def doublings(growth: Sequence[dict[str, Any]]) -> dict[str, tuple[float, str]]:
    """What the dearest doubling costs of the requests in a batch, and of the tokens that one request has in the cache:
    the ratio of median seconds, and the load that it leads to."""
    batches = {load["requests"]: load for load in growth if load["output"] > 1 and not load.get("cached")}
    contexts = {load["own"]: load for load in growth if load.get("cached")}
    found = {}
    for what, loads in (("requests", batches), ("context", contexts)):
        seconds = {size: statistics.median(load["seconds"]["ramet"]) for size, load in loads.items()}
        costs = [(seconds[2 * size] / seconds[size], loads[2 * size]["load"]) for size in loads if 2 * size in loads]
        if costs:
            found[what] = max(costs)
    return found


def _warm(sides: dict[str, Side]) -> None:
    """First calls compile, fault memory in and fill caches."""
    for side in sides.values():
        side(LOADS[0].prompts(-1), 4)


def _run(load: Load, sides: dict[str, Side], options: argparse.Namespace) -> dict[str, Any]:
    """Both sides in turn for some rounds; prints and returns what came out."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(options.rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in order:
            prompts = load.prompts(number)
            if load.cached:
                sides[name](prompts, 1)
            start = time.perf_counter()
            size = load.their_batch if name == "transformers" else load.requests
            got = [n for at in range(0, load.requests, size) for n in sides[name](prompts[at : at + size], load.output)]
            seconds[name].append(time.perf_counter() - start)
            if got != [load.output] * load.requests:
                raise RuntimeError(f"{name} made {sorted(set(got))} tokens a request, must be {load.output}")
    return _outcome(load, seconds)


def _outcome(load: Load, seconds: dict[str, list[float]]) -> dict[str, Any]:
    lengths = {"requests": load.requests, "shared": load.shared, "own": load.own, "output": load.output}
    if load.cached:
        lengths["cached"] = True
    rounded = {name: [round(s, 3) for s in values] for name, values in seconds.items()}
    result: dict[str, Any] = {"load": load.name, **lengths, "seconds": rounded}
    for name, values in seconds.items():
        middle = statistics.median(values)
        out, whole = load.requests * load.output / middle, load.requests / middle
        result[name] = {"output_tokens_per_s": round(out, 1), "requests_per_s": round(whole, 2)}
        print(f"{load.name:<15} {name:<13} {middle:8.2f} s  {out:8.1f} output tok/s  {whole:7.2f} req/s", flush=True)
    if "transformers" in seconds:
        ratios = [b / a for a, b in zip(seconds["ramet"], seconds["transformers"])]
        result["ratio"] = round(statistics.median(ratios), 2)
        result["target"] = load.target
        held = "holds" if result["ratio"] >= load.target else "MISSED"
        print(f"{load.name:<8} ratio {result['ratio']:.2f} (asked: {load.target:g}, {held})", flush=True)
    return result


def _phases(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds by phase over decode steps with 32 running, as shares of their sum."""
    llm, generate = ours(folder, options.num_threads)
    load = LOADS[1]
    generate(load.prompts(-1), 4)
    before = llm.phase_seconds()
    generate(load.prompts(0), load.output)
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in llm.phase_seconds().items()}
    steps = spent.pop("steps")
    whole = sum(spent.values())
    for name, seconds in spent.items():
        print(f"{name:<10} {seconds / steps * 1000:8.3f} ms a step  {seconds / whole:6.1%}")
    beside = whole - spent["forward"]
    print(f"all but forward: {beside / whole:.1%} of a step (asked: under 10 %), {steps:.0f} steps")
    shares = {name: round(seconds / whole, 4) for name, seconds in spent.items()}
    return {
        "threads": llm.resolved["num_threads"],
        "steps": steps,
        "phase_shares": shares,
        "beside_forward": round(beside / whole, 4),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
