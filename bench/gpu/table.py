"""`ramet bench gpu`: one table for the CUDA card at hand, each figure beside what the card allows.

What the card allows is measured first, in the same run: the bandwidth of a copy and of reads, and the rate of a matrix
product. With each figure are kept the card's clock, power and temperature while it was taken.
  attention         a layer's decode and extend attention, beside those
  experts           layers of experts, beside their limit and torch's grouped products
  products          bfloat16 products of a layer, for 64 to 2,048 tokens
  linears           linear layers in float8 and 4 bits beside bfloat16, 1 to 256 tokens
  prompts           attention of whole prompts, beside cuDNN's
  short-extends     32 new tokens behind long cached prefixes
  few-kv-heads      one long row of models with few heads of keys and values
  head-sizes        attention with heads of 64 and 256 numbers
  float8-cache      attention over keys and values in float8
  steps             decode steps and first tokens of an 8B shape with random weights, in process
  shares            what each kernel takes of the card's time, one row decoding and 128
  sampling          decode steps that draw with top-p, beside greedy ones
  offline-headline  3,000 prompts in process, and how busy the card is
  headline          3,000 prompts through HTTP, plain and with penalties
  peer              256 requests in process, and transformers' continuous batching beside it
"""

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ramet.bench import report, stamp
from ramet.bench.gpu.lines import WEIGHT_BYTES, LineOptions, Lines
from ramet.bench.gpu.sensors import Sensors
from ramet.bench.values import positive

if TYPE_CHECKING:
    from ramet.bench.gpu.card import GpuCard
    from ramet.bench.gpu.steps import StepModel

IN_PROCESS = {"steps": "figures", "shares": "share_figures", "sampling": "figures", "offline-headline": "figures"}
KERNELS = (
    "attention", "experts", "products", "linears", "prompts", "short-extends", "few-kv-heads", "head-sizes",
    "float8-cache",
)  # fmt: skip
MODULES = {"prompts": "whole_prompts", "shares": "steps"}  # of parts that are not called as their files
PARTS = (*KERNELS, *IN_PROCESS, "headline", "peer")


def main(argv: Sequence[str]) -> int:
    chosen = _parser().parse_args(list(argv))
    import torch

    if not torch.cuda.is_available():
        print("ramet bench gpu: torch finds no CUDA device", file=sys.stderr)
        return 2
    from ramet.bench.gpu.card import measure_card

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was measured is kept
    options = LineOptions(
        chosen.num_prompts, chosen.max_running_requests, chosen.quantization, chosen.kv_cache_dtype, chosen.penalties
    )
    sensors = Sensors()
    card = measure_card()
    print(card.shown(), sensors.lap(), flush=True)
    record: dict[str, Any] = {"sensors": {}}
    table, failed = FigureTable(card, options), list[str]()
    try:
        for part in chosen.part or PARTS:
            record[part] = {}
            try:
                for name, values in table.lines(part):
                    felt = record["sensors"][name] = sensors.lap()
                    record[part][name] = values
                    shown = [f"{key} {value:g}" for key, value in (values | felt).items()]
                    print(f"{name:<44}" + "  ".join(shown), flush=True)
            except Exception:  # noqa: BLE001 - whatever it is, the other parts are measured
                failed.append(part)
                traceback.print_exc()
            torch.cuda.empty_cache()
    finally:  # what was measured before something failed is kept
        made = stamp.stamp(stamp.command_line("gpu", argv))
        line = {"bench": "gpu", **made, "options": asdict(options), "card": asdict(card), **record}
        report.append_line(chosen.output_file, line)
        table.close()
        sensors.close()
    if failed:
        print(f"ramet bench gpu: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="ramet bench gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--part", choices=PARTS, action="append", help="one of the above, may be repeated; default all")
    p.add_argument("--num-prompts", type=positive, default=3000, help="of the headlines; default 3000")
    p.add_argument("--max-running-requests", type=positive, default=512, help="of every engine; default 512")
    p.add_argument("--quantization", choices=list(WEIGHT_BYTES), default="", help="of every engine; default none")
    p.add_argument("--kv-cache-dtype", choices=("auto", "fp8"), default="auto", help="of every engine; default auto")
    p.add_argument(
        "--penalties", action=argparse.BooleanOptionalAction, default=True, help="the headline with penalties too"
    )
    p.add_argument("--output-file", type=Path, default=report.results_file("gpu"), help=report.RESULTS_HELP)
    return p


class FigureTable:
    """Parts that measure an engine in this process, one after the other, have the same one."""

    def __init__(self, card: "GpuCard", options: LineOptions) -> None:
        self._card, self._options = card, options
        self._model: StepModel | None = None

    def lines(self, part: str) -> Lines:
        module = import_module(f"ramet.bench.gpu.{MODULES.get(part, part.replace('-', '_'))}")
        if part in IN_PROCESS:
            yield from getattr(module, IN_PROCESS[part])(self._card, self._options, self._engine())
        else:
            self.close()
            yield from module.figures(self._card, self._options)

    def close(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None

    def _engine(self) -> "StepModel":
        from ramet.bench.gpu.steps import StepModel

        if self._model is None:
            self._model = StepModel(**self._options.engine)
        return self._model
