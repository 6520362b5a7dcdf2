"""HTTP requests for every operation of /openapi.json: mostly valid, then damaged. Number `index` is always the same.

Decides what is asked and how it is broken. Knows no answer. `python tests/fakes/fuzzed_requests.py URL INDEX`
sends one.
"""

import json
import sys
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from schema_values import NAMES, TOOL_SCHEMAS, SchemaValues

LIVE, DEAD = "RESPONSE-THAT-LIVES", "RESPONSE-THAT-IS-GONE"  # a client puts ids in their place that it knows
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens")
FIELDS_OF_LIMIT = {
    "/v1/chat/completions": "max_completion_tokens",
    "/v1/completions": "max_tokens",
    "/v1/responses": "max_output_tokens",
    "/v1/messages": "max_tokens",
}
WEIGHTS = {  # of operations; 1 where none is given
    "/generate": 14, "/language/generate": 10, "/language/select": 8, "/language/render": 3,
    "/v1/chat/completions": 24, "/v1/completions": 16, "/v1/responses": 20, "/v1/messages": 16,
    "/v1/messages/count_tokens": 4, "/v1/embeddings": 6, "/v1/score": 6, "/v1/rerank": 6, "/v1/tokenize": 4,
    "/pooling": 3, "/encode": 3, "/score": 3, "/classify": 2,
    "/v1/detokenize": 4, "/v1/responses/{id}": 5, "/v1/requests/{id}": 2,
    "/pause_generation": 0, "/release_memory_occupation": 0, "/slow_down": 0, "/start_profile": 0,  # others would wait
}  # fmt: skip
JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, -0.0, 1e308, 5e-324, 2**31, 2**53, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**30,
    float("nan"), float("inf"), "", "x", "5", "true", "null", "\x00", "\ud800", "a\udfff", "<|im_end|>", "ü" * 300,
    [],
    {}, [None], [[]], [{}], {"": ""}, {"type": "text"}, {"type": None}, ["a", 1], [1, "a"], [1.5], [-1], [2**40],
    [[1], []],
    [["a"]], [True], {"role": "user"}, {"type": "function"}, {"type": "json_schema"}, {"\ud800": 1},
    {"include_usage": 1}, {"continuous_usage_stats": True}, {"id": "a"}, "left", "1e5", "-100",
)  # fmt: skip
CHOICES: tuple[Any, ...] = (
    "auto", "none", "required", "any", "", {"type": "auto"}, {"type": "none"}, {"type": "any"}, {"type": "tool"}, {},
    {"type": "function", "function": {"name": "look"}}, {"type": "allowed_tools"}, {"type": 5},
    {"type": "tool", "name": 1},
    {"type": "auto", "disable_parallel_tool_use": True}, {"type": "custom"}, {"type": ["auto"]},
)  # fmt: skip
PARTS: tuple[Any, ...] = (
    {"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"type": "output_text", "text": "c"},
    {"type": "refusal", "refusal": "d"}, {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
    {"type": "text"}, {"type": "input_image", "image_url": "data:,"}, {"type": "input_audio", "input_audio": {}},
    {"type": "file"},
    "a", 5,
    {"type": "video"}, {"type": "image", "source": {"type": "base64", "data": "AA=="}}, {"text": "e"},
    {"type": "thinking"}, {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "redacted_thinking",
    "data": "x"}, {"type": []},
    {"type": "tool_use", "id": "t", "name": "look", "input": {"x": 1}}, 
    {"type": "tool_use", "name": "look", "input": []},
    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "f"}]}, {"type": "tool_result"},
    {"type": "reasoning_text", "text": "g"}, {"type": "document"}, {"type": "search_result"},
    {"type": "text", "text": None},
)  # fmt: skip
USER_TURN = {"role": "user", "content": ["a", " 🙂"]}
PROMPT_ENDS: tuple[list[Any], ...] = (
    ["so"], [""], [USER_TURN], [USER_TURN, "raw", {"role": "assistant", "open": True}],
    [USER_TURN, {"role": "assistant", "content": ["<think>b"], "open": True}], [{"role": "user", "open": True}],
    [{"contexts": ["a", "b c"]}, "d"], [{"role": "user", "content": [{"contexts": ["a"]}, "b"]}], [{"image": "x"}],
)  # fmt: skip
CALLS: tuple[Any, ...] = (
    {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"x": '}},
    {"id": "c", "type": "function", "function": {"name": "look", "arguments": {"x": [1]}}},
    {"function": {"name": "look"}},
    {"id": None, "type": "function", "function": {"name": "日", "arguments": "\\ud800"}}, {"function": None}, {}, None,
    {"id": "c", "type": "custom", "custom": {}}, {"id": 5, "function": {"name": "look", "arguments": 5}},
)  # fmt: skip
ROLES = (
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
    "user",
    "assistant",
    "user",
    "narrator",
    "",
    5,
    None,
)
ITEMS: tuple[Any, ...] = (
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}, {"type": "item_reference",
    "id": "x"},
    {"type": "function_call_output", "call_id": "c", "output": "12"}, {"type": "function_call_output",
    "call_id": "c"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "12"}]},
    {"type": None},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "reasoning"},
    {"type": "reasoning", "content": 5}, {"type": "web_search_call"}, {"role": "assistant", "content": "hi"}, "a",
    5, {},
)  # fmt: skip


