"""Bodies that cost a server more than their bytes, each made to a size. Knows no server and measures nothing.

A shape repeats one short piece until the body has the requested size. Every body is a request that somebody could
send. Most are refused; what counts is what the server spends before it refuses them.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

CONTROL = "plain text"
BOMB = 1024  # inflated bytes of a bomb for each byte on the wire, about the most that deflate can reach


class Body(NamedTuple):
    """What one request sends."""

    path: str
    data: bytes
    headers: tuple[tuple[str, str], ...] = ()


def plain(size: int) -> Body:
    """One text of so many bytes."""
    head, tail = b'{"text": "', b'"}'
    words = b"the quick brown fox jumps over the lazy dog "
    return Body("/generate", head + _filled(words, size - len(head) - len(tail)) + tail)


def body_of(shape: str, size: int) -> Body:
    """About `size` bytes of this shape: at most `size`, and less by a few pieces at most."""
    return SHAPES[shape](size)


def _filled(piece: bytes, size: int) -> bytes:
    return (piece * (size // len(piece) + 1))[: max(0, size)]


def _repeated(path: str, head: str, piece: str, tail: str, size: int, between: str = ",") -> Body:
    """`head`, then as many of `piece` as fit, then `tail`."""
    start, one, end = head.encode(), (piece + between).encode(), tail.encode()
    num = max(1, (size - len(start) - len(end)) // len(one))
    return Body(path, start + (one * num)[: -len(between) or None] + end)


def _numbered(path: str, head: str, piece: str, tail: str, size: int) -> Body:
    """A body like that of `_repeated`, but {} in each piece is replaced by the piece's number."""

    def pieces() -> Iterator[str]:
        left, i = size - len(head) - len(tail), 0
        while left > 0:
            made = piece.replace("{}", str(i))
            left, i = left - len(made) - 1, i + 1
            yield made

    return Body(path, (head + ",".join(pieces()) + tail).encode())


def _packed(coding: str, size: int) -> Body:
    """A plain text that deflate makes a thousand times smaller, so that `size` bytes travel."""
    text = b'{"text": "' + b" " * (BOMB * size) + b'"}'
    pack = {"gzip": partial(gzip.compress, compresslevel=9), "deflate": partial(zlib.compress, level=9)}[coding]
    return Body("/generate", pack(text), (("Content-Encoding", coding),))


def _chat(piece: str, **rest: str) -> Callable[[int], Body]:
    more = "".join(f', "{name}": {value}' for name, value in rest.items())
    return partial(_repeated, "/v1/chat/completions", '{"messages": [', piece, f"]{more}}}")


_GENERATE = partial(_repeated, "/generate")
_ASKED = '{"text": "x", '
_USER = '{"messages": [{"role": "user", "content": "x"}], '
_TURN = '{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}'
_TOOL = '{"type": "function", "function": {"name": "f{}", "parameters": {"type": "object", "properties": {}}}}'
_CALLS = '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": ['
_CALL = '{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}'

