"""POST|PUT /generate: one prompt or a batch, n samples of each, whole or as a stream.

Decides how the native request is read and how its replies look. Section 1 of the native API.
"""

import time
from typing import Any

import orjson
from aiohttp import web
from msgspec import Struct
from msgspec.structs import asdict

from ramet.ipc.params import ParamError, SamplingParams, parse
from ramet.runtime.errors import ClientError
from ramet.runtime.reply import meta_info
from ramet.runtime.server import problems, prompts, sse
from ramet.runtime.server.body import convert, read_object
from ramet.runtime.server.service import Service
from ramet.runtime.server.submission import Prompt, Sequence

Flags = bool | list[bool] | None
Texts = str | list[str | None] | None


class GenerateBody(Struct, frozen=True, kw_only=True):
    """Every field this endpoint knows. A list gives one value per prompt."""

    text: str | list[str] | None = None
    input_ids: list[Any] | None = None
    sampling_params: dict[str, Any] | list[dict[str, Any] | None] | None = None
    rid: str | list[str] | None = None
    stream: bool | None = None
    input_embeds: list[Any] | None = None
    image_data: str | dict[str, Any] | list[Any] | None = None
    audio_data: str | dict[str, Any] | list[Any] | None = None
    video_data: str | dict[str, Any] | list[Any] | None = None
    return_logprob: Flags = None
    logprob_start_len: int | list[int] | None = None
    top_logprobs_num: int | list[int] | None = None
    token_ids_logprob: list[Any] | None = None
    return_text_in_logprobs: bool | None = None
    lora_path: Texts = None
    custom_logit_processor: Texts = None
    return_hidden_states: bool | str | list[bool | str] | None = None
    return_routed_experts: bool | None = None
    routed_experts_start_len: int | None = None
    session_params: dict[str, Any] | list[dict[str, Any] | None] | None = None
    priority: int | list[int | None] | None = None
    extra_key: Texts = None
    cache_salt: Texts = None
    grammar_backend: str | None = None
    token_healing: bool | None = None
    prefix_lease_s: float | None = None


# Fields whose feature is not built: the values that ask for nothing. null and an empty list always do.
UNBUILT: dict[str, tuple[Any, ...]] = {
    "input_embeds": (), "image_data": ("",), "audio_data": ("",), "video_data": ("",),
    "return_logprob": (False,), "logprob_start_len": (-1,), "top_logprobs_num": (0,), "token_ids_logprob": (),
    "return_text_in_logprobs": (False,), "lora_path": ("",), "custom_logit_processor": ("",),
    "return_hidden_states": (False,), "return_routed_experts": (False,), "routed_experts_start_len": (0,),
    "session_params": ({},), "priority": (0,), "extra_key": ("",), "cache_salt": ("",), "grammar_backend": (),
    "token_healing": (False,), "prefix_lease_s": (0.0,),
}  # fmt: skip


async def generate(service: Service, request: web.Request) -> web.StreamResponse:
    """One prompt or a batch, n samples of each, whole or as a stream of cumulative text."""
    body = convert(await read_object(request), GenerateBody)
    prompts.refuse_unbuilt(asdict(body), UNBUILT)
    items, batch = read_prompts(body, service.defaults, service.client.limits.vocab_size)
    as_list = batch or items[0].params.n > 1
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        if body.stream:
            replies = [Reply(sequence) for sequence in submission.sequences]
            deltas = service.args.serve.incremental_streaming_output
            return await sse.stream(request, submission, lambda fresh: _events(replies, fresh, as_list, deltas))
        done = [Reply(sequence) for sequence in await submission.finished()]
    for reply in done:
        reply.advance()
    bodies = [reply.body(reply.text, reply.ids) for reply in done]
    return problems.reply(bodies if as_list else bodies[0])


