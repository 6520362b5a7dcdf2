"""The interface as an OpenAPI 3.1 document, made from the table of routes and its structs.

Decides how a route is described. Knows no route.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import orjson

from ramet.runtime.server import problems
from ramet.runtime.server import reply_types as told
from ramet.version import __version__

REF = "#/components/schemas/{name}"
KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
QUERIES = {
    "/flush_cache": [
        {
            "name": "timeout",
            "in": "query",
            "required": False,
            "schema": {"type": "number", "minimum": 0, "maximum": 3600},
        }
    ]
}
Operation = dict[str, Any]


@cache
def _written(routes: tuple[tuple[str, Any], ...], named: tuple[tuple[str, Any], ...]) -> bytes:
    types = [kind for _, route in routes for kind in (route.body, route.reply, route.event) if kind is not None]
    types += [route.reply for _, route in named if route.reply is not None]
    types += [told.NativeError, told.OpenAIError, told.AnthropicError]
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    schema_of = dict(zip(map(str, types), schemas))
    paths: dict[str, Any] = {}
    for path, route in routes:
        paths[path] = {method.lower(): _operation(path, route, schema_of) for method in route.methods}
    for prefix, route in named:
        shown = prefix + "{id}"
        name = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
        paths[shown] = {
            method.lower(): {**_operation(shown, route, schema_of), "parameters": [name]} for method in route.methods
        }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "ramet", "version": __version__},
        "security": [{}, *({name: []} for name in KEYS)],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": KEYS},
    }
    return orjson.dumps(document)


def document(routes: Mapping[str, Any], named: Mapping[str, Any]) -> bytes:
    """The document as JSON; `routes` and `named` are those of routes.py."""
    return _written(tuple(routes.items()), tuple(named.items()))


def _operation(path: str, route: Any, schema_of: Mapping[str, Any]) -> Operation:
    reply: Any = {} if route.reply is None else schema_of[str(route.reply)]
    content: dict[str, Any] = {"application/json": {"schema": reply}} if path != "/metrics" else {"text/plain": {}}
    if (event := getattr(route, "event", None)) is not None:
        content["text/event-stream"] = {"schema": {"type": "string"}, "x-event": schema_of[str(event)]}
    operation: Operation = {
        "summary": (route.handler.__doc__ or "").splitlines()[0],
        "responses": {"200": {"description": "done", "content": content}, "default": _problem(path, schema_of)},
    }
    if path in QUERIES:
        operation["parameters"] = QUERIES[path]
    if (body := getattr(route, "body", None)) is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of[str(body)]}},
        }
    return operation


def _problem(path: str, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    shape = {"anthropic": told.AnthropicError, "openai": told.OpenAIError, "native": told.NativeError}[
        problems.shape_of(path)
    ]
    return {
        "description": "refused or failed, with a 4xx or 5xx status",
        "content": {"application/json": {"schema": schema_of[str(shape)]}},
    }
