"""`ramet bench gpu`: one table for the CUDA card at hand, each figure beside what the card allows.

What the card allows is measured first, in the same run: the bandwidth of a copy and the rate of a matrix product.
  attention   a layer's decode and extend attention, beside those
  experts     layers of experts, beside their limit and torch's grouped products
  steps       decode steps and first tokens of an 8B shape with random weights, in process
  shares      what each kernel takes of the card's time, one row decoding and 128
  headline    3,000 prompts through HTTP, plain and with penalties
  peer        256 requests in process, and transformers' continuous batching beside it
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.values import positive

PARTS = ("attention", "experts", "steps", "shares", "headline", "peer")


def main(argv: Sequence[str]) -> int:
    p = argparse.ArgumentParser(
        prog="ramet bench gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--part", choices=PARTS, action="append", help="one of the above, may be repeated; default all")
    p.add_argument("--num-prompts", type=positive, default=3000, help="of the headline; default 3000")
    p.add_argument("--output-file", type=Path, default=report.results_file("gpu"), help=report.RESULTS_HELP)
    options = p.parse_args(list(argv))
    import torch

    if not torch.cuda.is_available():
        print("ramet bench gpu: torch finds no CUDA device", file=sys.stderr)
        return 2
    from ramet.bench.gpu.card import measure_card

    card = measure_card()
    print(card.shown(), flush=True)
    record: dict[str, Any] = {}
    try:
        for part in options.part or PARTS:
            record[part] = _figures(part, card, options)
            for name, values in record[part].items():
                print(f"{name:<44}" + "  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
            torch.cuda.empty_cache()
    finally:  # what was measured before something failed is kept
        made = stamp.stamp(stamp.command_line("gpu", argv))
        report.append_line(options.output_file, {"bench": "gpu", **made, "card": asdict(card), **record})
    return 0


def _figures(part: str, card: Any, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    from ramet.bench.gpu import attention, experts, headline, peer, steps

    if part == "attention":
        return attention.figures(card)
    if part == "experts":
        return experts.figures(card)
    if part == "headline":
        return headline.figures(options.num_prompts)
    if part == "peer":
        return peer.figures()
    model = steps.Model()
    try:
        if part == "shares":
            return {f"{rows} decoding": steps.shares(model, rows) for rows in (1, 128)}
        return steps.figures(card, model)
    finally:
        model.close()
