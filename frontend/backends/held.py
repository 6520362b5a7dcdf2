"""Which prefixes a service holds for this process: each for as many readers as need it, and let go after the last.

A service knows a lease by its prefix, not by its owner, so two programs that hold the same one must share it here.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ramet.frontend.prompt import MediaPiece, Piece, Prompt
from ramet.ipc.errors import RametError

HELD_S = 60.0  # a reader that has not come by then finds the prefix only if memory was not short
MAX_KNOWN = 1000  # above that, those whose time is up are forgotten

Hold: TypeAlias = Callable[[Prompt, float], Awaitable[None]]  # Backend.hold
Key: TypeAlias = tuple[object, ...]


class HeldPrefix:
    """`num`: readers that are still to come. `until_s`: when the lease ends by itself; `kept_s`: not before then."""

    def __init__(self, holding: "asyncio.Task[bool]", now_s: float) -> None:
        self.holding, self.until_s, self.num, self.kept_s = holding, now_s + HELD_S, 0, 0.0


class HeldPrefixes:
    """For the backend's event loop."""

    def __init__(self) -> None:
        self._held: dict[Key, HeldPrefix] = {}

    async def take(self, hold: Hold, prompt: Prompt, num: int = 1) -> bool:
        """Compute the prompt, and hold it for `num` readers more. False: it was refused, and nobody needs to come."""
        held = self._renewed(hold, prompt)
        held.num += num
        is_held = await asyncio.shield(held.holding)
        if not is_held:
            held.num -= num
        return is_held

    def renew(self, hold: Hold, prompt: Prompt) -> None:
        """It is still used: its time begins again before it is up."""
        if _key(prompt) in self._held:
            self._renewed(hold, prompt)

    def give_back(self, hold: Hold, prompt: Prompt) -> "asyncio.Task[bool] | None":
        """A reader has come. Gives what ends the lease, if it was the last."""
        held = self._held.get(key := _key(prompt))
        if held is None:
            return None
        held.num -= 1
        if held.num > 0 or held.kept_s > time.monotonic():
            return None
        del self._held[key]
        return asyncio.get_running_loop().create_task(_quietly(hold, prompt, 0.0))

    async def keep(self, hold: Hold, prompt: Prompt, seconds: float) -> None:
        """Compute the prompt, and hold it for so long, whoever comes. Raises what `hold` does."""
        await hold(prompt, seconds)
        held = self._held.setdefault(_key(prompt), HeldPrefix(_done(), time.monotonic()))
        held.kept_s = max(held.kept_s, time.monotonic() + seconds)
        held.until_s = max(held.until_s, held.kept_s)

    def _renewed(self, hold: Hold, prompt: Prompt) -> HeldPrefix:
        now_s = time.monotonic()
        if len(self._held) > MAX_KNOWN:
            self._held = {key: held for key, held in self._held.items() if held.until_s > now_s}
        held = self._held.get(key := _key(prompt))
        if held is None or (held.holding.done() and not held.holding.result()):
            held = self._held[key] = HeldPrefix(_begun(hold, prompt), now_s)
        elif held.until_s - now_s < HELD_S / 2:
            held.holding, held.until_s = _begun(hold, prompt), now_s + HELD_S
        return held


def _begun(hold: Hold, prompt: Prompt) -> "asyncio.Task[bool]":
    return asyncio.get_running_loop().create_task(_quietly(hold, prompt, HELD_S))


def _done() -> "asyncio.Task[bool]":
    async def done() -> bool:
        return True

    return asyncio.get_running_loop().create_task(done())


async def _quietly(hold: Hold, prompt: Prompt, seconds: float) -> bool:
    """A hint that is refused costs nothing but itself: the calls say what is wrong, if anything is."""
    try:
        await hold(prompt, seconds)
    except RametError:
        return False
    return True


def _key(prompt: Prompt) -> Key:
    return tuple(map(_key_of, prompt.pieces()))


def _key_of(piece: Piece) -> object:
    return (piece.kind, piece.source, tuple(piece.options.items())) if isinstance(piece, MediaPiece) else piece
