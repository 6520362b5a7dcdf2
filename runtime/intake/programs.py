"""Calls of `LLM`: texts, token ids, arrays of embeddings or chats -> prompts, with what is asked of each.

A program's values are Python's or numpy's, and nothing bounds how many there are.
"""

from array import array
from collections.abc import Awaitable, Callable, Mapping, Set
from collections.abc import Sequence as Many
from operator import index
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ramet.ipc.content import Content
from ramet.ipc.messages import Chat, Limits
from ramet.ipc.params import shown
from ramet.ipc.spec import RequestSpec
from ramet.runtime.engine_client.media import Preparing
from ramet.runtime.engine_client.places import FieldPlaces
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts as checks
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.calls import CallDefaults, make_prompts, places_of, with_sources_of
from ramet.runtime.intake.chat import OutputForm, Render, Style, chosen_chat, hold_calls, prepare, write_chat
from ramet.runtime.intake.limits import MAX_DEPTH
from ramet.runtime.intake.media import FIELDS, own_sources, read_fields
from ramet.runtime.intake.messages import ChatFields
from ramet.runtime.intake.other_tools import without_others
from ramet.runtime.intake.prompts import Placed
from ramet.runtime.intake.reading import Reading, Thoughts
from ramet.runtime.intake.specs import SpecLists, backends_of, read_specs
from ramet.runtime.intake.tool_choice import CallRules, Keeping

TextOrIds = str | Many[int] | Any  # Any: an array of numpy or torch
EXTRAS = [name for name in SpecLists.__struct_fields__ if name != "sampling_params"]
PROMPT = "a text, token ids, or a floating array of embeddings [tokens, hidden size]"


class _ContextFields(Struct, frozen=True):
    """The parallel contexts of one prompt."""

    contexts: list[list[int]]


def read_prompts(prompts: Any, sampling_params: Any, extras: dict[str, Any], defaults: CallDefaults) -> list[Prompt]:
    """One for each prompt, in order. Raises ClientError, and TypeError for an unknown argument."""
    if not _is_list(prompts) and not isinstance(prompts, str | bytes | bytearray):
        raise ClientError("text", f"is {shown(prompts)}, must be {PROMPT}, or a list of these")
    each = checks.placed("", prompts, not _is_single(prompts))
    return _read(each, sampling_params, extras, defaults)


def read_prompt(prompt: Any, sampling_params: Any, extras: dict[str, Any], defaults: CallDefaults) -> list[Prompt]:
    """Reads what `read_prompts` does, for a call that takes a single one."""
    if _is_list(prompt) and len(prompt) and not _is_single(prompt):
        raise ClientError("text", f"is {shown(prompt)}, must be one prompt: {PROMPT}")
    return _read([("", prompt)], sampling_params, extras, defaults)


def _read(
    each: list[tuple[str, Any]], sampling_params: Any, extras: dict[str, Any], defaults: CallDefaults
) -> list[Prompt]:
    contents = [_content(at, prompt, defaults.limits) for at, prompt in each]
    body = _spec_lists(sampling_params, extras, ("contexts", *FIELDS))
    read = make_prompts(body, contents, True, [""] * len(contents), defaults)
    if extras.get("contexts") is not None:
        read = _with_contexts(read, extras["contexts"])
    if FIELDS.keys() & extras.keys():
        is_batch = each[0][0] != "" if each else True
        read = with_sources_of(read, read_fields(extras, len(read), is_batch, defaults.limits.media, own=True))
    return read


def _with_contexts(prompts: list[Prompt], contexts: Any) -> list[Prompt]:
    """What the groups must be beside the ids is checked with these (text/parallel_contexts.py)."""
    if len(prompts) != 1 or prompts[0].content.ids is None:
        raise ClientError("contexts", "are set, but the call is not of one prompt of token ids")
    given = convert({"contexts": plain("contexts", contexts)}, _ContextFields)
    return [prompts[0]._replace(content=replace(prompts[0].content, contexts=tuple(map(tuple, given.contexts))))]


def _spec_lists(sampling_params: Any, extras: dict[str, Any], others: Many[str] = ()) -> SpecLists:
    """`others`: extras that are of a prompt and no fields of SpecLists."""
    if unknown := extras.keys() - {*EXTRAS, *others}:
        raise TypeError(f"unknown argument {min(unknown)}; known are {', '.join(EXTRAS)}")
    given = dict[str, Any]()
    for name, value in extras.items():
        if name not in others:
            given[name] = plain(name, value)
    given["sampling_params"] = plain("sampling_params", sampling_params)
    return convert(given, SpecLists)


