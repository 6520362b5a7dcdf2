"""Shapes of bodies that cost a server more than their bytes, each made to a size.

Every body is a request that somebody could send. Most are refused; what counts is what the server spends before it
refuses them. Those that are accepted and are much work stand in heavy.py. For each route that a shape is sent to there
is also a plain text, so that a figure can be divided by what the route itself costs.
"""

from collections.abc import Callable, Iterable
from functools import cache, partial

from ramet.bench.abuse.bodies import (
    BOMB,
    PLAIN,
    WORDS,
    AbusiveBody,
    filled,
    numbered,
    packed,
    plain,
    repeated,
    required,
)

CONTROL = "plain text"
NUM_TOOLS = 1000  # of a chat whose tool_choice names one of them again and again
NUM_CHOICES = 4000
MIN_ROOM = 1 << 16  # bytes that any shape has room in
LONG = "1.00000000000000000000000000000001"  # a body of 1 MiB may have as many
CONSTRAINT = 200_000  # bytes of each of several schemas, below the 256 KiB that one may have


def body_of(shape: str, size: int) -> AbusiveBody:
    """About `size` bytes of this shape: at most `size`, and less by a few pieces at most."""
    return SHAPES[shape](size)


@cache
def route_control(shape: str) -> str:
    """The shape that is a plain text on the same route."""
    return ON_ROUTE[body_of(shape, MIN_ROOM // BOMB if shape in PACKED else MIN_ROOM).path]


def with_route_controls(shapes: Iterable[str]) -> list[str]:
    """These shapes without the control, each route's plain text before the others."""
    asked = [shape for shape in shapes if shape in SHAPES]
    return [name for name in dict.fromkeys([*map(route_control, asked), *asked]) if name != CONTROL]


def _chat(piece: str, **rest: str) -> Callable[[int], AbusiveBody]:
    more = "".join(f', "{name}": {value}' for name, value in rest.items())
    return partial(repeated, "/v1/chat/completions", '{"messages": [', piece, f"]{more}}}")


def _turn(before: str, piece: str, after: str) -> Callable[[int], AbusiveBody]:
    """A chat whose assistant said so much between two turns of the user."""
    head = '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "' + before
    tail = after + '"}, {"role": "user", "content": "x"}]}'
    return partial(repeated, "/v1/chat/completions", head, piece, tail, between="")


def _constrained(size: int, schema: Callable[[int], str]) -> AbusiveBody:
    """Prompts with a schema each, none of which is too long by itself."""
    num = max(1, round(size / CONSTRAINT))
    params = f'{{"max_new_tokens":1,"json_schema":{schema(size // num - 64)}}}'
    texts, each = ",".join(['"x"'] * num), ",".join([params] * num)
    return AbusiveBody("/generate", f'{{"text":[{texts}],"sampling_params":[{each}]}}'.encode())


def _choices(size: int) -> bytes:
    """A select among texts that are tokenised together with the prompt."""
    head, tail = b'{"prompt": ["x"], "choices": [', b"]}"
    each = (size - len(head) - len(tail)) // NUM_CHOICES - len(b'"",')
    texts = (b'"' + (b"%d " % i + filled(WORDS, each))[:each] + b'"' for i in range(NUM_CHOICES))
    return head + b",".join(texts) + tail


TO_GENERATE = partial(repeated, "/generate")
_ASKED = '{"text": "x", '
_USER = '{"messages": [{"role": "user", "content": "x"}], '
_TURN = '{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}'
_TOOL = '{"type": "function", "function": {"name": "f{}", "parameters": {"type": "object", "properties": {}}}}'
_TOOLS = ",".join(f'{{"type":"function","function":{{"name":"f{i}"}}}}' for i in range(NUM_TOOLS))
_CALLS = '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": ['
_CALL = '{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}'
_ESCAPED = "\\\\u0000"  # in JSON: a backslash and five characters, which is no NUL but is searched for one

SHAPES: dict[str, Callable[[int], AbusiveBody]] = {
    CONTROL: plain,
    "unknown keys": partial(numbered, "/generate", _ASKED, '"k{}": 1', "}"),
    "unknown keys of sampling": partial(numbered, "/generate", _ASKED + '"sampling_params": {', '"k{}": 1', "}}"),
    "unknown keys of a chat": partial(numbered, "/v1/chat/completions", _USER, '"k{}": 1', "}"),
    "unknown keys of a message": partial(
        numbered, "/v1/chat/completions", '{"messages": [{"role": "user", "content": "x", ',
        '"k{}": 1', "}]}",
    ),
    "one key many times": partial(TO_GENERATE, _ASKED, '"k": 1', "}"),
    "one known key many times": partial(TO_GENERATE, "{", '"text": "x"', "}"),
    "brackets": partial(TO_GENERATE, _ASKED + '"k": ', "[", "", between=""),
    "empty lists": partial(TO_GENERATE, _ASKED + '"k": [', "[]", "]}"),
    "empty objects": partial(TO_GENERATE, _ASKED + '"k": [', "{}", "]}"),
    "lists of lists": partial(TO_GENERATE, '{"input_ids": [', "[5,6]", "]}"),
    "numbers": partial(TO_GENERATE, _ASKED + '"k": [', "0.1234567890123456", "]}"),
    "short numbers": partial(TO_GENERATE, _ASKED + '"k": [', "1", "]}"),
    "a long number": partial(TO_GENERATE, _ASKED + '"k": ', "1234567890", "}", between=""),
    "long numbers of a tool": partial(
        TO_GENERATE, _ASKED + '"sampling_params": {"json_schema": {"enum": [', "1234567890" * 3, "]}}}",
    ),
    "ids": partial(TO_GENERATE, '{"input_ids": [', "257", "]}"),
    "embeddings": partial(TO_GENERATE, '{"input_embeds": [[', "0.125", "]]}"),
    "texts": partial(TO_GENERATE, '{"text": [', '"x"', "]}"),
    "stop texts": partial(TO_GENERATE, _ASKED + '"sampling_params": {"stop": [', '"x"', "]}}"),
    "biases": partial(numbered, "/generate", _ASKED + '"sampling_params": {"logit_bias": {', '"{}": 1', "}}}"),
    "request ids": partial(TO_GENERATE, '{"text": ["x"], "rid": [', '"x"', "]}"),
    "a long request id": partial(TO_GENERATE, _ASKED + '"rid": "', "r", '"}', between=""),
    "a long unknown key": partial(TO_GENERATE, _ASKED + '"', "k", '": 1}', between=""),
    "escapes": partial(TO_GENERATE, '{"text": "', "\\u00e9", '"}', between=""),
    "surrogates": partial(TO_GENERATE, '{"text": "', "\\ud83d\\ude00", '"}', between=""),
    "one word": partial(TO_GENERATE, '{"text": "', "a", '"}', between=""),
    "blanks": partial(TO_GENERATE, _ASKED + '"k": 1', " ", "}", between=""),
    "turns": _chat(_TURN),
    "pieces of a turn": partial(
        repeated, "/v1/chat/completions", '{"messages": [{"role": "user", "content": [',
        '{"type": "text", "text": "x"}', "]}]}",
    ),
    "calls of a turn": partial(
        repeated, "/v1/chat/completions", _CALLS, _CALL, "]}]}",
    ),
    "tools": partial(numbered, "/v1/chat/completions", _USER + '"tools": [', _TOOL, "]}"),
    "a schema": partial(
        numbered, "/v1/chat/completions",
        _USER + '"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": '
        '{"type": "object", "properties": {', '"k{}": {"type": "string"}', "}}}}}",
    ),
    "an enum": partial(
        numbered, "/generate", _ASKED + '"sampling_params": {"json_schema": {"enum": [', '"k{}"', "]}}}"
    ),
    "a pattern": partial(TO_GENERATE, _ASKED + '"sampling_params": {"regex": "', "(a|b)*", '"}}', between=""),
    "a grammar": partial(
        TO_GENERATE, _ASKED + '"sampling_params": {"ebnf": "root ::= ', '\\"a\\" | ', '\\"b\\""}}', between="",
    ),
    "messages": partial(repeated, "/v1/messages", '{"max_tokens": 1, "messages": [', _TURN, "]}"),
    "items": partial(repeated, "/v1/responses", '{"input": [', _TURN, "]}"),
    "texts to embed": partial(repeated, "/v1/embeddings", '{"input": [', '"x"', "]}"),
    "documents": partial(repeated, "/v1/rerank", '{"query": "q", "documents": [', '"x"', "]}"),
    "texts to complete": partial(repeated, "/v1/completions", '{"prompt": [', '"x"', "]}"),
    "text to count": partial(repeated, "/v1/tokenize", '{"prompt": "', "a b ", '"}', between=""),
    "a picture": partial(
        repeated, "/v1/chat/completions",
        '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": '
        '{"url": "data:image/png;base64,', "AAAA", '"}}]}]}', between="",
    ),
    "a long thought": _turn("<think>", "a b ", "</think>y"),
    "many thoughts": _turn("", "<think>t</think>", "y"),
    "thoughts that do not end": _turn("", "<think>", ""),
    "a thought in its own field": partial(
        repeated, "/v1/chat/completions", '{"messages": [{"role": "user", "content": "x"}, '
        '{"role": "assistant", "content": "y", "reasoning_content": "', "a b ", '"}]}', between="",
    ),
    "the text of a reasoning item": partial(
        repeated, "/v1/responses", '{"input": [{"role": "user", "content": "x"}, {"type": "reasoning", "summary": [], '
        '"content": [{"type": "reasoning_text", "text": "', "a b ", '"}]}]}', between="",
    ),
    "a call in each turn": _chat(
        '{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", '
        '"function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "answer"}'
    ),
    "items of calls": partial(
        repeated, "/v1/responses", '{"input": [',
        '{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, '
        '{"type": "function_call_output", "call_id": "c", "output": "the answer"}', "]}",
    ),
    "reasoning items": partial(
        repeated, "/v1/responses", '{"input": [{"role": "user", "content": "x"}, ',
        '{"type": "reasoning", "summary": [], "encrypted_content": "a b a b a b a b a b a b"}', "]}",
    ),
    "allowed tools": partial(
        repeated, "/v1/chat/completions",
        _USER + f'"tools": [{_TOOLS}], "tool_choice": {{"type": "allowed_tools", "mode": "auto", "tools": [',
        f'{{"type":"function","name":"f{NUM_TOOLS - 1}"}}', "]}}",
    ),
    "required properties of a tool": lambda size: AbusiveBody("/v1/chat/completions", (
        _USER + '"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "parameters": '
        + required(size - 200) + "}}]}"
    ).encode()),
    "long numbers of a template": partial(
        repeated, "/v1/chat/completions", _USER + '"chat_template_kwargs": {"k": [', "1.00000000000000001", "]}}",
    ),
    "long numbers of a call": partial(
        repeated, "/v1/chat/completions", '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", '
        '"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"k": [', LONG,
        ']}}}]}, {"role": "tool", "tool_call_id": "c", "content": "y"}]}',
    ),
    "required properties of schemas": lambda size: _constrained(size, required),
    "required properties with a null": lambda size: _constrained(size, partial(required, more='"default":null,')),
    "long numbers of schemas": lambda size: _constrained(
        size, lambda each: f'{{"enum":[{",".join([LONG] * (each // (len(LONG) + 1)))}]}}'
    ),
    "NUL in a schema": partial(
        TO_GENERATE, _ASKED + '"sampling_params": {"json_schema": {"enum": ["', "\\u0000", '"]}}}', between="",
    ),
    "escaped NUL in schemas": lambda size: _constrained(size, lambda each: f'{{"enum":["{_ESCAPED * (each // 7)}"]}}'),
    "sampling parameters for one prompt": partial(
        TO_GENERATE, '{"text": "x", "sampling_params": [', '{"max_new_tokens":1,"temperature":0.5,"top_k":20}', "]}",
    ),
    "long choices": lambda size: AbusiveBody("/language/select", _choices(size)),
    "bad UTF-8": lambda size: AbusiveBody("/generate", b'{"text": "' + b"\xff" * (size - 12) + b'"}'),
    "no JSON": lambda size: AbusiveBody("/generate", b"\x00" * size),
    "gzip": partial(packed, "gzip"),
    "deflate": partial(packed, "deflate"),
}  # fmt: skip
ON_ROUTE = {path: CONTROL if path == "/generate" else f"plain text to {path}" for path in PLAIN}
SHAPES |= {name: partial(plain, path=path) for path, name in ON_ROUTE.items()}
PACKED = ("gzip", "deflate")  # shapes whose bodies inflate to BOMB times their size on the wire
