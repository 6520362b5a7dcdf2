"""What a body costs the server and the tokenizer, without other load: CPU seconds for a MiB.

Bodies are sent one after the other, or, where they wait so long that few would be sent, over several connections. What
an idle server uses is measured first and subtracted, because some bodies wait for a compile process and use nothing
meanwhile. A plain text to /generate is measured before and after each few shapes; figures of shapes are divided by the
mean of the two, and by the figure of a plain text on the shape's own route. Work of many requests (heavy.py) is divided
by what the same requests cost by themselves. The time of the processes that render chats, which a model's template
decides and options bound, stands beside that of server and tokenizer.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from msgspec.structs import replace

from ramet.bench.abuse import client
from ramet.bench.abuse.bodies import BOMB, AbusiveBody
from ramet.bench.abuse.client import LATE, Attack, Attacked
from ramet.bench.abuse.heavy import HEAVY
from ramet.bench.abuse.judged import MAX_COST
from ramet.bench.abuse.library import seconds_per_body, was_tokenised
from ramet.bench.abuse.load import MIB, READERS, RENDERER, AbuseLoad, answered, readers_cpu
from ramet.bench.abuse.shapes import CONTROL, PACKED, body_of, route_control, with_route_controls

BLOCK = 6  # shapes between two measurements of the control
SENDS_S = 4.0  # no further body is sent after so long
HEAVY_S = 30.0  # in which a body of much work must end
NUM_PARTS = 512  # requests like those of a body of much work, at most
IDLE_S = 5.0  # for which an idle server is watched
MIN_CPU_S = 0.01  # what the system counts in; a smaller figure counts as this
ENOUGH_CPU_S = 0.1  # a smaller sum says more about how the system counts than about bodies
AT_ONCE = 32  # bodies, where one after the other is too little
QUIET_S = 0.2  # after the last reply, the tokenizer may still be working


class Cost(NamedTuple):
    """CPU seconds of server and tokenizer, and what they were for."""

    seconds: float
    mib: float
    attacked: Attacked
    rendering_s: float = 0.0  # of the processes that render chats

    @property
    def ms_per_mib(self) -> float:
        return 1e3 * self.seconds / self.mib

    @property
    def rendering_ms_per_mib(self) -> float:
        return 1e3 * self.rendering_s / self.mib


async def cost(load: AbuseLoad, shapes: Sequence[str]) -> list[dict[str, Any]]:
    load, folder = load._replace(idle_share=await _idle_share(load)), await _tokenizer_folder(load.url)
    print(f"the idle server and tokenizer use {1e3 * load.idle_share:.1f} ms of CPU a second", flush=True)
    names = with_route_controls(shapes)
    lines = [line for size in load.sizes for line in await _of_size(load, names, size, folder)]
    for shape in (name for name in shapes if name in HEAVY and load.small in load.sizes):
        lines.append(await _heavy(load, shape, folder))
        _print(lines[-1])
    return lines


async def _of_size(load: AbuseLoad, shapes: Sequence[str], size: int, folder: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    routes: dict[str, float] = {}
    before = await spent(load, CONTROL, size)
    for start in range(0, len(shapes), BLOCK):
        block = {shape: await spent(load, shape, size) for shape in shapes[start : start + BLOCK]}
        after = await spent(load, CONTROL, size)
        control = (before.ms_per_mib + after.ms_per_mib) / 2
        routes[CONTROL], before = control, after
        for shape, found in block.items():
            routes[shape] = found.ms_per_mib  # read of those that are a route's plain text
            line = _line(shape, size, found, control, routes[route_control(shape)])
            lines.append({**line, "idle_share": round(load.idle_share, 5), **_of_library(line, folder, shape)})
            _print(lines[-1])
    return lines


async def spent(load: AbuseLoad, shape: str, size: int) -> Cost:
    """A compressed body counts as the bytes that it inflates to."""
    num, on_wire = max(2, load.cost_mib * MIB // size), size // BOMB if shape in PACKED else size
    before = readers_cpu(load.pid)[RENDERER]
    found, seconds = await _enough(load, Attack(load.url, shape, on_wire, 1e6, num, 1, sends_s=SENDS_S))
    rendering_s = readers_cpu(load.pid)[RENDERER] - before
    return Cost(seconds, found.mib_sent * (BOMB if shape in PACKED else 1), found, rendering_s)


async def _enough(load: AbuseLoad, asked: Attack) -> tuple[Attacked, float]:
    found, seconds = await _attacked(load, asked)
    num = min(asked.num, AT_ONCE)
    if seconds >= ENOUGH_CPU_S or found.num_sent >= num:
        return found, seconds
    return await _attacked(load, replace(asked, num=num, connections=num))


async def _attacked(load: AbuseLoad, asked: Attack) -> tuple[Attacked, float]:
    start, before = time.perf_counter(), _used(load)
    found = await client.run(asked)
    await asyncio.sleep(QUIET_S)
    wall_s, used_s = time.perf_counter() - start, _used(load) - before
    return found, without_idle(used_s, wall_s, load.idle_share)


def without_idle(used_s: float, wall_s: float, idle_share: float) -> float:
    return max(MIN_CPU_S, used_s - idle_share * wall_s)


def _used(load: AbuseLoad) -> float:
    used = readers_cpu(load.pid)
    return sum(used[role] for role in READERS)


async def _idle_share(load: AbuseLoad) -> float:
    before = _used(load)
    await asyncio.sleep(IDLE_S)
    return (_used(load) - before) / IDLE_S


def _line(shape: str, size: int, found: Cost, control: float, route: float) -> dict[str, Any]:
    return {
        "shape": shape, "size": size, "ms_per_mib": round(found.ms_per_mib, 3),
        "control_ms_per_mib": round(control, 3), "ratio": round(found.ms_per_mib / control, 3),
        "route_ratio": round(found.ms_per_mib / route, 3),
        "rendering_ms_per_mib": round(found.rendering_ms_per_mib, 3), "statuses": found.attacked.statuses,
        "said": found.attacked.said,
    }  # fmt: skip


def _of_library(line: dict[str, Any], folder: Path, shape: str) -> dict[str, Any]:
    """How much of a high cost is the tokenizers library's."""
    if line["ratio"] <= MAX_COST or shape in PACKED:
        return {}
    body = body_of(shape, line["size"])
    return _shared(line, body, folder)