def plain(place: str, value: Any, levels: int = MAX_DEPTH) -> Any:
    """Arrays, tuples and ranges as lists, and numbers of numpy or torch and subclasses of str as Python's own, as in a
    body. Raises ClientError for what nests deeper than so many levels, as a list that contains itself.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, str):
        return str.__str__(value)
    if not isinstance(value, dict | list | tuple | range):
        return value
    if levels == 0:
        raise ClientError(place, f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {key: plain(place, item, levels - 1) for key, item in value.items()}
    return [plain(place, item, levels - 1) for item in value]


# -- prompts -----------------------------------------------------------------------------------------------------------


def _content(at: str, prompt: Any, limits: Limits) -> Placed:
    """`at`: where it stands in a list of prompts, as "[2]"."""
    if isinstance(prompt, str):
        return "text" + at, Content(prompt)
    if _is_embeds(prompt):
        place = "input_embeds" + at
        checks.check_context(place, len(prompt), limits)
        return place, Content(embeds=checks.pack_embeds(place, prompt.tolist(), limits))
    if not _is_list(prompt):
        raise ClientError("text" + at, f"is {shown(prompt)}, must be {PROMPT}")
    place = "input_ids" + at
    checks.check_context(place, len(prompt), limits)
    return place, Content(ids=pack_any(place, prompt, limits.vocab_size))


def _is_list(value: Any) -> bool:
    """Whether it has entries in an order, and is neither text nor bytes."""
    if isinstance(value, str | bytes | bytearray | Mapping | Set):
        return False
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0


def _is_single(prompts: Any) -> bool:
    """One prompt is a text, a list of ids or an array of embeddings; several are a list of those."""
    if not _is_list(prompts) or _is_embeds(prompts):
        return True
    if not len(prompts):
        return False
    # a number, of whatever type: an array of one can be made a number, but is none; numpy's texts have the method too
    first = prompts[0]
    return hasattr(first, "__float__") and getattr(first, "ndim", 0) == 0 and not isinstance(first, str | bytes)


def _is_embeds(prompt: Any) -> bool:
    """A floating array of two dimensions, of numpy or torch."""
    return getattr(prompt, "ndim", 0) == 2 and "float" in str(prompt.dtype)


def pack_any(place: str, ids: Any, vocab_size: int) -> bytes:
    """Ids of any integer type as packed int32. Raises ClientError for the first that is no token id."""
    if not _is_list(ids):
        raise ClientError(place, f"is {shown(ids)}, must be a list of token ids")
    items = list(ids)
    try:
        if bool in set(map(type, items)):  # Python takes booleans for numbers
            raise TypeError
        packed = array("i", map(index, items))
    except (TypeError, OverflowError):
        _refuse_first(place, items, vocab_size)
    if packed and not (min(packed) >= 0 and max(packed) < vocab_size):
        _refuse_first(place, items, vocab_size)
    return packed.tobytes()


def _refuse_first(place: str, items: list[Any], vocab_size: int) -> NoReturn:
    at = next(i for i, token in enumerate(items) if not _is_token(token, vocab_size))
    raise ClientError(f"{place}[{at}]", f"is {shown(items[at])}, must be a token id in [0, {vocab_size})")


def _is_token(value: Any, vocab_size: int) -> bool:
    try:
        return type(value) is not bool and 0 <= index(value) < vocab_size
    except TypeError:  # no integer: a text, numpy's booleans, arrays of several numbers
        return False


# -- chats -------------------------------------------------------------------------------------------------------------

ChatCall = Callable[[Render, Preparing], Awaitable[tuple[Prompt, Reading]]]  # one chat, given what renders it


def read_chats(
    messages: Any,
    sampling_params: Any,
    fields: dict[str, Any],
    extras: dict[str, Any],
    defaults: CallDefaults,
    style: Style,
    parallel: bool = True,
    thoughts: Thoughts = Thoughts.STREAMED,
) -> list[ChatCall]:
    """One for each chat, in order. `fields`: those of ChatFields but the messages. Raises ClientError.

    Without max_new_tokens an output may go on to the end of the context.
    """
    single = not isinstance(messages, list | tuple) or not messages or isinstance(messages[0], dict)
    chats = [messages] if single else list(messages)
    body = _spec_lists(sampling_params, extras)
    places = places_of(body, [(at, Content()) for at, _ in checks.placed("messages", messages, not single)])
    specs = read_specs(body, len(chats), True, defaults.to_the_end.params, defaults.processors_on)
    backends = backends_of(body, len(chats))
    calls = list[ChatCall]()
    for i, written in enumerate(chats):
        which = "" if single else f"chat {i}: "
        chat, called = _read_chat(which, {**fields, "messages": written}, style, parallel)
        form = OutputForm(called, thoughts)
        calls.append(_ReadChat(style, chat, specs[i], form, Keeping(backends[i]), which, places[i]).prepare)
    return calls


def _read_chat(which: str, written: dict[str, Any], style: Style, parallel: bool) -> tuple[Chat, CallRules]:
    """`which`: said before an error's place, in a list of chats."""
    try:
        messages, shown = own_sources(written["messages"])
        for name, value in {**written, "messages": shown}.items():
            plain(name, value)  # what nests too deep is refused here: all that follows goes down without looking
        written = without_others(written, schema="function")
        asked = convert({**written, "messages": shown}, ChatFields)
        strict = (tool.function.name for tool in asked.tools or () if tool is not None and tool.function.strict)
        return chosen_chat({**written, "messages": messages}, asked.tool_choice, style, strict, parallel)
    except ClientError as error:
        raise error.at(which + error.place) from None


class _ReadChat(NamedTuple):
    """One chat of a program with all that is asked of it, before it is rendered."""

    style: Style
    chat: Chat
    spec: RequestSpec
    form: OutputForm
    keeping: Keeping
    which: str  # said before an error's place, in a list of chats
    places: FieldPlaces  # how the program wrote what it asks

    async def prepare(self, render: Render, media: Preparing) -> tuple[Prompt, Reading]:
        """Renders the chat, as chat.prepare does."""
        try:
            written = write_chat(self.chat, media.tokens)
            spec, held = hold_calls(self.spec, self.chat, self.form.calls, self.style, self.keeping)
            form = self.form._replace(held=held)
            prompt, reading = await prepare(render, self.style, written, spec, form, media=media)
        except ClientError as error:
            raise error.at(self.which + error.place) from None
        fields = {**self.places.fields, **held.parts}
        return prompt._replace(
            places=replace(self.places, prompt=self.which + prompt.places.prompt, fields=fields)
        ), reading
