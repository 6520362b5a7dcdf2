"""Thousands of texts and ids at /v1/tokenize and /v1/detokenize: a few calls at once, and replies in pieces."""

import asyncio
from typing import Any

import orjson
import pytest

from ramet.ipc.messages import pack_ids
from ramet.runtime.engine_client.prompt import BYTES_AT_ONCE, SEQUENCES_AT_ONCE
from ramet.runtime.replies.long_list import MAX_PART, MAX_SHORT
from ramet.runtime.server.openai import models
from tests.fakes.server import Served, served

NUM = 3 * SEQUENCES_AT_ONCE
LONG = "a" * (BYTES_AT_ONCE // 4)


@pytest.mark.parametrize(
    ("path", "body", "most"),
    [
        ("/v1/tokenize", {"prompt": ["ab"] * NUM}, SEQUENCES_AT_ONCE),
        ("/v1/tokenize", {"prompt": [LONG] * 20}, 4),
        ("/v1/detokenize", {"tokens": [[97, 98]] * NUM}, SEQUENCES_AT_ONCE),
    ],
)
def test_a_few_are_asked_at_once(path: str, body: dict[str, Any], most: int) -> None:
    asked: list[int] = []

    async def watch(server: Served) -> None:
        while True:
            asked.append(len(server.client.unanswered[0]))
            await asyncio.sleep(0)

    async def check(server: Served) -> None:
        watching = asyncio.create_task(watch(server))
        status, reply = await server.post(path, body)
        watching.cancel()
        assert status == 200
        (given,), (found,) = body.values(), [reply.get("tokens", reply.get("text"))]
        texts = [bytes(each).decode() if isinstance(each, list) else each for each in found]
        assert texts == [bytes(each).decode() if isinstance(each, list) else each for each in given]

    served(check)
    assert max(asked) == most


def test_ids_of_a_long_text_are_written_in_pieces() -> None:
    text = "abc" * 30_000

    async def check(server: Served) -> None:
        async with server.http.post("/v1/tokenize", json={"prompt": text}) as response:
            assert "Content-Length" not in response.headers
            reply = orjson.loads(await response.read())
        assert bytes(reply["tokens"]).decode() == text and reply["count"] == len(text)

    served(check)


def test_lists_of_ids_of_many_texts_are_made_a_part_at_a_time() -> None:
    texts = ["", *["ab" * (each % 9) for each in range(2 * MAX_PART)], "c" * (MAX_SHORT + 1), "", "d"]

    async def check(server: Served) -> None:
        status, reply = await server.post("/v1/tokenize", {"prompt": texts})
        assert status == 200 and reply["count"] == list(map(len, texts))
        assert [bytes(each).decode() for each in reply["tokens"]] == texts

    served(check)
    packed = [pack_ids(list(text.encode())) for text in texts]
    reply: Any = models._listed(packed, single=False, limit=1)
    parts = list(reply.tokens.parts)
    assert len(parts) > 2 and sum(map(len, parts)) == len(texts)
    assert all(len(part) <= MAX_PART for part in parts)
