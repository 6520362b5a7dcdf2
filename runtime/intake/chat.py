"""A chat in and out: messages and tools to a prompt's ids, an output's text to thoughts, text and tool calls.

Decides which parsers read an output and what a chat may ask of them. Knows no client's shapes: chat completions,
responses and Anthropic messages all speak through here, in OpenAI's messages.
"""

from collections.abc import Sized
from itertools import groupby
from typing import Any, NamedTuple

import orjson
from msgspec.structs import asdict, replace

from ramet.ipc.messages import Chat, Finish, FinishKind, RenderReply
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.config import Args
from ramet.runtime.engine_client.handle import EngineHandle
from ramet.runtime.engine_client.submission import Sequence, Submission
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.parsers.reasoning import ReasoningParser, detect_reasoning, make_reasoning, reasoning_style
from ramet.runtime.intake.parsers.tools import (
    CallArguments,
    CallStart,
    Event,
    ToolParser,
    detect_tools,
    make_tool_parser,
    tool_parser_class,
)
from ramet.runtime.text.template_files import read_templates

MAX_TURNS = 1 << 14  # messages, items or content blocks: each costs time before any token is counted
MAX_TOOLS = 1 << 10
AT_ONCE = 256  # tokens of a whole reply that are read, or told with log-probabilities, before others are served
NOT_FORCED = "needs constrained decoding, which is not built yet"


class Style(NamedTuple):
    """How the model writes: names of parsers, None where it has no such thing."""

    tools: str | None = None
    reasoning: str | None = None
    has_template: bool = False  # chats can be rendered
    tells_tools: bool = True  # the template shows the model what it may call

    @property
    def resolved(self) -> dict[str, str]:
        """What the options about it came to."""
        return {"tool_call_parser": self.tools or "none", "reasoning_parser": self.reasoning or "none"}

    @property
    def line(self) -> str:
        """For the log."""
        if not self.has_template:
            return "Chats: refused, for there is no chat template (--chat-template)"
        return f"Chats: tool calls are read as {self.tools or 'none'}, reasoning as {self.reasoning or 'none'}"


def style_of(args: Args) -> Style:
    """What the options say, or else the chat template. Raises ConfigError for a name that nobody knows."""
    sources = read_templates(args.tokenizer_folder, args.model.chat_template)
    texts = [text for text in (sources.of(True), sources.of(False)) if text]
    found = Style(
        _chosen(args.model.tool_call_parser, [detect_tools(text) for text in texts]),
        _chosen(args.model.reasoning_parser, [detect_reasoning(text) for text in texts]),
        has_template=sources.of(False) is not None,
        tells_tools=not texts or any("tools" in text for text in texts),
    )
    if found.tools is not None:
        tool_parser_class(found.tools)
    if found.reasoning is not None:
        reasoning_style(found.reasoning)
    return found


def _chosen(option: str, detected: list[str | None]) -> str | None:
    match option:
        case "none":
            return None
        case "auto":
            return next((name for name in detected if name is not None), None)
        case _:
            return option


class Thought(NamedTuple):
    text: str


Part = Event | Thought


def refuse_without_parser(tools: Sized, style: Style) -> None:
    """Tools whose calls nobody would find are refused, not ignored."""
    if tools and style.tools is None:
        hint = "--tool-call-parser says how the model writes calls, --chat-template how it is told of tools"
        raise ClientError("tools", "are set, but this model's chat template shows no way to call them", hint)
    if tools and not style.tells_tools:
        raise ClientError("tools", "are set, but this model's chat template does not speak of them", "--chat-template")


class Reading(NamedTuple):
    """How the outputs of one chat are read."""

    style: Style
    tail: str = ""  # of the prompt
    continued: str | None = None  # the text of the turn that the output goes on with; None: it begins a turn
    tools: frozenset[str] = frozenset()  # names; empty: calls are text
    parallel: bool = True  # more than one call is told


class Prepared(NamedTuple):
    """A chat that can be sent."""

    ids: bytes  # packed int32
    spec: RequestSpec
    reading: Reading


async def prepare(
    client: EngineHandle,
    submission: Submission,
    style: Style,
    chat: Chat,
    spec: RequestSpec,
    *,
    place: str = "messages",
    parallel: bool = True,
    as_shown: bool = False,
) -> Prepared:
    """Render a chat and choose what reads its outputs. Raises ClientError, or what ended the submission meanwhile.

    `as_shown`: the client said itself which special tokens the text has. `place`: the field that holds the chat.
    """
    rendered = await submission.during(render(client, chat, place))
    names = frozenset(tool["function"]["name"] for tool in chat.tools or ())
    continued = _text(chat.messages[-1]) if chat.continue_final_message else None
    reading = Reading(style, rendered.tail, continued, names, parallel)
    if not as_shown:
        spec = replace(spec, params=_showing(spec.params, reading))
    return Prepared(rendered.ids, spec, reading)


def refuse_aborted(finish: Finish) -> None:
    """For replies that have no word for an end on somebody's word: it is an error."""
    if finish.aborted:
        raise ClientError("", f"The request was ended before it was done: {finish.message}", code="aborted")


