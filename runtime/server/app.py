"""Around every handler: path, who may ask, errors, counting. The table of routes is routes.py.

Every path goes through one catch-all route, so that doubled slashes are joined and unknown paths get our errors.
"""

import re
import time

from aiohttp import web

from ramet.runtime import log
from ramet.runtime.access.origins import HOST
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.access.shares import KeyHoldings
from ramet.runtime.engine_client.recording import CURRENT as RECORDING
from ramet.runtime.engine_client.recording import RequestRecording
from ramet.runtime.engine_client.trace_context import SAMPLED
from ramet.runtime.errors import ClientError, RametError, ServerError, forget_frames
from ramet.runtime.server.http import access, exchange, problems
from ramet.runtime.server.http.accepting import MAX_CONNECTIONS
from ramet.runtime.server.http.access import Allowed
from ramet.runtime.server.http.connections import Connection, LastReply
from ramet.runtime.server.http.held_bodies import HeldBodies
from ramet.runtime.server.http.operator_log import CLIENT_GONE, logged
from ramet.runtime.server.http.receiving import BODIES, Bodies
from ramet.runtime.server.http.request_id import shown_id
from ramet.runtime.server.http.service import Access, Front, Service
from ramet.runtime.server.live import handlers as live
from ramet.runtime.server.routes import NAMED, ROUTES


def make_app(front: Front) -> web.Application:
    """Raises ConfigError."""
    serve = front.args.serve
    allowed = access.read_allowed(front.args)
    answered = KeyHoldings(
        "requests that are answered", serve.max_connections or MAX_CONNECTIONS, front.args.share_per_key
    )

    async def answer(request: web.Request) -> web.StreamResponse:
        return await _answer(front, allowed, answered, request)

    async def add_cors_headers(request: web.Request, response: web.StreamResponse) -> None:
        if len(origins := request.headers.getall("Origin", [])) == 1:
            access.add_cors_headers(allowed, origins[0], response.headers)

    max_bytes = int(serve.max_body_mb * (1 << 20))
    held = HeldBodies(front.args.max_bodies_bytes, front.args.share_per_key)
    app = web.Application(client_max_size=max_bytes)
    bodies = app[BODIES] = Bodies(max_bytes, held, serve.max_body_items, serve.transfer_timeout_s)
    app.cleanup_ctx.append(bodies.closing)
    app.cleanup_ctx.append(allowed.keys.following)
    if serve.ui:
        live.add_to(app, front)
    app.router.add_route("*", "/{path:.*}", answer)
    app.on_response_prepare.extend([exchange.add_headers, add_cors_headers])
    return app


async def _answer(front: Front, allowed: Allowed, answered: KeyHoldings, request: web.Request) -> web.StreamResponse:
    path = re.sub("//+", "/", request.path)
    if len(path) > 1:
        path = path.rstrip("/")
    response: web.StreamResponse | None = None
    recording = _begin_trace(front.service, path, request)
    owner = allowed.keys.owner(access.sent_keys(request))
    OWNER.set(owner or allowed.keys.stranger)
    try:
        response = access.preflight(allowed, request) if request.method == "OPTIONS" else None
        if response is None:
            needed = _access_of(path)
            allowed.keys.check(needed, owner)
            await _check_names(allowed, needed, request)
            bounded = OWNER.get().bounded
            name = bounded if allowed.keys.guard(needed) else ""  # probes with a key are not counted
            if (refused := answered.refusal(name)) is not None:
                response = _last_refusal(request, path, refused)
            else:
                with answered.one(name):
                    response = await _dispatch(front, path, request)
    except RametError as error:
        response = _refusal(request, path, error)
    except ConnectionError:
        raise  # the client went away
    except Exception:  # noqa: BLE001  a bug in a handler ends this request alone
        log.LOGGER.exception("%s %s failed", request.method, path)
        response = problems.reply_to(path, problems.internal())
    finally:
        status = CLIENT_GONE if response is None else response.status
        front.metrics.requests.add(1, _endpoint(path), str(status))
        if recording is not None:
            recording.end(status, shown_id(request))
    return response


