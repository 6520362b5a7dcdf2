"""The table of routes, and what happens around every handler: path, key, errors, counting.

Decides which handler answers a path and in which shape errors go out (OpenAI's under /v1, else native). Knows no
endpoint's content. Every path goes through one catch-all route, so doubled slashes and unknown paths are ours to judge.
"""

import hmac
import re
from collections.abc import Awaitable, Callable

from aiohttp import web

from ramet.runtime import log
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.server import (
    admin,
    health,
    native,
    openai_completions,
    openai_embeddings,
    openai_other,
    openai_rerank,
    openai_scores,
    problems,
)
from ramet.runtime.server.service import Handler, Service

OPEN_PATHS = frozenset({"/health", "/metrics"})  # no key is asked
CLIENT_GONE = 499

GET, POST, EITHER, WRITE = ("GET",), ("POST",), ("GET", "POST"), ("POST", "PUT")

ROUTES: dict[str, tuple[tuple[str, ...], Handler]] = {
    "/generate": (WRITE, native.generate),
    "/v1/completions": (POST, openai_completions.completions),
    "/v1/embeddings": (POST, openai_embeddings.embeddings),
    "/v1/score": (POST, openai_scores.score),
    "/v1/rerank": (POST, openai_rerank.rerank),
    "/v1/models": (GET, openai_other.models),
    "/v1/tokenize": (POST, openai_other.tokenize),
    "/tokenize": (POST, openai_other.tokenize),
    "/v1/detokenize": (POST, openai_other.detokenize),
    "/detokenize": (POST, openai_other.detokenize),
    "/health": (GET, health.health),
    "/health_generate": (GET, health.health_generate),
    "/ready": (GET, health.ready),
    "/metrics": (GET, health.metrics),
    "/get_model_info": (GET, admin.model_info),
    "/model_info": (GET, admin.model_info),
    "/get_server_info": (GET, admin.server_info),
    "/server_info": (GET, admin.server_info),
    "/flush_cache": (EITHER, admin.flush_cache),
    "/abort_request": (POST, admin.abort_request),
}

# Paths that end in a name, which may hold slashes.
NAMED: dict[str, Callable[[Service, str], Awaitable[web.Response]]] = {
    "/v1/models/": openai_other.model,
    "/v1/requests/": admin.where,
}


def make_app(service: Service) -> web.Application:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await _answer(service, request)

    app = web.Application(client_max_size=int(service.args.serve.max_body_mb * (1 << 20)))
    app.router.add_route("*", "/{path:.*}", answer)
    return app


async def _answer(service: Service, request: web.Request) -> web.StreamResponse:
    path = re.sub("//+", "/", request.path)
    if len(path) > 1:
        path = path.rstrip("/")
    endpoint, status = _endpoint(path), CLIENT_GONE
    try:
        _check_key(service, path, request)
        response = await _dispatch(service, path, request)
        status = response.status
        return response
    except RametError as error:
        response = problems.reply_to(path, error)
        status = response.status
        return response
    except ConnectionError:
        raise  # the client went away, which is nobody's failure
    except Exception:  # noqa: BLE001  a failure of ours ends this request alone
        log.LOGGER.exception("%s %s failed", request.method, path)
        response = problems.reply_to(path, problems.internal())
        status = response.status
        return response
    finally:
        service.metrics.requests.add(1, endpoint, str(status))


async def _dispatch(service: Service, path: str, request: web.Request) -> web.StreamResponse:
    if path in ROUTES:
        methods, handler = ROUTES[path]
        _check_method(request, path, methods)
        return await handler(service, request)
    for prefix, named in NAMED.items():
        if path.startswith(prefix):
            _check_method(request, path, GET)
            return await named(service, path.removeprefix(prefix))
    raise ClientError("", f"There is no {path} here.", status=404)


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
    if scheme.lower() != "bearer" or not hmac.compare_digest(
        sent.strip().encode(errors="surrogateescape"), key.encode()
    ):
        raise ClientError("", "The API key is missing or wrong.", "send the header Authorization: Bearer KEY", 401)


def _endpoint(path: str) -> str:
    """The label of a path: bounded, whatever clients ask for."""
    if path in ROUTES:
        return path
    return next((prefix + "{id}" for prefix in NAMED if path.startswith(prefix)), "unknown")