class Request(NamedTuple):
    method: str
    path: str  # as it is sent, with its query
    operation: str  # the path's template
    headers: dict[str, str]
    body: bytes | None
    hangs_up_after: int | None = None  # bytes of the reply


ENDLESS = "/ui/live"  # a stream that goes on as long as somebody reads


class Fuzzer:
    def __init__(self, document: dict[str, Any], seed: int = 0) -> None:
        self._components, self._seed = document["components"]["schemas"], seed
        self._operations = [(path, method) for path, methods in document["paths"].items() for method in methods]
        self._bodies = {
            path: operation["requestBody"]["content"]["application/json"]["schema"]
            for path, methods in document["paths"].items()
            for operation in methods.values()
            if "requestBody" in operation
        }
        self._weights = [WEIGHTS.get(path, 1) for path, _ in self._operations]

    def request(self, index: int) -> Request:
        draw = Random(f"{self._seed}:{index}")
        ((operation, method),) = draw.choices(self._operations, self._weights)
        body, headers = None, {"Content-Type": "application/json"}
        if operation in self._bodies:
            values = SchemaValues(self._components, draw)
            body = _damaged_bytes(draw, _written(_mutated(draw, self._body(draw, values, operation), operation)))
        path, method = _path(draw, operation), method.upper()
        if draw.random() < 0.03:
            path, method, headers = _strange(draw, path, method)
        hangs_up = draw.randint(0, 3000) if draw.random() < 0.04 or operation == ENDLESS else None
        return Request(method, path, operation, headers, body, hangs_up)

    def _body(self, draw: Random, values: SchemaValues, operation: str) -> dict[str, Any]:
        schema = values.resolved(self._bodies[operation])
        body: dict[str, Any] = values.value(schema)
        names = sorted(schema["properties"].keys() - body.keys())
        built = [name for name in names if not schema["properties"][name].get("x-unbuilt")]
        chosen = draw.sample(built, min(len(built), draw.choice((0, 1, 2, 2, 3, 5))))
        if names and draw.random() < 0.03:
            chosen.append(draw.choice(names))
        body |= {name: values.value(schema["properties"][name], 1) for name in chosen}
        _complete(draw, values, operation, body)
        return body


