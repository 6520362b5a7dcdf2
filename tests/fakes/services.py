"""Services for programs of the language, each in the hands of a test: answers wait until they are let go, or fail."""

import asyncio
import threading
from collections.abc import Callable

from ramet.frontend.backends.base import (
    Backend,
    CallFollowUp,
    Capabilities,
    Completion,
    GenCall,
    OnText,
    SelectCall,
    SelectedChoice,
)
from ramet.frontend.errors import BackendError
from ramet.frontend.prompt import Prompt


class Service(Backend):
    """Answers with `reply(prompt's text)`. A call whose prompt's text has a word of `held` waits for `let_go`."""

    name = "Service"

    def __init__(self, reply: Callable[[str], str] = lambda text: f"<{len(text)}>", **capabilities: object) -> None:
        self.capabilities = Capabilities(**capabilities)  # type: ignore[arg-type]
        self._reply = reply
        self.prompts: list[str] = []  # as calls arrived
        self.held_prefixes: list[tuple[str, bool]] = []  # text, and whether it is held or let go
        self.follow_ups: list[CallFollowUp | None] = []  # what is expected after each call
        self.ended: list[list[str]] = []  # programs of each message
        self.held: set[str] = set()
        self.failing: set[str] = set()
        self.num_running = self.most_running = 0
        self.arrived = threading.Condition()
        self._gates: list[asyncio.Event] = []

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        text = prompt.text()
        self.follow_ups.append(call.follow_up)
        await self._arrive(text)
        try:
            if any(word in text for word in self.failing):
                raise BackendError(self.name, "is out of order", 500)
            if any(word in text for word in self.held):
                gate = asyncio.Event()
                self._gates.append(gate)
                await gate.wait()
        finally:
            self.num_running -= 1
        outputs = [self._reply(text) for _ in range(call.num_samples)]
        if on_text is not None:
            for character in outputs[0]:
                on_text(character)
        return [Completion(each, {"finish_reason": {"type": "stop"}}) for each in outputs]

    async def select(self, prompt: Prompt, call: SelectCall) -> SelectedChoice:
        self.follow_ups.append(call.follow_up)
        await self._arrive(prompt.text())
        self.num_running -= 1
        return SelectedChoice(len(call.choices) - 1, {})

    async def hold(self, prompt: Prompt, seconds: float) -> None:
        self.held_prefixes.append((prompt.text(), seconds > 0))

    async def end(self, programs: list[str]) -> None:
        self.ended.append(programs)
        await asyncio.sleep(0)

    def let_go(self) -> None:
        """All calls that wait."""
        self.held.clear()
        self.loop.start(self._open()).result()

    def wait_for(self, num: int) -> None:
        """Until so many calls have arrived."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.prompts) >= num, timeout=30), self.prompts

    async def _arrive(self, text: str) -> None:
        with self.arrived:
            self.prompts.append(text)
            self.arrived.notify_all()
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        await asyncio.sleep(0)

    async def _open(self) -> None:
        for gate in self._gates:
            gate.set()
        self._gates.clear()
