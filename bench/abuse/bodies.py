"""How a body is made to a size: by repeating one short piece. Knows no shape and no server."""

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

BOMB = 1024  # inflated bytes of a bomb for each byte on the wire, about the most that deflate can reach
WORDS = b"the quick brown fox jumps over the lazy dog "
PLAIN = {  # what stands before and after a text on each route
    "/generate": ('{"text": "', '"}'),
    "/v1/chat/completions": ('{"messages": [{"role": "user", "content": "', '"}]}'),
    "/v1/messages": ('{"max_tokens": 1, "messages": [{"role": "user", "content": "', '"}]}'),
    "/v1/responses": ('{"input": "', '"}'),
    "/v1/completions": ('{"prompt": "', '"}'),
    "/v1/embeddings": ('{"input": "', '"}'),
    "/v1/rerank": ('{"query": "q", "documents": ["', '"]}'),
    "/v1/tokenize": ('{"prompt": "', '"}'),
    "/language/select": ('{"prompt": ["x"], "choices": ["', '"]}'),
}


class AbusiveBody(NamedTuple):
    """What one request sends."""

    path: str
    data: bytes
    headers: tuple[tuple[str, str], ...] = ()


def plain(size: int, path: str = "/generate") -> AbusiveBody:
    """One text of so many bytes."""
    head, tail = (part.encode() for part in PLAIN[path])
    return AbusiveBody(path, head + filled(WORDS, size - len(head) - len(tail)) + tail)


def filled(piece: bytes, size: int) -> bytes:
    return (piece * (size // len(piece) + 1))[: max(0, size)]


def repeated(path: str, head: str, piece: str, tail: str, size: int, between: str = ",") -> AbusiveBody:
    """`head`, then as many of `piece` as fit, then `tail`."""
    start, one, end = head.encode(), (piece + between).encode(), tail.encode()
    num = max(1, (size - len(start) - len(end)) // len(one))
    return AbusiveBody(path, start + (one * num)[: -len(between) or None] + end)


def numbered(path: str, head: str, piece: str, tail: str, size: int) -> AbusiveBody:
    """A body like that of `repeated`, but {} in each piece is replaced by the piece's number."""

    def pieces() -> Iterator[str]:
        left, i = size - len(head) - len(tail), 0
        while left > 0:
            made = piece.replace("{}", str(i))
            left, i = left - len(made) - 1, i + 1
            yield made

    return AbusiveBody(path, (head + ",".join(pieces()) + tail).encode())


def required(size: int, more: str = "") -> str:
    """A JSON schema of so many bytes: an object all of whose properties are required. `more`: its first keys."""
    head, middle, tail = f'{{{more}"type":"object","properties":{{', '},"required":[', "]}"
    names: list[str] = []
    left = size - len(head) - len(middle) - len(tail)
    while (left := left - len(name := f'"k{len(names)}"') * 2 - len(":true,,")) > 0:
        names.append(name)
    return head + ",".join(f"{name}:true" for name in names) + middle + ",".join(names) + tail


def packed(coding: str, size: int) -> AbusiveBody:
    """A plain text that deflate makes a thousand times smaller, so that `size` bytes travel."""
    text = b'{"text": "' + b" " * (BOMB * size) + b'"}'
    pack = {"gzip": partial(gzip.compress, compresslevel=9), "deflate": partial(zlib.compress, level=9)}[coding]
    return AbusiveBody("/generate", pack(text), (("Content-Encoding", coding),))
