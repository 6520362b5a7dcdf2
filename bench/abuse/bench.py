"""`ramet bench abuse`: what one abusive client costs everybody else, compared with one that sends plain text.

One server of the bundled model. For each shape of a body (shapes.py) and each kind of work (work.py):

- *cost*: the server, without other load, reads some bodies one after the other. The figure is the CPU seconds of
  server and tokenizer for a MiB of the body, over those of a plain text of the same size.
- *beside*: 16 streams run. The client sends bodies at a steady rate over 64 connections, and before and after it the
  control sends as many plain-text bodies of the same size at the same rate. The figures are the 99th percentile of the
  time between two tokens and the slowest probe of /health, over the mean of the two controls.
- *flood* (some shapes): 64 bodies of 32 MiB at once, three times. The figure is the memory of server and tokenizer
  after each flood.

If a bound is missed, it is printed and the exit code is 1. The last column is the machine's noise: the 99th
percentile beside one control over that beside the previous control.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from ramet.bench import report, stamp
from ramet.bench.abuse import client
from ramet.bench.abuse.client import Attack, Attacked
from ramet.bench.abuse.shapes import BOMB, CONTROL, PACKED, SHAPES
from ramet.bench.abuse.work import WORK
from ramet.bench.connections import Streams, Window, streaming, window
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.metrics import percentile
from ramet.bench.server import cpu_seconds, resident_bytes, started
from ramet.bench.values import positive, rate

MIB = 1 << 20
SMALL, LARGE = MIB, 32 * MIB - 256  # bytes of bodies; the second is within --max-body-mb with its headers
READERS = "server", "tokenizer"  # the processes that read a body
MAX_GAP = 1.3  # the 99th percentile of the time between tokens, over the control's
MAX_HEALTH_S = 1.0  # /health beside bodies of SMALL bytes
MAX_HEALTH = 3.0  # /health beside larger bodies, over the control's
HEALTH_FLOOR_S = 0.1  # a faster answer beside a control counts as this: differences of a few milliseconds are noise
MAX_COST = 4.0  # CPU time per MiB, over that of plain text
MAX_LEFT_MIB = 150.0  # memory after the floods, above that of the idle server
MAX_LEFT_GROWTH = 1.02  # memory after the third flood over that after the first
PACKED_PER_S = 64.0
WORK_PER_S = 2.0
COST_MIB = 128  # MiB of bodies that are sent for one cost figure
PROBE_S = 0.05
SETTLE_S = 1.5
FLOOD_CONNECTIONS = 64
FLOODS = (CONTROL, "unknown keys", "numbers", "ids", "lists of lists", "texts", "turns", "gzip", "deflate")


class Beside(NamedTuple):
    """One window in which a client attacked."""

    window: Window
    attacked: Attacked
    health_s: list[float]

    @property
    def slowest_health_s(self) -> float:
        return max(self.health_s)


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    shapes = options.shape or [*list(SHAPES)[1:], *WORK]
    try:
        with started([*_server_options(), *options.serve]) as server:
            record = run_fast(measured(server.url, server.pid, shapes, options))
    except BadOption as error:
        print(f"ramet bench abuse: {error}", file=sys.stderr)
        return 1
    missed = misses(record)
    print("\n".join(missed or ["every bound holds"]))
    made = stamp.stamp(stamp.command_line("abuse", argv))
    load = {name: getattr(options, name) for name in ("streams", "rounds", "window_s", "rate_mib_s")}
    report.append_line(options.output_file, {"bench": "abuse", **made, **load, **record, "missed": missed})
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench abuse", description=__doc__, formatter_class=formatter)
    p.add_argument("--shape", choices=[*SHAPES, *WORK], action="append", help="default: all")
    p.add_argument("--part", choices=list(PARTS), action="append", help="default: all")
    p.add_argument("--streams", type=positive, default=16, help="streams that run meanwhile, default 16")
    p.add_argument("--rounds", type=positive, default=2, help="rounds of control, client, control; default 2")
    p.add_argument("--window-s", type=positive, default=4, help="seconds that a client sends, default 4")
    p.add_argument("--rate-mib-s", type=rate, default=32.0, help="MiB a second of a client's bodies, default 32")
    p.add_argument("--output-file", type=Path, default=report.results_file("abuse"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    return p


def _server_options() -> list[str]:
    return ["--random-seed", "0", "--log-level", "warning", "--max-running-requests", "64"]


async def measured(url: str, pid: int, shapes: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for part in options.part or PARTS:
        print(f"-- {part}", flush=True)
        record[part] = await PARTS[part](url, pid, shapes, options)
    return record


# -- the cost of a body, alone ----------------------------------------------------------------------------------------


async def cost(url: str, pid: int, shapes: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    lines = []
    for shape in (name for name in shapes if name in SHAPES):
        for size in (SMALL, LARGE):
            per_mib = {}
            for control in (True, False):
                per_mib[control] = await cpu_per_mib(url, pid, shape, size, control)
            line = {"shape": shape, "size": size, "ms_per_mib": round(1e3 * per_mib[False], 3),
                    "control_ms_per_mib": round(1e3 * per_mib[True], 3),
                    "ratio": round(per_mib[False] / per_mib[True], 3)}  # fmt: skip
            print(
                "{shape:<28}{size:>10}{ms_per_mib:>10} ms/MiB, control {control_ms_per_mib}: {ratio}".format(**line),
                flush=True,
            )
            lines.append(line)
    return lines


async def cpu_per_mib(url: str, pid: int, shape: str, size: int, control: bool) -> float:
    """CPU seconds of server and tokenizer for a MiB of bodies that are sent one after the other.

    A packed body counts as the bytes that it inflates to.
    """
    num = max(2, COST_MIB * MIB // size)
    sent = CONTROL if control and shape in PACKED else shape  # the inflated bytes are compared with as much plain text
    on_wire = size // BOMB if sent in PACKED else size
    before = readers_cpu(pid)
    await ended(client.run(Attack(url, sent, on_wire, 1e6, num, connections=1, control=control)))
    await asyncio.sleep(0.2)  # the tokenizer may still be working
    return (readers_cpu(pid) - before) * MIB / (num * size)


def readers_cpu(pid: int) -> float:
    used = cpu_seconds(pid)
    return sum(used.get(role, 0.0) for role in READERS)


async def ended(process: Any) -> Attacked:
    return await asyncio.to_thread(client.figures, process)


# -- streams beside it ------------------------------------------------------------------------------------------------


async def beside(url: str, pid: int, shapes: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    lines = []
    for shape in shapes:
        for size in sizes_of(shape):
            line = await beside_one(url, pid, shape, size, options)
            print("{shape:<28}{size:>10}  p99 {gap_ms} ms, {gap_ratio} of the control's; /health {health_s} s, "
                  "control {control_health_s} s; controls {noise}".format(**line), flush=True)  # fmt: skip
            lines.append(line)
    return lines


def sizes_of(shape: str) -> tuple[int, ...]:
    return (0,) if shape in WORK else (SMALL, LARGE)


async def beside_one(url: str, pid: int, shape: str, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """A round is control, client, control; one window of the control is part of two rounds."""
    windows: list[Beside] = []
    async with streaming(url, options.streams) as streams:
        await asyncio.sleep(SETTLE_S)
        for number in range(2 * options.rounds + 1):
            asked = attack_of(url, shape, size, options, control=number % 2 == 0)
            windows.append(await attacked_window(url, pid, asked, options))
            await asyncio.sleep(SETTLE_S)
    return {"shape": shape, "size": size, **compared(streams, windows)}


def attack_of(url: str, shape: str, size: int, options: argparse.Namespace, control: bool) -> Attack:
    per_s = options.rate_mib_s * MIB / size if size else WORK_PER_S
    if shape in PACKED:
        size, per_s = size // BOMB, PACKED_PER_S
    return Attack(url, shape, size, per_s, max(2, round(per_s * options.window_s)), control=control)


async def attacked_window(url: str, pid: int, asked: Attack, options: argparse.Namespace) -> Beside:
    process = client.run(asked)
    health: list[float] = []
    probing = asyncio.create_task(probe(url, health))
    attacked = asyncio.create_task(ended(process))
    spanned = await window(pid, options.window_s)
    found = await attacked  # a client whose replies are late continues past the window, and so do the probes
    probing.cancel()
    await asyncio.gather(probing, return_exceptions=True)
    return Beside(spanned._replace(end=max(spanned.end, time.perf_counter())), found, health)


async def probe(url: str, health: list[float]) -> None:
    """Append the seconds that each answer of /health took to `health`."""
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=120)) as session:
        while True:
            start = time.perf_counter()
            try:
                async with session.get("/health") as response:
                    await response.read()
            finally:
                health.append(time.perf_counter() - start)
            await asyncio.sleep(PROBE_S)


def compared(streams: Streams, windows: Sequence[Beside]) -> dict[str, Any]:
    def p99(each: Beside) -> float:
        gaps = streams.gaps(each.window)
        return percentile(gaps, 99.0) if gaps else 1e3 * (each.window.end - each.window.start)

    def ratios(measure: Callable[[Beside], float], least: float) -> list[float]:
        pairs = zip(windows[::2], windows[1::2], windows[2::2])
        return [measure(it) / max(least, (measure(before) + measure(after)) / 2) for before, it, after in pairs]

    controls, attacks = windows[::2], windows[1::2]
    noise = [p99(after) / p99(before) for before, after in pairwise(controls)]
    return {
        "gap_ms": round(statistics.median(map(p99, attacks)), 2),
        "gap_ratio": round(statistics.median(ratios(p99, 1e-9)), 3),
        "health_s": round(max(each.slowest_health_s for each in attacks), 3),
        "control_health_s": round(max(each.slowest_health_s for each in controls), 3),
        "health_ratio": round(statistics.median(ratios(lambda each: each.slowest_health_s, HEALTH_FLOOR_S)), 3),
        "noise": [round(each, 3) for each in noise],
        "mib_sent": [each.attacked.mib_sent for each in windows],
        "seconds": [each.attacked.seconds for each in windows],
        "statuses": attacks[-1].attacked.statuses,
    }


# -- memory after floods ----------------------------------------------------------------------------------------------


async def flood(url: str, pid: int, shapes: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    await ended(client.run(Attack(url, CONTROL, SMALL, 1e6, 8)))  # its memory stays in use
    await asyncio.sleep(SETTLE_S)
    idle = readers_mib(pid)
    lines = []
    for shape in (name for name in FLOODS if name in shapes or name == CONTROL):
        size = LARGE // BOMB if shape in PACKED else LARGE
        left: list[float] = []
        health: list[float] = []
        for _ in range(3):
            probing = asyncio.create_task(probe(url, health))
            found = await ended(client.run(Attack(url, shape, size, 1e6, FLOOD_CONNECTIONS, FLOOD_CONNECTIONS)))
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
            await asyncio.sleep(SETTLE_S)
            left.append(readers_mib(pid))
        line = {"shape": shape, "idle_mib": idle, "left_mib": left, "health_s": round(max(health), 3),
                "statuses": found.statuses, "seconds": found.seconds}  # fmt: skip
        print(
            "{shape:<28}{idle_mib} MiB idle, {left_mib} after floods; /health {health_s} s; {statuses}".format(**line),
            flush=True,
        )
        lines.append(line)
    return lines


def readers_mib(pid: int) -> float:
    used = resident_bytes(pid)
    return round(sum(used.get(role, 0) for role in READERS) / MIB, 1)


PARTS = {"cost": cost, "beside": beside, "flood": flood}


# -- what was asked ---------------------------------------------------------------------------------------------------


def misses(record: dict[str, Any]) -> list[str]:
    """One sentence for each bound that a figure exceeds."""
    found = []
    for each in record.get("cost", ()):
        if each["ratio"] > MAX_COST:
            found.append(f"{each['shape']}, {each['size']} bytes: {each['ratio']} times the CPU of plain text")
    for each in record.get("beside", ()):
        place = f"{each['shape']}, {each['size']} bytes"
        if each["gap_ratio"] > MAX_GAP:
            found.append(f"{place}: p99 between tokens is {each['gap_ratio']} times the control's")
        if each["size"] <= SMALL and each["health_s"] > MAX_HEALTH_S:
            found.append(f"{place}: /health took {each['health_s']} s")
        if each["size"] > SMALL and each["health_ratio"] > MAX_HEALTH:
            found.append(f"{place}: /health took {each['health_ratio']} times the control's")
    for each in record.get("flood", ()):
        if each["left_mib"][-1] > MAX_LEFT_GROWTH * each["left_mib"][0]:
            found.append(f"{each['shape']}: memory after floods grew, MiB {each['left_mib']}")
        if each["left_mib"][-1] > each["idle_mib"] + MAX_LEFT_MIB:
            found.append(f"{each['shape']}: {each['left_mib'][-1]} MiB after floods, {each['idle_mib']} MiB idle")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
