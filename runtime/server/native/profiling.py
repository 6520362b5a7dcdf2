"""What the processes did lately, and profiles of the model's operations, for operators."""

import asyncio
import math
import sys

from aiohttp import web

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.server.http.service import Service
from ramet.runtime.timeline import DEFAULT_S, MAX_S

_one_at_a_time = asyncio.Lock()  # a timeline takes a core for as long as it is made


async def trace(service: Service, request: web.Request) -> web.Response:
    """What the processes did in the last `seconds`, for ui.perfetto.dev: compressed JSON of Chrome's trace events."""
    seconds = _seconds(request.query.get("seconds", f"{DEFAULT_S:g}"))
    if service.sockets is None:
        raise ServerError("There are no other processes here.", 501)
    async with _one_at_a_time:
        data = await _made_elsewhere(str(service.sockets.path), seconds)
    named = {"Content-Disposition": 'attachment; filename="ramet-trace.json.gz"'}
    return web.Response(body=data, content_type="application/gzip", headers=named)


async def _made_elsewhere(folder: str, seconds: float) -> bytes:
    """In a process of its own: other requests do not wait."""
    command = (sys.executable, "-m", "ramet.runtime.timeline", folder, f"{seconds:g}")
    maker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        data, _ = await maker.communicate()
    finally:
        if maker.returncode is None:
            maker.kill()
    if maker.returncode:
        raise ServerError("The timeline could not be made; the server's log says why.")
    return data


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MAX_S:
        raise ClientError("seconds", f"is {shown(text)}, must be seconds in (0, {MAX_S:g}]")
    return value
