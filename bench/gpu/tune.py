"""Ways to cut attention on a card, timed: for the tables of kernels/tuned.py. `python -m ramet.bench.gpu.tune`

Compiling takes longer than timing, so `--compile I N` compiles the I-th of N parts and times nothing: run N of them at
once first. A way is keys of a tile, warps, stages and programs a multiprocessor, for extends queries before the keys.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import astuple
from itertools import islice, product
from pathlib import Path

import torch

from ramet.bench import report, stamp
from ramet.bench.gpu.attention import Pools, Shape
from ramet.kernels.tuned import DecodeTuning, ExtendTuning

DECODES = (Shape(1, 1024), Shape(64, 1024), Shape(256, 384))
EXTENDS = (Shape(1, 4096, 4096), Shape(8, 256, 256), Shape(1, 8192, 512))


def decode_tunings() -> list[DecodeTuning]:
    return [DecodeTuning(*way) for way in product((32, 64, 128), (4,), (3, 5, 7), (2, 3, 4, 6))]


def extend_tunings(head_dim: int = 128) -> list[ExtendTuning]:
    if head_dim > 128:
        return [ExtendTuning(*way) for way in ((64, 32, 8, 2), (128, 32, 8, 2), (64, 32, 4, 2), (128, 64, 8, 2))]
    ways = product((128,), (64, 128), (8,), (2, 3, 4))
    return [ExtendTuning(*way) for way in (*ways, (64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3), (64, 128, 4, 2))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ramet.bench.gpu.tune")
    parser.add_argument(
        "--compile", type=int, nargs=2, metavar=("I", "N"), help="compile the I-th of N parts and time nothing"
    )
    parser.add_argument("--head-dim", type=int, default=128, help="default 128")
    parser.add_argument("--only", choices=("decode", "extend"), help="default: both")
    parser.add_argument("--output-file", type=Path, default=report.results_file("gpu_tune"), help=report.RESULTS_HELP)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("ramet.bench.gpu.tune: torch finds no CUDA device", file=sys.stderr)
        return 2
    if options.compile:
        _compile(options.compile[0], options.compile[1], options.head_dim, options.only)
        return 0
    found: dict[str, dict[str, float]] = {}
    for name, way, took in timed(options.head_dim, options.only):
        print(f"{name}: {way}: {took * 1e6:.1f} us", flush=True)
        found.setdefault(name, {})[way] = round(took * 1e6, 1)
    command = ["python", "-m", "ramet.bench.gpu.tune", *sys.argv[1:]]
    report.append_line(options.output_file, {"bench": "gpu.tune", **stamp.stamp(command), "us": found})
    return 0


def _compile(part: int, parts: int, head_dim: int, only: str | None) -> None:
    few, many = Pools(Shape(1, 64, head_dim=head_dim), 1), Pools(Shape(1, 64, 64, head_dim=head_dim), 1)
    once = {astuple(way)[:3]: way for way in decode_tunings()}.values() if only != "extend" else ()
    ways: list[DecodeTuning | ExtendTuning] = [*(extend_tunings(head_dim) if only != "decode" else ()), *once]
    for way in islice(ways, part, None, parts):
        _took(few if isinstance(way, DecodeTuning) else many, way)


def timed(head_dim: int, only: str | None) -> Iterator[tuple[str, str, float]]:
    """(shape, tuning, seconds of a layer)"""
    for kind, shapes, ways in (("decode", DECODES, decode_tunings()), ("extend", EXTENDS, extend_tunings(head_dim))):
        for each in shapes if only in (None, kind) else ():
            shape = Shape(each.rows, each.context, each.new, head_dim=head_dim)
            pools = Pools(shape)
            for way in ways:
                took = _took(pools, way)
                if took is not None:
                    yield shape.name, " ".join(str(number) for number in astuple(way)), took


def _took(pools: Pools, way: DecodeTuning | ExtendTuning) -> float | None:
    """None: the card cannot hold it."""
    from triton.runtime.errors import OutOfResources

    try:
        return pools.decode(way) if isinstance(way, DecodeTuning) else pools.extend(way)
    except OutOfResources:
        return None


if __name__ == "__main__":
    sys.exit(main())
