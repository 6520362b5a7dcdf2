"""POST /language/generate, /language/select, /language/render and /language/end: what programs ask a server for."""

from functools import partial

from aiohttp import web

from ramet.runtime.intake.calls import CallDefaults
from ramet.runtime.intake.language import EndBody, LanguageGenerateBody, RenderBody, SelectBody
from ramet.runtime.intake.prompts import new_id
from ramet.runtime.language.calls import LanguageCalls
from ramet.runtime.language.replies import LanguageOutput
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import read_body, respond, respond_in_turn
from ramet.runtime.server.http.request_id import set_request_id
from ramet.runtime.server.http.service import Service


async def generate(service: Service, request: web.Request) -> web.StreamResponse:
    """A prompt of texts, turns and contexts to its output, whole or as a stream of what is new."""
    body = await read_body(request, LanguageGenerateBody)
    rid = set_request_id(request, new_id(), body.rid)
    calls = _calls(service)
    if not body.stream:
        return await respond_in_turn(request, await calls.generate(body, rid))
    with service.client.open(streaming=True, rid=rid) as submission:
        outputs = await calls.start(submission, body, rid)
        return await sse.stream(request, submission, [partial(_event, output) for output in outputs])


async def select(service: Service, request: web.Request) -> web.StreamResponse:
    """The one of several texts that the model would rather write behind a prompt."""
    body = await read_body(request, SelectBody)
    rid = set_request_id(request, new_id(), body.rid)
    return await respond_in_turn(request, await _calls(service).select(body, rid))


async def render(service: Service, request: web.Request) -> web.Response:
    """A prompt of texts, turns and contexts as the text that the model reads."""
    return respond(await _calls(service).render(await read_body(request, RenderBody)))


async def end(service: Service, request: web.Request) -> web.Response:
    """Programs have ended: what was kept for their next calls is not needed."""
    return respond(_calls(service).end(await read_body(request, EndBody)))


def _calls(service: Service) -> LanguageCalls:
    processors_on = service.args.execute.enable_custom_logit_processor
    defaults = CallDefaults(service.defaults, service.client.limits, processors_on)
    return LanguageCalls(service.client, defaults, service.style)


def _event(output: LanguageOutput) -> sse.Events:
    return sse.long_event(output.new())
