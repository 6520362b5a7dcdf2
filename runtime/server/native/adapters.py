"""Adapters that are loaded and unloaded while the server runs, in SGLang's shape and under vLLM's paths as well."""

from collections.abc import Awaitable
from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta

from ramet.ipc.params import about
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.fields import accepted
from ramet.runtime.intake.other_servers import CommandBody
from ramet.runtime.intake.reply import Reply
from ramet.runtime.options.adapter_paths import MAX_NAME
from ramet.runtime.server.http.exchange import read_body, respond
from ramet.runtime.server.http.service import Service

BY_NAME = accepted("adapters are known by their names")
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


class LoadBody(CommandBody, frozen=True, kw_only=True):
    lora_name: Annotated[Name, about("what requests call it")]
    lora_path: Annotated[str, about("its folder, on the server's machine")]
    pinned: Annotated[bool | None, about("it keeps its slot, whoever waits for one")] = None
    load_inplace: Annotated[bool | None, about("it may take the place of the adapter that has this name")] = None
    lora_id: Annotated[str | None, BY_NAME] = None


class UnloadBody(CommandBody, frozen=True, kw_only=True):
    lora_name: Annotated[Name, about("of an adapter that is loaded")]
    lora_id: Annotated[str | None, BY_NAME] = None
    lora_int_id: Annotated[int | None, BY_NAME] = None


class AdapterReply(Reply, frozen=True, kw_only=True):
    """`loaded_adapters`: path by name, after it."""

    success: bool
    error_message: str = ""
    loaded_adapters: dict[str, str]


async def load(service: Service, request: web.Request) -> web.Response:
    """Load an adapter. Requests go on meanwhile; those that have one of the same name end with that."""
    body = await read_body(request, LoadBody)
    options: dict[str, Any] = dict(pinned=bool(body.pinned), replaces=bool(body.load_inplace))
    return await _changed(service, service.client.admin.load_adapter(body.lora_name, body.lora_path, **options))


async def unload(service: Service, request: web.Request) -> web.Response:
    """Forget an adapter. It is refused to new requests at once; the reply comes when those that have it are done."""
    body = await read_body(request, UnloadBody)
    return await _changed(service, service.client.admin.unload_adapter(body.lora_name))


async def _changed(service: Service, change: Awaitable[None]) -> web.Response:
    message, status = "", 200
    try:
        await change
    except ClientError as error:
        message, status = str(error), error.status
    paths = service.client.admin.adapters.paths
    return respond(AdapterReply(success=status == 200, error_message=message, loaded_adapters=paths), status)
