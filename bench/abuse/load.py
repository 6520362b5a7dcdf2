"""What a run of `ramet bench abuse` sends, and what the processes that read it have used."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp

from ramet.bench.server import CONSTRAINTS, cpu_seconds, resident_bytes

MIB = 1 << 20
TOKENIZER = "tokenizer"
READERS = "server", TOKENIZER  # the processes that read a body
RENDERER = "renderer"  # those that write large chats as their template says
PROBE_S = 0.05


class AbuseLoad(NamedTuple):
    url: str
    pid: int
    small: int  # bytes of bodies of the two sizes
    large: int
    streams: int
    rounds: int  # of each shape
    window_s: float
    settle_s: float
    rate_mib_s: float
    cost_mib: int  # of bodies that are sent for one cost figure, at most
    sizes: tuple[int, ...]  # of small and large, those that the parts cost and beside send
    limit: bool  # whether a burner is measured too (beside.py)
    idle_share: float = 0.0  # CPU seconds a second of the readers without requests, once measured (cost.py)


def readers_cpu(pid: int) -> dict[str, float]:
    """CPU seconds so far of READERS, RENDERER and CONSTRAINTS."""
    used = cpu_seconds(pid)
    return {role: used.get(role, 0.0) for role in (*READERS, RENDERER, CONSTRAINTS)}


def readers_mib(pid: int) -> float:
    used = resident_bytes(pid)
    return round(sum(used.get(role, 0) for role in (*READERS, RENDERER)) / MIB, 1)


@asynccontextmanager
async def probing(url: str) -> AsyncIterator[list[float]]:
    """The seconds that each answer of /health took, in a list that grows."""
    health: list[float] = []
    task = asyncio.create_task(_probe(url, health))
    try:
        yield health
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _probe(url: str, health: list[float]) -> None:
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=120)) as session:
        while True:
            start = time.perf_counter()
            try:
                async with session.get("/health") as response:
                    await response.read()
            finally:
                health.append(time.perf_counter() - start)
            await asyncio.sleep(PROBE_S)


def answered(statuses: dict[str, int], said: dict[str, str]) -> str:
    """How bodies were answered, in words."""
    return "; ".join(f"{num} x {status} {said.get(status, '')}".rstrip() for status, num in sorted(statuses.items()))
