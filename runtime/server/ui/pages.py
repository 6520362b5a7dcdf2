"""The page at /ui and its files, and what / answers. They are open; what the page asks of the API needs its own key."""

import asyncio

from aiohttp import web

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.reply import Reply
from ramet.runtime.server.http.exchange import respond
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.ui import assets
from ramet.version import __version__

INDEX = "index.html"


class Root(Reply, frozen=True):
    """What answers at this address, for a probe."""

    status: str = "ok"
    name: str = "ramet"
    version: str = __version__


async def root(service: Service, request: web.Request) -> web.StreamResponse:
    """A browser is led to the page; every other client is told what answers here."""
    headers = {"Cache-Control": "no-cache", "Vary": "Accept"}
    if service.args.serve.ui and "text/html" in request.headers.get("Accept", ""):
        return web.Response(status=302, headers={**headers, "Location": "ui"})  # relative: below a proxy's prefix too
    return respond(Root(), headers=headers)


async def index(service: Service, request: web.Request) -> web.StreamResponse:
    """The page."""
    if request.path.endswith("/"):  # its files are named from /ui
        check_served(service, "/ui")
        return web.Response(status=302, headers={**assets.HEADERS, "Location": "../ui"})
    return await _asset(service, request, "/ui", INDEX)


async def file(service: Service, request: web.Request, name: str) -> web.StreamResponse:
    """A file of the page."""
    return await _asset(service, request, f"/ui/{name}", name)


async def _asset(service: Service, request: web.Request, path: str, name: str) -> web.StreamResponse:
    check_served(service, path)
    asset = (await asyncio.to_thread(assets.table)).get(name)
    if asset is None:
        raise _nothing_at(path)
    return assets.respond(asset, request)


def check_served(service: Service, path: str) -> None:
    """Raises ClientError: with --no-ui its paths are unknown ones."""
    if not service.args.serve.ui:
        raise _nothing_at(path)


def _nothing_at(path: str) -> ClientError:
    return ClientError("", f"There is no {path} here.", status=404)
