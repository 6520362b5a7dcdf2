"""What floods leave in the memory of server and tokenizer: 64 bodies of the larger size at once, three times.

Memory is read a while after the last reply, because the server gives it back in the two seconds after it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from ramet.bench.abuse import client
from ramet.bench.abuse.bodies import BOMB
from ramet.bench.abuse.client import Attack
from ramet.bench.abuse.load import AbuseLoad, answered, probing, readers_mib
from ramet.bench.abuse.shapes import CONTROL, ON_ROUTE, PACKED

CONNECTIONS = 64
NUM_FLOODS = 3
GIVEN_BACK_S = 3.0
CHAT = ON_ROUTE["/v1/chat/completions"]
FLOODS = (
    CONTROL, "unknown keys", "numbers", "ids", "lists of lists", "texts", "turns", "long numbers of a template", "gzip",
    "deflate",
)  # fmt: skip


async def flood(load: AbuseLoad, shapes: Sequence[str]) -> list[dict[str, Any]]:
    for shape in (CONTROL, CHAT):  # what reads and renders starts, and its memory stays in use
        await client.run(Attack(load.url, shape, load.small, 1e6, 8))
    await asyncio.sleep(GIVEN_BACK_S)
    idle = readers_mib(load.pid)
    lines = []
    for shape in (name for name in FLOODS if name in shapes or name == CONTROL):
        size = load.large // BOMB if shape in PACKED else load.large
        left: list[float] = []
        async with probing(load.url) as health:
            for _ in range(NUM_FLOODS):
                found = await client.run(Attack(load.url, shape, size, 1e6, CONNECTIONS, CONNECTIONS))
                await asyncio.sleep(GIVEN_BACK_S)
                left.append(readers_mib(load.pid))
        lines.append({"shape": shape, "idle_mib": idle, "left_mib": left, "health_s": round(max(health), 3),
                      "statuses": found.statuses, "said": found.said, "seconds": found.seconds})  # fmt: skip
        print("{shape:<34}{idle_mib} MiB idle, {left_mib} after floods; /health {health_s} s; {0}".format(
            answered(found.statuses, found.said), **lines[-1]), flush=True)  # fmt: skip
    return lines
