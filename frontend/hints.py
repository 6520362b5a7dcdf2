"""What the interpreter knows of shared prefixes and the runtime does not (section 6.4.1 of the SGLang paper).

A call that the program goes on after asks that its sequence be kept until then (`Run.follow_up`), and `tell_ended` says
when a program has ended. At a fork, the prefix that all children share is computed before any of them asks, and it is
held by a lease until each of them has come. Of a batch, what first prompts have in common is found as they come: from
the second program with the same beginning on, it is computed once and held. Nothing of the user's program runs for it.
"""

import asyncio
import weakref
from collections.abc import Callable
from contextlib import suppress

from ramet.frontend.backends.base import Backend
from ramet.frontend.prompt import EMPTY, Prompt, common_prefix
from ramet.ipc.errors import RametError

WORTH_CHARS = 64  # a shorter prefix costs less than a request of its own
MAX_HELD = 8  # prefixes of one batch at once
MAX_RECENT = 8  # first prompts that a new one is compared with
MAX_ENDED = 1000  # programs of one message


class Readers:
    """Gives a lease back when each of `num` readers has come. On the event loop."""

    def __init__(self, backend: Backend, prompt: Prompt, num: int) -> None:
        self._backend, self._prompt, self._num = backend, prompt, num
        self._giving_back: list[asyncio.Task[bool] | None] = []

    async def hold(self) -> bool:
        """Compute the prompt now. False: it is not held."""
        return await self._backend.prefix_holds.take(self._backend.hold, self._prompt, self._num)

    def arrived(self) -> None:
        self._giving_back.append(self._backend.prefix_holds.give_back(self._backend.hold, self._prompt))


async def hold_for(backend: Backend, prompt: Prompt, num: int) -> Callable[[], None] | None:
    """Compute the prompt and hold it for `num` readers; each of them calls what this returns. None: it is not held."""
    if num < 2 or not backend.capabilities.prefixes or prompt.num_chars < WORTH_CHARS:
        return None
    readers = Readers(backend, prompt, num)
    return readers.arrived if await readers.hold() else None


class Prefetched(Readers):
    """A prefix that is computed before its readers exist, while calls that they depend on still run (section 4.3.2)."""

    def __init__(self, backend: Backend, prompt: Prompt, num: int) -> None:
        super().__init__(backend, prompt, num)
        self._holding: asyncio.Task[bool] | None = None

    def begin(self) -> None:
        self._holding = asyncio.get_running_loop().create_task(self.hold())

    def arrived(self) -> None:
        """When it is held, or was refused."""
        assert self._holding is not None, "readers come after the prefetch has begun"
        self._holding.add_done_callback(self._give_back)

    def _give_back(self, holding: "asyncio.Task[bool]") -> None:
        if not holding.cancelled() and holding.result():
            super().arrived()


class EndedPrograms:
    """Tells a backend which programs have ended: at once, and while it listens those that follow are collected."""

    def __init__(self) -> None:
        self._programs: list[str] = []
        self._telling: asyncio.Task[None] | None = None

    def add(self, backend: Backend, program: str) -> None:
        self._programs.append(program)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell(backend))

    async def _tell(self, backend: Backend) -> None:
        while self._programs:
            programs, self._programs = self._programs[:MAX_ENDED], self._programs[MAX_ENDED:]
            with suppress(RametError):  # what it keeps ends by itself soon
                await backend.end(programs)


ENDED: "weakref.WeakKeyDictionary[Backend, EndedPrograms]" = weakref.WeakKeyDictionary()


def tell_ended(backend: Backend, program: str) -> None:
    """On the backend's event loop."""
    ENDED.setdefault(backend, EndedPrograms()).add(backend, program)


class SharedPrefix:
    """A prefix that several programs of a batch have; `held` becomes done when it is computed."""

    def __init__(self, prompt: Prompt, readers: Readers) -> None:
        self.prompt, self.readers = prompt, readers
        self.held = asyncio.get_running_loop().create_task(readers.hold())

    def is_prefix_of(self, prompt: Prompt) -> bool:
        return common_prefix(self.prompt, prompt).num_chars == self.prompt.num_chars

    def let_go(self) -> None:
        """When it is held; where that was refused, there is nothing to let go of."""
        self.held.add_done_callback(
            lambda held: self.readers.arrived() if not held.cancelled() and held.result() else None
        )


class SharedPrefixes:
    """The prefixes that the first prompts of a batch's programs have in common. For the backend's event loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._shared: list[SharedPrefix] = []  # the one that was used last is the last
        self._recent: list[Prompt] = []  # first prompts, the newest last

    async def before(self, prompt: Prompt) -> None:
        """Called with a program's first prompt. It returns when what it shares with others is computed."""
        if not self._backend.capabilities.prefixes:
            return
        held = [each for each in self._shared if each.is_prefix_of(prompt)]
        shared = max(held, key=lambda each: each.prompt.num_chars, default=None)
        common = max((common_prefix(other, prompt) for other in self._recent), key=_length, default=EMPTY)
        self._recent = [*self._recent[1 - MAX_RECENT :], prompt]
        if common.num_chars >= WORTH_CHARS + (shared.prompt.num_chars if shared else 0):
            shared = SharedPrefix(common, Readers(self._backend, common, 1))
            self._shared.append(shared)
            if len(self._shared) > MAX_HELD:
                self._shared.pop(0).let_go()
        if shared is not None:
            await self._use(shared)

    def end(self) -> None:
        """The batch is over: nothing is held any longer."""
        for shared in self._shared:
            shared.let_go()
        self._shared = []

    async def _use(self, shared: SharedPrefix) -> None:
        self._shared.remove(shared)
        self._shared.append(shared)
        if await asyncio.shield(shared.held):
            self._backend.prefix_holds.renew(self._backend.hold, shared.prompt)


def _length(prompt: Prompt) -> int:
    return prompt.num_chars
