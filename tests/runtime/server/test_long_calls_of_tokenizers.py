"""Thousands of texts and ids at /v1/tokenize and /v1/detokenize: a few calls at once, and replies in pieces."""

import asyncio
from typing import Any

import orjson
import pytest

from ramet.runtime.engine_client.submission import BYTES_AT_ONCE, SEQUENCES_AT_ONCE
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
