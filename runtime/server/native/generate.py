"""POST|PUT /generate: one prompt or a batch, n samples of each, whole or as a stream. Section 1 of the native API."""

from collections import defaultdict
from typing import Any

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from ramet.ipc.messages import Limits
from ramet.ipc.params import SamplingParams
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.fields import Rid
from ramet.runtime.intake.specs import read_specs
from ramet.runtime.reply import GenerateReply, GrowingReply, logprobs_of
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import encode, read_body, respond, set_request_id, written
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.native.types import GenerateBody


async def generate(service: Service, request: web.Request) -> web.StreamResponse:
    """One prompt or a batch, n samples of each, whole or as a stream of cumulative text."""
    body = await read_body(request, GenerateBody)
    items, batch = read_prompts(
        body,
        set_request_id(request, prompts.new_id(), body.rid if isinstance(body.rid, str) else None),
        service.defaults,
        service.client.limits,
        service.args.execute.enable_custom_logit_processor,
    )
    as_list = batch or items[0].params.n > 1
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        if body.stream:
            deltas = service.args.serve.incremental_streaming_output
            growing = [Progress(s, s.index if as_list else UNSET, deltas) for s in submission.sequences]
            return await sse.stream(request, submission, [each.events for each in growing])
        replies = [GrowingReply(sequence).whole() for sequence in await submission.finished()]
    return respond(replies if as_list else replies[0])


def read_prompts(
    body: GenerateBody, request_id: str, defaults: SamplingParams, limits: Limits, processors_on: bool
) -> tuple[list[Prompt], bool]:
    """The prompts in order, and whether the client sent a list of them."""
    place, contents, batch = _contents(body, limits)
    specs = read_specs(body, len(contents), batch, defaults, processors_on)
    prompts.check_count(place, sum(spec.params.n for spec in specs))
    rids = _rids(body, request_id, len(contents), batch)
    each = isinstance(body.sampling_params, list)
    items = [
        Prompt(
            rids[i],
            specs[i],
            place=at,
            params_place=f"sampling_params[{i}]" if each else "sampling_params",
            **content,
        )
        for i, (at, content) in enumerate(contents)
    ]
    return items, batch


def _contents(body: GenerateBody, limits: Limits) -> tuple[str, list[tuple[str, dict[str, Any]]], bool]:
    """(the field that holds the prompts, each prompt's place and content, whether it is a list of prompts)."""
    given = [name for name in ("text", "input_ids", "input_embeds") if getattr(body, name) is not None]
    if len(given) != 1:
        raise ClientError("text", "and input_ids and input_embeds: exactly one of them must be set")
    (place,) = given
    if body.input_embeds is None:
        contents, batch = prompts.read_contents(place, getattr(body, place), limits.vocab_size)
        return place, [(at, prompts.as_fields(content)) for at, content in contents], batch
    lists: list[Any] = body.input_embeds
    batch = bool(lists[0]) and isinstance(lists[0][0], list)
    each = [(f"{place}[{i}]", rows) for i, rows in enumerate(lists)] if batch else [(place, lists)]
    return place, [(at, {"embeds": prompts.pack_embeds(at, rows, limits.hidden_size)}) for at, rows in each], batch


class OneRid(Struct):
    rid: Rid


class Rids(Struct):
    rid: list[Rid]


def _rids(body: GenerateBody, request_id: str, count: int, batch: bool) -> list[str]:
    if body.rid is None:
        return [f"{request_id}-{i}" for i in range(count)] if batch else [request_id]
    if isinstance(body.rid, str):
        return [convert({"rid": body.rid}, OneRid).rid] * count
    prompts.check_length("rid", len(body.rid), count, batch)
    return convert({"rid": body.rid}, Rids).rid


class GrowingList:
    """The JSON of a list that only grows: its old entries are not encoded again."""

    def __init__(self) -> None:
        self._json, self._num = bytearray(b"["), 0

    def json(self, items: list[Any]) -> Any:
        """The whole list, encoded."""
        if new := items[self._num :]:
            self._json += b"," * bool(self._num) + encode(new)[1:-1]
            self._num = len(items)
        return written(bytes(self._json) + b"]")


class Progress(GrowingReply):
    """For a stream: the lists of whole replies are encoded as they grow."""

    def __init__(self, sequence: Sequence, index: int | UnsetType, deltas: bool) -> None:
        super().__init__(sequence, index)
        self._deltas = deltas
        self._num_prompt_sent = 0  # log-probabilities of the prompt, in replies with only what is new
        self._lists: dict[str, GrowingList] = defaultdict(GrowingList)  # by the fields of a whole reply

    def events(self) -> bytes:
        """All that is new of a sequence is one event, however many tokens that is."""
        return sse.event(self._new() if self._deltas else self.whole())

    def _new(self) -> GenerateReply:
        """A reply with only what is new."""
        sequence, first = self._sequence, self._sequence.num_taken
        text, ids = self._advance()
        logprobs = logprobs_of(sequence, first, self._num_prompt_sent)
        self._num_prompt_sent = len(sequence.logprobs.prompt) if sequence.logprobs is not None else 0
        return self._reply(text, ids, logprobs)

    def _listed(self, name: str, items: list[Any]) -> Any:
        return self._lists[name].json(items)
