"""What the processes did lately, and profiles of the model's operations, for operators."""

import asyncio
import sys
import time
from typing import Annotated, Any, Literal

import orjson
from aiohttp import web
from msgspec import Meta

from ramet.ipc.control import StartProfile, StopProfile
from ramet.ipc.params import about, shown
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.fields import named, unbuilt
from ramet.runtime.metrics.timeline import DEFAULT_S, MAX_S
from ramet.runtime.server.http.exchange import read_command
from ramet.runtime.server.http.query_numbers import number
from ramet.runtime.server.http.service import Service

Name = Annotated[str, named("1 to 100 letters, digits and . _ -, first no dot", pattern=r"^[\w-][\w.-]{0,99}$(?!\n)")]
_one_at_a_time = asyncio.Lock()  # a timeline takes a core for as long as it is made


class ProfileBody(Checked, frozen=True, kw_only=True):
    """Other fields are passed over: vLLM's benchmark posts the body of a completion here."""

    output_dir: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        about("folder of the file, on the server's machine; --trace-dir keeps it inside"),
    ] = None
    start_step: Annotated[
        Annotated[int, Meta(ge=0)] | None, about("the first step that is recorded, as scheduler_steps counts them")
    ] = None
    num_steps: Annotated[
        Annotated[int, Meta(ge=1, le=1000)] | None, about("after which it ends by itself; 1000 if left out")
    ] = None
    activities: Annotated[
        Annotated[list[Literal["CPU", "GPU"]], Meta(min_length=1, max_length=2)] | None,
        about("both if left out; GPU records nothing of a model on the CPU"),
    ] = None
    with_stack: Annotated[bool | None, about("Python's stacks as well, which slow steps down")] = None
    record_shapes: Annotated[bool | None, about("shapes of operands as well")] = None
    profile_id: Annotated[Name | None, about("name of the file; the time if left out")] = None
    profile_prefix: Annotated[Name | None, about("put before it, with a -")] = None
    merge_profiles: Annotated[bool | None, about("accepted; there is one process to profile")] = None
    profile_by_stage: Annotated[bool | None, unbuilt("a file for prefill and one for decode", neutral=(False,))] = None
    profile_stages: Annotated[list[str] | None, unbuilt("some of these")] = None
    detailed_annotations: Annotated[bool | None, unbuilt("more names of scopes", neutral=(False,))] = None


async def start_profile(service: Service, request: web.Request) -> web.Response:
    """Record the operations of steps with torch's profiler, into a file that Perfetto opens."""
    body = await read_command(request, ProfileBody)
    kinds, name = body.activities or ["CPU", "GPU"], body.profile_id or f"{time.time():.6f}"
    reply = await service.client.admin.control(
        lambda call: StartProfile(
            call,
            name=f"{body.profile_prefix}-{name}" if body.profile_prefix else name,
            folder=body.output_dir,
            start_step=body.start_step,
            num_steps=body.num_steps,
            with_cpu="CPU" in kinds,
            with_gpu="GPU" in kinds,
            with_stack=bool(body.with_stack),
            record_shapes=bool(body.record_shapes),
        )
    )
    _told(reply.ok, reply.body)
    return web.Response(text="Start profiling.\n")


async def stop_profile(service: Service, request: web.Request) -> web.Response:
    """End the recording. The reply comes when the file is written, and names it, also when it has ended by itself."""
    reply = await service.client.admin.control(StopProfile)
    path = _told(reply.ok, reply.body)["path"]
    return web.Response(text=f"Stop profiling. This will take some time.\n{path}\n")


def _told(ok: bool, body: bytes) -> dict[str, Any]:
    """Raises ClientError if the scheduler refused."""
    told: dict[str, Any] = orjson.loads(body)
    if not ok:
        raise ClientError("", told["error"])
    return told


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
    module = "ramet.runtime.metrics.timeline"
    maker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, folder, f"{seconds:g}", stdout=asyncio.subprocess.PIPE
    )
    try:
        data, _ = await maker.communicate()
    finally:
        if maker.returncode is None:
            maker.kill()
    if maker.returncode:
        raise ServerError("The timeline could not be made; the server's log says why.")
    return data


def _seconds(text: str) -> float:
    value = number(text)
    if not 0 < value <= MAX_S:
        raise ClientError("seconds", f"is {shown(text)}, must be seconds in (0, {MAX_S:g}]")
    return value
