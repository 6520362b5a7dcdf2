"""Generation is paused and goes on, in SGLang's shape."""

from typing import Annotated, Literal

from aiohttp import web

from ramet.ipc.params import about
from ramet.runtime.engine_client.pauses import PauseMode
from ramet.runtime.intake.other_servers import CommandBody
from ramet.runtime.intake.reply import Reply
from ramet.runtime.server.http.exchange import read_command, respond
from ramet.runtime.server.http.service import Service


class PauseBody(CommandBody, frozen=True, kw_only=True):
    mode: Annotated[
        Literal["abort", "retract", "in_place"] | None,
        about("abort: everything ends now (the default); retract: what runs is computed again later; "
              "in_place: it goes on later where it was"),
    ] = None  # fmt: skip


class ContinueBody(CommandBody, frozen=True, kw_only=True):
    torch_empty_cache: Annotated[bool | None, about("accepted; a pause leaves nothing in torch's cache")] = None


class PauseReply(Reply, frozen=True):
    message: str
    status: Literal["ok"] = "ok"


async def pause(service: Service, request: web.Request) -> web.Response:
    """Stop computing: new requests wait until /continue_generation. The reply comes when no step runs."""
    body = await read_command(request, PauseBody)
    service.client.check_ready()  # while it drains, what waits must go on
    await service.client.admin.pauses.pause(PauseMode(body.mode or "abort"))
    return respond(PauseReply("Generation paused successfully."))


async def go_on(service: Service, request: web.Request) -> web.Response:
    """Compute again what waits."""
    await read_command(request, ContinueBody)
    was_paused = service.client.admin.pauses.is_paused
    await service.client.admin.pauses.go_on()
    return respond(PauseReply("Generation continued successfully." if was_paused else "Generation was not paused."))
