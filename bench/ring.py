"""`ramet bench ring`: what the rings of processes take of a step, beside what the processes take of it.

A pipeline cannot show a difference that is smaller than its noise, so both parts are measured by themselves: the writes
of one step in a loop (one step event; of the detokenizer and the server a message each, with the beats around it), the
fastest of many turns; and the CPU of all processes of a server in a round of `bench pipeline`, the fastest of some.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.pipeline import first_model, one_round, scripted
from ramet.bench.server import started
from ramet.bench.values import positive
from ramet.ipc.messages import TokenStep
from ramet.ipc.ring import MANY_RECORDS, Activity, MessageRing, Ring

CALLS, TURNS = 2000, 200
NUMBERS = 10  # of a step event


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    try:
        record = measure(options)
    except BadOption as error:
        print(f"ramet bench ring: {error}", file=sys.stderr)
        return 1
    made = stamp.stamp(stamp.command_line("ring", argv))
    report.append_line(options.output_file, {"bench": "ring", **made, **record})
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as folder:
        writes = writes_us(Path(folder))
    with started(scripted(options)) as server:
        options.model = first_model(server.url)
        rounds = [run_fast(one_round(server.url, options, server.pid)) for _ in range(options.rounds)]
    cpu = min(each.server_cpu_us for each in rounds)
    step_us, whole_us = sum(writes.values()), cpu * options.streams
    for name, us in writes.items():
        print(f"{name:<24} {us:8.2f} us a step")
    print(f"{'all processes':<24} {whole_us:8.2f} us of CPU a step of {options.streams} rows")
    print(f"{'rings':<24} {step_us / whole_us:8.2%}", flush=True)
    return {
        "streams": options.streams,
        "output_len": options.output_len,
        "writes_us_per_step": {name: round(us, 3) for name, us in writes.items()},
        "cpu_us_per_step": round(whole_us, 1),
        "share": round(step_us / whole_us, 5),
    }


def writes_us(folder: Path) -> dict[str, float]:
    """What each process writes of a step, in microseconds."""
    steps = Ring(folder / "scheduler.ring", {"step": tuple(f"n{i}" for i in range(NUMBERS))}, MANY_RECORDS)
    texts = MessageRing(folder / "detokenizer.ring", TokenStep, {TokenStep: "uids"})
    numbers, step = [1.0] * NUMBERS, TokenStep([], b"")

    def add_step() -> None:
        steps.add(0, 1.0, *numbers)

    def take_step() -> None:
        texts.beat(Activity.WAITING)
        texts.beat(Activity.WORKING)
        texts.handle(_nothing, step)

    return {
        "scheduler": fastest_us(add_step),
        "detokenizer": fastest_us(take_step),
        "server": fastest_us(lambda: texts.handle(_nothing, step)),
    }


def _nothing(_: object) -> None:
    """The handler's own time is not the ring's."""


def fastest_us(call: Callable[[], None]) -> float:
    """Of one call, in the fastest of TURNS turns of CALLS calls."""
    best = float("inf")
    for _ in range(TURNS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - start)
    return best / CALLS * 1e6


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="ramet bench ring", description="What the rings of processes take of a step.")
    p.add_argument("--rounds", type=positive, default=8, help="of the pipeline, default 8")
    p.add_argument("--streams", type=positive, default=128, help="concurrent streams, default 128")
    p.add_argument("--output-len", type=positive, default=512, help="tokens of each stream, default 512")
    p.add_argument("--output-file", type=Path, default=report.results_file("ring"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    p.set_defaults(input_len=16, chat=False, tools=False)
    return p


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
