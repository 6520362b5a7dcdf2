"""The body of /v1/responses, the chat that its instructions and items are, and its tools.

Decides how a stored chat goes on and how items are listed later; responses_items.py says what an item becomes. Knows no
store.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, to_builtins

from ramet.ipc.messages import Chat
from ramet.ipc.params import about
from ramet.ipc.spec import Constraint
from ramet.runtime import exact_json
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import other_servers
from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.chat import Style, chosen_chat
from ramet.runtime.intake.fields import accepted, elsewhere, format_elsewhere, unbuilt
from ramet.runtime.intake.limits import MAX_TURNS
from ramet.runtime.intake.media import check_options
from ramet.runtime.intake.messages import Effort, ParallelCalls, TemplateArguments, ToolChoice, Verbosity
from ramet.runtime.intake.sampling_fields import UnbuiltHidden
from ramet.runtime.intake.specs import sampled
from ramet.runtime.intake.tool_choice import CallRules
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.server.http.response_store import StoredItems
from ramet.runtime.server.openai.formats import ResponseFormat, StructuredFields, of_format
from ramet.runtime.server.openai.responses_items import InputItem, ItemMessages, Message, messages_of
from ramet.runtime.server.openai.responses_replies import OutputItem
from ramet.runtime.server.openai.responses_tools import ResponseTools, functions_of
from ramet.runtime.server.openai.types import TOOLS, Top


class ReasoningOptions(Struct, frozen=True, kw_only=True):
    effort: Effort = None
    summary: Annotated[str | None, about("accepted; reasoning is returned as it is")] = None


class TextOptions(Struct, frozen=True, kw_only=True):
    format: ResponseFormat = None
    verbosity: Verbosity = None


EarlierItems = Annotated[Any | None, unbuilt("leaving out what came before", neutral=({}, {"edits": []}))]
Earlier = Annotated[Any | None, unbuilt("a response that the client kept", neutral=({},))]
SchemaElsewhere = Annotated[Any, elsewhere("text.format or json_schema")]
FormatElsewhere = Annotated[Any, elsewhere("text.format")]


class ResponsesOtherFormat(Checked, frozen=True):
    format: FormatElsewhere = None


class ResponsesBody(StructuredFields, frozen=True, kw_only=True):
    input: Annotated[
        str | Annotated[list[InputItem], Meta(min_length=1, max_length=MAX_TURNS)],
        about(
            "the user's text, or items: messages (which may leave their type out), calls and their outputs, reasoning"
        ),
    ]
    instructions: Annotated[str | None, about("the system turn; not carried over to a next response")] = None
    previous_response_id: Annotated[str | None, about("the chat goes on where that stored response ended")] = None
    store: Annotated[bool | None, about("whether it can be asked for again and continued; true if it is absent")] = None
    max_output_tokens: Annotated[Any, sampled("max_new_tokens", "to the context's end if it is absent")] = None
    tools: Annotated[ResponseTools | None, about(TOOLS)] = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: ParallelCalls = None
    reasoning: Annotated[ReasoningOptions | None, about("`effort`")] = None
    text: Annotated[TextOptions | None, about("`format` and `verbosity`")] = None
    top_logprobs: Annotated[Top | None, about("log-probabilities of this many best tokens at each place")] = None
    include: Annotated[
        list[str] | None, about("`message.output_text.logprobs`: log-probabilities; others are ignored")
    ] = None
    metadata: Annotated[dict[str, Any] | None, about("comes back with the response")] = None
    user: Annotated[str | None, about("accepted; nothing is done with it")] = None
    truncation: Annotated[
        Literal["disabled", "auto"] | None,
        unbuilt("leaving out what does not fit the context; `disabled` is taken", neutral=("disabled",)),
    ] = None
    stop: Annotated[Any, sampled("stop")] = None
    chat_template_kwargs: TemplateArguments = None
    return_hidden_states: UnbuiltHidden = None
    background: Annotated[bool | None, unbuilt("an answer to ask for later", neutral=(False,))] = None
    conversation: Annotated[str | dict[str, Any] | None, unbuilt("OpenAI's conversations", neutral=("", {}))] = None
    prompt: Annotated[dict[str, Any] | None, unbuilt("OpenAI's stored prompts", neutral=({},))] = None
    # Clients of other servers send these names.
    context_management: EarlierItems = None
    enable_response_messages: Annotated[bool | None, unbuilt("messages beside the items", neutral=(False,))] = None
    previous_response: Earlier = None
    previous_input_messages: Earlier = None
    max_tool_calls: Annotated[int | None, accepted("it is about OpenAI's own tools")] = None
    stream_options: Annotated[dict[str, Any] | None, accepted("chunks are never padded")] = None
    moderation: other_servers.Moderation = None
    prompt_cache_options: other_servers.CacheOptions = None
    service_tier: other_servers.Tier = None
    safety_identifier: other_servers.Unread = None
    prompt_cache_key: other_servers.CacheKey = None
    prompt_cache_retention: other_servers.CacheKey = None
    # Other endpoints have these names for a constraint.
    guided_json: SchemaElsewhere = None
    guided_regex: Annotated[Any, elsewhere("regex")] = None
    guided_grammar: Annotated[Any, elsewhere("ebnf")] = None
    guided_choice: Annotated[Any, elsewhere("structured_outputs.choice")] = None
    response_format: FormatElsewhere = None
    output_format: FormatElsewhere = None
    guided_whitespace_pattern: Annotated[Any, elsewhere("structured_outputs.whitespace_pattern", neutral=())] = None
    guided_decoding_backend: Annotated[Any, elsewhere("grammar_backend")] = None
    output_config: Annotated[other_servers.HeldFormat[ResponsesOtherFormat], format_elsewhere("text.format")] = None

    def constraints(self, place: str = "") -> list[Constraint]:
        return of_format("text.format", self.text.format if self.text else None) + super().constraints(place)


def read_chat(body: ResponsesBody, said: ItemMessages, style: Style) -> tuple[Chat, CallRules]:
    """`said`: in the response that this one follows, and in its input. Raises ClientError."""
    messages = said.messages
    if body.instructions:
        messages = [{"role": "system", "content": body.instructions}, *messages]
    if not messages:
        raise ClientError("input", "has nothing that a model reads, must have at least one message, call or output")
    functions = functions_of(body.tools)
    if said.has_media:
        check_options(body)
    written = {
        "messages": messages,
        "tools": [each.as_chats_have_it for each in functions],
        "reasoning_effort": body.reasoning.effort if body.reasoning is not None else None,
        "verbosity": body.text.verbosity if body.text is not None else None,
        "chat_template_kwargs": body.chat_template_kwargs,
    }
    strict = (each.name for each in functions if each.tool.strict)
    chat, calls = chosen_chat(written, body.tool_choice, style, strict, body.parallel_tool_calls is not False)
    return chat, calls._replace(schemas={each.name: f"{each.place}.parameters" for each in functions})


def with_items(written: dict[str, Any]) -> dict[str, Any]:
    """A body whose input is items, each of which has a type."""
    given = written.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        return written
    typed = [{"type": "message", **each} if each.__class__ is dict and "type" not in each else each for each in given]
    return {**written, "input": typed}


def items_to_store(written: dict[str, Any]) -> StoredItems:
    """The items of a body that was accepted."""
    return kept_items(with_items(written)["input"])


def kept_items(items: list[dict[str, Any]]) -> StoredItems:
    """The items of `with_items` as they are listed later: messages have parts."""
    as_listed = [_with_parts(item) if item["type"] == "message" else item for item in items]
    ids = [own if (own := item.get("id")).__class__ is str else "" for item in items]
    return StoredItems(zip(ids, map(exact_json.encode, as_listed), strict=True))


def _with_parts(item: dict[str, Any]) -> dict[str, Any]:
    """A message whose content is a list."""
    if not isinstance(text := item.get("content"), str):
        return item
    of_model = {"type": "output_text", "text": text, "annotations": []}
    return {**item, "content": [of_model if item["role"] == "assistant" else {"type": "input_text", "text": text}]}


_NUMBER = re.compile("0|[1-9][0-9]{0,8}")  # of an item
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
OTHER = "item"  # prefix of the other types


def listed(response_id: str, items: StoredItems, place: int) -> dict[str, Any]:
    """The item as a stored response lists it: it has an id, by which OpenAI's client knows what it is."""
    item = exact_json.loads(items[place])
    made_id = f"{_PREFIXES.get(item['type'], OTHER)}_{_made_of(response_id)}_{place}"
    own = {name: value for name in ("id", "status") if (value := _own(item, name))}
    return {**item, "id": made_id, "status": "completed", **own}