SHAPES: dict[str, Callable[[int], Body]] = {
    CONTROL: plain,
    "unknown keys": partial(_numbered, "/generate", _ASKED, '"k{}": 1', "}"),
    "unknown keys of sampling": partial(_numbered, "/generate", _ASKED + '"sampling_params": {', '"k{}": 1', "}}"),
    "unknown keys of a chat": partial(_numbered, "/v1/chat/completions", _USER, '"k{}": 1', "}"),
    "unknown keys of a message": partial(
        _numbered, "/v1/chat/completions", '{"messages": [{"role": "user", "content": "x", ',
        '"k{}": 1', "}]}",
    ),
    "one key many times": partial(_GENERATE, _ASKED, '"k": 1', "}"),
    "one known key many times": partial(_GENERATE, "{", '"text": "x"', "}"),
    "brackets": partial(_GENERATE, _ASKED + '"k": ', "[", "", between=""),
    "empty lists": partial(_GENERATE, _ASKED + '"k": [', "[]", "]}"),
    "empty objects": partial(_GENERATE, _ASKED + '"k": [', "{}", "]}"),
    "lists of lists": partial(_GENERATE, '{"input_ids": [', "[5,6]", "]}"),
    "numbers": partial(_GENERATE, _ASKED + '"k": [', "0.1234567890123456", "]}"),
    "short numbers": partial(_GENERATE, _ASKED + '"k": [', "1", "]}"),
    "a long number": partial(_GENERATE, _ASKED + '"k": ', "1234567890", "}", between=""),
    "long numbers of a tool": partial(
        _GENERATE, _ASKED + '"sampling_params": {"json_schema": {"enum": [', "1234567890" * 3, "]}}}",
    ),
    "ids": partial(_GENERATE, '{"input_ids": [', "257", "]}"),
    "embeddings": partial(_GENERATE, '{"input_embeds": [[', "0.125", "]]}"),
    "texts": partial(_GENERATE, '{"text": [', '"x"', "]}"),
    "stop texts": partial(_GENERATE, _ASKED + '"sampling_params": {"stop": [', '"x"', "]}}"),
    "biases": partial(_numbered, "/generate", _ASKED + '"sampling_params": {"logit_bias": {', '"{}": 1', "}}}"),
    "request ids": partial(_GENERATE, '{"text": ["x"], "rid": [', '"x"', "]}"),
    "a long request id": partial(_GENERATE, _ASKED + '"rid": "', "r", '"}', between=""),
    "a long unknown key": partial(_GENERATE, _ASKED + '"', "k", '": 1}', between=""),
    "escapes": partial(_GENERATE, '{"text": "', "\\u00e9", '"}', between=""),
    "surrogates": partial(_GENERATE, '{"text": "', "\\ud83d\\ude00", '"}', between=""),
    "one word": partial(_GENERATE, '{"text": "', "a", '"}', between=""),
    "blanks": partial(_GENERATE, _ASKED + '"k": 1', " ", "}", between=""),
    "turns": _chat(_TURN),
    "pieces of a turn": partial(
        _repeated, "/v1/chat/completions", '{"messages": [{"role": "user", "content": [',
        '{"type": "text", "text": "x"}', "]}]}",
    ),
    "calls of a turn": partial(
        _repeated, "/v1/chat/completions", _CALLS, _CALL, "]}]}",
    ),
    "tools": partial(_numbered, "/v1/chat/completions", _USER + '"tools": [', _TOOL, "]}"),
    "a schema": partial(
        _numbered, "/v1/chat/completions",
        _USER + '"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": '
        '{"type": "object", "properties": {', '"k{}": {"type": "string"}', "}}}}}",
    ),
    "an enum": partial(
        _numbered, "/generate", _ASKED + '"sampling_params": {"json_schema": {"enum": [', '"k{}"', "]}}}"
    ),
    "a pattern": partial(_GENERATE, _ASKED + '"sampling_params": {"regex": "', "(a|b)*", '"}}', between=""),
    "a grammar": partial(
        _GENERATE, _ASKED + '"sampling_params": {"ebnf": "root ::= ', '\\"a\\" | ', '\\"b\\""}}', between="",
    ),
    "messages": partial(_repeated, "/v1/messages", '{"max_tokens": 1, "messages": [', _TURN, "]}"),
    "items": partial(_repeated, "/v1/responses", '{"input": [', _TURN, "]}"),
    "texts to embed": partial(_repeated, "/v1/embeddings", '{"input": [', '"x"', "]}"),
    "documents": partial(_repeated, "/v1/rerank", '{"query": "q", "documents": [', '"x"', "]}"),
    "texts to complete": partial(_repeated, "/v1/completions", '{"prompt": [', '"x"', "]}"),
    "text to count": partial(_repeated, "/v1/tokenize", '{"prompt": "', "a b ", '"}', between=""),
    "a picture": partial(
        _repeated, "/v1/chat/completions",
        '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": '
        '{"url": "data:image/png;base64,', "AAAA", '"}}]}]}', between="",
    ),
    "bad UTF-8": lambda size: Body("/generate", b'{"text": "' + b"\xff" * (size - 12) + b'"}'),
    "no JSON": lambda size: Body("/generate", b"\x00" * size),
    "gzip": partial(_packed, "gzip"),
    "deflate": partial(_packed, "deflate"),
}  # fmt: skip
PACKED = ("gzip", "deflate")  # shapes whose bodies inflate to BOMB times their size on the wire
