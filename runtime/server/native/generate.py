"""POST|PUT /generate: one prompt or a batch, n samples of each, whole or as a stream. Section 1 of the native API."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

from aiohttp import web
from msgspec import UNSET, UnsetType

from ramet.ipc.messages import unpack_ids
from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import calls
from ramet.runtime.intake.constraints import beginning_after
from ramet.runtime.intake.parsers.reasoning import reasoning_style
from ramet.runtime.intake.prompts import new_id
from ramet.runtime.intake.reading import ThoughtCount
from ramet.runtime.long_list import MAX_PART, Listed, LongList, in_parts, parts_of
from ramet.runtime.reply import GenerateReply, GrowingReply
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import (
    MAX_TURN,
    LongJson,
    encode,
    read_body,
    respond_in_turn,
    set_request_id,
    written,
)
from ramet.runtime.server.http.service import Service

NUMBERS_OF_A_REPLY = MAX_PART // 16  # as many numbers one of a list of replies counts as, without its own long lists


async def generate(service: Service, request: web.Request) -> web.StreamResponse:
    """One prompt or a batch, n samples of each, whole or as a stream of cumulative text."""
    body = await read_body(request, calls.GenerateBody)
    rid = set_request_id(request, new_id(), calls.named_by(body))
    processors_on = service.args.execute.enable_custom_logit_processor
    defaults = calls.Defaults(service.defaults, service.client.limits, processors_on, service.heals_unasked)
    items, batch = calls.read_generate(body, rid, defaults)
    as_list = batch or items[0].params.n > 1
    tag = await _closing_tag(service) if body.require_reasoning else None
    if tag is not None:
        items = [item._replace(spec=beginning_after(item.spec, tag[0])) for item in items]
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        if body.stream:
            deltas = service.args.serve.incremental_streaming_output
            growing = [Progress(s, s.index if as_list else UNSET, _counted(tag), deltas) for s in submission.sequences]
            return await sse.stream(request, submission, [each.events for each in growing])
        done = await submission.finished()
    if not as_list:
        return await respond_in_turn(request, GrowingReply(done[0], thought=_counted(tag)).whole())
    return await respond_in_turn(
        request, LongList(in_parts(partial(_replies, done, tag), 0, len(done), NUMBERS_OF_A_REPLY))
    )


def _replies(done: list[Sequence], tag: tuple[str, int | None] | None, start: int, stop: int) -> list[GenerateReply]:
    return [GrowingReply(sequence, thought=_counted(tag)).whole() for sequence in done[start:stop]]


async def _closing_tag(service: Service) -> tuple[str, int | None]:
    """The tag that ends a thought, and its token where it is one. Raises ClientError."""
    if service.style.reasoning is None:
        fact = "is True, but how this model marks its thoughts is not known"
        raise ClientError("require_reasoning", fact, "--reasoning-parser")
    tag = reasoning_style(service.style.reasoning).close_tag
    ids = unpack_ids((await service.client.tokenize(tag, add_special_tokens=False)).ids)
    return tag, ids[0] if len(ids) == 1 else None


def _counted(tag: tuple[str, int | None] | None) -> ThoughtCount | None:
    return ThoughtCount(*tag) if tag is not None else None


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


class GrowingLongList:
    """The same of a list that is long: its JSON is kept, and returned, in pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytearray] = []

    def json(self, new: Listed) -> Iterator[bytes]:
        """The whole list, of which `new` was not encoded before."""
        yield b"["
        for piece in self._pieces:
            yield bytes(piece)
        for part in parts_of(new):
            made = b"," * bool(self._pieces) + encode(part)[1:-1]
            self._keep(made)
            yield made
        yield b"]"

    def _keep(self, made: bytes) -> None:
        if self._pieces and len(self._pieces[-1]) < MAX_TURN:
            self._pieces[-1] += made
        else:
            self._pieces.append(bytearray(made))


class Progress(GrowingReply):
    """For a stream: the lists of whole replies are encoded as they grow."""

    def __init__(self, sequence: Sequence, index: int | UnsetType, thought: ThoughtCount | None, deltas: bool) -> None:
        super().__init__(sequence, index, thought)
        self._deltas = deltas
        self._json_ids = GrowingList()
        self._lists: dict[str, GrowingLongList] = defaultdict(GrowingLongList)  # by the fields of meta_info

    def events(self) -> sse.Events:
        """All that is new of a sequence is one event, however many tokens that is."""
        reply = self._reply(*self._advance()) if self._deltas else self.whole()
        return sse.long_event(reply) if self._sequence.returns_numbers else sse.event(reply)

    def _listed_ids(self, ids: list[int]) -> Any:
        return self._json_ids.json(ids)

    def _grown(self, name: str, new: Listed) -> LongJson:
        return LongJson(self._lists[name].json(new))
