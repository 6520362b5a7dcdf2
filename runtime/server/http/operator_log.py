"""One line of the server's log for what an operator has asked: what, with which fields, and how it ended.

Decides what such a line has. Bodies of these paths have no keys and no prompts; every value is quoted and cut.
"""

import time
from collections.abc import Awaitable
from typing import Any

from aiohttp import web
from msgspec import UNSET

from ramet.ipc.params import quoted, shown
from ramet.runtime.errors import RametError
from ramet.runtime.log import LOGGER
from ramet.runtime.server.http.exchange import READ_BODY

MAX_LINE, MAX_TEXT = 1000, 300  # characters: of the line, and of a path in it
CLIENT_GONE = 499


async def logged(request: web.Request, path: str, answer: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    """What the handler answers."""
    started, status, why = time.monotonic(), CLIENT_GONE, ""
    request[READ_BODY] = None
    try:
        response = await answer
        status, why = response.status, _refusal(response)
        return response
    except RametError as error:
        status, why = error.status, str(error)
        raise
    except Exception:
        status = 500
        raise
    finally:
        line = f"operator: {request.method} {path}{_fields(request)}: {status} in {time.monotonic() - started:.1f} s"
        line += f": {_quoted(why)}" if why else ""
        LOGGER.info("%s", line[:MAX_LINE])


def _fields(request: web.Request) -> str:
    """Those of the body that were given, if it could be read."""
    body = request[READ_BODY]
    given = [] if body is None else [(name, getattr(body, name)) for name in body.__struct_fields__]
    return "".join(f" {name}={_quoted(value)}" for name, value in given if value is not None and value is not UNSET)


def _quoted(value: Any) -> str:
    return quoted(value[:MAX_TEXT]) if isinstance(value, str) else shown(value)


def _refusal(response: web.StreamResponse) -> str:
    """Of a handler that answers its refusals itself."""
    return (response.text or "") if isinstance(response, web.Response) and response.status >= 400 else ""
