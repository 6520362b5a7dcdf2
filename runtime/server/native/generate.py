"""POST|PUT /generate: one prompt or a batch, n samples of each, whole or as a stream. Section 1 of the native API."""

from collections.abc import Sequence as Many
from functools import partial
from typing import Any

from aiohttp import web
from msgspec import UNSET

from ramet.ipc.messages import unpack_ids
from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import calls
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.constraints import beginning_after
from ramet.runtime.intake.parsers.reasoning import reasoning_style
from ramet.runtime.intake.prompts import new_id, num_prompts
from ramet.runtime.intake.reading import ThoughtCount
from ramet.runtime.long_list import MAX_PART, LongList, in_parts
from ramet.runtime.offload import offloaded
from ramet.runtime.reply import GenerateReply, GrowingReply
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import read_object, respond_in_turn
from ramet.runtime.server.http.request_id import RequestId, set_request_id
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.native.progress import Progress
from ramet.runtime.server.native.sessions import take_turn

NUMBERS_OF_A_REPLY = MAX_PART // 16  # as many numbers one of a list of replies counts as, without its own long lists


async def generate(service: Service, request: web.Request) -> web.StreamResponse:
    """One prompt or a batch, n samples of each, whole or as a stream of cumulative text."""
    body, asked = await read_object(request, _read)
    service.client.check_count(*asked)
    rid = set_request_id(request, new_id(), calls.named_by(body))
    processors_on = service.args.execute.enable_custom_logit_processor
    defaults = calls.Defaults(service.defaults, service.client.limits, processors_on, service.heals_unasked)
    num = max(map(num_prompts, (body.text, body.input_ids, body.input_embeds)))
    turn = await offloaded(partial(calls.read_turn, body, rid, defaults), num)
    if turn is None:
        items, batch = await offloaded(partial(calls.read_generate, body, rid, defaults), num)
    else:
        items, batch = [turn.prompt], False
    as_list = batch or items[0].params.n > 1
    tag = await _closing_tag(service) if body.require_reasoning else None
    if tag is not None:
        items = [item._replace(spec=beginning_after(item.spec, tag[0])) for item in items]
    if turn is not None:
        return await take_turn(service, request, turn.asked, items[0], _counted(tag), stream=bool(body.stream))
    with service.client.open(streaming=bool(body.stream), rid=rid) as submission:
        await service.client.send_with_media(items, submission)
        if body.stream:
            deltas = service.args.serve.incremental_streaming_output
            sequences = submission.sequences

            def writer(index: int) -> sse.Writer:
                return Progress(sequences[index], index if as_list else UNSET, _counted(tag), deltas).events

            return await sse.stream(request, submission, sse.Writers(writer))
        done = await submission.finished()
    if not as_list:
        return await respond_in_turn(request, GrowingReply(done[0], thought=_counted(tag)).whole())
    return await respond_in_turn(
        request, LongList(in_parts(partial(_replies, done, tag), 0, len(done), NUMBERS_OF_A_REPLY))
    )


def _read(_: RequestId, written: dict[str, Any]) -> tuple[calls.GenerateBody, tuple[str, int]]:
    """The body, the field of its prompts, and for how many sequences it asks at least. Raises ClientError."""
    asked = calls.num_asked(written)  # first: fields take time that too many prompts are not worth
    return convert(written, calls.GenerateBody), asked


def _replies(done: list[Sequence], tag: tuple[str, Many[int]] | None, start: int, stop: int) -> list[GenerateReply]:
    return [GrowingReply(sequence, thought=_counted(tag)).whole() for sequence in done[start:stop]]


async def _closing_tag(service: Service) -> tuple[str, Many[int]]:
    """The tag that ends a thought, and its tokens. Raises ClientError."""
    if service.style.reasoning is None:
        fact = "is True, but how this model marks its thoughts is not known"
        raise ClientError("require_reasoning", fact, "--reasoning-parser")
    tag = reasoning_style(service.style.reasoning).close_tag
    return tag, unpack_ids((await service.client.tokenize(tag, add_special_tokens=False)).ids)


def _counted(tag: tuple[str, Many[int]] | None) -> ThoughtCount | None:
    return ThoughtCount(*tag) if tag is not None else None
