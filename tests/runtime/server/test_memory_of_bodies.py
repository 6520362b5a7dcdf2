"""Memory of large bodies after they have ended."""

import asyncio

import psutil

from ramet.runtime.server.http.held_bodies import LARGE, TRIM_AFTER_S, HeldBodies
from tests.fakes.clock_loop import ClockLoop, forward

BLOCKS, SIZE = 40_000, 2000


async def freed_bytes(bodies: HeldBodies, num_bytes: int) -> int:
    """What a body of this size gives back some time after it has ended, of memory that malloc keeps."""
    blocks = [bytes(SIZE) for _ in range(BLOCKS)]
    last = blocks[::400]  # in use, so that malloc does not give back the rest by itself
    with bodies.opened() as body:
        body.num_bytes = num_bytes
    del blocks
    before = psutil.Process().memory_info().rss
    forward(2 * TRIM_AFTER_S)
    for _ in range(5):
        await asyncio.sleep(0)
    freed = before - int(psutil.Process().memory_info().rss)
    return freed if last else 0


def test_memory_of_large_bodies_goes_back_to_the_system() -> None:
    async def main() -> None:
        bodies = HeldBodies(1 << 30)
        assert await freed_bytes(bodies, LARGE) < BLOCKS * SIZE / 8
        assert await freed_bytes(bodies, LARGE + 1) > BLOCKS * SIZE / 2

    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(main())
