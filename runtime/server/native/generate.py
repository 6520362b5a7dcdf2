"""POST|PUT /generate: one prompt or a batch, n samples of each, whole or as a stream.

Decides how the native request is read and how its replies look. Section 1 of the native API.
"""

import time
from typing import Annotated, Any

import orjson
from aiohttp import web
from msgspec import Meta, Struct

from ramet.ipc.messages import Limits
from ramet.ipc.params import SamplingParams, about
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.fields import RID, Ids, OrEach, PromptId, Rid, Text
from ramet.runtime.intake.limits import MAX_EMBED
from ramet.runtime.intake.specs import SpecLists, read_specs
from ramet.runtime.intake.unbuilt import unbuilt
from ramet.runtime.logprobs import NAMES
from ramet.runtime.reply import meta_info
from ramet.runtime.server.http import problems, request_ids, sse
from ramet.runtime.server.http.request_body import read_object
from ramet.runtime.server.http.service import Service

Embed = Annotated[float, Meta(ge=-MAX_EMBED, le=MAX_EMBED)]
Media = str | dict[str, Any] | list[Any] | None


class GenerateBody(SpecLists, frozen=True, kw_only=True):
    """Every field this endpoint knows. A list gives one value per prompt."""

    text: Annotated[Text | Annotated[list[Text], Meta(min_length=1)] | None, about("a prompt, or a list of them")] = (
        None
    )
    input_ids: Annotated[
        Annotated[list[PromptId | Ids], Meta(min_length=1)] | None, about("a prompt as token ids, or a list of such")
    ] = None
    input_embeds: Annotated[
        Annotated[list[list[Embed | list[Embed]]], Meta(min_length=1)] | None,
        about("a prompt as rows of hidden_size numbers, or a list of such; it shares the cache with equal ones only"),
    ] = None
    rid: Annotated[
        str | list[str] | None,
        about(
            "name of the request, for /abort_request; a new one if it is absent", pattern=RID, items={"pattern": RID}
        ),
    ] = None
    stream: Annotated[bool | None, about("server-sent events as tokens come")] = None
    image_data: Annotated[Media, unbuilt("pictures", neutral=("",))] = None
    audio_data: Annotated[Media, unbuilt("sound", neutral=("",))] = None
    video_data: Annotated[Media, unbuilt("films", neutral=("",))] = None
    lora_path: Annotated[OrEach[str], unbuilt("an adapter", neutral=("",))] = None
    return_routed_experts: Annotated[
        bool | None, unbuilt("which experts each token went through", neutral=(False,))
    ] = None
    routed_experts_start_len: Annotated[int | None, unbuilt("from which token on", neutral=(0,))] = None
    session_params: Annotated[OrEach[dict[str, Any]], unbuilt("a session", neutral=({},))] = None
    grammar_backend: Annotated[str | None, unbuilt("which library keeps the output to its constraint")] = None
    token_healing: Annotated[bool | None, unbuilt("the prompt's last token is drawn again", neutral=(False,))] = None
    prefix_lease_s: Annotated[float | None, unbuilt("how long the prompt's prefix is kept", neutral=(0.0,))] = None


async def generate(service: Service, request: web.Request) -> web.StreamResponse:
    """One prompt or a batch, n samples of each, whole or as a stream of cumulative text."""
    body = convert(await read_object(request), GenerateBody)
    items, batch = read_prompts(
        body,
        request_ids.of_request(request, prompts.new_id(), body.rid if isinstance(body.rid, str) else None),
        service.defaults,
        service.client.limits,
        service.args.execute.enable_custom_logit_processor,
    )
    as_list = batch or items[0].params.n > 1
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        if body.stream:
            replies = [Reply(sequence) for sequence in submission.sequences]
            deltas = service.args.serve.incremental_streaming_output
            return await sse.stream(request, submission, lambda fresh: _events(replies, fresh, as_list, deltas))
        done = [Reply(sequence) for sequence in await submission.finished()]
    for reply in done:
        reply.advance()
    bodies = [reply.whole() for reply in done]
    return problems.reply(bodies if as_list else bodies[0])


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


class GrownList:
    """A list that only grows, as JSON: what was there before is not encoded again."""

    def __init__(self) -> None:
        self._json, self._num = bytearray(b"["), 0

    def json(self, items: list[Any]) -> orjson.Fragment:
        if new := items[self._num :]:
            self._json += b"," * bool(self._num) + orjson.dumps(new)[1:-1]
            self._num = len(items)
        return orjson.Fragment(bytes(self._json) + b"]")


class Reply:
    """What was read of one sequence so far."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence, self.text, self.ids = sequence, "", list[int]()
        self._told = 0  # of the prompt's log-probabilities, in the events that hold only what is new
        self._lists: dict[str, GrownList] = {}  # log-probabilities that earlier events have told as well

    def advance(self) -> tuple[str, list[int]]:
        """Read what came; returns it."""
        texts, ids = self.sequence.take()
        text = "".join(texts) + self.sequence.tail
        self.text += text
        self.ids += ids
        return text, ids

    def whole(self) -> dict[str, Any]:
        meta = self._meta_info(0, 0)
        for name in meta.keys() & NAMES:
            meta[name] = self._lists.setdefault(name, GrownList()).json(meta[name])
        return {"text": self.text, "output_ids": self.ids, "meta_info": meta}

    def new(self, text: str, ids: list[int]) -> dict[str, Any]:
        """What `advance` gave, and of the log-probabilities what is new with it."""
        meta = self._meta_info(len(self.ids) - len(ids), self._told)
        self._told = len(self.sequence.scores.prompt) if self.sequence.scores is not None else 0
        return {"text": text, "output_ids": ids, "meta_info": meta}

    def _meta_info(self, first_output: int, first_prompt: int) -> dict[str, Any]:
        """Log-probabilities are those from these places on."""
        sequence = self.sequence
        info = meta_info(
            sequence.prompt.rid,
            sequence.finish,
            prompt_tokens=sequence.num_prompt,
            completion_tokens=len(self.ids),
            cached_tokens=sequence.num_cached,
            latency_s=time.monotonic() - sequence.submission.arrival_s,
        )
        if sequence.scores is not None:
            info |= sequence.scores.meta(first_output, first_prompt)
        if sequence.hidden is not None and sequence.finish is not None:
            info["hidden_states"] = sequence.hidden.meta()
        return info


def _events(replies: list[Reply], fresh: list[Sequence], indexed: bool, deltas: bool) -> bytes:
    """One event per sequence that has something new, however many tokens that is."""
    events = []
    for sequence in fresh:
        reply = replies[sequence.index]
        text, ids = reply.advance()
        body = reply.new(text, ids) if deltas else reply.whole()
        if indexed:
            body["index"] = sequence.index
        events.append(b"data: " + orjson.dumps(body) + b"\n\n")
    return b"".join(events)
