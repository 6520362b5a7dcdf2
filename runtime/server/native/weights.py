"""Other weights for the model that is served, in SGLang's shape."""

from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta

from ramet.ipc.params import about
from ramet.runtime.engine_client.weights import UPDATED
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.fields import accepted, unbuilt
from ramet.runtime.intake.other_servers import CommandBody
from ramet.runtime.intake.reply import Reply
from ramet.runtime.server.http.exchange import read_body, respond
from ramet.runtime.server.http.service import Service

Version = Annotated[str, Meta(min_length=1, max_length=512)]


class UpdateBody(CommandBody, frozen=True, kw_only=True):
    model_path: Annotated[
        Annotated[str, Meta(min_length=1)], about("folder of a model of the same config.json, on the server's machine")
    ]
    weight_version: Annotated[Version | None, about("what replies call these weights; by default the path")] = None
    abort_all_requests: Annotated[bool | None, about("end what runs and waits, instead of waiting for it")] = None
    recapture_cuda_graph: Annotated[
        bool | None, unbuilt("graphs are never recorded with other addresses", neutral=(False,))
    ] = None
    manifest: Annotated[dict[str, Any] | None, unbuilt("which files there are", neutral=({},))] = None
    load_format: Annotated[str | None, accepted("a folder is read by what it holds")] = None
    is_async: Annotated[bool | None, accepted("requests go on while the files are read")] = None
    torch_empty_cache: Annotated[bool | None, accepted("nothing is left in torch's cache")] = None
    keep_pause: Annotated[bool | None, accepted("a pause lasts until /continue_generation")] = None
    flush_cache: Annotated[bool | None, accepted("what other weights have computed is never used again")] = None
    token_step: Annotated[int | None, accepted("it changes no reply")] = None


class VersionBody(CommandBody, frozen=True, kw_only=True):
    new_version: Annotated[Version, about("what replies call the weights from now on")]
    abort_all_requests: Annotated[bool | None, about("end what runs and waits")] = None


class UpdateReply(Reply, frozen=True):
    """`num_paused_requests`: sequences that ran or waited during a pause, which go on with the other weights."""

    success: bool
    message: str
    num_paused_requests: int = 0


class VersionReply(Reply, frozen=True):
    success: bool
    message: str
    new_version: str


async def update(service: Service, request: web.Request) -> web.Response:
    """Serve other weights of the same model, from a folder. Requests go on while it is read; see administration.md."""
    body = await read_body(request, UpdateBody)
    try:
        num_paused = await service.client.admin.update_weights(
            body.model_path, body.weight_version, abort_all=bool(body.abort_all_requests)
        )
    except ClientError as error:
        return respond(UpdateReply(False, str(error)), error.status)
    return respond(UpdateReply(True, "Succeeded to update model weights.", num_paused))


async def rename(service: Service, request: web.Request) -> web.Response:
    """Call the weights otherwise, in the replies of requests that begin from now on."""
    body = await read_body(request, VersionBody)
    if body.abort_all_requests:
        service.client.abort(None, UPDATED)
    service.client.admin.weights.rename(body.new_version)
    return respond(VersionReply(True, f"Weight version updated to {body.new_version}", body.new_version))
