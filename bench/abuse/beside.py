"""What a client costs streams that run beside it: the time between tokens, and the slowest answer of /health.

16 streams run all the time. In each window a client sends bodies at a steady rate over 64 connections: the control, a
few shapes one after the other, the control again. A figure of a shape is divided by the mean of the two controls around
it. Bodies are made before a window begins.

If the two controls are further apart than the bound, the lower one counts alone.

Every shape has one round of this kind. One that is not clearly within the bounds, even over the lower of its two
controls, has more, in which the control is its neighbour on both sides; the median of all rounds counts. Work (work.py)
and work of many requests (heavy.py) have controls of their own, always as neighbours.

A plain text on each route is one of the shapes, so that a shape is compared with it too.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ramet.bench.abuse.bodies import BOMB
from ramet.bench.abuse.client import Attack, Attacked, Client
from ramet.bench.abuse.heavy import HEAVY
from ramet.bench.abuse.judged import MAX_GAP, MAX_HEALTH, MAX_HEALTH_S
from ramet.bench.abuse.load import MIB, PROBE_S, Load, answered, probing
from ramet.bench.abuse.shapes import CONTROL, PACKED, SHAPES, route_control, with_route_controls
from ramet.bench.abuse.work import WORK
from ramet.bench.connections import Streams, Window, settled, streaming, window
from ramet.bench.metrics import percentile

BLOCK = 6  # shapes between two windows of the control
HEALTH_FLOOR_S = 0.1  # a faster answer beside a control counts as this: differences of a few milliseconds are noise
CLEAR_GAP = (1 + MAX_GAP) / 2  # a figure up to here needs no second round
CLEAR_HEALTH_S, CLEAR_HEALTH = MAX_HEALTH_S / 2, MAX_HEALTH / 2
PACKED_PER_S = 64.0
WORK_PER_S = 2.0
HEAVY_PER_S = 0.5
OVERRUN_S = 8.0  # a client whose replies are late continues for so long after the window
CALM_WITHIN_S = 30.0  # the server must have ended what a client left
CALM_S = 0.25  # of an answer of /health


class Beside(NamedTuple):
    """One window in which a client attacked."""

    window: Window
    attacked: Attacked
    health_s: list[float]


class Seen(NamedTuple):
    """The figures of a window."""

    gap_ms: float  # the 99th percentile
    health_s: float  # the slowest
    attacked: Attacked


class Round(NamedTuple):
    before: Seen
    beside: Seen
    after: Seen

    def ratio(self, measure: Callable[[Seen], float], most: float, least: float = 1e-9) -> float:
        """Over the mean of the two controls, or over the lower one if they are further apart than the bound `most`:
        then something else disturbed one of them, such as work that the client left behind.
        """
        low, high = sorted(max(least, measure(one)) for one in (self.before, self.after))
        return measure(self.beside) / (low if high > most * low else (low + high) / 2)

    @property
    def gap_ratio(self) -> float:
        return self.ratio(_gap, MAX_GAP)

    @property
    def health_ratio(self) -> float:
        return self.ratio(_health, MAX_HEALTH, HEALTH_FLOOR_S)

    def is_clear(self, small: bool) -> bool:
        """Whether it is far enough from the bounds, whichever of its controls is the right one."""
        control = min(self.before, self.after, key=_gap)
        lower = self._replace(before=control, after=control)
        slow = self.beside.health_s > CLEAR_HEALTH_S if small else self.health_ratio > CLEAR_HEALTH
        return lower.gap_ratio <= CLEAR_GAP and not slow


def _gap(seen: Seen) -> float:
    return seen.gap_ms


def _health(seen: Seen) -> float:
    return seen.health_s


async def beside(load: Load, shapes: Sequence[str]) -> list[dict[str, Any]]:
    ordinary = [shape for shape in with_route_controls(shapes) if shape not in PACKED]
    own = [shape for shape in shapes if has_own_control(shape)]
    lines: list[dict[str, Any]] = []
    for size in load.sizes:
        blocks = [ordinary[start : start + BLOCK] for start in range(0, len(ordinary), BLOCK)]
        lines += await _of_size(load, size, blocks, [[shape] for shape in own if shape not in WORK])
    return lines + await _of_size(load, 0, [], [[shape] for shape in own if shape in WORK])


def has_own_control(shape: str) -> bool:
    return shape in PACKED or shape in HEAVY or shape in WORK


async def _of_size(load: Load, size: int, blocks: list[list[str]], own: list[list[str]]) -> list[dict[str, Any]]:
    found: dict[str, list[Round]] = {}
    asked = [*blocks, *own]
    for left in reversed(range(load.rounds)):
        for shape, one in (await _rounds(load, size, asked)).items():
            found.setdefault(shape, []).append(one)
        small = size <= load.small
        asked = [[shape] for shape, rounds in found.items() if not all(one.is_clear(small) for one in rounds)]
        if not asked or not left:
            break
        print(f"{size} bytes: {len(asked)} of {len(found)} shapes are measured again", flush=True)
    lines = {shape: {"shape": shape, "size": size, **summed(rounds)} for shape, rounds in found.items()}
    for shape, line in lines.items():
        route = lines.get(route_control(shape)) if shape in SHAPES else None
        if not has_own_control(shape):
            line["route_gap_ratio"] = round(line["gap_ratio"] / (route["gap_ratio"] if route else 1.0), 3)
        _print(line)
    return list(lines.values())


async def _rounds(load: Load, size: int, blocks: list[list[str]]) -> dict[str, Round]:
    """One round of each shape. The control after one block is that before the next, where both have the same."""
    windows: dict[str, tuple[Beside, Beside, Beside]] = {}
    last: Beside | None = None
    async with streaming(load.url, load.streams) as streams:
        for block in blocks:
            control = block[0] if has_own_control(block[0]) else CONTROL
            before = last or await attacked(load, attack_of(load, control, size, control=True))
            found = [await attacked(load, attack_of(load, shape, size)) for shape in block]
            after = await attacked(load, attack_of(load, control, size, control=True))
            windows |= {shape: (before, one, after) for shape, one in zip(block, found, strict=True)}
            last = after if control == CONTROL else None
            print(f"{size} bytes: seen {', '.join(block)}", flush=True)
    return {shape: Round(*(seen(streams, one) for one in three)) for shape, three in windows.items()}


def attack_of(load: Load, shape: str, size: int, control: bool = False) -> Attack:
    if shape in HEAVY:
        num = len(HEAVY[shape].parts(size)) if control else 2
        per_s = 1e6 if control else HEAVY_PER_S
        return Attack(load.url, shape, size, per_s, num, control=control, lasts_s=load.window_s)
    per_s = load.rate_mib_s * MIB / size if size else WORK_PER_S
    if shape in PACKED:
        size, per_s = size // BOMB, PACKED_PER_S
    num = max(2, round(per_s * load.window_s))
    return Attack(load.url, shape, size, per_s, num, control=control, lasts_s=load.window_s + OVERRUN_S)


async def attacked(load: Load, asked: Attack) -> Beside:
    client, _ = await asyncio.gather(asyncio.to_thread(Client, asked), asyncio.sleep(load.settle_s))
    await calm(load)
    client.go()
    async with probing(load.url) as health:
        ending = asyncio.create_task(asyncio.to_thread(client.figures))
        spanned = await window(load.pid, load.window_s)
        found = await ending  # late replies continue past the window, and so do the probes
    return Beside(spanned._replace(end=max(spanned.end, time.perf_counter())), found, health)


async def calm(load: Load) -> None:
    """Wait until nothing is left to do of the window before, or for CALM_WITHIN_S."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CALM_WITHIN_S), probing(load.url) as health:
            await settled(load.url, load.streams)
            while not health or health[-1] > CALM_S:
                await asyncio.sleep(PROBE_S)


