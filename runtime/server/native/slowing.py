"""A server that is slower than it could be, in SGLang's shape: for tests of what clients and routers do then."""

from typing import Annotated

from aiohttp import web
from msgspec import Meta

from ramet.ipc.control import SlowDown
from ramet.ipc.params import about
from ramet.runtime.intake.other_servers import CommandBody
from ramet.runtime.server.http.exchange import read_command, respond
from ramet.runtime.server.http.service import Service


class SlowBody(CommandBody, frozen=True, kw_only=True):
    forward_sleep_time: Annotated[
        Annotated[float, Meta(ge=0, le=60)] | None, about("seconds to sleep after each step; null or 0: no longer")
    ] = None


async def slow_down(service: Service, request: web.Request) -> web.Response:
    """Sleep after each step, to test what a slow server does to others."""
    body = await read_command(request, SlowBody)
    await service.client.admin.control(lambda call: SlowDown(call, body.forward_sleep_time))
    return respond(None)
