"""How many bytes the bodies of all connections may hold together, and which bodies wait."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from ramet.runtime.errors import ClientError
from ramet.runtime.server.http.held_bodies import (
    FREE_BYTES,
    MIN_AGE_S,
    MIN_BYTES_PER_S,
    OF_SMALL,
    SMALL,
    HeldBodies,
    HeldBody,
)
from ramet.runtime.server.http.receiving import BODIES, Bodies, received
from tests.fakes.clock_loop import ClockLoop, forward
from tests.fakes.server import Served, served

MOST = 10 << 20


def on_clock(test: Callable[[HeldBodies, ExitStack], Awaitable[None]]) -> None:
    async def main() -> None:
        bodies = HeldBodies(MOST, share=0.5)
        with ExitStack() as stack:
            await test(bodies, stack)
        assert bodies.total == 0

    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(asyncio.wait_for(main(), 120))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def grow(body: HeldBody, num_bytes: int, timeout_s: float = 3600) -> "asyncio.Task[None]":
    async def within_its_deadline() -> None:
        async with asyncio.timeout(timeout_s) as deadline:
            body.deadline = deadline
            await body.grow(num_bytes)

    return asyncio.ensure_future(within_its_deadline())


def test_a_body_waits_until_another_is_parsed() -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        waits = stack.enter_context(bodies.opened())  # the oldest would not wait
        with bodies.opened() as first, bodies.opened() as second:
            await waits.grow(1)
            await first.grow(MOST)
            growing = grow(second, MOST // 2)
            await turn()
            assert not growing.done() and bodies.total == MOST - FREE_BYTES
            del bodies._open[waits]  # it is parsed
            bodies._open[waits] = None
            assert not growing.done()
            growing.cancel()
        growing = grow(waits, MOST)
        await growing
        assert bodies.total == MOST + 1 - FREE_BYTES

    on_clock(check)


def test_what_waits_goes_on_when_there_is_room() -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        stack.enter_context(bodies.opened())
        second = stack.enter_context(bodies.opened())
        with bodies.opened() as first:
            await first.grow(MOST)
            growing = grow(second, MOST // 2)
            await turn()
            assert not growing.done()
        await turn()
        assert growing.done(), "it is woken, and waits for no clock"
        assert bodies.total == MOST // 2 - FREE_BYTES

    on_clock(check)


def test_the_oldest_never_waits() -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        oldest, other = (stack.enter_context(bodies.opened()) for _ in range(2))
        await other.grow(MOST)
        await oldest.grow(MOST)
        assert bodies.total == 2 * (MOST - FREE_BYTES)

    on_clock(check)


def test_large_bodies_end_whatever_there_is_room_for() -> None:
    async def check(server: Served) -> None:
        body = {"text": "a" * (1 << 20), "sampling_params": {"stop": 5}}
        replies = await asyncio.gather(*(server.post("/generate", body) for _ in range(12)))
        assert [status for status, _ in replies] == [400] * 12

    served(check, max_bodies_mb=0.5, max_body_mb=1.1)


def test_a_small_body_never_waits() -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        oldest, small = (stack.enter_context(bodies.opened()) for _ in range(2))
        await oldest.grow(2 * MOST)
        await small.grow(FREE_BYTES)
        growing = grow(small, 1)
        await turn()
        assert not growing.done()
        growing.cancel()

    on_clock(check)


@pytest.mark.parametrize(("large_of", "small_of"), [("", ""), ("a", "a")])
def test_small_bodies_do_not_wait_for_the_memory_of_large_ones(large_of: str, small_of: str) -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        most = bodies.max_of_key if large_of else MOST
        stack.enter_context(bodies.opened(large_of))  # the oldest would not wait
        await stack.enter_context(bodies.opened(large_of, SMALL + 1)).grow(most + FREE_BYTES)
        large = grow(stack.enter_context(bodies.opened(large_of, SMALL + 1)), FREE_BYTES + 1)
        unknown = grow(stack.enter_context(bodies.opened(large_of)), FREE_BYTES + 1)
        sizes = most // OF_SMALL // 2, most // OF_SMALL // 2, 1
        small = [grow(stack.enter_context(bodies.opened(small_of, SMALL)), FREE_BYTES + size) for size in sizes]
        await turn()
        assert [each.done() for each in (large, unknown, *small)] == [False, False, True, True, False]
        for each in (large, unknown, *small):
            each.cancel()

    on_clock(check)


@pytest.mark.parametrize("length_known", [True, False])
def test_only_a_body_whose_length_is_known_is_small(length_known: bool) -> None:
    async def main() -> None:
        held, seen, app = HeldBodies(4 << 20), list[bool](), web.Application()

        def make(_: object) -> None:
            seen.extend(each.is_small for each in held._open)

        async def handler(request: web.Request) -> web.Response:
            await received(request, make)
            return web.Response()

        app[BODIES] = Bodies(4 << 20, held, 1 << 20, 60.0)
        app.router.add_post("/", handler)
        data = b'{"text": "' + b"x" * (2 * FREE_BYTES) + b'"}'

        async def in_chunks() -> AsyncIterator[bytes]:
            yield data

        async with TestClient(TestServer(app)) as client:
            reply = await client.post("/", data=data if length_known else in_chunks())
            assert reply.status == 200
        assert seen == [length_known]

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_body_that_stands_still_makes_room_for_one_that_waits() -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        still, other = (stack.enter_context(bodies.opened()) for _ in range(2))
        comes = asyncio.ensure_future(_stands_still(still, MOST))
        await turn()
        forward(MOST / MIN_BYTES_PER_S + MIN_AGE_S)
        await turn()
        assert not comes.done()  # nobody waits for it
        growing = grow(other, MOST)
        with pytest.raises(TimeoutError):
            await comes
        with pytest.raises(ClientError) as caught:
            still.check()
        assert caught.value.status == 408 and caught.value.hint == "--max-bodies-mb"
        growing.cancel()

    on_clock(check)


def test_a_body_that_came_fast_at_first_may_not_stand_still_for_it() -> None:
    async def check(_: HeldBodies, stack: ExitStack) -> None:
        bodies = HeldBodies(6 * MOST)
        still, other = (stack.enter_context(bodies.opened()) for _ in range(2))
        comes = asyncio.ensure_future(_stands_still(still, 6 * MOST))
        await turn()
        waits = grow(other, MOST)
        for seconds, ended in ((MIN_AGE_S + 1, False), (MIN_AGE_S + 1, True)):
            forward(seconds)
            for _ in range(4):  # who waits looks for slow bodies
                await turn()
            assert still.is_ended is ended
        with pytest.raises(TimeoutError):
            await comes
        waits.cancel()

    on_clock(check)


def test_the_largest_of_the_slow_bodies_is_ended_alone() -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        small, large, other = (stack.enter_context(bodies.opened()) for _ in range(3))
        sizes = ((small, MOST // 4), (large, MOST // 2))
        both = [asyncio.ensure_future(_stands_still(body, size)) for body, size in sizes]
        await turn()
        forward(20)
        growing = grow(other, MOST)
        with pytest.raises(TimeoutError):
            await both[1]
        small.check()
        both[0].cancel()
        growing.cancel()

    on_clock(check)


def test_a_body_whose_own_time_has_passed_is_not_ended_once_more() -> None:
    """Its timeout cannot be changed any more: the body that waits for room would fail."""

    async def passes(body: HeldBody) -> None:
        async with asyncio.timeout(0) as body.deadline:
            await body.grow(MOST)
            try:
                await asyncio.Event().wait()
            finally:
                assert not body.is_slow(asyncio.get_running_loop().time() + 1000)

    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        with pytest.raises(TimeoutError):
            await passes(stack.enter_context(bodies.opened()))

    on_clock(check)


def test_time_that_a_body_waits_is_not_its_own() -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        with bodies.opened() as oldest:
            waits, other = (stack.enter_context(bodies.opened()) for _ in range(2))
            await waits.grow(2 * FREE_BYTES)
            await oldest.grow(MOST)
            growing = grow(waits, FREE_BYTES, timeout_s=10)
            others = grow(other, MOST)
            await turn()
            forward(24)
            for _ in range(4):  # who waits looks for slow bodies
                await turn()
        await growing
        waits.check()
        assert not waits.is_slow(asyncio.get_running_loop().time())
        others.cancel()

    on_clock(check)


def test_time_that_the_server_takes_for_bytes_that_came_is_not_the_clients() -> None:
    """As inflating does, while others do the same."""

    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        body, other = (stack.enter_context(bodies.opened()) for _ in range(2))
        async with asyncio.timeout(10) as body.deadline:
            with body.taking():
                await body.grow(MOST + FREE_BYTES)
                others = grow(other, MOST)
                forward(24)
                for _ in range(4):  # who waits looks for slow bodies
                    await turn()
            await turn()
            body.check()
            assert not body.is_slow(asyncio.get_running_loop().time())
            assert body.is_slow(asyncio.get_running_loop().time() + 24)
        others.cancel()

    on_clock(check)


def test_a_body_has_its_room_until_it_is_parsed_and_is_not_slow_meanwhile() -> None:
    data = b'{"text": "' + b"x" * (2 << 20) + b'"}'

    async def main() -> None:
        bodies, app = Bodies(4 << 20, HeldBodies(4 << 20), 1 << 20, 60.0), web.Application()

        is_read = threading.Event()

        async def handler(request: web.Request) -> web.Response:
            await received(request, lambda _: is_read.wait(20))
            return web.Response()

        app[BODIES] = bodies
        app.router.add_post("/", handler)
        async with TestClient(TestServer(app)) as client:
            posting = asyncio.ensure_future(client.post("/", data=data))
            while bodies.held.total < len(data) - FREE_BYTES:
                await asyncio.sleep(0)
            await turn()
            (held,) = bodies.held._open
            assert not held.is_slow(asyncio.get_running_loop().time() + 1000)
            is_read.set()
            assert (await posting).status == 200 and bodies.held.total == 0

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_body_that_comes_fast_is_waited_for() -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        fast, other = (stack.enter_context(bodies.opened()) for _ in range(2))
        comes = asyncio.ensure_future(_stands_still(fast, MOST))
        await turn()
        forward(MOST / MIN_BYTES_PER_S - 1)
        growing = grow(other, MOST)
        await turn()
        assert not comes.done() and not growing.done()
        comes.cancel()
        growing.cancel()

    on_clock(check)


def test_a_key_waits_for_its_own_share_and_others_do_not() -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        stack.enter_context(bodies.opened("c"))  # the oldest of all, which never waits
        first, second = (stack.enter_context(bodies.opened("a")) for _ in range(2))
        comes = asyncio.ensure_future(_stands_still(first, MOST // 2))
        await turn()
        growing = grow(second, MOST // 4)
        await turn()
        assert not growing.done(), "half of the memory is the key's share"
        await stack.enter_context(bodies.opened("b")).grow(MOST // 4)
        await first.grow(MOST // 8)  # a key's oldest does not wait for the share
        comes.cancel()
        growing.cancel()

    on_clock(check)


def test_a_key_that_waits_for_its_share_ends_no_body_of_another() -> None:
    async def check(bodies: HeldBodies, stack: ExitStack) -> None:
        slow = stack.enter_context(bodies.opened("b"))
        first, second = (stack.enter_context(bodies.opened("a")) for _ in range(2))
        comes = [asyncio.ensure_future(_stands_still(body, MOST // 4)) for body in (slow, first)]
        await turn()
        forward(MOST / MIN_BYTES_PER_S + MIN_AGE_S)
        growing = grow(second, MOST // 3)
        with pytest.raises(TimeoutError):
            await comes[1]  # its own slow body makes room
        assert not slow.is_ended
        comes[0].cancel()
        growing.cancel()

    on_clock(check)


async def _stands_still(body: HeldBody, num_bytes: int) -> None:
    async with asyncio.timeout(3600) as deadline:
        body.deadline = deadline
        await body.grow(num_bytes)
        await asyncio.Event().wait()