def seen(streams: Streams, one: Beside) -> Seen:
    gaps = streams.gaps(one.window)
    p99 = percentile(gaps, 99.0) if gaps else 1e3 * (one.window.end - one.window.start)
    return Seen(p99, max(one.health_s), one.attacked)


def summed(rounds: Sequence[Round]) -> dict[str, Any]:
    controls = [one for each in rounds for one in (each.before, each.after)]
    attacks = [each.beside for each in rounds]
    last = attacks[-1].attacked
    return {
        "rounds": len(rounds),
        "gap_ms": round(statistics.median(map(_gap, attacks)), 2),
        "gap_ratio": round(statistics.median(each.gap_ratio for each in rounds), 3),
        "health_s": round(max(map(_health, attacks)), 3),
        "control_health_s": round(max(map(_health, controls)), 3),
        "health_ratio": round(statistics.median(each.health_ratio for each in rounds), 3),
        "noise": [round(after.gap_ms / before.gap_ms, 3) for before, after in pairwise(controls)],
        "mib_sent": [each.attacked.mib_sent for each in attacks],
        "seconds": [each.attacked.seconds for each in attacks],
        "statuses": last.statuses,
        "said": last.said,
    }


def _print(line: dict[str, Any]) -> None:
    route = f", {line['route_gap_ratio']} of its route's" if "route_gap_ratio" in line else ""
    print("{shape:<34}{size:>9}  p99 {gap_ms} ms, {gap_ratio} of the control's{0}; /health {health_s} s, control "
          "{control_health_s} s; controls {noise}; {1}".format(
              route, answered(line["statuses"], line["said"]), **line), flush=True)  # fmt: skip
