"""When the server collects garbage: rarely while it makes replies, and at a fixed interval in any case.

A large reply makes many short-lived objects, and a search for cycles among them takes longer than making them. But a
client that disconnects leaves cycles (a transport and its callbacks, an error and its frames), which an idle server
would keep for hours. What malloc keeps of freed memory is given back then too, whatever freed it.
"""

import asyncio
import gc
from typing import NoReturn

from ramet.runtime.machine import trim_heap

EVERY_S = 60.0


async def collect(every_s: float = EVERY_S) -> NoReturn:
    """Collect at an interval. Objects from before the process was ready are frozen, so it takes milliseconds."""
    while True:
        await asyncio.sleep(every_s)
        gc.collect()
        trim_heap()