def _complete(draw: Random, values: SchemaValues, operation: str, body: dict[str, Any]) -> None:
    """What a schema cannot say: which fields go together, and what a conversation looks like."""
    match operation:
        case "/generate":
            for name in ("text", "input_ids", "input_embeds", "custom_logit_processor"):
                body.pop(name, None)
            if draw.random() < 0.7:
                body["text"] = draw.choice((values.text(), [values.text() for _ in range(draw.randint(1, 3))]))
            else:
                body["input_ids"] = [draw.randint(0, 400) for _ in range(draw.randint(1, 9))]
            params = body.get("sampling_params")
            if not isinstance(params, dict) or draw.random() < 0.6:
                body["sampling_params"] = {"max_new_tokens": draw.randint(0, 9)}
            if draw.random() < 0.2:
                body["sampling_params"] |= {
                    "custom_params": [draw.choice((None, {}, {"n": 1}, 5)) for _ in range(draw.randint(0, 3))]
                }
            if draw.random() < 0.1:
                body["rid"] = [
                    draw.choice(("same", "other", f"own-{draw.random()}")) for _ in range(draw.randint(1, 3))
                ]
            if draw.random() < 0.01:
                body |= {"text": ["a"] * 129, "sampling_params": {"n": 128, "max_new_tokens": 1}}
        case "/language/generate" | "/language/select" | "/language/render":
            if draw.random() < 0.8:
                body["prompt"] = [values.text() for _ in range(draw.randint(0, 2))] + draw.choice(PROMPT_ENDS)
            if operation == "/language/generate" and draw.random() < 0.7:
                body.pop("custom_logit_processor", None)
                body["sampling_params"] = {"max_new_tokens": draw.randint(0, 9), "n": draw.randint(1, 3)}
            if operation == "/language/select":
                body["choices"] = [values.text() or "a" for _ in range(draw.randint(1, 4))]
        case "/language/end":
            body["programs"] = [values.text() or "a" for _ in range(draw.randint(1, 3))]
        case "/v1/completions":
            ids = [draw.randint(0, 400) for _ in range(draw.randint(1, 9))]
            body["prompt"] = draw.choice((values.text(), [values.text()], ids, [ids, ids[:1]]))
        case "/v1/detokenize" | "/detokenize":
            body["tokens"] = [draw.randint(0, 400) for _ in range(draw.randint(1, 9))]
        case "/v1/score":
            body |= {"query": values.text(), "items": [values.text()], "label_token_ids": [draw.randint(0, 400)]}
        case "/score":
            body |= {"text_1": values.text(), "text_2": [values.text(), values.text()]}
        case "/encode":
            body |= draw.choice(({"text": values.text()}, {"input_ids": [[1, 2], [3]]}))
        case "/v1/embeddings" | "/pooling" | "/classify":
            body["input"] = draw.choice((values.text(), [values.text(), values.text()], [1, 2, 3]))
        case "/v1/rerank":
            body["documents"] = [values.text() for _ in range(draw.randint(1, 4))]
        case "/v1/responses":
            if draw.random() < 0.3:
                body["previous_response_id"] = draw.choice((LIVE, LIVE, LIVE, DEAD))
            if draw.random() < 0.3:
                body["input"] = _conversation(draw, values, responses=True)
    if draw.random() < 0.05:
        owner = body.get("sampling_params") if operation == "/generate" else body
        if isinstance(owner, dict) and operation in (*FIELDS_OF_LIMIT, "/generate"):
            owner["stop_token_ids"] = draw.choice(([2**31], [4096, 3], 2**63 - 1, [2**40, 0]))
            owner["logit_bias"] = {str(draw.randint(0, 4200)): draw.choice(("5", "-100", "1e999", "0.5", "x"))}
    if "messages" in body and draw.random() < 0.5:
        body["messages"] = _conversation(draw, values)
    if draw.random() < 0.1:
        body["tool_choice"] = draw.choice(CHOICES)
    if draw.random() < 0.15:
        body["tools"] = _tools(draw, operation)
    if operation in FIELDS_OF_LIMIT and draw.random() < 0.9:
        body[FIELDS_OF_LIMIT[operation]] = draw.choice((1, 1, 2, 2, 3, 8, 20, 100))
    if draw.random() < 0.35:
        body["stream"] = True
    else:
        body.pop("stream", None)
    for name in ("model", "rid", "request_id"):
        if draw.random() < 0.9:
            body.pop(name, None)


