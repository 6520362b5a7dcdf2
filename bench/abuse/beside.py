"""What a client costs streams that run beside it: the time between tokens, and the slowest answer of /health.

16 streams run all the time. In each window a client sends bodies at a steady rate over 64 connections: the control, a
few shapes one after the other, the control again, and so on in each round. Bodies are made before a window begins.
ratios.py says how a figure of a shape is divided by those of the two controls around it, and how sure the ratio is.

Work (work.py) and work of many requests (heavy.py) have controls of their own, always as neighbours. A plain text on
each route is one of the shapes, so that a shape is compared with it too.

*The limit* (--limit): after the window of a shape comes one in which other processes burn as much CPU time instead
(windows.py). The ratio of this window is what the machine makes of so much work where nothing but its cores is shared.
Not in it: the work of the scheduler and the detokenizer for the bodies. Bodies that are accepted draw tokens beside the
streams, whatever their size: in the limit's window as many requests of the same shape are sent with bodies of SLIGHT
bytes, or the control of work, and what is burnt is what the shape's own bodies use beyond these.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from ramet.bench.abuse import ratios
from ramet.bench.abuse.bodies import BOMB
from ramet.bench.abuse.burner import Burn
from ramet.bench.abuse.client import Attack, Attacked
from ramet.bench.abuse.heavy import HEAVY
from ramet.bench.abuse.judged import MAX_GAP, MAX_HEALTH
from ramet.bench.abuse.load import MIB, AbuseLoad, answered
from ramet.bench.abuse.ratios import compared
from ramet.bench.abuse.shapes import CONTROL, PACKED, SHAPES, route_control, with_route_controls
from ramet.bench.abuse.windows import CLIENT, SLIGHT_CLIENT, Beside, beside, burns_of
from ramet.bench.abuse.work import WORK
from ramet.bench.connections import Streams, streaming
from ramet.bench.metrics import percentile

BLOCK = 6  # shapes between two windows of the control
HEALTH_FLOOR_S = 0.1  # a faster answer beside a control counts as this: differences of a few milliseconds are noise
PACKED_PER_S = 64.0
WORK_PER_S = 2.0
HEAVY_PER_S = 0.5
SLIGHT = 512  # bytes of a body that asks for as many tokens as a large one of its shape
OVERRUN_S = 8.0  # a client whose replies are late continues for so long after the window


class SeenBeside(NamedTuple):
    """The figures of a window."""

    gap_ms: float  # the 99th percentile
    health_s: float  # the slowest
    attacked: Attacked | None


class Limit(NamedTuple):
    """What was seen beside a burner. CPU seconds a second are by the process that they stand for."""

    seen: SeenBeside
    used_per_s: dict[str, float]  # for the shape's bodies, or beyond slight ones
    burnt_per_s: dict[str, float]  # instead, which is less where a core is full


class BesideRound(NamedTuple):
    before: SeenBeside
    beside: SeenBeside
    after: SeenBeside
    limit: Limit | None = None

    def of(self, measure: Callable[[SeenBeside], float], least: float = 1e-9) -> ratios.RatioRound:
        return ratios.RatioRound(*(max(least, measure(one)) for one in (self.before, self.beside, self.after)))


def _gap(seen: SeenBeside) -> float:
    return seen.gap_ms


def _health(seen: SeenBeside) -> float:
    return seen.health_s


async def of_shapes(load: AbuseLoad, shapes: Sequence[str]) -> list[dict[str, Any]]:
    ordinary = [shape for shape in with_route_controls(shapes) if shape not in PACKED]
    own = [shape for shape in shapes if has_own_control(shape)]
    lines: list[dict[str, Any]] = []
    for size in load.sizes:
        blocks = [ordinary[start : start + BLOCK] for start in range(0, len(ordinary), BLOCK)]
        lines += await _of_size(load, size, blocks, [[shape] for shape in own if shape not in WORK])
    return lines + await _of_size(load, 0, [], [[shape] for shape in own if shape in WORK])


def has_own_control(shape: str) -> bool:
    return shape in PACKED or shape in HEAVY or shape in WORK


async def _of_size(load: AbuseLoad, size: int, blocks: list[list[str]], own: list[list[str]]) -> list[dict[str, Any]]:
    found: dict[str, list[BesideRound]] = {}
    for number in range(load.rounds if blocks or own else 0):
        for shape, one in (await _round(load, size, [*blocks, *own])).items():
            found.setdefault(shape, []).append(one)
        print(f"{size} bytes: round {number + 1} of {load.rounds} has ended", flush=True)
    lines = {shape: {"shape": shape, "size": size, **summed(rounds)} for shape, rounds in found.items()}
    for shape, line in lines.items():
        route = lines.get(route_control(shape)) if shape in SHAPES else None
        if not has_own_control(shape):
            line["route_gap_ratio"] = round(line["gap_ratio"] / (route["gap_ratio"] if route else 1.0), 3)
        _print(line)
    return list(lines.values())


async def _round(load: AbuseLoad, size: int, blocks: list[list[str]]) -> dict[str, BesideRound]:
    """One round of each shape. The control after one block is that before the next, where both have the same."""
    windows: dict[str, tuple[Beside, Beside, Beside]] = {}
    limits: dict[str, tuple[dict[str, Burn], Beside]] = {}
    last: Beside | None = None
    async with streaming(load.url, load.streams) as streams:
        alone = await beside(load, streams, {}) if load.limit else None
        for block in blocks:
            control = block[0] if has_own_control(block[0]) else CONTROL
            before = last or await beside(load, streams, attack_of(load, control, size, control=True))
            found: dict[str, Beside] = {}
            for shape in block:
                found[shape] = await beside(load, streams, attack_of(load, shape, size))
                if alone is not None:
                    limits[shape] = await _limited(load, streams, shape, size, found[shape], alone)
            after = await beside(load, streams, attack_of(load, control, size, control=True))
            windows |= {shape: (before, one, after) for shape, one in found.items()}
            last = after if control == CONTROL else None
            print(f"{size} bytes: seen {', '.join(block)}", flush=True)
    see = partial(seen, streams)
    limit = {shape: Limit(see(one), *per_second(one, burns)) for shape, (burns, one) in limits.items()}
    return {shape: BesideRound(see(before), see(one), see(after), limit.get(shape))
            for shape, (before, one, after) in windows.items()}  # fmt: skip


async def _limited(
    load: AbuseLoad, streams: Streams, shape: str, size: int, found: Beside, alone: Beside
) -> tuple[dict[str, Burn], Beside]:
    """A window beside burners in place of the client of `found`, and what they had to burn."""
    slight = slight_attack(load, shape, size, found)
    if slight:
        alone = await beside(load, streams, slight)
    burns = burns_of(found, alone)
    return burns, await beside(load, streams, {**slight, **burns})


def slight_attack(load: AbuseLoad, shape: str, size: int, found: Beside) -> dict[str, Attack]:
    """As many bodies of SLIGHT bytes, if those of the shape were accepted; else none. Of work: its control."""
    assert found.attacked is not None, "no client attacked, so nothing was accepted"
    accepted = found.attacked.statuses.get("200", 0)
    if shape in WORK:
        return {SLIGHT_CLIENT: attack_of(load, shape, size, control=True)[CLIENT]}
    if shape not in SHAPES or shape in PACKED or 2 * accepted <= found.attacked.num_sent:
        return {}
    (large,) = attack_of(load, shape, size).values()
    return {SLIGHT_CLIENT: replace(large, size=SLIGHT)}


def per_second(one: Beside, burns: Mapping[str, Burn]) -> tuple[dict[str, float], dict[str, float]]:
    used = {role: burn.cpu_s / burn.seconds for role, burn in burns.items()}
    return used, {role: cpu_s / one.seconds for role, cpu_s in one.burnt_s.items()}


def attack_of(load: AbuseLoad, shape: str, size: int, control: bool = False) -> dict[str, Attack]:
    if shape in HEAVY:
        num = len(HEAVY[shape].parts(size)) if control else 2
        per_s = 1e6 if control else HEAVY_PER_S
        return {CLIENT: Attack(load.url, shape, size, per_s, num, control=control, lasts_s=load.window_s)}
    per_s = load.rate_mib_s * MIB / size if size else WORK_PER_S
    if shape in PACKED:
        size, per_s = size // BOMB, PACKED_PER_S
    num = max(2, round(per_s * load.window_s))
    lasts_s = load.window_s + OVERRUN_S
    return {CLIENT: Attack(load.url, shape, size, per_s, num, control=control, lasts_s=lasts_s)}


def seen(streams: Streams, one: Beside) -> SeenBeside:
    gaps = streams.gaps(one.window)
    p99 = percentile(gaps, 99.0) if gaps else 1e3 * (one.window.end - one.window.start)
    return SeenBeside(p99, max(one.health_s), one.attacked)


def summed(rounds: Sequence[BesideRound]) -> dict[str, Any]:
    controls = [one for each in rounds for one in (each.before, each.after)]
    attacks = [each.beside for each in rounds]
    attacked = [one.attacked for one in attacks if one.attacked is not None]
    gap_ratio, gap_interval = compared([each.of(_gap) for each in rounds], MAX_GAP)
    health_ratio, health_interval = compared([each.of(_health, HEALTH_FLOOR_S) for each in rounds], MAX_HEALTH)
    line: dict[str, Any] = {
        "rounds": len(rounds),
        "gap_ms": round(statistics.median(map(_gap, attacks)), 2),
        "gap_ratio": gap_ratio,
        "gap_interval": gap_interval,
        "health_s": round(max(map(_health, attacks)), 3),
        "control_health_s": round(max(map(_health, controls)), 3),
        "health_ratio": health_ratio,
        "health_interval": health_interval,
        "noise": [round(after.gap_ms / before.gap_ms, 3) for before, after in pairwise(controls)],
        "mib_sent": [one.mib_sent for one in attacked],
        "seconds": [one.seconds for one in attacked],
        "statuses": attacked[-1].statuses,
        "said": attacked[-1].said,
    }
    limits = [(each, each.limit) for each in rounds if each.limit is not None]
    return {**line, "limit": _limit(limits)} if limits else line


def _limit(limits: Sequence[tuple[BesideRound, Limit]]) -> dict[str, Any]:
    """The ratio beside a burner in place of the client, that of the client to the burner, and what was burnt."""
    ratio, interval = compared([each._replace(beside=limit.seen).of(_gap) for each, limit in limits], MAX_GAP)
    pairs = [each._replace(before=limit.seen, after=limit.seen).of(_gap) for each, limit in limits]
    over, over_interval = compared(pairs, MAX_GAP)
    found = [limit for _, limit in limits]
    used, burnt = _median(limit.used_per_s for limit in found), _median(limit.burnt_per_s for limit in found)
    return {
        "ratio": ratio, "interval": interval, "over": over, "over_interval": over_interval, "used_per_s": used,
        "burnt_per_s": burnt,
    }  # fmt: skip


def _median(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    rounds = list(found)
    return {role: round(statistics.median(one[role] for one in rounds), 3) for role in rounds[0]}


def _print(line: dict[str, Any]) -> None:
    gap = ratios.words(line["gap_ratio"], line["gap_interval"])
    route = f", {line['route_gap_ratio']} of its route's" if "route_gap_ratio" in line else ""
    limit = ""
    if "limit" in line:
        found = line["limit"]
        burnt = sum(found["burnt_per_s"].values())
        over = ratios.words(found["over"], found["over_interval"])
        limit = f", {over} of its limit {found['ratio']:g} ({burnt:.2f} CPU seconds a second)"
    print("{shape:<34}{size:>9}  p99 {gap_ms} ms, {0} of the control's{1}{2}; /health {health_s} s, control "
          "{control_health_s} s; controls {noise}; {3}".format(
              gap, route, limit, answered(line["statuses"], line["said"]), **line), flush=True)  # fmt: skip
