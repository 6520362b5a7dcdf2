"""A chat of OpenAI's messages to a prompt's ids: what its template gets, which tools it has, what reads its outputs."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import orjson
from msgspec.structs import asdict, replace

from ramet.ipc.content import Content
from ramet.ipc.media import MediaTokens
from ramet.ipc.messages import Chat, RenderReply
from ramet.ipc.params import SamplingParams, shown
from ramet.ipc.spec import Constraint, ConstraintKind, RequestSpec
from ramet.runtime.config import Args
from ramet.runtime.engine_client.media import NO_MEDIA, Preparing
from ramet.runtime.engine_client.places import OF_OPENAI, FieldPlaces
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.exact_json import MAX_EXPONENT, has_no_number, may_round
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.body_items import ItemCount, check_numbers
from ramet.runtime.intake.constraints import beginning_after
from ramet.runtime.intake.limits import MAX_ARGUMENT_ITEMS, MAX_TOOLS, MAX_TURNS
from ramet.runtime.intake.media import taken_out
from ramet.runtime.intake.messages import NamedChoice, TemplateFields
from ramet.runtime.intake.parsers.reasoning import detect_reasoning, reasoning_style, thought_of
from ramet.runtime.intake.parsers.tools import GPT_OSS, detect_tools, tool_parser_class
from ramet.runtime.intake.prompts import check_most
from ramet.runtime.intake.reading import Reading, Thoughts
from ramet.runtime.intake.tool_choice import CallRules, Keeping, held_to, read_choice
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.text.template_files import read_templates

OF_ALL = (ConstraintKind.REGEX, ConstraintKind.JSON_SCHEMA, ConstraintKind.EBNF)  # which say each character
_BEGIN = b'{"messages":['  # of a chat's JSON
SPELLED = (ConstraintKind.REGEX, ConstraintKind.JSON_SCHEMA)  # which allow no control token: a tag is its characters

MAX_BITS = 64  # of an integer that orjson writes: a negative one has 63

Render = Callable[[bytes, bool, bool], Awaitable[RenderReply]]  # of a Chat as JSON: EngineClient.render


class Style(NamedTuple):
    """How the model writes: names of parsers, None where it has no such thing."""

    tools: str | None = None
    reasoning: str | None = None
    has_template: bool = False  # chats can be rendered
    shows_tools: bool = True  # the template shows the model what it may call

    @property
    def has_channels(self) -> bool:
        return self.reasoning is not None and reasoning_style(self.reasoning).channels

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
    """What the options say, or else the chat template. Raises ConfigError for an unknown name."""
    sources = read_templates(args.tokenizer_folder, args.model.chat_template)
    texts = [text for text in (sources.of(True), sources.of(False)) if text]
    tools = _chosen(args.model.tool_call_parser, texts, detect_tools, tool_parser_class)
    reasoning = _chosen(args.model.reasoning_parser, texts, detect_reasoning, reasoning_style)
    if tools is not None and reasoning is not None and (tools == GPT_OSS) != (reasoning == GPT_OSS):
        fact = f"--tool-call-parser is {tools!r} and --reasoning-parser {reasoning!r}, but {GPT_OSS} reads both at once"
        raise ConfigError(f"{fact}: it must be both of them, or one of them must be none")
    return Style(
        tools,
        reasoning,
        has_template=sources.of(False) is not None,
        shows_tools=not texts or any("tools" in text for text in texts),
    )


def _chosen(
    option: str, texts: list[str], detect: Callable[[str], str | None], check: Callable[[str], Any]
) -> str | None:
    name = next(filter(None, map(detect, texts)), "none") if option == "auto" else option
    if name == "none":
        return None
    check(name)
    return name


def refuse_without_parser(tools: Sized, style: Style) -> None:
    """Tools whose calls could not be found in an output are refused, not ignored."""
    if tools and style.tools is None:
        hint = "--tool-call-parser says how the model writes calls, --chat-template how it reads of tools"
        raise ClientError("tools", "are set, but this model's chat template shows no way to call them", hint)
    if tools and not style.shows_tools:
        raise ClientError("tools", "are set, but this model's chat template does not speak of them", "--chat-template")


def template_kwargs(effort: str | None, verbosity: str | None, documents: list[Any] | None = None) -> dict[str, Any]:
    """Templates know either an effort or whether to think at all."""
    thinks = None if effort is None else effort != "none"
    given = {"reasoning_effort": effort, "enable_thinking": thinks, "verbosity": verbosity, "documents": documents}
    return {name: value for name, value in given.items() if value is not None}


def chosen_chat(
    written: Mapping[str, Any],
    choice: str | NamedChoice | CallRules | None,
    style: Style,
    strict: Iterable[str],
    parallel: bool,
    schema: str = "function.parameters",
) -> tuple[Chat, CallRules]:
    """As `chat_of`, with the tools that may be called. Raises ClientError. `strict`: tools that are.

    `schema`: where the client writes that of a tool.
    """
    places = {tool["function"]["name"]: f"tools[{i}]" for i, tool in enumerate(written.get("tools") or ()) if tool}
    calls = choice if isinstance(choice, CallRules) else read_choice(choice, list(places))
    refuse_without_parser(calls.names, style)
    calls = calls._replace(
        single=calls.single or not parallel,
        strict=calls.names.intersection(strict),
        schemas={name: f"{place}.{schema}" for name, place in places.items()},
    )
    return chat_of(written, calls.names), calls


def chat_of(written: Mapping[str, Any], tools: frozenset[str] | None = None) -> Chat:
    """What the template gets of a chat that was checked: its messages and tools with the client's keys in their order.

    `tools`: those that may be called; None: all.
    """
    fields = convert({name: written.get(name) for name in TemplateFields.__struct_fields__}, TemplateFields)
    goes_on = bool(fields.continue_final_message)
    if goes_on and fields.add_generation_prompt:
        raise ClientError("continue_final_message", "is true, but so is add_generation_prompt: only one of them can be")
    functions = [tool for tool in written.get("tools") or () if tool is not None]
    given = [tool for tool in functions if tools is None or tool["function"]["name"] in tools]
    check_most("tools", "entries", len(given), MAX_TOOLS)  # before a constraint is made of their schemas
    kwargs = template_kwargs(fields.reasoning_effort, fields.verbosity, fields.documents)
    return Chat(
        written["messages"],
        [_without_nulls(tool) for tool in given] or None,
        kwargs | (fields.chat_template_kwargs or {}),
        add_generation_prompt=not goes_on if fields.add_generation_prompt is None else fields.add_generation_prompt,
        continue_final_message=goes_on,
    )


def _without_nulls(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "function": {name: value for name, value in tool["function"].items() if value is not None}}


class EncodedChat(NamedTuple):
    """A chat as its template gets it, in JSON, for it may have thousands of turns; and what else is needed of it."""

    json: bytes  # a Chat
    entries: slice  # where its messages stand in `json`, without the brackets of their list
    sources: tuple[GivenMedia, ...]  # of its media, in order
    names: frozenset[str]  # of its tools
    thinks: bool
    continued: str | None  # the text that an output goes on from


def write_chat(
    chat: Chat,
    taken: MediaTokens,
    place: str = "messages",
    before: int = 0,
    *,
    has_media: bool = True,
    arguments: list[str] | None = None,
) -> EncodedChat:
    """`taken`: the kinds of media that the model takes. `place`: the field that holds the chat.

    `before`: how many messages stand before those that are its `entries`. `has_media`: False where it is known that
    the messages have none: there may be thousands to look through. `arguments`: those of `arguments_in`, where they are
    known. Raises ClientError.
    """
    messages, sources = taken_out(chat.messages, taken) if has_media else (chat.messages, ())
    written = replace(chat, messages=messages) if sources else chat
    json, end = _encoded(written, place, arguments)
    start = len(_BEGIN) + (len(_as_json(messages[:before])) - 1 if before else 0)
    continued = _text(chat.messages[-1]) if chat.continue_final_message else None
    thinks = chat.kwargs.get("enable_thinking") is not False
    names = frozenset(tool["function"]["name"] for tool in chat.tools or ())
    return EncodedChat(json, slice(start, end), sources, names, thinks, continued)


class HeldCalls(NamedTuple):
    """How a constraint of a request holds the calls of its outputs."""

    parts: Mapping[str, str] = {}  # fields of FieldPlaces
    leading: bool = False  # an output is calls from its beginning, or none of it is


class OutputForm(NamedTuple):
    """What a chat's outputs are made of, and so how they are read."""

    calls: CallRules = CallRules()
    thoughts: Thoughts = Thoughts.STREAMED
    held: HeldCalls = HeldCalls()  # as `hold_calls` gives it, with the spec


