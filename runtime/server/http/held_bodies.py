"""Bounds the memory that the bodies of all connections hold together, from their first byte until they are parsed.

    a body's first FREE_BYTES            always have room, so no large body keeps a small one waiting
    more bytes                           wait, unread, while all bodies together hold --max-bodies-mb
    more bytes of one key                wait, unread, while that key's bodies hold its share of these
    a body that says that it is small    may hold memory beyond that, an eighth more in all: a chat of 100 kB would wait
                                         for seconds while large bodies come and are parsed
    the oldest body                      never waits, so one body can always be completed; a key's oldest never waits
                                         for its share
    a body below MIN_BYTES_PER_S         is ended with status 408, the oldest too, if another waits for memory that it
                                         holds: it might stall for minutes

A body that is kept beyond that, until its request is accepted, takes less than what it would become.

Sees neither bytes nor connections: a waiting body is not read, so its connection stops by itself.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ramet.runtime.access.shares import part
from ramet.runtime.errors import ClientError
from ramet.runtime.server.http.freed_memory import FreedMemory

FREE_BYTES = 1 << 16
SMALL = 1 << 20  # bytes of a body up to which it may use the memory for small ones
OF_SMALL = 8  # one part in so many is what small bodies may hold beyond the memory for all
MIN_BYTES_PER_S = 1 << 20  # minimum speed of a body that others wait for
MIN_AGE_S = 5.0  # least time over which a body's speed counts, at most twice as much while others look at it
LOOK_EVERY_S = 1.0  # time between two searches for slow bodies
LARGE = 1 << 20  # bytes of bodies, one or many, beyond which freed memory goes back to the system


class HeldBody:
    def __init__(self, all_: "HeldBodies", name: str, is_small: bool) -> None:
        self._all, self.name, self.is_small = all_, name, is_small
        self.began_s = asyncio.get_running_loop().time()  # moved forward by the time that is not its client's
        self.num_bytes = 0
        self.deadline: asyncio.Timeout | None = None  # the timeout of its transfer
        self.is_waiting = False  # for room
        self.is_taken = False  # bytes that have come are inflated and counted
        self.is_ended = False  # to make room
        self._before = self._last = 0.0, 0  # its age and bytes when it was looked at, MIN_AGE_S apart

    @property
    def charged(self) -> int:
        return max(0, self.num_bytes - FREE_BYTES)

    async def grow(self, num_bytes: int) -> None:
        """Wait for room for so many more bytes. Raises ClientError if the body is ended to make room for others."""
        self.check()
        before = self.charged
        self.num_bytes += num_bytes
        if (more := self.charged - before) and not self._all.has_room(self, more):
            self.num_bytes -= num_bytes
            await self._all.wait(self, more)
            self.num_bytes += num_bytes
        self._all.held_by[self.name] += more

    @contextmanager
    def taking(self) -> Iterator[None]:
        """While bytes that have come are inflated and counted, which may take longer than they took to come."""
        loop, began_s = asyncio.get_running_loop(), self.began_s
        from_s, self.is_taken = loop.time(), True
        if self.deadline is not None:
            self.deadline.reschedule(None)
        try:
            yield
        finally:
            self.is_taken = False
            self.began_s = began_s + loop.time() - from_s

    def check(self) -> None:
        """Raises ClientError if the body was ended to make room for others."""
        if self.is_ended:
            fact = f"arrives at less than {MIN_BYTES_PER_S} bytes a second, while other bodies wait for its memory"
            raise ClientError("body", fact, "--max-bodies-mb", 408)

    def is_slow(self, now_s: float) -> bool:
        """Whether the body is being received too slowly and holds memory that others could use.

        Its speed is that of late: a body that came fast at first earns no time to stand still.
        """
        age_s = now_s - self.began_s
        if age_s - self._last[0] >= MIN_AGE_S:
            self._before, self._last = self._last, (age_s, self.num_bytes)
        seconds, num_bytes = age_s - self._before[0], self.num_bytes - self._before[1]
        has_time = self.deadline is not None and not self.deadline.expired()
        comes = has_time and not self.is_taken and not self.is_waiting and not self.is_ended
        return comes and self.charged > 0 and seconds >= MIN_AGE_S and num_bytes < seconds * MIN_BYTES_PER_S

    def end(self) -> None:
        """End the body: its reader gets a timeout, and `check` says why."""
        self.is_ended = True
        if self.deadline is not None:
            self.deadline.reschedule(0.0)


class HeldBodies:
    """`most`: bytes that all bodies together may hold. `share`: the part of it for one key that is bounded."""

    def __init__(self, most: int, share: float = 1.0) -> None:
        self.most, self.max_of_key = most, part(most, share)
        self.held_by = Counter[str]()  # bytes by the names of their keys
        self._open: dict[HeldBody, None] = {}  # the oldest first
        self._room = asyncio.Event()
        self._freed, self._num_freed = FreedMemory(), 0  # bytes since the last note

    @property
    def total(self) -> int:
        return self.held_by.total()

    @contextmanager
    def opened(self, name: str = "", max_bytes: int | None = None) -> Iterator[HeldBody]:
        """A body within the block, which lasts until it is parsed. `name`: of its key, empty if that has no bound.
        `max_bytes`: it has no more, as its header says; None: that is not known.
        """
        body = HeldBody(self, name, max_bytes is not None and max_bytes <= SMALL)
        self._open[body] = None
        try:
            yield body
        finally:
            del self._open[body]
            self.held_by[name] -= body.charged
            if not self.held_by[name]:
                del self.held_by[name]
            self._room.set()
            self._return_memory(body.num_bytes)

    def has_room(self, body: HeldBody, more: int) -> bool:
        in_all = self.total + more <= _most_for(body, self.most) or body is next(iter(self._open))
        return in_all and self._is_in_share(body, more)

    def _is_in_share(self, body: HeldBody, more: int) -> bool:
        if not body.name or self.held_by[body.name] + more <= _most_for(body, self.max_of_key):
            return True
        return body is next(each for each in self._open if each.name == body.name)

    async def wait(self, body: HeldBody, more: int) -> None:
        """Wait until the body has room. Waiting bodies are checked in the order of their arrival."""
        loop = asyncio.get_running_loop()
        from_s, body.is_waiting = loop.time(), True
        if body.deadline is not None:
            body.deadline.reschedule(None)
        try:
            while not self.has_room(body, more):
                self._end_slow(loop.time(), None if self._is_in_share(body, more) else body.name)
                self._room.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._room.wait(), LOOK_EVERY_S)
        finally:
            body.is_waiting = False
            body.began_s += loop.time() - from_s

    def _end_slow(self, now_s: float, name: str | None) -> None:
        """End the largest of the slow bodies; with a name, of this key's: it waits for nobody else's memory."""
        slow = [body for body in self._open if name in (None, body.name) and body.is_slow(now_s)]
        if slow:
            max(slow, key=lambda body: body.num_bytes).end()

    def _return_memory(self, num_bytes: int) -> None:
        """The bytes of a body are freed now, and what they became when its request ends."""
        self._note_freed(num_bytes)
        if (request := asyncio.current_task()) is not None:  # aiohttp handles each request in a task of its own
            request.add_done_callback(lambda _: self._note_freed(num_bytes))

    def _note_freed(self, num_bytes: int) -> None:
        self._num_freed += num_bytes
        if self._num_freed > LARGE:
            self._num_freed = 0
            self._freed.note()


def _most_for(body: HeldBody, most: int) -> int:
    return most + most // OF_SMALL if body.is_small else most
