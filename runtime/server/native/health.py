"""Health checks, from cheap to whole, and metrics."""

import asyncio

from aiohttp import web

from ramet.ipc.messages import pack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.engine_client import failures
from ramet.runtime.engine_client.submission import Prompt
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.intake import prompts
from ramet.runtime.server.http.exchange import respond
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.native.replies import Status

GENERATE_WITHIN_S = 20.0
ONE_TOKEN = SamplingParams(max_new_tokens=1, temperature=0.0, ignore_eos=True)


async def health(service: Service, request: web.Request) -> web.Response:
    """Cheap: this process answers, and no other has ended."""
    if service.client.failure is not None:
        raise service.client.failure
    return respond(Status())


async def ready(service: Service, request: web.Request) -> web.Response:
    """Whether new requests are taken."""
    if service.client.is_draining:
        raise failures.draining()
    return await health(service, request)


async def health_generate(service: Service, request: web.Request) -> web.Response:
    """One token through every process."""
    probe = Prompt(f"health-{prompts.new_id()}", RequestSpec(ONE_TOKEN), ids=pack_ids([0]))
    with service.client.submit([probe], streaming=False, probe=True) as submission:
        try:
            await asyncio.wait_for(submission.finished(), GENERATE_WITHIN_S)
        except TimeoutError:
            raise ServerError(f"No token came within {GENERATE_WITHIN_S:g} s.", 503) from None
        except ClientError as error:
            raise ServerError(f"The probe was refused: {error}", 503) from None
    return respond(Status())


async def metrics(service: Service, request: web.Request) -> web.Response:
    """Prometheus metrics."""
    return web.Response(
        body=service.metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    )