def hold_calls(
    spec: RequestSpec, chat: Chat, calls: CallRules, style: Style, keeping: Keeping = Keeping()
) -> tuple[RequestSpec, HeldCalls]:
    """With the constraint of the chat's calls, if they need one. Raises ClientError. `keeping`: of that constraint."""
    if not chat.tools or style.tools is None:
        return spec, HeldCalls()
    leading = calls.forced or spec.constraint is not None or (bool(calls.strict) and style.tools == GPT_OSS)
    spec, parts = held_to(spec, calls, chat.tools, style.tools, keeping)
    return spec, HeldCalls(parts, leading)


async def prepare(
    render: Render,
    style: Style,
    chat: EncodedChat,
    spec: RequestSpec,
    form: OutputForm = OutputForm(),
    *,
    media: Preparing = NO_MEDIA,
    rid: str = "",
    place: str = "messages",
) -> tuple[Prompt, Reading]:
    """Render a chat and choose what reads its outputs. Raises ClientError.

    `place`: the field that holds the chat. `media`: prepares the media of its messages.
    """
    calls, thoughts, held = form
    cuts, has_media = spec.truncate is not None, bool(chat.sources)
    if has_media and cuts:
        raise ClientError("truncate_prompt_tokens", "is set, but the chat has media, of which no token is left out")
    rendered = await rendered_by(render, chat.json, place, may_exceed=cuts, has_media=has_media)
    reading = Reading(
        style.tools,
        style.reasoning if chat.names or thoughts is not Thoughts.IN_TEXT or style.has_channels else None,
        rendered.tail,
        chat.continued,
        chat.names,
        not calls.single,
        thoughts,
        frozenset(spec.params.stop_token_ids),
        leading=held.leading,
    )
    if not (held.leading and style.tools == GPT_OSS):  # in GPT-OSS' form, the constraint contains the thought
        spec, reading = _beginning_after(spec, reading, style.reasoning, chat.thinks)
    spec = replace(spec, params=_showing(spec.params, reading))
    content = Content(ids=rendered.ids)
    if has_media:
        found = await media.of_prompt(chat.sources)
        content = Content(rendered.text, media=found, is_rendered=True)
    return Prompt(rid, spec, content, places=FieldPlaces(place, fields={**OF_OPENAI, **held.parts})), reading


