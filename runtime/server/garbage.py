"""When the server looks for garbage: rarely while it makes replies, and once in a while whatever it does.

A large reply is many objects for a short time, and looking among them for cycles takes longer than making them. But a
client that goes away leaves some (a transport and its callbacks, an error and its frames), and a server with little to
do would keep them for hours.
"""

import asyncio
import gc
from typing import NoReturn

THRESHOLDS = (100_000, 20, 50)
EVERY_S = 60.0


def collect_rarely() -> None:
    gc.set_threshold(*THRESHOLDS)


async def collect(every_s: float = EVERY_S) -> NoReturn:
    """What was there when the process was ready is frozen, so a collection takes a millisecond or a few."""
    while True:
        await asyncio.sleep(every_s)
        gc.collect()
