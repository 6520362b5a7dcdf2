"""Memory of large bodies after they have ended, and of what they became."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ramet.runtime.server.http.freed_memory import TRIM_AFTER_S, FreedMemory
from ramet.runtime.server.http.held_bodies import LARGE, HeldBodies
from tests.fakes.clock_loop import ClockLoop, forward
from tests.fakes.kept_memory import KeptMemory
from tests.fakes.peer import turn_loop


def on_clock(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(main())


async def later() -> None:
    """All of what is noted now has been given back."""
    for _ in range(2):
        forward(TRIM_AFTER_S)
        await turn_loop()


@pytest.mark.parametrize("sizes", [[LARGE], [LARGE + 1], [LARGE // 2] * 2, [LARGE // 2] * 3], ids=str)
def test_memory_of_large_or_many_bodies_goes_back_to_the_system(sizes: list[int]) -> None:
    async def check() -> None:
        bodies, memory, before = HeldBodies(1 << 30), KeptMemory(), KeptMemory.resident()
        for size in sizes:
            with bodies.opened() as body:
                body.num_bytes = size
        memory.free()
        await later()
        assert memory.is_back(before) == (sum(sizes) > LARGE)

    on_clock(check)


def test_memory_of_what_a_large_body_became_goes_back_when_its_request_ends() -> None:
    async def check() -> None:
        parsed, ends = asyncio.Event(), asyncio.Event()

        async def request(memory: KeptMemory) -> None:
            with HeldBodies(1 << 30).opened() as body:
                body.num_bytes = LARGE + 1
            parsed.set()
            await ends.wait()
            memory.free()

        memory, before = KeptMemory(), KeptMemory.resident()
        runs = asyncio.create_task(request(memory))
        await parsed.wait()
        await later()
        ends.set()
        await runs
        await later()
        assert memory.is_back(before)

    on_clock(check)


def test_memory_goes_back_while_large_bodies_follow_each_other() -> None:
    async def check() -> None:
        trims: list[int] = []
        freed, when = FreedMemory(lambda: trims.append(when)), 0
        for when in range(20):
            freed.note()
            assert when - (trims[-1] if trims else 0) <= 2
            forward(TRIM_AFTER_S / 2)
            await turn_loop()
        assert 8 <= len(trims) <= 10, "once in TRIM_AFTER_S"
        so_far = len(trims)
        freed.note()
        when = 20
        await later()
        assert 20 in trims[so_far:], "what was freed last is given back as well"
        so_far = len(trims)
        await later()
        assert len(trims) == so_far, "nothing was freed"

    on_clock(check)


def test_what_is_freed_just_before_a_trim_has_its_own() -> None:
    async def check() -> None:
        trims: list[str] = []
        freed, when = FreedMemory(lambda: trims.append(when)), "with the first"
        freed.note()
        freed.note()
        forward(TRIM_AFTER_S)
        await turn_loop()
        assert trims == ["with the first"]
        when = "after the second"
        forward(TRIM_AFTER_S)
        await turn_loop()
        assert trims == ["with the first", "after the second"]

    on_clock(check)
