"""POST|PUT /generate: one prompt or a batch, n samples of each, whole or as a stream. Section 1 of the native API."""

import time
from collections import defaultdict
from typing import Any

from aiohttp import web
from msgspec import UNSET, UnsetType

from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.intake import calls
from ramet.runtime.intake.prompts import new_id
from ramet.runtime.reply import GenerateReply, MetaInfo, meta_info
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import encode, read_body, respond, set_request_id, written
from ramet.runtime.server.http.service import Service


async def generate(service: Service, request: web.Request) -> web.StreamResponse:
    """One prompt or a batch, n samples of each, whole or as a stream of cumulative text."""
    body = await read_body(request, calls.GenerateBody)
    rid = set_request_id(request, new_id(), body.rid if isinstance(body.rid, str) else None)
    processors_on = service.args.execute.enable_custom_logit_processor
    items, batch = calls.read_generate(
        body, rid, calls.Defaults(service.defaults, service.client.limits, processors_on)
    )
    as_list = batch or items[0].params.n > 1
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        if body.stream:
            growing = [Progress(sequence) for sequence in submission.sequences]
            deltas = service.args.serve.incremental_streaming_output

            def events(fresh: list[Sequence]) -> bytes:
                return b"".join([_event(growing[s.index], s.index if as_list else UNSET, deltas) for s in fresh])

            return await sse.stream(request, submission, events)
        done = [Progress(sequence) for sequence in await submission.finished()]
    for progress in done:
        progress.advance()
    replies = [progress.whole() for progress in done]
    return respond(replies if as_list else replies[0])


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


class Progress:
    """The output of one sequence as far as it was read."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence, self.text, self.ids = sequence, "", list[int]()
        self._num_prompt_sent = 0  # log-probabilities of the prompt, in replies with only what is new
        self._lists: dict[str, GrowingList] = defaultdict(GrowingList)  # by the fields of a whole reply

    def advance(self) -> tuple[str, list[int]]:
        """Reads and returns what is new."""
        texts, ids = self.sequence.take()
        text = "".join(texts) + self.sequence.tail
        self.text += text
        self.ids += ids
        return text, ids

    def whole(self, index: int | UnsetType = UNSET) -> GenerateReply:
        logprobs = {name: self._lists[name].json(items) for name, items in self._logprobs(0, 0).items()}
        output_ids = self._lists["output_ids"].json(self.ids)
        return GenerateReply(self.text, output_ids, self._meta_info(logprobs), index)

    def new(self, index: int | UnsetType = UNSET) -> GenerateReply:
        """`advance`, and a reply with only what is new by it."""
        text, ids = self.advance()
        meta = self._meta_info(self._logprobs(len(self.ids) - len(ids), self._num_prompt_sent))
        self._num_prompt_sent = len(self.sequence.logprobs.prompt) if self.sequence.logprobs is not None else 0
        return GenerateReply(text, ids, meta, index)

    def _logprobs(self, first_output: int, first_prompt: int) -> dict[str, Any]:
        """The lists of meta_info from these places on."""
        lists = self.sequence.logprobs
        return lists.meta(first_output, first_prompt) if lists is not None else {}

    def _meta_info(self, logprobs: dict[str, Any]) -> MetaInfo:
        sequence = self.sequence
        return meta_info(
            sequence.prompt.rid,
            sequence.finish,
            prompt_tokens=sequence.num_prompt,
            completion_tokens=len(self.ids),
            cached_tokens=sequence.num_cached,
            latency_s=time.monotonic() - sequence.submission.arrival_s,
            logprobs=logprobs,
            hidden=sequence.hidden,
        )


def _event(progress: Progress, index: int | UnsetType, deltas: bool) -> bytes:
    """All that is new of a sequence is one event, however many tokens that is."""
    if deltas:
        return sse.event(progress.new(index))
    progress.advance()
    return sse.event(progress.whole(index))
