"""Work on a large request body happens on threads, so that the event loop serves others meanwhile.

Decides which bodies are large, and in which order they are worked on: keys have turns, a key's bodies of different size
have equal shares (fair_queue.py), and of the two threads one takes those above LARGE. So a small body does not wait for
all larger ones that came before it, nor a large one for all smaller ones. While a thread works, Python passes its lock
on every SWITCH_S, but not within one call of a library: long JSON is parsed in pieces (intake/json_pieces.py).
"""

import asyncio
import gc
import sys
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, TypeVar

from ramet.ipc.loop_thread import call_soon
from ramet.runtime.errors import RametError, forget_frames
from ramet.runtime.workers.fair_threads import FairThreads

T = TypeVar("T")
SMALL = 1 << 16  # bytes of a body up to which all work happens on the event loop: it takes up to 2 ms
LARGE = 1 << 20
SWITCH_S = 0.001
FEW_ITEMS = 256  # read in up to 5 ms
ITEM_BYTES = SMALL // FEW_ITEMS  # of a body that takes as long as an item


class _Body(NamedTuple):
    """The body of the request that is served."""

    num_bytes: int
    run: Callable[[Callable[[], Any], int], Awaitable[Any]]  # on a thread; the second argument is the size of the work


_BODY: ContextVar[_Body | None] = ContextVar("body", default=None)  # None: there is no server


async def offloaded(act: Callable[[], T], num_items: int = 0) -> T:
    """Call `act` on a thread if the body of the request that is served is large, otherwise at once.

    `num_items`: for how many items, such as prompts, `act` does something: many make a small body a large one. It sees
    the context variables of its caller, but what it sets in them is lost.
    """
    found = _BODY.get()
    if found is None or (found.num_bytes <= SMALL and num_items <= FEW_ITEMS):
        return act()
    made: T = await found.run(act, max(found.num_bytes, num_items * ITEM_BYTES))
    return made


class Offload:
    """The threads of one server."""

    def __init__(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        self._pause = _PauseOfGarbage()
        self._threads = [FairThreads(1, name, self._serve) for name in ("bodies", "large-bodies")]

    def take(self, owner: str, num_bytes: int) -> None:
        """From now on `offloaded` is about a body of so many bytes. `owner`: the name of a key that is bounded."""
        thread = self._threads[num_bytes > LARGE]
        _BODY.set(_Body(num_bytes, lambda act, size: self._run(thread, owner, act, size)))

    def close(self) -> None:
        """Drop what waits, and wait for what runs."""
        for each in self._threads:
            each.close()

    async def _run(self, thread: FairThreads, owner: str, act: Callable[[], T], size: int) -> T:
        loop, context = asyncio.get_running_loop(), copy_context()
        done: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                call_soon(loop, _resolve, done, context.run(act))
            except BaseException as error:  # noqa: BLE001  whoever waits raises it
                if isinstance(error, RametError):
                    forget_frames(error)  # what is in them is freed here
                call_soon(loop, _fail, done, error)

        place = thread.put(owner, work, size)
        try:
            return await done
        finally:
            thread.remove(owner, place)

    def _serve(self, work: Callable[[], None]) -> None:
        with self._pause:
            work()


class _PauseOfGarbage:
    """No search for garbage while a large body is worked on.

    Its tens of thousands of objects, which have no cycles, would start searches that look at all of them and keep
    Python's lock for 10 to 200 ms. They are gone, or few, when the next search begins.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num = 0

    def __enter__(self) -> None:
        with self._lock:
            self._num += 1
            gc.disable()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._num -= 1
            if not self._num:
                gc.enable()


def _resolve(done: "asyncio.Future[T]", result: T) -> None:
    if not done.done():  # whoever waited is gone
        done.set_result(result)


def _fail(done: "asyncio.Future[Any]", error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