def thoughts_apart(spec: RequestSpec, style: str, tail: str, continued: str | None) -> tuple[RequestSpec, Reading]:
    """For a prompt that is no chat: the thoughts of its outputs are separated. `tail`, `continued`: as Reading's."""
    reading = Reading(None, style, tail, continued, stop_ids=frozenset(spec.params.stop_token_ids))
    spec, reading = _beginning_after(spec, reading, style)
    return replace(spec, params=_showing(spec.params, reading)), reading


def _beginning_after(
    spec: RequestSpec, reading: Reading, style: str | None, thinks: bool = True
) -> tuple[RequestSpec, Reading]:
    """A constraint holds for what follows the thought of an output, if that begins with one."""
    constraint = spec.constraint
    if style is None or constraint is None:
        return spec, reading
    opens, closes = thought_of(style, reading.tail, reading.continued, thinks)
    return beginning_after(spec, closes, opens), _under(constraint, reading, thinks=closes != "")


def _under(constraint: Constraint, reading: Reading, thinks: bool) -> Reading:
    """How an output under a constraint is read, whether or not it may begin with a thought."""
    spelled = constraint.kind in SPELLED
    parser = reading.reasoning_parser if thinks or not spelled else None
    return reading._replace(reasoning_parser=parser, exact=constraint.kind in OF_ALL, token_opens=spelled)


async def rendered_by(
    render: Render, chat: bytes, place: str = "messages", *, may_exceed: bool = False, has_media: bool = False
) -> RenderReply:
    """The chat, which is JSON, as its prompt. Raises ClientError. `place`: the field that the client wrote it in.

    `may_exceed`, `has_media`: as Render's.
    """
    try:
        return await render(chat, may_exceed, has_media)
    except ClientError as error:
        # messages that were made of a field's items have lost its places
        lost = place != "messages" and error.place.startswith("messages")
        raise error.at(place) if lost else error from None


def encode_chat(chat: Chat, place: str = "messages") -> bytes:
    """The chat as JSON. Raises ClientError."""
    return _encoded(chat, place, None)[0]


def _encoded(chat: Chat, place: str, arguments: list[str] | None) -> tuple[bytes, int]:
    """The chat as JSON, and where in it the list of its messages ends. `arguments`: as `write_chat`'s.

    Raises ClientError.
    """
    check_most(place, "messages", len(chat.messages), MAX_TURNS)
    _check_arguments(arguments_in(chat.messages) if arguments is None else arguments, place)
    try:
        messages = _checked_json(chat.messages)
        rest = {**asdict(chat), "messages": ()}
        json = _as_json({**rest, "messages": orjson.Fragment(messages)})
        end = len(_BEGIN) + len(messages) - len("[]")
        _check_numbers(rest, json[end:])
    except (ValueError, TypeError, RecursionError):
        raise _no_json(chat, place) from None
    return json, end


