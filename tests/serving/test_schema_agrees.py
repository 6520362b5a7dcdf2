"""The request schemas of /openapi.json agree with the server: what they allow is taken, what they forbid is named.

Allowed values may still be refused for what no schema can say: fields that clash, ids outside the vocabulary, length.
"""

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import requests
from fuzzed_requests import JUNK
from jsonschema import Draft202012Validator
from live import Live
from samples import sampled
from schema_values import SchemaValues

from ramet.runtime.server.routes import NAMED, ROUTES
from ramet.runtime.server.spec import openapi

HTTP = requests.Session()
DRAWN = 6  # values of each field
USER = {"role": "user", "content": "hi"}
MINIMAL: dict[str, dict[str, Any]] = {
    "/generate": {"text": "hi", "sampling_params": {"max_new_tokens": 1}},
    "/language/generate": {"prompt": ["hi"], "sampling_params": {"max_new_tokens": 1}},
    "/language/select": {"prompt": ["hi"], "choices": [" you", " all"]},
    "/language/render": {"prompt": ["hi"]},
    "/language/end": {"programs": ["a"]},
    "/v1/chat/completions": {"messages": [USER], "max_completion_tokens": 1},
    "/v1/completions": {"prompt": "hi", "max_tokens": 1},
    "/v1/responses": {"input": "hi", "max_output_tokens": 1},
    "/v1/messages": {"messages": [USER], "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": [USER]},
    "/v1/embeddings": {"input": "hi"},
    "/v1/score": {"query": "hi", "items": ["there"], "label_token_ids": [5]},
    "/score": {"text_1": "hi", "text_2": "there"},
    "/v1/rerank": {"query": "hi", "documents": ["there"]},
    "/rerank": {"query": "hi", "documents": ["there"]},
    "/pooling": {"input": "hi"},
    "/encode": {"text": "hi"},
    "/v1/tokenize": {"prompt": "hi"},
    "/tokenize": {"prompt": "hi"},
    "/v1/detokenize": {"tokens": [5]},
    "/detokenize": {"tokens": [5]},
    "/abort_request": {"rid": "nobody"},
    "/ui/prefix": {"text": "hi"},
    "/open_session": {},
    "/close_session": {"session_id": "nobody"},
    "/continue_generation": {},
    "/resume_memory_occupation": {},
    "/update_weight_version": {"new_version": "a"},
    "/configure_logging": {},
}
OF_CLASSIFIERS = {"/classify", "/v1/classify"}  # tests/runtime/server/test_classify.py asks these
OF_ADAPTERS = {  # tests/runtime/server/test_adapter_endpoints.py asks these
    f"{under}/{what}_lora_adapter" for under in ("", "/v1") for what in ("load", "unload")
}
OF_VIEWERS = {"/ui/node"}  # tests/runtime/server/test_live_state.py asks it
# they stop the whole server or change it; test_admin.py, test_pause_endpoints.py, test_live_profile.py,
# test_weight_endpoints.py, test_memory_endpoints.py
OF_OPERATORS = {
    "/flush_cache", "/pause_generation", "/release_memory_occupation", "/slow_down", "/start_profile",
    "/update_weights_from_disk",
}  # fmt: skip
ELSEWHERE = OF_CLASSIFIERS | OF_ADAPTERS | OF_VIEWERS | OF_OPERATORS
TOKENIZED = {"prompt": "hi", "messages": [USER]}
# fields of which a request has one
ONE_OF: dict[str, dict[str, Any]] = {
    "/generate": {"text": "hi", "input_ids": [5], "input_embeds": None},
    "/encode": {"text": "hi", "input_ids": [5]},
    "/v1/tokenize": TOKENIZED,
    "/tokenize": TOKENIZED,
    "/abort_request": {"rid": "nobody", "abort_all": True},
    "/ui/prefix": {"text": "hi", "input_ids": [5]},
}
BEYOND_SCHEMAS = re.compile(
    "does not keep which experts|no adapter is loaded|names no prompts|"
    r"session_params\.id is missing|opens no such sessions|/open_session opens one|\.(image|video|audio) is missing|"
    "not built yet|must have a schema|must have the mode|the function's name|must name one of|vocabulary|"
    "forces a call|"
    "token id in|this server serves|no such response|"
    "at most|exactly one|must be n|is not a classifier|as many as|both make a pair|go together|"
    r"takes no logit processors|max_new_tokens\]|max_tokens\]|max_completion_tokens\]|max_output_tokens\]|"
    r"\[n, |it needs|but tools is empty|only one of|as query|"
    "one value for one prompt|one for each of the|number of documents|hidden size|has no tokens|"
    "by the chat template|must have a text to continue|asks nothing|list of 256 numbers|does not compile|empty|"
    "as the first one|by the results|content is missing|in an assistant message|can be set|"
    "takes no (images|films|sound)|belongs to a turn|stands? beside role|something follows|followed by a text|"
    "continue_final_message|of the vocabulary|must be valid Unicode|cannot have|must be in \\[1, 256\\]|looks? around|"
    "nothing that a model reads"
)
# what stands in them has a language of its own: patterns, grammars, JSON schemas
WRITTEN = re.compile(
    "json_schema|regex|ebnf|structural_tag|guided_|structured_|response_format|output_|sampling_params|text|tools"
)
DOCUMENT = json.loads(openapi.document(ROUTES, NAMED))
COMPONENTS = DOCUMENT["components"]["schemas"]
FIELDS = [
    (path, field)
    for path, route in ROUTES.items()
    if route.body is not None and path not in ELSEWHERE
    for field in COMPONENTS[route.body.__name__]["properties"]
]
OF_ANY_VALUE: tuple[dict[str, Any], ...] = ({}, {"anyOf": [{}, {"type": "null"}]})  # of fields typed `Any`
NEUTRAL = (None, "", [], {}, [None], [{}], {"type": "text"})  # values that may ask a field for nothing


