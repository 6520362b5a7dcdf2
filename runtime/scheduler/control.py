"""What the server may ask of the scheduler beside generating: one handler for each message. Decides no schedule."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ramet.ipc.channel import Outbox
from ramet.ipc.messages import (
    Control,
    ControlReply,
    DropAdapter,
    FlushCache,
    GetState,
    LoadAdapter,
    LocateSequence,
    Uid,
)
from ramet.runtime.scheduler.adapters import Adapters

Answer = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Flush:
    call: int
    deadline_s: float


class ControlHandler:
    """Answers control messages. A flush waits until the scheduler is idle, or fails at its deadline."""

    def __init__(
        self,
        server: Outbox,
        clock: Callable[[], float],
        *,
        state: Callable[[], Answer],
        where: Callable[[Uid], Answer | None],
        flush: Callable[[], None],
        adapters: Adapters,
    ) -> None:
        self._server, self._clock = server, clock
        self._state, self._where, self._flush = state, where, flush
        self._adapters = adapters
        self.flushes: list[_Flush] = []

    def handle(self, message: Control) -> None:
        match message:
            case GetState(call):
                self._reply(call, self._state())
            case LocateSequence(call, uid):
                found = self._where(uid)
                self._reply(call, found or {"error": "no such request"}, ok=found is not None)
            case FlushCache(call, timeout_s):
                self.flushes.append(_Flush(call, self._clock() + timeout_s))
            case LoadAdapter(call, generation, path, pinned):
                self._adapters.load(generation, path, pinned, partial(self._answer_load, call))
            case DropAdapter(call, generation):
                self._adapters.drop(generation)
                self._reply(call, {})

    def _answer_load(self, call: int, refusal: str) -> None:
        self._reply(call, {"error": refusal} if refusal else {}, ok=not refusal)

    def settle(self, idle: bool) -> None:
        """Once a turn while `flushes` wait: flush if nothing runs or waits, give up on flushes that are out of time."""
        if idle:
            self._flush()
            for waiting in self.flushes:
                self._reply(waiting.call, {"flushed": True})
            self.flushes.clear()
            return
        now = self._clock()
        for late in [f for f in self.flushes if f.deadline_s <= now]:
            self._reply(
                late.call, {"error": "requests are running or waiting; pass ?timeout=SECONDS to wait"}, ok=False
            )
            self.flushes.remove(late)

    def _reply(self, call: int, answer: Answer, ok: bool = True) -> None:
        self._server.send(ControlReply(call, ok, json.dumps(answer).encode()))
