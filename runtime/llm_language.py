"""The language's calls for programs in this process.

ProgramCalls takes and gives dictionaries, as a server's clients do, and decides on which event loop a call runs: on the
engine's, whichever one or which thread it is made on. EngineCalls is for who is there already, the language's backend.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, to_builtins

from ramet.ipc.loop_thread import LoopThread
from ramet.ipc.owned import NotCopied
from ramet.ipc.spec import FollowUp
from ramet.runtime.engine_client.submission import Submission
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.language import EndBody, LanguageGenerateBody, RenderBody, SelectBody
from ramet.runtime.intake.programs import plain
from ramet.runtime.intake.prompts import new_id
from ramet.runtime.intake.reply import made_in_turn, meta_in_turn
from ramet.runtime.language.calls import LanguageCalls
from ramet.runtime.language.replies import Ended, LanguageOutput, LanguageReply

T = TypeVar("T")
B = TypeVar("B", bound=Struct)
Body = dict[str, Any]
Reply = dict[str, Any]


class ProgramCalls(NotCopied):
    """`generate`, `stream`, `select`, `render` and `end` are for any event loop; `wait` is for threads without one.

    reply = await llm.language.generate({"prompt": ["Once upon a time"]})
    reply = llm.language.wait(llm.language.generate({"prompt": ["Once upon a time"]}))
    """

    only_one = "its engine belongs to one LLM; take llm.language wherever it is needed"

    def __init__(self, calls: LanguageCalls, loop: LoopThread) -> None:
        """`loop`: the engine's."""
        self._calls, self._loop = calls, loop

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """What a call of this object returns, on a thread that runs no event loop."""
        return self._loop.run(call)

    async def generate(self, body: Body) -> Reply | list[Reply]:
        """A reply of /language/generate, or a list of them for n > 1. Raises what ended the request."""
        return await self._elsewhere(self._generate(_read(body, LanguageGenerateBody)))

    async def stream(self, body: Body) -> AsyncIterator[Reply]:
        """Events of /language/generate: what is new. Leaving the loop early aborts the request."""
        stream = LanguageStream(self._calls, _read(body, LanguageGenerateBody))
        try:
            while replies := await self._elsewhere(stream.next()):
                for reply in replies:
                    yield reply
        finally:
            self._loop.soon(stream.leave)

    async def select(self, body: Body) -> Reply:
        """A reply of /language/select."""
        read = _read(body, SelectBody)
        found: Reply = to_builtins(await self._elsewhere(self._calls.select(read, read.rid or new_id())))
        return found

    async def render(self, body: Body) -> Reply:
        """A reply of /language/render."""
        found: Reply = to_builtins(await self._elsewhere(self._calls.render(_read(body, RenderBody))))
        return found

    async def end(self, body: Body) -> Reply:
        """A reply of /language/end."""
        read = _read(body, EndBody)

        async def end() -> Ended:
            return self._calls.end(read)

        found: Reply = to_builtins(await self._elsewhere(end()))
        return found

    async def _elsewhere(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._loop.start(coroutine))

    async def _generate(self, body: LanguageGenerateBody) -> Reply | list[Reply]:
        made = await self._calls.generate(body, body.rid or new_id())
        return [await made_in_turn(each) for each in made] if isinstance(made, list) else await made_in_turn(made)


class ProgramOutput(NamedTuple):
    """An output, or what is new of it in a stream. `meta`: the `meta_info` of a reply of /language/generate."""

    text: str
    thought: str | None
    meta: dict[str, Any]
    sample: int
    output_ids: Sequence[int]
    prompt_ids: Sequence[int]  # empty unless `return_prompt_token_ids` asks for them


class EngineCalls(NotCopied):
    """The language's calls on the engine's event loop: what a program has checked is not read again."""

    only_one = "its engine belongs to one LLM; share the backend among threads"

    def __init__(self, calls: LanguageCalls) -> None:
        self._calls = calls

    async def generate(
        self, fields: Body, sampling: Mapping[str, Any], follow_up: tuple[str, int, str] | None = None
    ) -> list[ProgramOutput]:
        """One output for each sample. Raises what ended the request.

        `fields`: of /language/generate; `sampling`: parameters by the names of ipc/params.py, as its checks give them;
        `follow_up`: program, state and kind.
        """
        rid = new_id()
        with self._calls.open(streaming=False, rid=rid) as submission:
            outputs = await self._start(submission, fields, sampling, follow_up, rid)
            await submission.finished()
            replies = [output.new() for output in outputs]
        return [await _read_output(reply) for reply in replies]

    async def stream(
        self, fields: Body, sampling: Mapping[str, Any], follow_up: tuple[str, int, str] | None = None
    ) -> AsyncIterator[ProgramOutput]:
        """The output as it grows: what is new."""
        with self._calls.open(streaming=True) as submission:
            outputs = await self._start(submission, fields, sampling, follow_up, new_id())
            while fresh := await submission.next():
                for each in fresh:
                    yield await _read_output(outputs[each.index].new())

    async def select(self, body: Body) -> Reply:
        """A reply of /language/select."""
        found: Reply = to_builtins(await self._calls.select(_read(body, SelectBody), new_id()))
        return found

    async def render(self, prompt: list[Any]) -> str:
        return (await self._calls.render(_read({"prompt": prompt}, RenderBody))).text

    def end(self, programs: list[str]) -> None:
        self._calls.end(EndBody(programs=programs))

    async def _start(
        self,
        submission: Submission,
        fields: Body,
        sampling: Mapping[str, Any],
        follow_up: tuple[str, int, str] | None,
        rid: str,
    ) -> list[LanguageOutput]:
        if "custom_params" in sampling:
            sampling = {**sampling, "custom_params": plain("body", sampling["custom_params"])}
        expected = None if follow_up is None else FollowUp(*follow_up)
        fields = plain("body", fields) if len(fields) > 1 else fields  # a prompt by itself is texts and lists
        return await self._calls.start_call(submission, fields, sampling, expected, rid)


async def _read_output(reply: LanguageReply) -> ProgramOutput:
    meta = await meta_in_turn(reply.meta_info)
    prompt_ids = reply.prompt_token_ids or ()
    return ProgramOutput(reply.text, reply.reasoning or None, meta, reply.index or 0, reply.output_ids, prompt_ids)


class LanguageStream(NotCopied):
    """One request's replies as they grow; it is sent with the first `next`. For the engine's event loop."""

    only_one = "it is one request that runs; ask once more"

    def __init__(self, calls: LanguageCalls, body: LanguageGenerateBody) -> None:
        self._calls, self._body = calls, body
        self._block = ExitStack()
        self._submission: Submission | None = None
        self._outputs: list[LanguageOutput] = []

    async def next(self) -> list[Reply]:
        """One for each sequence that has something new; [] at the end."""
        if self._submission is None:
            self._submission = self._block.enter_context(self._calls.open(streaming=True))
            rid = self._body.rid or new_id()
            self._outputs = await self._calls.start(self._submission, self._body, rid)
        fresh: list[LanguageReply] = [self._outputs[each.index].new() for each in await self._submission.next()]
        return [await made_in_turn(reply) for reply in fresh]

    def leave(self) -> None:
        """What has not ended is aborted."""
        self._block.close()


def _read(body: Body, type_: type[B]) -> B:
    return convert(plain("body", body), type_)
