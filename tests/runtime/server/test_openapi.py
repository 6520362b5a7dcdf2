"""/openapi.json is a valid OpenAPI 3.1 document of every route."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ramet.runtime.server.routes import NAMED, ROUTES
from ramet.runtime.server.spec import openapi
from tests.fakes.server import Served, served

DOCUMENT = json.loads(openapi.document(ROUTES, NAMED))
METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


def every(value: Any, key: str) -> Iterator[Any]:
    """What stands under this key, however deep."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == key:
                yield item
            yield from every(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from every(item, key)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_server_sends_it() -> None:
    async def check(server: Served) -> None:
        status, document = await server.get("/openapi.json")
        assert status == 200 and document == DOCUMENT

    served(check)


def test_its_frame_is_that_of_openapi_3_1() -> None:
    assert re.fullmatch(r"3\.1\.\d", DOCUMENT["openapi"])
    assert DOCUMENT["info"]["title"] and DOCUMENT["info"]["version"]
    assert DOCUMENT.keys() <= {"openapi", "info", "servers", "security", "paths", "components", "tags"}
    for need in DOCUMENT["security"]:
        assert need.keys() <= DOCUMENT["components"]["securitySchemes"].keys()


def test_it_describes_every_route_and_method() -> None:
    described = {(path, method.upper()) for path, method, _ in operations()}
    there = {(path, method) for path, route in ROUTES.items() for method in route.methods}
    there |= {
        (prefix + "{id}" + each.tail, each.method) for prefix, named in NAMED.items() for each in named.operations
    }
    assert there == described


@pytest.mark.parametrize("name", sorted(DOCUMENT["components"]["schemas"]))
def test_schemas_are_valid(name: str) -> None:
    Draft202012Validator.check_schema(DOCUMENT["components"]["schemas"][name])


def test_schemas_within_operations_are_valid() -> None:
    for _, _, operation in operations():
        for schema in every(operation, "schema"):
            Draft202012Validator.check_schema(schema)


def test_every_reference_leads_somewhere() -> None:
    references = set(every(DOCUMENT, "$ref"))
    assert references
    for reference in references:
        found: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        assert found


def test_operation_ids_are_unique_and_names() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


def test_every_reply_has_a_schema() -> None:
    for path, _, operation in operations():
        for kind, content in operation["responses"]["200"]["content"].items():
            assert content["schema"] or path in ("/openapi.json", "/trace"), (path, kind)
            assert kind != "text/event-stream" or content["x-event"]["anyOf"], path


def test_every_schema_is_used() -> None:
    used = {reference.rsplit("/", 1)[1] for reference in every(DOCUMENT, "$ref")}
    assert used == DOCUMENT["components"]["schemas"].keys()


def test_operations_have_summary_responses_and_their_path_s_parameters() -> None:
    for path, method, operation in operations():
        assert method in METHODS and operation["summary"], path
        assert "200" in operation["responses"] and "default" in operation["responses"], path
        for response in operation["responses"].values():
            assert response["description"], path
        given = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert given == set(re.findall(r"{(\w+)}", path))
        for parameter in operation.get("parameters", ()):
            assert parameter["schema"] and (parameter["required"] or parameter["in"] == "query")


def test_a_reply_has_every_field_that_is_not_said_to_be_absent() -> None:
    choice = DOCUMENT["components"]["schemas"]["CompletionChoice"]
    assert set(choice["required"]) == {"index", "text", "logprobs", "finish_reason", "matched_stop"}
    asked = {"hidden_states", "routed_experts", "token_ids", "prompt_token_ids", "prompt_logprobs"}
    assert choice["properties"].keys() - choice["required"] == asked | {"weight_versions"}
    assert not list(every(choice, "default"))
