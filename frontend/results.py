"""Values that are still to come: what a call leaves in a variable, and the text of a stream as it grows.

Written on the backend's event loop, read from any thread and any event loop.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from ramet.frontend.errors import CallFailed
from ramet.ipc.loop_thread import call_soon
from ramet.ipc.waits import settle, waited


class Result:
    """One variable. `meta` is that of its call, once it is done."""

    __slots__ = ("future", "meta")

    def __init__(self) -> None:
        self.future: Future[Any] = Future()
        self.future.set_running_or_notify_cancel()  # who stops waiting for it does not cancel it for the others
        self.meta: Any = None

    @classmethod
    def of(cls, value: Any, meta: Any = None) -> "Result":
        """One that is known already."""
        result = cls()
        result.set(value, meta)
        return result

    @property
    def done(self) -> bool:
        return self.future.done()

    @property
    def failed(self) -> bool:
        """Of one that is done."""
        return self.future.exception() is not None

    def set(self, value: Any, meta: Any = None) -> None:
        if not self.future.done():
            self.meta = meta
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def get(self, timeout_s: float | None = None) -> Any:
        """Waits for it. Raises what its call ended with, and TimeoutError."""
        settle(self.future, timeout_s)
        return self._raised(self.future.exception())

    async def wait(self) -> Any:
        """The same on any event loop."""
        await self.settled()
        return self._raised(self.future.exception())

    async def needed(self) -> Any:
        """The same for another call, which then fails as well: nobody is told of a failure by it."""
        await self.settled()
        error = self.future.exception()
        if isinstance(error, CallFailed):
            raise error.copy() from error.reason
        return self._raised(error)

    def settle(self) -> None:
        """Waits until it is done, whichever way."""
        settle(self.future)

    async def settled(self) -> None:
        """The same on any event loop."""
        if self.future.done():
            return
        loop = asyncio.get_running_loop()
        done = loop.create_future()  # without the error: asyncio takes no StopIteration, and the wait would not end
        self.future.add_done_callback(lambda _: call_soon(loop, _set, done))
        await done

    def _raised(self, error: BaseException | None) -> Any:
        if isinstance(error, CallFailed):
            raise error.again() from error.reason
        if error is not None:
            raise error
        return self.future.result()


class Gathered(Result):
    """A list of the values of several results, in their order; it fails with the first of them that does.

    `before`: whose values come first. All are let go of once they are known.
    """

    __slots__ = ("_is_told", "_left", "_lock", "_parts")

    def __init__(self, more: Sequence[Result], before: "Gathered | None" = None) -> None:
        super().__init__()
        self._parts: tuple[Gathered | None, Sequence[Result]] = before, tuple(more)
        self._is_told = False  # that it failed
        awaited = [*([before] if before is not None else []), *more]
        self._left, self._lock = len(awaited), threading.Lock()
        for one in awaited:
            one.future.add_done_callback(lambda future: IN_TURN.call(lambda: self._one_is_done(future)))
        if not awaited:
            self.set([])

    @property
    def each(self) -> Sequence[Result]:
        """All of them, in order, until they are known."""
        parts = [part for _, part in self._links()]
        return [one for part in reversed(parts) for one in part]

    def _links(self) -> "Iterator[tuple[Gathered, Sequence[Result]]]":
        """The last one first."""
        link: Gathered | None = self
        while link is not None:
            before, more = link._parts
            yield link, more
            link = before

    def _one_is_done(self, future: "Future[Any]") -> None:
        if (error := future.exception()) is not None:
            self.fail(error)
            if self._is_told:
                _see(error)
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last and not self.done:
            self.set(*self._take())

    def _take(self) -> tuple[list[Any], list[Any]]:
        """Values and metas, all of which are known. Whoever wakes for them finds its parts gone."""
        (before, more), self._parts = self._parts, (None, ())
        values, metas = ([], []) if before is None else (before.future.result(), before.meta or [])
        return [*values, *(one.future.result() for one in more)], [*metas, *(one.meta for one in more)]

    def _raised(self, error: BaseException | None) -> Any:
        """Who is told of the first failure needs no word of the others."""
        if error is not None:
            for told, more in self._links():
                told._is_told = True
                for one in more:
                    if one.done:
                        _see(one.future.exception())
        return super()._raised(error)


def _set(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


class InTurn(threading.local):
    """Calls what follows from a value one after the other: a hundred values, each made of the one before, would nest.

    Each thread has its own.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._calls = False  # a function, below on the stack

    def call(self, function: Callable[[], None]) -> None:
        """Now, or after the one that calls this."""
        self._waiting.append(function)
        if self._calls:
            return
        self._calls = True
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self._calls = False


IN_TURN = InTurn()


def _see(error: BaseException | None) -> None:
    if isinstance(error, CallFailed):
        error.see()


class FeedPiece(NamedTuple):
    """New text of a stream; `name`: of the variable that it belongs to."""

    text: str
    name: str | None = None
    last: bool = False  # of its variable
    meta: Any = None  # of the call, with its last piece


class Feed:
    """The text of one stream from its beginning, for any number of readers, each at its own place."""

    def __init__(self) -> None:
        self._pieces: list[FeedPiece] = []
        self._lock = threading.Lock()
        self._waiting: list[Future[None]] = []
        self._ended = False
        self._error: BaseException | None = None

    def add(self, piece: FeedPiece) -> None:
        with self._lock:
            self._pieces.append(piece)
        self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes. `error` is raised by whoever reads past the end. The first end counts."""
        with self._lock:
            if not self._ended:
                self._ended, self._error = True, error
        self._wake()

    def pieces(self, check_wait: Callable[[], None]) -> Iterator[FeedPiece]:
        """As they come. Raises what ended the stream, and what `check_wait` does where it would have to wait."""
        at = 0
        while (news := self._after(at)) is not None:
            if isinstance(news, Future):
                check_wait()
                waited(news)
                continue
            yield from news
            at += len(news)

    async def pieces_async(self) -> AsyncIterator[FeedPiece]:
        """The same on any event loop."""
        at = 0
        while (news := self._after(at)) is not None:
            if isinstance(news, Future):
                await asyncio.wrap_future(news)
                continue
            for piece in news:
                yield piece
            at += len(news)

    def _after(self, at: int) -> "list[FeedPiece] | Future[None] | None":
        """What came after the first `at` pieces, or what becomes done when something does; None: nothing will."""
        with self._lock:
            if news := self._pieces[at:]:
                return news
            if self._ended:
                if isinstance(self._error, CallFailed):
                    raise self._error.again() from self._error.reason
                if self._error is not None:
                    raise self._error
                return None
            waiter: Future[None] = Future()
            self._waiting.append(waiter)
            return waiter

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each.set_running_or_notify_cancel():  # its reader may go at this moment
                each.set_result(None)
