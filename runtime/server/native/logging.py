"""POST /configure_logging: what is logged, changed while the server runs."""

from typing import Annotated, Any, Literal

from aiohttp import web
from msgspec import Meta
from msgspec.structs import replace

from ramet.ipc.control import SetLogLevel
from ramet.ipc.params import about, shown
from ramet.runtime import log
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.fields import unbuilt
from ramet.runtime.intake.other_servers import CommandBody
from ramet.runtime.server.http.exchange import read_command
from ramet.runtime.server.http.service import Service

LEVELS = ("debug", "info", "warning", "error")
DUMPS = "requests dumped to files"


class LoggingBody(CommandBody, frozen=True, kw_only=True):
    """What is absent or null stays as it is."""

    log_requests: Annotated[bool | None, about("as `--log-requests`, for requests that begin from now on")] = None
    log_requests_level: Annotated[
        Annotated[int, Meta(ge=0, le=3)] | None, about("as `--log-requests-level`, in [0, 3]")
    ] = None
    log_requests_format: Annotated[Literal["text", "json"] | None, about("as `--log-requests-format`")] = None
    log_level: Annotated[
        str | None,
        about("debug, info, warning or error: what the server and the scheduler print", enum=[*LEVELS, None]),
    ] = None
    dump_requests_folder: Annotated[str | None, unbuilt(DUMPS, neutral=("",))] = None
    dump_requests_threshold: Annotated[int | None, unbuilt(DUMPS)] = None
    crash_dump_folder: Annotated[str | None, unbuilt(DUMPS, neutral=("",))] = None
    dump_requests_exclude_meta_keys: Annotated[list[Any] | None, unbuilt(DUMPS)] = None


async def configure_logging(service: Service, request: web.Request) -> web.Response:
    """Change what is logged: requests, their level and format, and the least severe line that is printed."""
    body = await read_command(request, LoggingBody)
    level = body.log_level.lower() if body.log_level is not None else None
    if level is not None and level not in LEVELS:
        raise ClientError("log_level", f"is {shown(body.log_level)}, must be one of {', '.join(LEVELS)}")
    given = {"on": body.log_requests, "level": body.log_requests_level, "format": body.log_requests_format}
    changed = {name: value for name, value in given.items() if value is not None}
    service.client.request_log.change(replace(service.client.request_log.settings, **changed))
    if level is not None:
        log.set_level(level)
        await service.client.admin.control(lambda call: SetLogLevel(call, level))
    return web.Response()