def _check_arguments(found: list[str], place: str) -> None:
    """Raises ClientError if arguments of calls, which the tokenizer parses if they are texts, have too many items.

    They are strings of the body, in which nothing was counted.
    """
    joined, count = _as_bytes(" ".join(found)), ItemCount(MAX_ARGUMENT_ITEMS)
    count.add(joined)
    rounds = may_round(joined)
    if not rounds and not count.may_be_too_many:  # most chats are looked at once, not text by text
        return
    texts = [_as_bytes(text) for text in found]
    try:
        count.check(*texts)
        check_numbers([("", text) for text in texts if may_round(text)] if rounds else [], count.most_exact)
    except ClientError as error:
        raise ClientError(place, f"has calls whose arguments are too long: their JSON {error.fact}") from None


def arguments_in(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The arguments of calls that are texts."""
    found: list[str] = []
    for message in messages:  # once: thousands of them, which are in no cache, are what takes the time
        if "tool_calls" in message:
            for call in message["tool_calls"] or ():
                if (function := call.get("function")) and isinstance(given := function.get("arguments"), str):
                    found.append(given)
        if "function_call" in message:
            function = message["function_call"]
            if function and isinstance(given := function.get("arguments"), str):
                found.append(given)
    return found


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _checked_json(value: Any) -> bytes:
    """Return what `_as_json` returns. Raises ValueError for NaN and infinity, too."""
    json = _as_json(value)
    _check_numbers(value, json)
    return json


def _check_numbers(value: Any, json: bytes) -> None:
    """Raise ValueError if the value, which was written as this JSON, has NaN or infinity: only a program's may."""
    if b"null" in json and has_no_number(value):
        raise ValueError("NaN and infinity are no numbers of JSON")


def _as_json(value: Any) -> bytes:
    """Raises ValueError, TypeError or RecursionError for what is none, such as an object whose key is a number."""
    try:
        return orjson.dumps(value, _written)
    except (orjson.JSONEncodeError, TypeError):  # it has no numbers beyond 64 bits
        return orjson.dumps(_with_long_numbers(value), _written)


def _written(value: Any) -> orjson.Fragment:
    """What orjson cannot write by itself."""
    if isinstance(value, Decimal) and value.is_finite():
        if value.adjusted() > MAX_EXPONENT:
            raise ValueError(f"it is beyond 1e{MAX_EXPONENT}")
        return orjson.Fragment(str(value))
    if isinstance(value, msgspec.Raw):  # JSON of the body that nobody had to look into
        return orjson.Fragment(bytes(value))
    raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")


def _with_long_numbers(value: Any) -> Any:
    """A copy in which the text of each integer beyond 64 bits stands for that number."""
    if isinstance(value, dict):
        return {key: _with_long_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_long_numbers(item) for item in value]
    if isinstance(value, int) and value.bit_length() >= MAX_BITS:
        return orjson.Fragment(str(int(value)))
    return value


def _no_json(chat: Chat, place: str) -> ClientError:
    """Which of its values is no JSON: only a program has such, or half a surrogate pair."""
    kwargs = dict(chat.kwargs)
    fields = {place: chat.messages, "tools": chat.tools, "documents": kwargs.pop("documents", None)}
    for name, value in {**fields, "chat_template_kwargs": kwargs}.items():
        if (error := _why_no_json(value)) is not None:
            return _at_fault(name, value, error)
    raise AssertionError("a chat is no JSON, but every part of it is")


def _why_no_json(value: Any) -> str | None:
    try:
        _checked_json(value)
    except (ValueError, TypeError, RecursionError) as error:
        return str(error.__cause__ or error)
    return None


def _at_fault(place: str, value: Any, error: str) -> ClientError:
    """The innermost value that is no JSON. `error`: why `value` is none."""
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        parts = [(f"{place}.{key}", item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"{place}[{i}]", item) for i, item in enumerate(value)]
    for inner, item in parts:
        if (why := _why_no_json(item)) is not None:
            return _at_fault(inner, item, why)
    return ClientError(place, f"is {shown(value)}, which cannot be written as JSON: {error}")


def _text(message: Any) -> str:
    """Of a message as the client wrote it."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content)
    return content if isinstance(content, str) else ""


def _showing(params: SamplingParams, reading: Reading) -> SamplingParams:
    """With the special tokens in the text that the parsers look for, also where the client wants to see none.

    A parser that does not see where a thought ends would read calls in it.
    """
    tools, reasoning = reading.tool_parser, reading.reasoning_parser
    calls = bool(reading.tools) and tools is not None and tool_parser_class(tools).shows_special
    thoughts = reasoning is not None and reasoning_style(reasoning).shows_special
    if not (calls or thoughts) or not params.skip_special_tokens:
        return params
    return replace(params, skip_special_tokens=False, spaces_between_special_tokens=False)
