"""The language's calls on the engine's handle, for the server and for programs alike: generate, select and render.

Decides how a prompt is sent, and what reads its outputs. Runs on the handle's event loop.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from ramet.ipc.content import Content
from ramet.ipc.media import Prepared
from ramet.ipc.messages import Segment, unpack_ids
from ramet.ipc.params import check_lengths, shown
from ramet.ipc.spec import FollowUp, RequestSpec
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.places import PARAMS, FieldPlaces
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import Submission
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.calls import CallDefaults, make_prompts
from ramet.runtime.intake.chat import Style, thoughts_apart
from ramet.runtime.intake.language import (
    TAIL_CHARS,
    EndBody,
    LanguageGenerateBody,
    RenderBody,
    SelectBody,
    continued_text,
    follow_up_of,
    read_prompt,
)
from ramet.runtime.intake.parsers.reasoning import reasoning_names
from ramet.runtime.intake.reading import OutputReader
from ramet.runtime.language.replies import Ended, LanguageOutput, LanguageReply, RenderedPrompt, SelectReply
from ramet.runtime.language.selection import ChoiceScoring
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.workers.offload import offloaded

PLACES = FieldPlaces("prompt", "", {PARAMS: PARAMS})  # of the fields of a call


class LanguageCall(NamedTuple):
    """One call of generate, read and checked. What rendering makes of the segments becomes the prompt's content."""

    segments: list[Segment]
    sources: tuple[GivenMedia, ...]
    prompt: Prompt
    heals: bool  # the end of the prompt is chosen again, where the renderer finds that it may be
    reasoning: str | None  # the parser that takes thoughts out of the text; None: they stay in it


class LanguageCalls:
    """`defaults` and `style` are those of the served model."""

    def __init__(self, client: EngineClient, defaults: CallDefaults, style: Style) -> None:
        self._client, self._defaults, self._style = client, defaults, style

    def open(self, streaming: bool, rid: str = "") -> AbstractContextManager[Submission]:
        """As the handle's."""
        return self._client.open(streaming, rid=rid)

    async def start(self, submission: Submission, body: LanguageGenerateBody, rid: str) -> list[LanguageOutput]:
        """Reads a body, and sends what it asks for; its outputs, one for each sample. Raises ClientError."""
        segments, sources = await offloaded(partial(read_prompt, body.prompt, self._client.limits.media))
        reasoning = self._reasoning(body)
        # what is wrong with the parameters is said before anything is rendered
        [prompt] = make_prompts(body, [("prompt", Content(ids=b""))], False, [rid], self._defaults)
        prompt = prompt._replace(spec=replace(prompt.spec, follow_up=follow_up_of(body)))
        return await self.send(
            submission, LanguageCall(segments, sources, prompt, body.token_healing is None, reasoning)
        )

    async def start_call(
        self,
        submission: Submission,
        fields: dict[str, Any],
        sampling: Mapping[str, Any],
        follow_up: FollowUp | None,
        rid: str,
    ) -> list[LanguageOutput]:
        """Sends what a program in this process asks for: nothing that it has checked already is read again.

        `fields`: of /language/generate, without `sampling`, which has been checked by ipc/params.py, and `follow_up`.
        Raises ClientError.
        """
        body = convert(fields, LanguageGenerateBody)
        segments, sources = read_prompt(body.prompt, self._client.limits.media)
        reasoning = self._reasoning(body)
        params = replace(self._defaults.params, **sampling)
        check_lengths(f"{PARAMS}.min_new_tokens", params.min_new_tokens, params.max_new_tokens)
        if fields.keys() == {"prompt"}:
            prompt = Prompt(rid, RequestSpec(params, follow_up=follow_up), places=PLACES)
        else:
            defaults = self._defaults._replace(params=params)
            [prompt] = make_prompts(body, [("prompt", Content(ids=b""))], False, [rid], defaults)
            prompt = prompt._replace(spec=replace(prompt.spec, follow_up=follow_up))
        return await self.send(
            submission, LanguageCall(segments, sources, prompt, body.token_healing is None, reasoning)
        )

    async def send(self, submission: Submission, call: LanguageCall) -> list[LanguageOutput]:
        """Renders and sends the prompt. Raises ClientError."""
        media = await self._prepared(call.sources, submission)
        rendered = await submission.during(self._client.text.render_prompt(call.segments, media))
        spec = call.prompt.spec
        if call.heals and rendered.may_heal:
            spec = replace(spec, token_healing=True)
        reading = None
        if call.reasoning is not None:
            continued = continued_text(call.segments, rendered.text)
            spec, reading = thoughts_apart(spec, call.reasoning, rendered.text[-TAIL_CHARS:], continued)
        content = Content(ids=rendered.ids, contexts=rendered.contexts, media=media)
        self._client.send([call.prompt._replace(spec=spec, content=content)], submission)
        several = len(submission.sequences) > 1
        return [
            LanguageOutput(
                sequence, sequence.index if several else UNSET, OutputReader(reading) if reading is not None else None
            )
            for sequence in submission.sequences
        ]

    async def generate(self, body: LanguageGenerateBody, rid: str) -> LanguageReply | list[LanguageReply]:
        """One reply, or a list of them for n > 1. Raises what ended the request."""
        with self.open(streaming=False, rid=rid) as submission:
            outputs = await self.start(submission, body, rid)
            await submission.finished()
            replies = [output.new() for output in outputs]
        return replies if len(replies) > 1 else replies[0]

    async def select(self, body: SelectBody, rid: str) -> SelectReply:
        """Raises what ended one of its sequences."""
        segments, sources = await offloaded(partial(read_prompt, body.prompt, self._client.limits.media))
        with self.open(streaming=False, rid=rid) as submission:
            media = await self._prepared(sources, submission)
            asked = self._client.text.render_choices(segments, body.choices, body.healed, media)
            tokens = await submission.during(asked)
            making = partial(ChoiceScoring, body, rid, tokens, self._client.limits.context_length, media)
            selection = await offloaded(making)
            done = await self._client.run_in_turn(selection.prompts, submission)
            return await offloaded(partial(selection.reply, done))

    async def render(self, body: RenderBody) -> RenderedPrompt:
        """Media are not looked at: their placeholders are shown. Raises ClientError."""
        segments, _ = await offloaded(partial(read_prompt, body.prompt, self._client.limits.media))
        with self.open(streaming=False) as submission:
            rendered = await submission.during(self._client.text.render_prompt(segments))
        return RenderedPrompt(rendered.text, len(unpack_ids(rendered.ids)))

    def end(self, body: EndBody) -> Ended:
        """Nothing waits for it: what was kept for them ends with the scheduler's next turn."""
        self._client.end_programs(body.programs)
        return Ended(len(body.programs))

    async def _prepared(self, sources: tuple[GivenMedia, ...], submission: Submission) -> tuple[Prepared, ...]:
        """Raises ClientError."""
        if not sources:
            return ()
        return await submission.during(self._client.preparing(submission).of_prompt(sources))

    def _reasoning(self, body: LanguageGenerateBody) -> str | None:
        """The parser that separates thoughts; None where none is asked for. Raises ClientError."""
        name = body.reasoning_parser
        if name is not None and name not in reasoning_names():
            raise ClientError("reasoning_parser", f"is {shown(name)}, must be one of {', '.join(reasoning_names())}")
        if not body.separate_reasoning:
            return None
        if name is None and self._style.reasoning is None:
            fact = "is True, but how this model marks its thoughts is not known"
            raise ClientError("separate_reasoning", fact, "send reasoning_parser, or start with --reasoning-parser")
        return name or self._style.reasoning