def _shared(line: dict[str, Any], body: AbusiveBody, folder: Path) -> dict[str, Any]:
    if not was_tokenised(line["statuses"], line["said"]):
        return {}
    library, measured = 1e3 * seconds_per_body(folder, body) * MIB / len(body.data), line["ms_per_mib"]
    if not library:
        return {}
    net = max(0.0, measured - library) / line["control_ms_per_mib"]
    return {"library_ms_per_mib": round(library, 3), "library_share": round(library / measured, 3),
            "net_ratio": round(net, 3)}  # fmt: skip


async def _heavy(load: AbuseLoad, shape: str, folder: Path) -> dict[str, Any]:
    """The body is sent again and again for a while, and so are its parts, but no more of them than are sure to end."""
    size, body = load.small, HEAVY[shape].body(load.small)
    num = len(HEAVY[shape].parts(size))
    num_bodies = max(1, load.cost_mib * MIB // size)
    asked = Attack(load.url, shape, size, 1e6, num_bodies, 1, sends_s=SENDS_S, lasts_s=HEAVY_S)
    together, seconds = await _enough(load, asked)
    alone, seconds_alone = await _attacked(load, replace(asked, num=NUM_PARTS, control=True))
    plain = await spent(load, CONTROL, size)
    per_body, per_part = seconds / together.num_sent, seconds_alone / alone.num_sent
    mib = together.mib_sent / together.num_sent
    line: dict[str, Any] = {
        "shape": shape, "size": size, "ms_per_mib": round(1e3 * per_body / mib, 3),
        "control_ms_per_mib": round(plain.ms_per_mib, 3), "num_parts": num, "ended": LATE not in together.statuses,
        "alone_ms_per_mib": round(1e3 * num * per_part / mib, 3),
        "idle_share": round(load.idle_share, 5), "statuses": together.statuses, "said": together.said,
    }  # fmt: skip
    if line["ended"]:
        line["alone_ratio"] = round(per_body / (num * per_part), 3)
    return {**line, **_shared(line, body, folder)}


async def _tokenizer_folder(url: str) -> Path:
    async with aiohttp.ClientSession(url) as session, session.get("/get_model_info") as response:
        return Path((await response.json())["tokenizer_path"])


def _print(line: dict[str, Any]) -> None:
    if "num_parts" in line:
        ratios = f"{line['alone_ms_per_mib']} as {line['num_parts']} requests: {line.get('alone_ratio', LATE)}"
    else:
        ratios = f"plain text {line['control_ms_per_mib']}: {line['ratio']}, on its route: {line['route_ratio']}"
    library = f"; the tokenizers library {line['library_share']:.0%} of it" if "library_share" in line else ""
    rendering = line.get("rendering_ms_per_mib")
    rendered = f"; rendering {rendering} ms/MiB" if rendering else ""
    how = answered(line["statuses"], line["said"])
    print(f"{line['shape']:<34}{line['size']:>9}{line['ms_per_mib']:>10} ms/MiB, {ratios}{library}{rendered}; {how}",
          flush=True)  # fmt: skip