def is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False).encode().decode("utf-8")
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return not (isinstance(value, int) and abs(value) > 2**63)


VALUES = [value for value in JUNK if is_json(value)]


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(max_total_tokens=20000, context_length=512) as live:
        yield live
        state = live.state()
        assert state["running_requests"] == state["leased_tokens"] == state["owned_tokens"] == 0


def schema_of(path: str, field: str) -> dict[str, Any]:
    schema: dict[str, Any] = COMPONENTS[ROUTES[path].body.__name__]["properties"][field]
    return schema


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    components = {"components": DOCUMENT["components"]} if "$ref" in str(schema) else {}  # reading them takes a while
    return Draft202012Validator({**schema, **components})


def minimal_with(path: str, field: str, value: Any) -> dict[str, Any]:
    """Where a request has one of several fields, a value takes the place of the others; null and false leave it."""
    one_of = ONE_OF.get(path, {})
    if field not in one_of:
        return MINIMAL[path] | {field: value}
    rest = {name: item for name, item in MINIMAL[path].items() if name not in one_of}
    if value is None or value is False:
        other = next(name for name in one_of if name != field)
        rest[other] = one_of[other]
    return rest | {field: value}


def send(server: Live, path: str, body: dict[str, Any]) -> tuple[int, str]:
    answer = HTTP.post(server.url + path, data=json.dumps(body).encode(), timeout=60)
    if answer.status_code == 200:
        return 200, ""
    return answer.status_code, answer.json()["error"]["message"]


def test_every_endpoint_with_a_body_has_a_minimal_one() -> None:
    assert MINIMAL.keys() | ELSEWHERE == {path for path, route in ROUTES.items() if route.body is not None}


@pytest.mark.parametrize("path", MINIMAL)
def test_the_minimal_body_is_valid_and_taken(server: Live, path: str) -> None:
    validator({"$ref": f"#/components/schemas/{ROUTES[path].body.__name__}"}).validate(MINIMAL[path])
    assert send(server, path, MINIMAL[path]) == (200, "")


@pytest.mark.parametrize("path", MINIMAL)
def test_every_required_field_is_missed_by_name(server: Live, path: str) -> None:
    for field in COMPONENTS[ROUTES[path].body.__name__].get("required", ()):
        rest = {name: value for name, value in MINIMAL[path].items() if name != field}
        assert send(server, path, rest) == (400, f"{field} is missing")


def is_untyped(path: str, field: str) -> bool:
    marks = ("default", "description", "x-unbuilt")
    return {name: item for name, item in schema_of(path, field).items() if name not in marks} in OF_ANY_VALUE


def holds_format(path: str, field: str) -> bool:
    """Takes every value but objects with a `format`, which another field is for."""
    schema = schema_of(path, field)
    return "x-unbuilt" in schema and any("OtherFormat" in each.get("$ref", "") for each in schema.get("anyOf", ()))


UNTYPED = [case for case in FIELDS if is_untyped(*case)]
IGNORED = [case for case in UNTYPED if "x-unbuilt" not in schema_of(*case)]
HOLDERS = [case for case in FIELDS if holds_format(*case)]
REFUSED = [case for case in UNTYPED if case not in IGNORED]
TYPED = [case for case in FIELDS if case not in UNTYPED and case not in HOLDERS]


@pytest.mark.parametrize(("path", "field"), sampled(FIELDS, 40, seed=1))
def test_what_the_schema_allows_is_taken(server: Live, path: str, field: str) -> None:
    schema, values = schema_of(path, field), SchemaValues(COMPONENTS, Random(f"{path} {field}"))
    drawn = [values.value(schema, 1) for _ in range(DRAWN)]
    valid = validator(schema)
    ignored = schema.get("description", "").startswith("accepted; ")  # whatever it is
    for value in [*drawn, *filter(valid.is_valid, VALUES)]:
        if isinstance(value, float) and value.is_integer():
            continue  # JSON schema calls 2.0 an integer, not every client and field does
        valid.validate(value)
        status, message = send(server, path, minimal_with(path, field, value))
        beyond = BEYOND_SCHEMAS.search(message) or (WRITTEN.match(field) and message.startswith(field))
        assert status == 200 or (status in (400, 404) and beyond and not ignored), (value, message)


@pytest.mark.parametrize(("path", "field"), sampled(TYPED, 40, seed=2))
def test_what_the_schema_forbids_is_a_400_that_names_the_field(server: Live, path: str, field: str) -> None:
    valid = validator(schema_of(path, field))
    forbidden = [value for value in VALUES if not valid.is_valid(value)]
    assert forbidden, "the schema allows everything"
    for value in forbidden:
        status, message = send(server, path, minimal_with(path, field, value))
        assert status == 400 and re.match(rf"{field}\b", message), (value, status, message)


@pytest.mark.parametrize(("path", "field"), IGNORED + HOLDERS)
def test_a_field_that_allows_every_value_takes_it(server: Live, path: str, field: str) -> None:
    for value in VALUES:
        assert send(server, path, minimal_with(path, field, value)) == (200, ""), value


@pytest.mark.parametrize(("path", "field"), sampled(REFUSED + HOLDERS, 10, seed=3))
def test_a_refused_field_without_a_type_is_a_400_that_names_it(server: Live, path: str, field: str) -> None:
    for value in VALUES:
        asked = {"format": value} if (path, field) in HOLDERS else value
        status, message = send(server, path, minimal_with(path, field, asked))
        named = status == 400 and re.match(rf"{field}\b", message)
        assert named or (status == 200 and value in NEUTRAL), (value, status, message)
