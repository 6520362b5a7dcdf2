"""Work on large bodies happens on threads: whose turn it is, what comes back, and what becomes of errors."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from ramet.runtime.errors import ClientError
from ramet.runtime.workers.offload import FEW_ITEMS, LARGE, SMALL, Offload, offloaded

NAME: ContextVar[str] = ContextVar("name", default="")


def run(check: Callable[[Offload], Awaitable[None]]) -> None:
    async def main() -> None:
        offload = Offload()
        try:
            await asyncio.wait_for(check(offload), 120)
        finally:
            offload.close()

    asyncio.run(main())


def started(offload: Offload, num_bytes: int, act: Callable[[], object], owner: str = "") -> "asyncio.Task[object]":
    """A request with a body of so many bytes that calls `act`."""

    async def serve() -> object:
        offload.take(owner, num_bytes)
        return await offloaded(act)

    return asyncio.ensure_future(serve())


@pytest.mark.parametrize(("num_bytes", "on_loop"), [(SMALL, True), (SMALL + 1, False), (LARGE + 1, False)])
def test_only_what_is_small_is_done_on_the_event_loop(num_bytes: int, on_loop: bool) -> None:
    async def check(offload: Offload) -> None:
        thread = await started(offload, num_bytes, threading.get_ident)
        assert (thread == threading.get_ident()) is on_loop

    run(check)


def test_a_small_body_with_many_items_is_worked_on_by_a_thread() -> None:
    async def check(offload: Offload) -> None:
        offload.take("", SMALL)
        assert await offloaded(threading.get_ident, FEW_ITEMS) == threading.get_ident()
        assert await offloaded(threading.get_ident, FEW_ITEMS + 1) != threading.get_ident()

    run(check)


def test_a_small_body_behind_a_large_one_of_the_same_connection_is_small() -> None:
    async def check(offload: Offload) -> None:
        offload.take("", LARGE)
        assert await offloaded(threading.get_ident) != threading.get_ident()
        offload.take("", SMALL)
        assert await offloaded(threading.get_ident) == threading.get_ident()

    run(check)


def test_what_is_done_on_a_thread_sees_the_context_of_its_request() -> None:
    async def check(offload: Offload) -> None:
        NAME.set("one")
        assert await started(offload, LARGE, NAME.get) == "one"

    run(check)


def test_smaller_bodies_do_not_wait_for_larger_ones() -> None:
    async def check(offload: Offload) -> None:
        goes_on = threading.Event()
        large = [started(offload, LARGE + 1, lambda: goes_on.wait(20)) for _ in range(3)]
        assert await started(offload, LARGE, lambda: "small") == "small"
        assert not any(each.done() for each in large)
        goes_on.set()
        assert await asyncio.gather(*large) == [True] * 3

    run(check)


def test_keys_have_turns() -> None:
    async def check(offload: Offload) -> None:
        goes_on, order = threading.Event(), list[str]()
        first = started(offload, LARGE + 1, lambda: goes_on.wait(20), "many")
        many = [started(offload, LARGE + 1, lambda: order.append("many"), "many") for _ in range(3)]
        await asyncio.sleep(0)
        one = started(offload, LARGE + 1, lambda: order.append("one"), "one")
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(first, *many, one)
        assert order[0] == "one"

    run(check)


@pytest.mark.parametrize(("small", "large"), [(SMALL + 1, LARGE), (LARGE + 1, 32 * LARGE)])
def test_a_small_body_overtakes_large_ones_of_its_key(small: int, large: int) -> None:
    async def check(offload: Offload) -> None:
        goes_on, order = threading.Event(), list[str]()
        first = started(offload, large, lambda: goes_on.wait(20))
        others = [started(offload, large, lambda: order.append("large")) for _ in range(64)]
        await asyncio.sleep(0)
        one = started(offload, small, lambda: order.append("small"))
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(first, one, *others)
        assert "small" in order[:2]

    run(check)


def test_many_items_count_as_the_bytes_that_take_as_long() -> None:
    """A small body with thousands of prompts is more work than a larger text."""

    async def check(offload: Offload) -> None:
        goes_on, order = threading.Event(), list[str]()

        async def prompts() -> None:
            offload.take("", SMALL)
            await offloaded(lambda: order.append("prompts"), 8 * FEW_ITEMS)

        first = started(offload, LARGE, lambda: goes_on.wait(20))
        await asyncio.sleep(0)
        many = [asyncio.ensure_future(prompts()) for _ in range(3)]
        await asyncio.sleep(0)
        text = started(offload, 2 * SMALL, lambda: order.append("text"))
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(first, text, *many)
        assert "text" in order[:2]

    run(check)


def test_what_nobody_waits_for_any_more_is_not_done() -> None:
    async def check(offload: Offload) -> None:
        goes_on, done = threading.Event(), list[str]()
        first = started(offload, LARGE + 1, lambda: goes_on.wait(20))
        gone = started(offload, LARGE + 1, lambda: done.append("gone"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        goes_on.set()
        await first
        await started(offload, LARGE + 1, lambda: done.append("next"))
        assert done == ["next"]

    run(check)


def test_an_error_of_the_client_comes_back_without_its_frames() -> None:
    """They would keep the body, to be freed on the event loop."""

    async def check(offload: Offload) -> None:
        def refuse() -> None:
            body = ["x"] * 1000
            try:
                raise ValueError(len(body))
            except ValueError as error:
                raise ClientError("text", "is long") from error

        with pytest.raises(ClientError, match="text is long") as found:
            await started(offload, LARGE, refuse)
        frame = found.value.__traceback__
        while frame is not None:
            assert frame.tb_frame.f_code.co_name != "refuse"
            frame = frame.tb_next
        assert found.value.__cause__ is not None and found.value.__cause__.__traceback__ is None

    run(check)


def test_a_bug_comes_back_with_its_frames() -> None:
    async def check(offload: Offload) -> None:
        with pytest.raises(ZeroDivisionError) as found:
            await started(offload, LARGE, lambda: 1 // 0)
        assert "<lambda>" in [each.name for each in found.traceback]

    run(check)


def test_no_garbage_is_looked_for_while_a_body_is_worked_on() -> None:
    async def check(offload: Offload) -> None:
        goes_on = threading.Event()
        long = started(offload, LARGE + 1, lambda: (goes_on.wait(20), gc.isenabled()))
        assert await started(offload, LARGE, gc.isenabled) is False
        assert gc.isenabled() is False  # the other one is not done
        goes_on.set()
        assert await long == (True, False)
        await started(offload, SMALL, lambda: None)
        while not gc.isenabled():
            await asyncio.sleep(0.001)

    run(check)
