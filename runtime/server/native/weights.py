"""Other weights for the model that is served, in SGLang's shape."""

from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, Struct

from ramet.ipc.params import about
from ramet.runtime.engine_client.weights import UPDATED
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.fields import including
from ramet.runtime.intake.other_servers import COMMANDS, ignored, refused
from ramet.runtime.intake.reply import Reply
from ramet.runtime.server.http.exchange import read_body, respond
from ramet.runtime.server.http.service import Service

Version = Annotated[str, Meta(min_length=1, max_length=512)]
OTHERS = [
    *refused(bool, "graphs are never recorded with other addresses", "recapture_cuda_graph", neutral=(False,)),
    *refused(dict[str, Any], "which files there are", "manifest", neutral=({},)),
    *ignored(str, "a folder is read by what it holds", "load_format"),
    *ignored(bool, "requests go on while the files are read", "is_async"),
    *ignored(bool, "nothing is left in torch's cache", "torch_empty_cache"),
    *ignored(bool, "a pause lasts until /continue_generation", "keep_pause"),
    *ignored(bool, "what other weights have computed is never used again", "flush_cache"),
    *ignored(int, "it changes no reply", "token_step"),
]


@including([*OTHERS, *COMMANDS])
class UpdateBody(Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model_path: Annotated[
        Annotated[str, Meta(min_length=1)], about("folder of a model of the same config.json, on the server's machine")
    ]
    weight_version: Annotated[Version | None, about("what replies call these weights; by default the path")] = None
    abort_all_requests: Annotated[bool | None, about("end what runs and waits, instead of waiting for it")] = None


@including(COMMANDS)
class VersionBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
