"""The interface as an OpenAPI 3.1 document, made from the table of routes and its structs."""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from ramet.runtime.server.http import problems
from ramet.runtime.server.http.problems import ERRORS, OpenAIStreamError, StreamError
from ramet.runtime.server.http.service import Access, Named, Route
from ramet.version import __version__

REF = "#/components/schemas/{name}"
KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
SECONDS = {"type": "number", "minimum": 0, "maximum": 3600}
WORDS = {"type": "string"}
TEXTS = {  # replies that are not JSON
    "/metrics": "text/plain", "/start_profile": "text/plain", "/stop_profile": "text/plain", "/ui": "text/html",
    "/trace": "application/gzip",
}  # fmt: skip
EMPTY = {"/close_session", "/configure_logging"}  # replies without a body
Described = dict[str, Any]
QUERIES: dict[str, Described] = {  # by path: what may stand behind its "?"
    "/flush_cache": {"timeout": SECONDS},
    "/trace": {"seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 86400}},
    "/v1/loads": {"include": WORDS, "format": {"enum": ["json", "prometheus"]}, "dp_rank": {"const": 0}},
}


def document(routes: Mapping[str, Route], named: Mapping[str, Named]) -> bytes:
    """The document as JSON; `routes` and `named` are those of routes.py."""
    replies = [kind for route in routes.values() for kind in (route.reply, route.event) if kind is not None]
    replies += [operation.reply for each in named.values() for operation in each.operations]
    schema_of, components = _schemas([*replies, StreamError, OpenAIStreamError, *ERRORS.values()])
    _require_all(components)
    of_bodies, bodies = _schemas([route.body for route in routes.values() if route.body is not None])
    schema_of, components = schema_of | of_bodies, components | bodies
    paths: Described = defaultdict(dict)
    for path, route in routes.items():
        for method in route.methods:
            paths[path][method.lower()] = _operation(path, method, schema_of, *route[1:5], route.access)
    for prefix, each in named.items():
        for method, tail, reply in each.operations:
            path = f"{prefix}{{id}}{tail}"
            paths[path][method.lower()] = _operation(
                path, method, schema_of, each.handler, None, reply, None, each.access
            )
    document = {
        "openapi": "3.1.0",
        "info": {"title": "ramet", "version": __version__, "description": "A server of language models."},
        "security": [{}, *({name: []} for name in KEYS)],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": KEYS},
    }
    return orjson.dumps(document)


def _schemas(types: list[Any]) -> tuple[Described, Described]:
    """The schema of each type by its name, and the components that these refer to."""
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    return dict(zip(map(str, types), schemas)), components


def _require_all(components: Described) -> None:
    """A reply has every field that is not UNSET, so a default of a reply's struct is no default for its reader."""
    for schema in components.values():
        if schema["type"] == "array":  # of a struct that is sent as one
            continue
        sent = [name for name, field in schema["properties"].items() if "default" in field]
        for name in sent:
            del schema["properties"][name]["default"]
        schema["required"] = [name for name in schema["properties"] if name in {*schema.get("required", ()), *sent}]


def _operation(
    path: str, method: str, schema_of: Described, handler: Any, body: Any, reply: Any, event: Any, access: Access
) -> Described:
    content: Described = {"application/json": {"schema": schema_of.get(str(reply), {})}}
    if path in TEXTS:
        content = {TEXTS[path]: {"schema": {"type": "string"}}}
    elif path in EMPTY or (reply is None and event is not None):  # nothing, or nothing but a stream
        content = {}
    if event is not None:
        content["text/event-stream"] = _stream(path, schema_of[str(event)], schema_of)
    shape = problems.shape_of(path)
    problem = {
        "description": "refused or failed, with a 4xx or 5xx status",
        "content": {"application/json": {"schema": schema_of[str(ERRORS[shape])]}},
    }
    operation = {
        "operationId": "_".join(re.findall(r"\w+", f"{method.lower()}{path}")),
        "tags": [shape],
        "summary": (handler.__doc__ or "").splitlines()[0],
        "responses": {"200": {"description": "done", "content": content}, "default": problem},
    }
    if access is Access.OPEN:
        operation["security"] = []
    if "{id}" in path:
        operation["parameters"] = [ID]
    if path in QUERIES:
        operation["parameters"] = [
            {"name": name, "in": "query", "required": False, "schema": schema} for name, schema in QUERIES[path].items()
        ]
    if body is not None:
        written = {"application/json": {"schema": schema_of[str(body)]}}
        operation["requestBody"] = {"required": True, "content": written}
    return operation


def _stream(path: str, event: Any, schema_of: Described) -> Described:
    """`x-event`: the data of each event is JSON of one of these. OpenAPI 3.1 has no keyword for it."""
    if "anyOf" not in event:  # streams of many kinds of events have one for failures
        failure = OpenAIStreamError if problems.shape_of(path) == "openai" else StreamError
        event = {"anyOf": [event, schema_of[str(failure)]]}
    return {"schema": {"type": "string"}, "x-event": event}
