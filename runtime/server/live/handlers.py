"""The endpoints behind the page's views of a running server: its live state, its last hour, prompts and nodes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from ramet.ipc.control import MatchPrefix, ReadNode
from ramet.ipc.live import NodeTokens, PrefixFound
from ramet.ipc.messages import pack_ids
from ramet.ipc.params import about
from ramet.ipc.stats import Stats
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.reply import Reply
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import read_body, respond, respond_in_turn
from ramet.runtime.server.http.service import Front, Service
from ramet.runtime.server.live.feed import LiveFeed
from ramet.runtime.server.live.history import INTERVAL_S, History
from ramet.runtime.server.ui.pages import check_served

FEED = web.AppKey("feed", LiveFeed)
HISTORY = web.AppKey("history", History)
QUIET_S = 5.0  # without news a line goes out that says nothing, so that both sides see whether the other is there
STILL_HERE = b": \n\n"
MAX_TEXT = 1 << 20  # characters of a prompt: half a second of work that other requests wait for


class PrefixBody(Struct, frozen=True, kw_only=True):
    text: Annotated[str | None, about("a prompt; tokenised as that of /generate")] = None
    input_ids: Annotated[
        Annotated[list[int], Meta(min_length=1)] | None, about("its ids, in the place of the text")
    ] = None


class NodeBody(Struct, frozen=True, kw_only=True):
    node: Annotated[int, Meta(ge=1, le=(1 << 63) - 1), about("its id in /ui/live")]


class NodeText(Reply, frozen=True):
    """What the first tokens of a node spell by themselves."""

    node: int
    text: str
    num_tokens: int
    is_cut: bool  # it has more tokens than are spelt


class LastHour(Struct, frozen=True):
    """A sample each `interval_s` seconds, the oldest first; numbers that are not known are null."""

    interval_s: float
    columns: dict[str, Any]


def add_to(app: web.Application, front: Front) -> None:
    """Keeps the last hour while the app serves, and ends streams when it stops."""
    kept = app[HISTORY] = History(
        front.metrics, lambda: Stats() if front.service is None else front.service.client.stats.newest
    )
    feed = app[FEED] = LiveFeed(lambda: _client(front), kept)

    async def sampling(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(_sample(kept))
        yield
        task.cancel()

    async def end_streams(_: web.Application) -> None:
        await feed.close()

    app.cleanup_ctx.append(sampling)
    app.on_shutdown.append(end_streams)


def _client(front: Front) -> EngineClient:
    assert front.service is not None, "a handler runs before the service is there"
    return front.service.client


async def _sample(history: History) -> None:
    while True:
        history.sample()
        await asyncio.sleep(INTERVAL_S)


async def live(service: Service, request: web.Request) -> web.StreamResponse:
    """The tree, the queue and the newest numbers as they are, then as they change. A stream."""
    check_served(service, request.path)
    response = web.StreamResponse(headers=sse.HEADERS)
    if request.method == "HEAD":
        return response
    with request.app[FEED].viewing() as viewer:
        await response.prepare(request)
        next_event = asyncio.ensure_future(viewer.next())
        try:
            while True:
                await asyncio.wait([next_event], timeout=QUIET_S)
                event = next_event.result() if next_event.done() else STILL_HERE
                if event is None:
                    break
                await response.write(event)
                if next_event.done():
                    next_event = asyncio.ensure_future(viewer.next())
        finally:
            next_event.cancel()
        await response.write_eof()
    return response


async def history(service: Service, request: web.Request) -> web.StreamResponse:
    """The last hour, a sample a second."""
    check_served(service, request.path)
    return await respond_in_turn(request, LastHour(INTERVAL_S, request.app[HISTORY].columns()))


async def prefix(service: Service, request: web.Request) -> web.Response:
    """How much of a prompt is cached now, and in which nodes. Computes nothing and uses nothing."""
    check_served(service, request.path)
    body = await read_body(request, PrefixBody)
    if (body.text is None) == (body.input_ids is None):
        raise ClientError("text", "or input_ids must be set, and not both")
    if body.text is not None:
        prompts.check_most("text", "characters", len(body.text), MAX_TEXT)
        ids = (await service.client.text.tokenize(body.text)).ids
    else:
        assert body.input_ids is not None
        ids = prompts.pack_to_decode("input_ids", body.input_ids, service.client.limits.vocab_size)
    reply = await service.client.admin.control(lambda call: MatchPrefix(call, ids))
    return respond(msgspec.json.decode(reply.body, type=PrefixFound))


async def node(service: Service, request: web.Request) -> web.Response:
    """The text of a node of the tree."""
    check_served(service, request.path)
    body = await read_body(request, NodeBody)
    reply = await service.client.admin.control(lambda call: ReadNode(call, body.node))
    if not reply.ok:
        raise ClientError("node", f"is {body.node}: there is no such node any more", status=404)
    found = msgspec.json.decode(reply.body, type=NodeTokens)
    text = await service.client.text.detokenize(pack_ids(found.ids), skip_special_tokens=False)
    return respond(NodeText(body.node, text, found.num_tokens, found.num_tokens > len(found.ids)))
