"""Around every handler: path, key, errors, counting. The table of routes is routes.py.

Every path goes through one catch-all route, so that doubled slashes are joined and unknown paths get our errors.
"""

import hmac
import re

from aiohttp import web

from ramet.runtime import log
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.server.http import exchange, problems
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.routes import NAMED, ROUTES

OPEN_PATHS = frozenset({"/health", "/metrics"})  # these need no key
CLIENT_GONE = 499


def make_app(service: Service) -> web.Application:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await _answer(service, request)

    app = web.Application(client_max_size=int(service.args.serve.max_body_mb * (1 << 20)))
    app[exchange.TRANSFER_TIMEOUT_S] = service.args.serve.transfer_timeout_s
    app.router.add_route("*", "/{path:.*}", answer)
    app.on_response_prepare.append(exchange.add_headers)
    return app


async def _answer(service: Service, request: web.Request) -> web.StreamResponse:
    path = re.sub("//+", "/", request.path)
    if len(path) > 1:
        path = path.rstrip("/")
    response: web.StreamResponse | None = None
    try:
        _check_key(service, path, request)
        response = await _dispatch(service, path, request)
    except RametError as error:
        response = _refusal(request, path, error)
    except ConnectionError:
        raise  # the client went away
    except Exception:  # noqa: BLE001  a bug in a handler ends this request alone
        log.LOGGER.exception("%s %s failed", request.method, path)
        response = problems.reply_to(path, problems.internal())
    finally:
        status = CLIENT_GONE if response is None else response.status
        service.metrics.requests.add(1, _endpoint(path), str(status))
    return response


def forget_frames(error: BaseException | None) -> None:
    """Breaks the cycle between an error that a future or a submission holds and the frames it was raised through.

    The cycle would keep the body of a refused request until the next collection, which is rare here (process.py).
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _refusal(request: web.Request, path: str, error: RametError) -> web.Response:
    response = problems.reply_to(path, error)
    forget_frames(error)
    if request.content.exception() is not None or error.status == 408:  # where a next request begins is unknown
        response.force_close()
        request.content.feed_eof()  # else aiohttp reads on, and logs that it failed
    return response


async def _dispatch(service: Service, path: str, request: web.Request) -> web.StreamResponse:
    if path in ROUTES:
        route = ROUTES[path]
        _check_method(request, path, route.methods)
        return await route.handler(service, request)
    for prefix, named in NAMED.items():
        if path.startswith(prefix):
            if request.method != "HEAD":
                _check_method(request, path, named.methods)
            return await named.handler(service, request, path.removeprefix(prefix))
    raise ClientError("", f"There is no {path} here.", _meant(path), 404)


def _meant(path: str) -> str:
    """A hint for the commonest mistakes in a base URL."""
    for meant in ("/v1" + path, path.removeprefix("/v1")):
        if meant in ROUTES:
            return f"did you mean {meant}? OpenAI's clients take a base URL with /v1, Anthropic's one without"
    return ""


def _check_method(request: web.Request, path: str, methods: tuple[str, ...]) -> None:
    read_only = "POST" not in methods  # HEAD must change nothing: /flush_cache takes GET and POST
    asked = "GET" if request.method == "HEAD" and read_only else request.method
    if asked not in methods:
        raise ClientError("", f"{path} takes {' and '.join(methods)}, not {request.method}.", status=405)


def _check_key(service: Service, path: str, request: web.Request) -> None:
    key = service.args.serve.api_key
    if not key or path in OPEN_PATHS:
        return
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    keys = [sent.strip() if scheme.lower() == "bearer" else "", request.headers.get("X-Api-Key", "")]  # Anthropic's
    if not any([hmac.compare_digest(sent.encode(errors="surrogateescape"), key.encode()) for sent in keys]):
        raise ClientError("", "The API key is missing or wrong.", "send the header Authorization: Bearer KEY", 401)


def _endpoint(path: str) -> str:
    """The path as a metric's label: one of a bounded number."""
    if path in ROUTES:
        return path
    return next((prefix + "{id}" for prefix in NAMED if path.startswith(prefix)), "unknown")
