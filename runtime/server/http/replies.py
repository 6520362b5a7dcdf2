"""Replies go out as JSON, encoded from the structs that each surface has in its replies.py. Decides how."""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

encode = msgspec.json.Encoder().encode


def respond(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=encode(body), status=status, headers=headers, content_type="application/json")


def written(encoded: bytes) -> Any:
    """JSON that is already encoded, to stand in a struct for the value it says."""
    return msgspec.Raw(encoded)
