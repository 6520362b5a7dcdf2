"""One line of the table of routes: methods, handler, and the structs that it reads and sends."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web

from ramet.runtime.server.http.service import Service

Handler = Callable[[Service, web.Request], Awaitable[web.StreamResponse]]
NamedHandler = Callable[[Service, web.Request, str], Awaitable[web.Response]]


class Route(NamedTuple):
    methods: tuple[str, ...]
    handler: Handler
    body: Any = None  # struct of the request's body
    reply: Any = None  # type of a whole reply; None: not JSON, or any object
    event: Any = None  # type of an event of a stream, where there is one


class Operation(NamedTuple):
    """What a method does under a name: `tail` follows the name in the path."""

    method: str
    tail: str
    reply: Any


class Named(NamedTuple):
    """A path that ends in a name, which may hold slashes."""

    methods: tuple[str, ...]
    handler: NamedHandler
    operations: tuple[Operation, ...]
