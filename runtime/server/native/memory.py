"""Memory of a server that has nothing to do is given back, and taken again, in SGLang's shape."""

from typing import Annotated, Literal

from aiohttp import web

from ramet.ipc.control import MemoryTag
from ramet.ipc.params import about
from ramet.runtime.intake.other_servers import CommandBody
from ramet.runtime.server.http.exchange import read_command, respond
from ramet.runtime.server.http.service import Service


class TagsBody(CommandBody, frozen=True, kw_only=True):
    tags: Annotated[
        list[Literal["weights", "kv_cache", "cuda_graph"]] | None, about("all of them if left out or empty")
    ] = None

    @property
    def chosen(self) -> list[MemoryTag]:
        return [MemoryTag(tag) for tag in self.tags] if self.tags else list(MemoryTag)


async def release(service: Service, request: web.Request) -> web.Response:
    """Give memory back to the system while nothing runs: new requests wait until /resume_memory_occupation."""
    body = await read_command(request, TagsBody)
    service.client.check_ready()  # while it drains, what waits must go on
    await service.client.admin.release_memory(body.chosen)
    return respond(None)


async def resume(service: Service, request: web.Request) -> web.Response:
    """Take the memory again, and compute what waits once all of it is there."""
    body = await read_command(request, TagsBody)
    await service.client.admin.resume_memory(body.chosen)
    return respond(None)
