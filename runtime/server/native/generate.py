"""POST|PUT /generate: one prompt or a batch, n samples of each, whole or as a stream. Section 1 of the native API."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from aiohttp import web
from msgspec import UNSET

from ramet.ipc.messages import unpack_ids
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.intake import calls
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.constraints import beginning_after
from ramet.runtime.intake.parsers.reasoning import reasoning_style
from ramet.runtime.intake.prompts import new_id, num_prompts
from ramet.runtime.intake.reading import ThoughtCount
from ramet.runtime.intake.reply import whole_reply
from ramet.runtime.replies.long_list import MAX_PART, long_list
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import read_object, respond_in_turn
from ramet.runtime.server.http.request_id import RequestId
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.native.progress import Progress
from ramet.runtime.server.native.sessions import take_turn
from ramet.runtime.workers.offload import FEW_ITEMS, offloaded

NUMBERS_OF_A_REPLY = MAX_PART // 16  # as many numbers one of a list of replies counts as, without its own long lists


class GeneratePrompts(NamedTuple):
    """What a body asks for."""

    items: list[Prompt]
    is_batch: bool
    turn: calls.SessionParams | None = None  # None: it is no request of a session


class ReadBody(NamedTuple):
    rid: str
    asked: tuple[str, int]  # the field of its prompts, and for how many sequences it asks at least
    rest: calls.GenerateBody  # all of the body, or what is asked for beside prompts that were read
    prompts: (
        GeneratePrompts | RametError | None
    )  # the error is raised once so many may be queued; None: they are not read yet


async def generate(service: Service, request: web.Request) -> web.StreamResponse:
    """One prompt or a batch, n samples of each, whole or as a stream of cumulative text."""
    processors_on = service.args.execute.enable_custom_logit_processor
    defaults = calls.CallDefaults(service.defaults, service.client.limits, processors_on, service.heals_unasked)
    rid, asked, body, prompts = await read_object(request, partial(_read, defaults))
    service.client.queue.check_count(*asked)
    if prompts is None:
        prompts = await offloaded(partial(_read_prompts, body, rid, defaults), _num_prompts(body))
    if isinstance(prompts, RametError):
        raise prompts
    items, batch, turn = prompts
    as_list = batch or items[0].spec.params.n > 1
    tag = await _closing_tag(service) if body.require_reasoning else None
    if tag is not None:
        items = [item._replace(spec=beginning_after(item.spec, tag[0])) for item in items]
    if turn is not None:
        return await take_turn(service, request, turn, items[0], _counted(tag), stream=bool(body.stream))
    with service.client.open(streaming=bool(body.stream), rid=rid) as submission:
        await service.client.send_in_pieces(items, submission)
        if body.stream:
            deltas = service.args.serve.incremental_streaming_output
            sequences = submission.sequences

            def writer(index: int) -> sse.Writer:
                return Progress(sequences[index], index if as_list else UNSET, _counted(tag), deltas).events

            return await sse.stream(request, submission, sse.Writers(writer))
        done = await submission.finished()
    if not as_list:
        return await respond_in_turn(request, whole_reply(done[0], _counted(tag)))
    made = long_list(lambda i: whole_reply(done[i], _counted(tag)), len(done), NUMBERS_OF_A_REPLY)
    return await respond_in_turn(request, made)


def _read(defaults: calls.CallDefaults, request_id: RequestId, written: dict[str, Any]) -> ReadBody:
    """Raises ClientError. Where a process reads the body, it reads prompts as well, but many or those that share what
    is asked of them, which would come back with a copy each.
    """
    asked = calls.num_asked(written)  # first: fields take time that too many prompts are not worth
    body = convert(written, calls.GenerateBody)
    rid = request_id.choose(new_id(), calls.named_by(body))
    num = _num_prompts(body)
    if num > (FEW_ITEMS if isinstance(body.sampling_params, list) else 1):
        return ReadBody(rid, asked, body, None)
    rest = calls.GenerateBody(stream=body.stream, require_reasoning=body.require_reasoning)
    try:
        return ReadBody(rid, asked, rest, _read_prompts(body, rid, defaults))
    except RametError as error:
        return ReadBody(rid, asked, rest, error)


def _num_prompts(body: calls.GenerateBody) -> int:
    return max(map(num_prompts, (body.text, body.input_ids, body.input_embeds)))


def _read_prompts(body: calls.GenerateBody, rid: str, defaults: calls.CallDefaults) -> GeneratePrompts:
    turn = calls.read_turn(body, rid, defaults)
    if turn is not None:
        return GeneratePrompts([turn.prompt], False, turn.asked)
    return GeneratePrompts(*calls.read_generate(body, rid, defaults))


async def _closing_tag(service: Service) -> tuple[str, Sequence[int]]:
    """The tag that ends a thought, and its tokens. Raises ClientError."""
    if service.style.reasoning is None:
        fact = "is True, but how this model marks its thoughts is not known"
        raise ClientError("require_reasoning", fact, "--reasoning-parser")
    tag = reasoning_style(service.style.reasoning).close_tag
    return tag, unpack_ids((await service.client.text.tokenize(tag, add_special_tokens=False)).ids)


def _counted(tag: tuple[str, Sequence[int]] | None) -> ThoughtCount | None:
    return ThoughtCount(*tag) if tag is not None else None
