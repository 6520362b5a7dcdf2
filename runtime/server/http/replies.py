"""Replies as JSON: encoded from the structs in the replies.py of each surface."""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

encode = msgspec.json.Encoder().encode


def respond(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=encode(body), status=status, headers=headers, content_type="application/json")


def written(encoded: bytes) -> Any:
    """A value of a struct that is encoded already."""
    return msgspec.Raw(encoded)
