"""What the interpreter knows of shared prefixes and the runtime does not (section 6.4.1 of the SGLang paper).

A call that the program goes on after asks that its sequence be kept until then (`Run.follow_up`), and `tell_ended` says
when a program has ended. At a fork, the prefix that all children share is computed before any of them asks, and it is
held by a lease until each of them has come. Of a batch, what first prompts have in common is found as they come: from
the second program with the same beginning on, it is computed once and held. Nothing of the user's program runs for it.
"""

import asyncio
import time
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
HELD_S = 60.0  # a reader that has not come by then finds the prefix only if memory was not short


class Readers:
    """Ends a lease when the last of `num` readers has come."""

    def __init__(self, backend: Backend, prompt: Prompt, num: int) -> None:
        self._backend, self._prompt, self._left = backend, prompt, num
        self._ending: asyncio.Task[bool] | None = None

    def came(self) -> None:
        """On the event loop."""
        self._left -= 1
        if self._left == 0:
            self._ending = asyncio.get_running_loop().create_task(_quietly(self._backend, self._prompt, 0.0))


class Prefetched(Readers):
    """A prefix that is computed before its readers exist, while calls that they depend on still run (section 4.3.2)."""

    def __init__(self, backend: Backend, prompt: Prompt, num: int) -> None:
        super().__init__(backend, prompt, num)
        self._holding: asyncio.Task[bool] | None = None

    def begin(self) -> None:
        """On the event loop."""
        self._holding = asyncio.get_running_loop().create_task(_quietly(self._backend, self._prompt, HELD_S))


async def hold_for(backend: Backend, prompt: Prompt, num: int) -> Callable[[], None] | None:
    """Compute the prompt and hold it for `num` readers; each of them calls what this returns. None: it is not held."""
    if num < 2 or not backend.capabilities.prefixes or prompt.num_chars < WORTH_CHARS:
        return None
    if not await _quietly(backend, prompt, HELD_S):
        return None
    return Readers(backend, prompt, num).came


async def _quietly(backend: Backend, prompt: Prompt, seconds: float) -> bool:
    """A hint that is refused costs nothing but itself: the calls say what is wrong, if anything is."""
    try:
        await backend.hold(prompt, seconds)
    except RametError:
        return False
    return True


class Ended:
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


ENDED: "weakref.WeakKeyDictionary[Backend, Ended]" = weakref.WeakKeyDictionary()


def tell_ended(backend: Backend, program: str) -> None:
    """On the backend's event loop."""
    ENDED.setdefault(backend, Ended()).add(backend, program)


class Shared:
    """A prefix that several programs of a batch have; `held` becomes done when it is computed."""

    def __init__(self, prompt: Prompt, held: "asyncio.Task[bool]") -> None:
        self.prompt, self.held, self.since_s = prompt, held, time.monotonic()

    def begins(self, prompt: Prompt) -> bool:
        return common_prefix(self.prompt, prompt).num_chars == self.prompt.num_chars


class SharedPrefixes:
    """The prefixes that the first prompts of a batch's programs have in common. For the backend's event loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._shared: list[Shared] = []  # the one that was used last is the last
        self._recent: list[Prompt] = []  # first prompts, the newest last
        self._tasks: set[asyncio.Task[bool]] = set()

    async def before(self, prompt: Prompt) -> None:
        """Called with a program's first prompt. It returns when what it shares with others is computed."""
        if not self._backend.capabilities.prefixes:
            return
        shared = max(
            (each for each in self._shared if each.begins(prompt)), key=lambda each: each.prompt.num_chars, default=None
        )
        common = max((common_prefix(other, prompt) for other in self._recent), key=_length, default=EMPTY)
        self._recent = [*self._recent[1 - MAX_RECENT :], prompt]
        if common.num_chars >= WORTH_CHARS + (shared.prompt.num_chars if shared else 0):
            shared = Shared(common, self._hold(common, HELD_S))
            self._shared.append(shared)
            if len(self._shared) > MAX_HELD:
                self._let_go(self._shared.pop(0))
        if shared is not None:
            self._use(shared)
            await asyncio.shield(shared.held)

    def end(self) -> None:
        """The batch is over: nothing is held any longer."""
        for shared in self._shared:
            self._let_go(shared)
        self._shared = []

    def _use(self, shared: Shared) -> None:
        self._shared.remove(shared)
        self._shared.append(shared)
        if time.monotonic() - shared.since_s > HELD_S / 2:
            shared.since_s = time.monotonic()
            self._hold(shared.prompt, HELD_S)

    def _let_go(self, shared: Shared) -> None:
        """When it is held; where that was refused, there is nothing to let go of."""

        def is_done(held: "asyncio.Task[bool]") -> None:
            if not held.cancelled() and held.result():
                self._hold(shared.prompt, 0.0)

        shared.held.add_done_callback(is_done)

    def _hold(self, prompt: Prompt, seconds: float) -> "asyncio.Task[bool]":
        task = asyncio.get_running_loop().create_task(_quietly(self._backend, prompt, seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _length(prompt: Prompt) -> int:
    return prompt.num_chars