def _begin_trace(service: Service | None, path: str, request: web.Request) -> RequestRecording | None:
    """None: it is not traced, whatever its headers say."""
    trace, recording = exchange.begin_trace(request), None
    if service is not None and service.traces is not None and request.method != "OPTIONS":
        recording = service.traces.begin(path, trace, time.monotonic())
        if recording is not None:
            exchange.set_trace(request, recording.trace)
        else:
            exchange.set_trace(request, trace._replace(flags=trace.flags & ~SAMPLED))
    RECORDING.set(recording)
    return recording


def _refusal(request: web.Request, path: str, error: RametError) -> web.Response:
    response = problems.reply_to(path, error)
    if error.status == 405:
        response.headers["Allow"] = ", ".join(_methods(path))
    forget_frames(error)
    if request.content.exception() is not None or error.status == 408:  # where a next request begins is unknown
        response.force_close()
        request.content.feed_eof()  # else aiohttp reads on, and logs that it failed
    return response


def _last_refusal(request: web.Request, path: str, error: RametError) -> web.Response:
    """The refusal of a key's connection beyond its share. It closes the connection, which others can then have."""
    response = _refusal(request, path, error)
    request.content.feed_eof()  # what still arrives of its body is dropped
    return LastReply(request.protocol, response) if isinstance(request.protocol, Connection) else response


async def _dispatch(front: Front, path: str, request: web.Request) -> web.StreamResponse:
    if path in ROUTES:
        route = ROUTES[path]
        _check_method(request, path, route.methods)
        answer = route.handler(_started(front), request)
        is_asked = route.access is Access.ADMIN and request.method == "POST" and not path.startswith("/ui/")
        return await (logged(request, path, answer) if is_asked else answer)
    if (prefix := _prefix(path)) is not None:
        named = NAMED[prefix]
        if request.method != "HEAD":
            _check_method(request, path, named.methods)
        return await named.handler(_started(front), request, path.removeprefix(prefix))
    raise ClientError("", f"There is no {path} here.", _meant(path), 404)


def _started(front: Front) -> Service:
    if front.service is None:
        raise ServerError("The server is starting: the model is being loaded.", 503)
    return front.service


def _prefix(path: str) -> str | None:
    """Of a path that ends in a name."""
    return next((prefix for prefix in NAMED if path.startswith(prefix)), None)


def _access_of(path: str) -> Access:
    if path in ROUTES:
        return ROUTES[path].access
    prefix = _prefix(path)
    return Access.READ if prefix is None else NAMED[prefix].access


def _meant(path: str) -> str:
    """A hint for the commonest mistakes in a base URL."""
    for meant in ("/v1" + path, path.removeprefix("/v1")):
        if meant in ROUTES:
            return f"did you mean {meant}? OpenAI's clients take a base URL with /v1, Anthropic's one without"
    return ""


def _methods(path: str) -> list[str]:
    """What may be asked of it."""
    prefix = _prefix(path)
    methods = ROUTES[path].methods if path in ROUTES else NAMED[prefix].methods if prefix is not None else ()
    return [*(["HEAD"] if "GET" in methods else []), *methods]


def _check_method(request: web.Request, path: str, methods: tuple[str, ...]) -> None:
    asked = "GET" if request.method == "HEAD" else request.method
    if asked not in methods:
        raise ClientError("", f"{path} takes {' and '.join(methods)}, not {request.method}.", status=405)


async def _check_names(allowed: Allowed, needed: Access, request: web.Request) -> None:
    """A key guards by itself; without one a request must come by a name of this server, and from no foreign page."""
    if needed in (Access.OPEN, Access.SCRAPE) or allowed.keys.guard(needed):
        return
    for host in _hosts(request):
        found = HOST.fullmatch(host)
        if found is None or found[1] not in allowed.hosts.names:
            await access.check_host(allowed, host)
    if needed not in (Access.READ, Access.WATCH) and "Origin" in request.headers:
        access.check_origin(allowed, request)


def _hosts(request: web.Request) -> list[str]:
    """Every name that the request gives to this server. HTTP/1.0 has none, and no browser speaks it."""
    hosts = request.headers.getall("Host", [])
    if not hosts or request.host in hosts:
        return hosts
    return [*hosts, request.url.authority]  # its target is a whole URL, as for a proxy


def _endpoint(path: str) -> str:
    """The path as a metric's label: one of a bounded number."""
    if path in ROUTES:
        return path
    prefix = _prefix(path)
    return "unknown" if prefix is None else prefix + "{id}"
