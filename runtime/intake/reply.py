"""Replies, with their `meta_info`, that the server and the in-process LLM share: of outputs and of chats."""

import base64
import time
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, to_builtins
from msgspec.structs import asdict

from ramet.ipc.messages import Finish, FinishKind, unpack_ids
from ramet.runtime.engine_client.submission import WEIGHT_VERSION, GeneratedSequence
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Thought
from ramet.runtime.intake.reading import OutputReader, ThoughtCount
from ramet.runtime.replies.logprobs import Place, Triple
from ramet.runtime.replies.long_list import Listed, LongList

Triples = list[list[Triple] | None]


class Reply(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all replies. A reply has these fields and no others; a field that may be absent is UNSET then."""


class Stopped(Reply, frozen=True, tag_field="type", tag="stop"):
    """`matched`: the token, text or pattern that stopped it."""

    matched: int | str | None


class RanOut(Reply, frozen=True, tag_field="type", tag="length"):
    length: int


class Aborted(Reply, frozen=True, tag_field="type", tag="abort"):
    message: str
    status_code: int | None
    err_type: str


class WeightSpan(Reply, frozen=True):
    """Output tokens [start, end) were drawn with weights of this version. Of none: they have computed of the prompt."""

    version: str
    start: int
    end: int


class MetaInfo(Reply, frozen=True, kw_only=True):
    """Log-probabilities, hidden states, experts and `reasoning_tokens` are there if they were asked for; `e2e_latency`
    (s) at the end.

    Until the reply is written their lists are LongList where they are long.
    """

    id: str
    finish_reason: Stopped | RanOut | Aborted | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    num_retractions: int
    weight_version: str = WEIGHT_VERSION
    weight_versions: list[WeightSpan] | UnsetType = UNSET
    e2e_latency: float | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    input_token_logprobs: list[Triple] | UnsetType = UNSET
    input_top_logprobs: Triples | UnsetType = UNSET
    input_token_ids_logprobs: Triples | UnsetType = UNSET
    output_token_logprobs: list[Triple] | UnsetType = UNSET
    output_top_logprobs: Triples | UnsetType = UNSET
    output_token_ids_logprobs: Triples | UnsetType = UNSET
    hidden_states: list[Any] | UnsetType = UNSET
    routed_experts: str | UnsetType = UNSET


class GenerateReply(Reply, frozen=True):
    """A batch, or n > 1, gets a list of these."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    index: int | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


def finish_reason(finish: Finish | None) -> Stopped | RanOut | Aborted | None:
    """None while it grows."""
    if finish is None:
        return None
    match finish.kind:
        case FinishKind.STOP:
            return Stopped(finish.matched)
        case FinishKind.LENGTH:
            return RanOut(finish.length)
        case FinishKind.ABORT:
            assert finish.error is not None, "an abort says why"
            status = finish.error.status
            name = "BadRequestError" if 400 <= status < 500 else "AbortError"
            return Aborted(str(finish.error), status or None, name)


class CalledFunction(Reply, frozen=True):
    name: str
    arguments: str


class ToolCall(Reply, frozen=True, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Reply, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | None
    reasoning: str | None
    tool_calls: list[ToolCall] | UnsetType = UNSET


def whole_reply(sequence: GeneratedSequence, thought: ThoughtCount | None = None) -> GenerateReply:
    """The reply of a sequence that has ended and of which nothing was read before."""
    texts, ids = sequence.take()
    asked: dict[str, Any] = sequence.logprobs.meta() if sequence.logprobs is not None else {}
    if thought is not None:
        thought.push(texts, ids)
        asked["reasoning_tokens"] = thought.total
    info = meta_info(sequence, asked)
    return GenerateReply("".join(texts) + sequence.tail, ids, info, prompt_token_ids=prompt_ids_of(sequence))


class GrowingReply:
    """The output of one sequence as far as it was read."""

    def __init__(
        self, sequence: GeneratedSequence, index: int | UnsetType = UNSET, thought: ThoughtCount | None = None
    ) -> None:
        self._sequence, self._index, self._thought = sequence, index, thought
        self._text, self._ids = "", list[int]()
        self._num_places = 0, 0  # of output and prompt, whose log-probabilities were read

    @property
    def ids(self) -> list[int]:
        """The ids of its output that have come."""
        return [*self._ids, *self._sequence.tokens]

    def whole(self) -> GenerateReply:
        """Reads what is new; a reply with everything so far."""
        _, _, logprobs = self._advance()
        grown = {name: self._grown(name, new) for name, new in logprobs.items()}
        return self._reply(self._text, self._listed_ids(self._ids), grown)

    def _advance(self) -> tuple[str, list[int], dict[str, Listed]]:
        """Reads and returns what is new."""
        texts, ids = self._sequence.take()
        text = "".join(texts) + self._sequence.tail
        self._text += text
        self._ids += ids
        if self._thought is not None:
            self._thought.push(texts, ids)
        return text, ids, self._new_logprobs()

    def _new_logprobs(self) -> dict[str, Listed]:
        lists, (output, prompt) = self._sequence.logprobs, self._num_places
        if lists is None:
            return {}
        self._num_places = len(lists.output), len(lists.prompt)
        return lists.meta(output, prompt)

    def _reply(self, text: str, ids: Any, logprobs: dict[str, Any]) -> GenerateReply:
        thought = {} if self._thought is None else {"reasoning_tokens": self._thought.total}
        info = meta_info(self._sequence, logprobs | thought)
        return GenerateReply(text, ids, info, self._index, prompt_ids_of(self._sequence))

    def _listed_ids(self, ids: list[int]) -> Any:
        """The ids of a whole reply."""
        return ids

    def _grown(self, name: str, new: Listed) -> Any:
        """A list of a whole reply, of which `new` was not read before. Here a reply is made once."""
        return new


def meta_info(sequence: GeneratedSequence, asked: dict[str, Any]) -> MetaInfo:
    """The `meta_info` of all that was taken of a sequence. `asked`: fields as LogprobLists.meta gives them.

    Without a rid its uid names it. Latency, retractions and hidden states are known at the end.
    """
    finish, hidden = sequence.finish, sequence.hidden
    return MetaInfo(
        id=sequence.id,
        finish_reason=finish_reason(finish),
        prompt_tokens=sequence.opened.prompt_tokens,
        completion_tokens=sequence.num_taken,
        cached_tokens=sequence.opened.cached_tokens,
        num_retractions=finish.num_retractions if finish is not None else 0,
        weight_version=sequence.weights.version,
        weight_versions=weight_spans(sequence),
        e2e_latency=time.monotonic() - sequence.submission.origin.arrival_s if finish is not None else UNSET,
        hidden_states=hidden.meta() if hidden is not None and finish is not None else UNSET,
        routed_experts=routes_of(sequence),
        **asked,
    )


def weight_spans(sequence: GeneratedSequence) -> list[WeightSpan] | UnsetType:
    """The versions of all that was taken of it, if others than one version have computed it."""
    if not sequence.weights.changes:
        return UNSET
    spans, start = list[WeightSpan](), 0
    for version, end in [*sequence.weights.changes, (sequence.weights.version, sequence.num_taken)]:
        spans.append(WeightSpan(version, start, end))
        start = end
    return spans


def prompt_ids_of(sequence: GeneratedSequence) -> list[int] | UnsetType:
    """UNSET where they were not asked for."""
    return unpack_ids(sequence.opened.prompt_ids) if sequence.opened.prompt_ids else UNSET


def prompt_places_of(sequence: GeneratedSequence) -> list[Place]:
    """Log-probabilities of its prompt's tokens from the first one on that was asked for; of that nothing is known."""
    assert sequence.logprobs is not None, f"{sequence.uid} did not ask for log-probabilities"
    return sequence.logprobs.prompt[:]


def longs_of(meta: MetaInfo) -> dict[str, LongList]:
    """Its lists that are yet to be made."""
    return {name: value for name, value in asdict(meta).items() if isinstance(value, LongList)}


def fields_of(body: Struct) -> Any:
    """The struct as a dictionary, None in the place of every long list."""
    return to_builtins(body, enc_hook=lambda _: None)


async def made_in_turn(body: Any) -> dict[str, Any]:
    """A reply with a `meta_info` as a dictionary, its long lists made while other tasks of the event loop run."""
    made: dict[str, Any] = fields_of(body)
    return {**made, "meta_info": await meta_in_turn(body.meta_info)}


async def meta_in_turn(meta: MetaInfo) -> dict[str, Any]:
    """A `meta_info` as a dictionary, its long lists made likewise."""
    made: dict[str, Any] = fields_of(meta)
    for name, long in longs_of(meta).items():
        made[name] = await long.in_turn()
    return made


def chat_message(sequence: GeneratedSequence, reader: OutputReader) -> ChatMessage:
    """The message of a sequence that has ended. Thousands of pieces are joined once: a sum would copy each as often."""
    said, thoughts, calls = list[str](), list[str](), list[tuple[str, list[str]]]()
    for part in [part for text in sequence.take()[0] for part in reader.push(text)] + reader.close(sequence.tail):
        match part:
            case str():
                said.append(part)
            case Thought(text):
                thoughts.append(text)
            case CallStart(name):
                calls.append((name, []))
            case CallArguments(text):
                calls[-1][1].append(text)
    text, thought = "".join(said), "".join(thoughts) or None
    called = [(reader.new_call_id(), CalledFunction(name, "".join(pieces))) for name, pieces in calls]
    return ChatMessage(
        content=text if text or not calls else None,
        reasoning_content=thought,
        reasoning=thought,
        tool_calls=[ToolCall(id=call_id, function=function) for call_id, function in called] or UNSET,
    )


def chat_reply(sequence: GeneratedSequence, reader: OutputReader) -> dict[str, Any]:
    """The reply of a sequence that has ended: a message as OpenAI's chats have it, `meta_info` as in /generate."""
    finish = sequence.finish
    assert finish is not None, f"{sequence.uid} has not ended"
    message = to_builtins(chat_message(sequence, reader))
    del message["refusal"], message["reasoning_content"]  # the thought is in `reasoning`
    info = meta_info(sequence, sequence.logprobs.meta() if sequence.logprobs is not None else {})
    meta = fields_of(info) | {name: long.whole() for name, long in longs_of(info).items()}
    meta["reasoning_tokens"] = reader.reasoning_tokens
    reply = {"message": message, "finish_reason": reader.reason(finish), "meta_info": meta}
    ids = prompt_ids_of(sequence)
    return reply if isinstance(ids, UnsetType) else {**reply, "prompt_token_ids": ids}


def routes_of(sequence: GeneratedSequence, *, compact: bool = False) -> str | UnsetType:
    """The experts of its tokens, as the scheduler has packed them: a text, maybe an empty one, of a sequence that asked
    for this form and has ended.
    """
    asked = sequence.prompt.spec.expert_routes
    if asked is None or asked.compact is not compact or sequence.finish is None:
        return UNSET
    return base64.b64encode(sequence.routes).decode("ascii")
