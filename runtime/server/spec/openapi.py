"""The interface as an OpenAPI 3.1 document, made from the table of routes and its structs.

Decides how a route is described. Knows no route.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import orjson

from ramet.runtime.server.http import problems
from ramet.runtime.server.spec.errors import AnthropicError, NativeError, OpenAIError, OpenAIStreamError, StreamError
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
ERRORS = {"anthropic": AnthropicError, "openai": OpenAIError, "native": NativeError}
Operation = dict[str, Any]


@cache
def _written(routes: tuple[tuple[str, Any], ...], named: tuple[tuple[str, Any], ...]) -> bytes:
    types = [kind for _, route in routes for kind in (route.body, route.reply, route.event) if kind is not None]
    types += [part.reply for _, each in named for part in each.parts]
    types += [StreamError, OpenAIStreamError, *ERRORS.values()]
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    schema_of = dict(zip(map(str, types), schemas))
    paths: dict[str, Any] = defaultdict(dict)
    for path, route in routes:
        for method in route.methods:
            paths[path][method.lower()] = _operation(path, method, route, schema_of)
    for prefix, each in named:
        for part in each.parts:
            path = prefix + "{id}" + part.tail
            paths[path][part.method.lower()] = _named(path, each, part, schema_of)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "ramet", "version": __version__, "description": "A server of language models."},
        "security": [{}, *({name: []} for name in KEYS)],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": KEYS},
    }
    return orjson.dumps(document)


def document(routes: Mapping[str, Any], named: Mapping[str, Any]) -> bytes:
    """The document as JSON; `routes` and `named` are those of routes.py."""
    return _written(tuple(routes.items()), tuple(named.items()))


def _operation(path: str, method: str, route: Any, schema_of: Mapping[str, Any]) -> Operation:
    content: dict[str, Any] = {"application/json": {"schema": schema_of.get(str(route.reply), {})}}
    if path == "/metrics":
        content = {"text/plain": {"schema": {"type": "string"}}}
    if route.event is not None:
        content["text/event-stream"] = _stream(path, schema_of[str(route.event)], schema_of)
    operation = _frame(path, method, route.handler, content, schema_of)
    if path in QUERIES:
        operation["parameters"] = QUERIES[path]
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of[str(route.body)]}},
        }
    return operation


def _named(path: str, named: Any, part: Any, schema_of: Mapping[str, Any]) -> Operation:
    content = {"application/json": {"schema": schema_of[str(part.reply)]}}
    name = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    return {**_frame(path, part.method, named.handler, content, schema_of), "parameters": [name]}


def _frame(path: str, method: str, handler: Any, content: Any, schema_of: Mapping[str, Any]) -> Operation:
    shape = problems.shape_of(path)
    problem = {
        "description": "refused or failed, with a 4xx or 5xx status",
        "content": {"application/json": {"schema": schema_of[str(ERRORS[shape])]}},
    }
    return {
        "operationId": "_".join(re.findall(r"\w+", f"{method.lower()}{path}")),
        "tags": [shape],
        "summary": (handler.__doc__ or "").splitlines()[0],
        "responses": {"200": {"description": "done", "content": content}, "default": problem},
    }


def _stream(path: str, event: Any, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    """`x-event`: each event's data is JSON of one of these; OpenAPI 3.1 has no word for that."""
    if "anyOf" not in event:  # streams of many kinds of events have one for failures
        failure = OpenAIStreamError if problems.shape_of(path) == "openai" else StreamError
        event = {"anyOf": [event, schema_of[str(failure)]]}
    return {"schema": {"type": "string"}, "x-event": event}