def _conversation(draw: Random, values: SchemaValues, responses: bool = False) -> list[Any]:
    turns: list[Any] = []
    for _ in range(draw.choice((1, 1, 2, 3, 4))):
        if responses and draw.random() < 0.4:
            turns.append(draw.choice(ITEMS))
            continue
        turn: dict[str, Any] = {"role": draw.choice(ROLES[:9] if draw.random() < 0.9 else ROLES)}
        if draw.random() < 0.95:
            turn["content"] = values.text()
        if draw.random() < 0.3:
            turn["content"] = [
                draw.choice(PARTS[:4] if draw.random() < 0.6 else PARTS) for _ in range(draw.randint(0, 3))
            ]
        if draw.random() < 0.15:
            turn["tool_calls"] = [draw.choice(CALLS) for _ in range(draw.randint(0, 2))]
        if draw.random() < 0.1:
            turn[draw.choice(("reasoning_content", "name", "tool_call_id", "thinking"))] = draw.choice(
                ("a", 5, None, {})
            )
        turns.append(turn)
    return turns


def _tools(draw: Random, operation: str) -> list[Any]:
    count = draw.choice((0, 1, 1, 2, 2, 3)) if draw.random() < 0.95 else 1000
    return [_tool(draw, operation, i) for i in range(count)]


def _tool(draw: Random, operation: str, index: int) -> dict[str, Any]:
    name = draw.choice(NAMES) if draw.random() < 0.9 else draw.choice((f"tool{index}", "日本", "", "a b", "x" * 129))
    schema: Any = draw.choice(TOOL_SCHEMAS) if draw.random() < 0.9 else draw.choice((None, [], "x"))
    if operation.startswith("/v1/messages"):
        return {"name": name, "description": draw.choice((None, "", "finds")), "input_schema": schema}
    function = {"name": name, "description": draw.choice((None, "", "finds\nmore")), "parameters": schema}
    return (
        {"type": "function", **function} if operation == "/v1/responses" else {"type": "function", "function": function}
    )


def _mutated(draw: Random, body: dict[str, Any], operation: str) -> Any:
    """Damaged or not, what it may run for is bounded: a batch or many samples draw few tokens."""
    value: Any = body
    for _ in range(draw.choice((0, 0, 0, 1, 1, 2))):
        value = _mutation(draw, value)
    if isinstance(value, dict):
        params = value.get("sampling_params") if operation == "/generate" else value
        for each in params if isinstance(params, list) else [params]:
            if isinstance(each, dict) and any(_is_large(each.get(name)) for name in ("n", "best_of")):
                each |= {"n": 9, "best_of": None} | {
                    name: 1 for name in LIMITS if name in each or operation != "/generate"
                }
    return value


def _is_large(count: Any) -> bool:
    return isinstance(count, int | float) and 4 < count <= 128


