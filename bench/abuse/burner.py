"""A process that has nothing to do with the server and burns CPU time: so much in all, in equal pieces at equal times.

What streams lose beside it is what the machine makes of so much work, even if nothing is shared but its cores. It does
not compete for memory bandwidth or caches, as a server that reads a body does.
"""

import os
import time
from collections.abc import Callable

from msgspec import Struct

from ramet.bench.abuse.ready import serve

MODULE = "ramet.bench.abuse.burner"


class Burn(Struct, frozen=True):
    cpu_s: float  # in all
    num: int  # pieces
    seconds: float  # in which to burn them; later nothing is burnt
    niceness: int = 0


class Burnt(Struct, frozen=True):
    cpu_s: float


def burning(asked: Burn) -> Callable[[], Burnt]:
    os.nice(asked.niceness)
    return lambda: burn(asked)


def burn(asked: Burn) -> Burnt:
    """A piece that is late is burnt at once, as a body that waits is read."""
    start, began = time.perf_counter(), time.process_time()
    for piece in range(asked.num):
        time.sleep(max(0.0, start + asked.seconds * piece / asked.num - time.perf_counter()))
        until = began + asked.cpu_s * (piece + 1) / asked.num
        while time.process_time() < until and time.perf_counter() < start + asked.seconds:
            sum(range(1000))
    return Burnt(time.process_time() - began)


if __name__ == "__main__":
    serve(Burn, burning)