def read_prompts(body: GenerateBody, defaults: SamplingParams, vocab_size: int) -> tuple[list[Prompt], bool]:
    """The prompts in order, and whether the client sent a list of them."""
    texts, ids, batch = _contents(body, vocab_size)
    count = len(texts) or len(ids)
    place = "input_ids" if ids else "text"
    params = _params(body, count, batch, defaults)
    prompts.check_count(place, count, sum(p.n for p in params))
    rids = _rids(body, count, batch)
    each = isinstance(body.sampling_params, list)
    items = [
        Prompt(
            rids[i],
            params[i],
            text=texts[i] if texts else None,
            ids=ids[i] if ids else None,
            place=f"{place}[{i}]" if batch else place,
            params_place=f"sampling_params[{i}]" if each else "sampling_params",
        )
        for i in range(count)
    ]
    return items, batch


def _contents(body: GenerateBody, vocab_size: int) -> tuple[list[str], list[bytes], bool]:
    """(texts, packed ids, whether it is a list of prompts); one of the two lists is empty."""
    text, ids = body.text, body.input_ids
    if (text is None) == (ids is None):
        raise ClientError("text", "and input_ids: exactly one of them must be set")
    if isinstance(text, str):
        return [prompts.check_text("text", text)], [], False
    if text is not None:
        return [prompts.check_text(f"text[{i}]", each) for i, each in enumerate(text)], [], True
    assert ids is not None
    if prompts.is_batch_of_ids(ids):
        return [], [prompts.pack_checked(f"input_ids[{i}]", each, vocab_size) for i, each in enumerate(ids)], True
    return [], [prompts.pack_checked("input_ids", ids, vocab_size)], False


def _params(body: GenerateBody, count: int, batch: bool, defaults: SamplingParams) -> list[SamplingParams]:
    given = body.sampling_params
    try:
        if not isinstance(given, list):
            return [parse(given or {}, defaults)] * count
        _check_length("sampling_params", len(given), count, batch)
        return [parse(each or {}, defaults, f"sampling_params[{i}]") for i, each in enumerate(given)]
    except ParamError as error:
        raise ClientError.of(error) from None


def _rids(body: GenerateBody, count: int, batch: bool) -> list[str]:
    if body.rid is None:
        return [prompts.new_id() for _ in range(count)]
    if isinstance(body.rid, str):
        return [prompts.check_rid("rid", body.rid)] * count
    _check_length("rid", len(body.rid), count, batch)
    return [prompts.check_rid(f"rid[{i}]", rid) for i, rid in enumerate(body.rid)]


def _check_length(place: str, length: int, count: int, batch: bool) -> None:
    if not batch:
        raise ClientError(place, "is a list, must be one value for one prompt")
    if length != count:
        raise ClientError(place, f"has {length} entries, must have one for each of the {count} prompts")


class Reply:
    """What was read of one sequence so far."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence, self.text, self.ids = sequence, "", list[int]()

    def advance(self) -> tuple[str, list[int]]:
        """Read what came; returns it."""
        texts, ids = self.sequence.take()
        text = "".join(texts) + self.sequence.tail
        self.text += text
        self.ids += ids
        return text, ids

    def body(self, text: str, ids: list[int]) -> dict[str, Any]:
        return {"text": text, "output_ids": ids, "meta_info": self._meta_info()}

    def _meta_info(self) -> dict[str, Any]:
        sequence = self.sequence
        return meta_info(
            sequence.prompt.rid,
            sequence.finish,
            prompt_tokens=sequence.num_prompt,
            completion_tokens=len(self.ids),
            cached_tokens=sequence.num_cached,
            latency_s=time.monotonic() - sequence.submission.arrival_s,
        )


def _events(replies: list[Reply], fresh: list[Sequence], indexed: bool, deltas: bool) -> bytes:
    """One event per sequence that has something new, however many tokens that is."""
    events = []
    for sequence in fresh:
        reply = replies[sequence.index]
        text, ids = reply.advance()
        body = reply.body(text, ids) if deltas else reply.body(reply.text, reply.ids)
        if indexed:
            body["index"] = sequence.index
        events.append(b"data: " + orjson.dumps(body) + b"\n\n")
    return b"".join(events)
