"""What the server may ask of the scheduler beside generating: a handler for each type of message. Decides nothing."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ramet.ipc.channel import Outbox
from ramet.ipc.control import Control, ControlReply, FlushCache, SetLogLevel
from ramet.runtime import log

Answer = dict[str, object] | msgspec.Struct
M = TypeVar("M", bound=Control)


@dataclass(frozen=True, slots=True)
class _Flush:
    call: int
    deadline_s: float


class ControlHandler:
    """Gives each control message to the part that registered for its type (`on`), which answers with `reply`.

    A flush waits until the scheduler is idle, or fails at its deadline; its reply waits until memory is free. Within
    `excused()` no step is expected, whatever waits: a handler that takes long, as one that reads weights, does that in
    such a block.
    """

    def __init__(self, server: Outbox, clock: Callable[[], float], flush: Callable[[], None]) -> None:
        self._server, self._clock, self.flush = server, clock, flush
        self._handlers: dict[type[Any], Callable[[Any], None]] = {}
        self.flushes: list[_Flush] = []
        self.flushed: list[int] = []  # calls, whose replies wait for the memory of what was forgotten
        self.excused: Callable[[], AbstractContextManager[None]] = nullcontext
        self.on(FlushCache, self._flush_later)
        self.on(SetLogLevel, self._set_log_level)

    def on(self, kind: type[M], handler: Callable[[M], None]) -> None:
        """`handler` gets every message of this type, now or later it calls `reply` with the message's call."""
        assert kind not in self._handlers, f"{kind.__name__} has a handler"
        self._handlers[kind] = handler

    def handle(self, message: Control) -> None:
        self._handlers[type(message)](message)

    def reply(self, call: int, answer: Answer, ok: bool = True) -> None:
        self._server.send(ControlReply(call, ok, msgspec.json.encode(answer)))

    def _set_log_level(self, message: SetLogLevel) -> None:
        log.set_level(message.level)
        self.reply(message.call, {})

    def _flush_later(self, message: FlushCache) -> None:
        self.flushes.append(_Flush(message.call, self._clock() + message.timeout_s))

    @property
    def wait_s(self) -> float:
        """Until the first of the flushes that wait gives up; there is one."""
        return max(0.0, min(each.deadline_s for each in self.flushes) - self._clock())

    def settle(self, idle: bool) -> None:
        """Once a turn while `flushes` wait: flush if nothing runs or is about to (`idle`), give up on flushes that are
        out of time.
        """
        if idle:
            self.flush()
            self.flushed += [waiting.call for waiting in self.flushes]
            self.flushes.clear()
            return
        now = self._clock()
        for late in [f for f in self.flushes if f.deadline_s <= now]:
            self.reply(late.call, {"error": "requests are running or waiting; pass ?timeout=SECONDS to wait"}, ok=False)
            self.flushes.remove(late)

    def reply_flushed(self) -> None:
        """The memory of what was forgotten is free."""
        for call in self.flushed:
            self.reply(call, {"flushed": True})
        self.flushed.clear()
