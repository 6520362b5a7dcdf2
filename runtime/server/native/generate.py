"""POST|PUT /generate: one prompt or a batch, n samples of each, whole or as a stream. Section 1 of the native API."""

from collections import defaultdict
from typing import Any

from aiohttp import web
from msgspec import UNSET, UnsetType

from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.intake import calls
from ramet.runtime.intake.prompts import new_id
from ramet.runtime.reply import GenerateReply, GrowingReply, logprobs_of
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import encode, read_body, respond, set_request_id, written
from ramet.runtime.server.http.service import Service


async def generate(service: Service, request: web.Request) -> web.StreamResponse:
    """One prompt or a batch, n samples of each, whole or as a stream of cumulative text."""
    body = await read_body(request, calls.GenerateBody)
    rid = set_request_id(request, new_id(), calls.named_by(body))
    processors_on = service.args.execute.enable_custom_logit_processor
    items, batch = calls.read_generate(
        body, rid, calls.Defaults(service.defaults, service.client.limits, processors_on)
    )
    as_list = batch or items[0].params.n > 1
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        if body.stream:
            deltas = service.args.serve.incremental_streaming_output
            growing = [Progress(s, s.index if as_list else UNSET, deltas) for s in submission.sequences]
            return await sse.stream(request, submission, [each.events for each in growing])
        replies = [GrowingReply(sequence).whole() for sequence in await submission.finished()]
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
