"""An LLM in this process as a backend, on the engine's own event loop: calls are handed over as they were checked.

The only file of the language that knows the runtime, which is imported already where there is an LLM.
"""

import asyncio
from dataclasses import replace
from typing import Any

from ramet.frontend.backends import bodies
from ramet.frontend.backends.base import Backend, Completion, GenCall, OnText, SelectCall, SelectedChoice
from ramet.frontend.backends.chat import made
from ramet.frontend.prompt import Prompt
from ramet.ipc.loop_thread import LoopThread
from ramet.runtime.llm import LLM


def of_llm(value: Any) -> "InProcess | None":
    """None: it is no LLM."""
    return InProcess(value) if isinstance(value, LLM) else None


class InProcess(Backend):
    """Closing it is the LLM's own business."""

    name = "LLM"
    capabilities = bodies.CAPABILITIES

    def __init__(self, llm: LLM) -> None:
        self._calls, self._loop, self._flush, self._state = llm.engine_calls, llm.loop, llm.flush_cache, llm.state
        self._resolved = llm.resolved
        self.capabilities = replace(bodies.CAPABILITIES, media=frozenset(llm.placeholders))

    @property
    def loop(self) -> LoopThread:
        return self._loop

    @property
    def service(self) -> object:
        """Each run makes a backend of its LLM; all of these have its loop."""
        return self._loop

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        fields = await made(prompt, lambda: bodies.call_fields(bodies.segments(prompt), call))
        if on_text is None:
            outputs = await self._calls.generate(fields, call.sampling, call.follow_up)
            return [bodies.ended(self.name, Completion(each.text, each.meta, each.thought)) for each in outputs]
        growing = bodies.Growing(self.name, on_text, call.num_samples)
        async for new in self._calls.stream(fields, call.sampling, call.follow_up):
            growing.grow(new.sample, Completion(new.text, new.meta, new.thought))
        return growing.whole()

    async def select(self, prompt: Prompt, call: SelectCall) -> SelectedChoice:
        body = await made(prompt, lambda: bodies.select_body(bodies.segments(prompt), call))
        return bodies.selection(self.name, await self._calls.select(body), call)

    async def hold(self, prompt: Prompt, seconds: float) -> None:
        fields = await made(prompt, lambda: bodies.hold_fields(bodies.segments(prompt), seconds))
        await self._calls.generate(fields, bodies.NO_OUTPUT)

    async def end(self, programs: list[str]) -> None:
        self._calls.end(programs)

    async def render(self, prompt: Prompt) -> str:
        return await self._calls.render(await made(prompt, lambda: bodies.segments(prompt)))

    async def server_info(self) -> dict[str, Any]:
        """As a server's: the scheduler's counters are in `internal_states`."""
        return {**self._resolved, "internal_states": [await asyncio.to_thread(self._state)]}

    async def flush_cache(self) -> None:
        await asyncio.to_thread(self._flush)