def place_of(item_id: str, response_id: str, items: StoredItems, *, newest: bool) -> int | None:
    """Where the listed item with this id stands. `newest`: the last one, should a client have given it twice."""
    if item_id in items.own_ids:
        first, last = items.own_ids[item_id]
        return last if newest else first
    prefix, _, number = item_id.partition(f"_{_made_of(response_id)}_")
    is_made = prefix in (*_PREFIXES.values(), OTHER) and _NUMBER.fullmatch(number) is not None
    return int(number) if is_made and int(number) < len(items) else None


def _made_of(response_id: str) -> str:
    """The part of a made id that is the response's."""
    return response_id.removeprefix("resp_")


def _own(item: dict[str, Any], name: str) -> str:
    """The text that the client gave in this field; nothing where it gave none."""
    value = item.get(name)
    return value if isinstance(value, str) else ""


def with_output(entries: bytes, output: list[OutputItem]) -> bytes:
    """The messages up to a response's end as a JSON list, as the next one reads them: without log-probabilities.

    `entries`: the JSON of those up to its beginning. There may be none, for some items become no message.
    """
    items = convert(to_builtins(output, enc_hook=lambda _: []), list[InputItem])
    said = exact_json.encode(messages_of(items, "output").messages)[1:-1]
    return b"[%b]" % b",".join(filter(None, (entries, said)))


def messages_in(items: str | list[InputItem]) -> ItemMessages:
    """The messages of a response's input, which has been through `with_items`."""
    assert not isinstance(items, str), "with_items has made an item of it"
    return messages_of(items, "input")


def read_stored(messages: bytes, media: bytes) -> list[Message]:
    """Stored messages, from JSON, with media in their places. The place of one was in a request before."""
    stored: list[Message] = exact_json.loads(messages)
    if not media:
        return stored
    found = (replace(convert(each, GivenMedia), place="previous_response_id") for each in exact_json.loads(media))
    return [{**each, "content": _restored(each["content"], found)} for each in stored]


def _restored(content: Any, media: Iterator[GivenMedia]) -> Any:
    if not isinstance(content, list):
        return content
    return [part if part["type"] == "text" else next(media) for part in content]