def _mutation(draw: Random, value: Any) -> Any:
    """One value somewhere inside is another."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        name = draw.choice(sorted(value))
        rest = {key: item for key, item in value.items() if key != name}
        match draw.randint(0, 9):
            case 0:
                return rest
            case 1:
                return {**rest, name + draw.choice(("s", "_", " ", "\x00")): value[name]}
            case 2:
                return {**value, draw.choice(("unknown", "", "日")): _junk(draw)}
            case _:
                return {**rest, name: _mutation(draw, value[name])}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        match draw.randint(0, 5):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value * 3
            case 2:
                return draw.sample(value, len(value))
            case _:
                return [*value[:at], _mutation(draw, value[at]), *value[at + 1 :]]
    return draw.choice((_junk(draw), _junk(draw), [value], {"value": value}, [value, value]))


def _junk(draw: Random) -> Any:
    if draw.random() < 0.03:
        return draw.choice(
            ("long " * 20_000, "a" * 100_000, list(range(5000)), {str(i): 1 for i in range(3000)}, 10**400)
        )
    return draw.choice(JUNK)


def _written(value: Any) -> bytes:
    """NaN and Infinity raw, half surrogates as escapes."""
    return json.dumps(value).encode()


RAW: tuple[Callable[[Random, bytes], bytes], ...] = (
    lambda draw, data: data[: draw.randint(0, len(data))],
    lambda draw, data: data + draw.choice((b"}", b"x", b"\x00", b"  ", data)),
    lambda draw, data: b"[" + data + b"]",
    lambda draw, data: data.replace(b'"', b"'"),
    lambda draw, data: data.replace(b":", b":-" + b"9" * 400 + b",", 1),
    lambda draw, data: data[:-1] + b"," + data[1:],  # every key twice
    lambda draw, data: data[:-1] + b',"x":' + b"[" * draw.choice((63, 64, 3000)) + b"]" * 63 + b"}",
    lambda draw, data: data[:-1] + b',"x":' + b'{"a":' * 70 + b"1" + b"}" * 71,
    lambda draw, data: b"\xef\xbb\xbf" + data,
    lambda draw, data: data.decode().encode("utf-16"),
    lambda draw, data: data.replace(b"a", b"\xff\xfe", 2),
    lambda draw, data: bytes(draw.randrange(256) for _ in range(40)),
    lambda draw, data: draw.choice((b"", b"null", b"5", b'"x"', b"[]", b"{}", b"true", b"NaN", b"-", b"\\u0000")),
)


def _damaged_bytes(draw: Random, data: bytes) -> bytes:
    return draw.choice(RAW)(draw, data) if draw.random() < 0.06 else data


def _path(draw: Random, operation: str) -> str:
    if "{id}" in operation:
        ids = (
            LIVE,
            LIVE,
            DEAD,
            LIVE + "/input_items",
            LIVE + "/cancel",
            LIVE + "/x",
            "",
            "%00",
            "..%2f..",
            "%C3%BC",
            "%FF",
            "a" * 3000,
        )
        return operation.replace("{id}", draw.choice(ids))
    if operation == "/flush_cache":
        return operation + draw.choice(
            ("", "?timeout=0", "?timeout=x", "?timeout=-1", "?timeout=nan", "?timeout=1e999")
        )
    return operation + (
        draw.choice(("?x=1", "?stream=true", "?%ff", "/", "?" + "a=1&" * 500)) if draw.random() < 0.03 else ""
    )


def _sent_by_a_page(draw: Random) -> dict[str, str]:
    """What says where a page came from, and by what name it found the server: half of it this machine's own."""
    own = ("http://localhost:3000", "HTTPS://[::1]", "http://127.0.0.1")
    headers = {"Origin": draw.choice((*own, *own, "http://evil.example", "null", "", "http://", "a b", "x" * 3000))}
    if draw.random() < 0.3:
        headers["Host"] = draw.choice(("localhost.", "10.0.0.1:1", "[::1]:80", "evil.example", "a b", "[::", ":", "%"))
    if draw.random() < 0.3:
        headers["Access-Control-Request-Method"] = draw.choice(("POST", "DELETE", "", "a b"))
        headers["Access-Control-Request-Headers"] = draw.choice(("", "authorization,x-a", "a\tb", "\u00fc", "a" * 3000))
    return headers


def _strange(draw: Random, path: str, method: str) -> tuple[str, str, dict[str, str]]:
    path = draw.choice((path, "/" + path, path + "/x", path.upper(), "/%2e%2e/etc", "/", "/v1", "/v1/", path[:-1]))
    method = draw.choice(
        (method, method, "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "PROPFIND")
    )
    kinds = (
        "text/plain",
        "multipart/form-data",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-16",
        "",
    )
    headers = {"Content-Type": draw.choice(kinds)}
    if draw.random() < 0.2:
        headers |= draw.choice(({"Content-Encoding": "gzip"}, {"X-Request-Id": "a b"}, {"Authorization": "Bearer"}))
    if draw.random() < 0.3:
        headers |= _sent_by_a_page(draw)
    return path, method, headers


def main(url: str, index: int) -> None:
    import requests

    asked = Fuzzer(requests.get(url + "/openapi.json", timeout=10).json()).request(index)
    print(asked)
    answer = requests.request(asked.method, url + asked.path, data=asked.body, headers=asked.headers, timeout=60)
    print(answer.status_code, dict(answer.headers), answer.text, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