def _text(message: Any) -> str:
    """Of a message as the client wrote it."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def check_most(place: str, unit: str, number: int, most: int) -> None:
    if number > most:
        raise ClientError(place, f"has {number} {unit}, must have at most {most}")


async def render(client: EngineHandle, chat: Chat, place: str = "messages") -> RenderReply:
    """The chat as its prompt. Raises ClientError. `place`: the field that the client wrote the chat in."""
    check_most(place, "messages", len(chat.messages), MAX_TURNS)
    check_most("tools", "entries", len(chat.tools or ()), MAX_TOOLS)
    try:
        written = orjson.dumps(asdict(chat))
    except (orjson.JSONEncodeError, TypeError) as error:
        raise ClientError(place, f"cannot be written as JSON: {error}") from None
    try:
        return await client.render(written)
    except ClientError as error:
        if place != "messages" and error.place.startswith("messages"):  # which of these was made of what, nobody knows
            raise error.at(place) from None
        raise


def _showing(params: SamplingParams, reading: Reading) -> SamplingParams:
    """With the special tokens in the text that the parsers look for."""
    style = reading.style
    calls = bool(reading.tools) and style.tools is not None and tool_parser_class(style.tools).shows_special
    thoughts = style.reasoning is not None and reasoning_style(style.reasoning).shows_special
    if not (calls or thoughts):
        return params
    return replace(params, skip_special_tokens=False, spaces_between_special_tokens=False)


class Reader:
    """The output of one sequence, read token by token."""

    def __init__(self, reading: Reading) -> None:
        style = reading.style
        self._thoughts: ReasoningParser | None = (
            make_reasoning(style.reasoning, reading.tail, reading.continued) if style.reasoning else None
        )
        self._tools: ToolParser | None = (
            make_tool_parser(style.tools, reading.tools) if style.tools and reading.tools else None
        )
        self._parallel, self._full = reading.parallel, False
        self.plain = self._thoughts is None and self._tools is None  # text passes as it is
        self._within = 0  # tokens until the answer began
        self._thought = False
        self.num_calls = 0

    @property
    def reasoning_tokens(self) -> int:
        """Those of the thought and its tags; none where there was no thought."""
        return self._within if self._thought else 0

    @property
    def thinking(self) -> bool:
        """Inside a thought, or it is not yet decided whether there is one."""
        return self._thoughts is not None and self._thoughts.thinking

    def push(self, text: str) -> list[Part]:
        """One token's text."""
        thoughts = self._thoughts
        if thoughts is None:
            return self._read(text) if text else []
        if thoughts.thinking:
            self._within += 1
        return self._divided(*thoughts.push(text)) if text else []

    def close(self, tail: str) -> list[Part]:
        """`tail`: text that only the end made certain."""
        parts: list[Part] = []
        if self._thoughts is not None:
            parts += self._divided(*self._thoughts.push(tail)) if tail else []
            parts += self._divided(*self._thoughts.close())
        elif tail:
            parts += self._read(tail)
        if self._tools is not None:
            parts += self._kept(self._tools.close())
        return parts

    def new_call_id(self) -> str:
        return self._tools.new_id() if self._tools is not None else ""

    def reason(self, finish: Finish) -> str:
        """Of its end, in OpenAI's words."""
        return "tool_calls" if self.num_calls and finish.kind is FinishKind.STOP else finish.kind.value

    def _divided(self, thought: str, text: str) -> list[Part]:
        self._thought = self._thought or thought != ""
        return [*([Thought(thought)] if thought else []), *(self._read(text) if text else [])]

    def _read(self, text: str) -> list[Part]:
        return [text] if self._tools is None else self._kept(self._tools.push(text))

    def _kept(self, events: list[Event]) -> list[Part]:
        """Without all that comes from a second call on, where one alone is told."""
        kept: list[Part] = []
        for event in events:
            if isinstance(event, CallStart):
                self._full = self._full or (self.num_calls > 0 and not self._parallel)
                self.num_calls += not self._full
            if not self._full:
                kept.append(event)
        return kept


class Call(NamedTuple):
    id: str
    name: str
    arguments: str  # JSON


class Said(NamedTuple):
    """A whole output in its parts."""

    text: str
    thought: str
    calls: list[Call]


def read_parts(sequence: Sequence, reader: Reader) -> list[Part]:
    """All that a sequence said that has ended; no two texts, thoughts or arguments follow each other."""
    texts, _ = sequence.take()
    parts = [part for text in texts for part in reader.push(text)] + reader.close(sequence.tail)
    merged: list[Part] = []
    for kind, group in groupby(parts, type):
        if kind is CallStart:
            merged += group
        else:
            merged.append(_joined(list(group)))
    return merged


def _joined(parts: list[Part]) -> Part:
    """Parts of one kind as one: joined once, for adding up thousands of pieces copies each of them as often."""
    first = parts[0]
    if isinstance(first, str):
        return "".join([part for part in parts if isinstance(part, str)])
    text = "".join([part.text for part in parts if isinstance(part, Thought | CallArguments)])
    return Thought(text) if isinstance(first, Thought) else CallArguments(text)


def joined(parts: list[Part], reader: Reader) -> Said:
    text, thought, heads, arguments = "", "", list[str](), list[str]()
    for part in parts:
        match part:
            case str():
                text += part
            case Thought():
                thought += part.text
            case CallStart():
                heads.append(part.name)
                arguments.append("")
            case CallArguments():
                arguments[-1] += part.text
    calls = [Call(reader.new_call_id(), name, said) for name, said in zip(heads, arguments, strict=True)]
    return Said(text, thought, calls)
