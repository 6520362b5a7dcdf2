"""What the endpoints under /v1 refuse is said under the name of the client's own field."""

from typing import Any

import pytest

from tests.fakes.server import Served, served

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "REJECT"}
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [  # path, body, field, a piece of the message
    (RESPONSES, {"input": "hi", "text": {"format": {"look": 1}}}, "text.format.type", "or 'json_schema'"),
    (RESPONSES, {"input": "REJECT"}, "input", "9999"),
    (CHAT, {"messages": [USER]}, "messages", "9999"),
    (CHAT, {"messages": [USER], "max_completion_tokens": 1, "max_tokens": True}, "max_tokens", "True"),
    (CHAT, {"messages": [USER], "sampling_seed": 1, "seed": "x"}, "seed", "'x'"),
    (MESSAGES, {"messages": [USER], "max_tokens": 1, "tool_choice": {}}, "tool_choice.type", "missing"),
    ("/v1/embeddings", {"input": "hi", "encoding_format": ""}, "encoding_format", "base64"),
    ("/v1/embeddings", {"input": "hi", "pooling": ""}, "pooling", "mean"),
    ("/v1/rerank", {"query": "hi", "documents": ["a"], "method": ""}, "method", "embed"),
    ("/v1/score", {"query": [], "items": ["a"], "label_token_ids": [1]}, "query", "[]"),
    (MESSAGES, {"messages": [USER], "max_tokens": 1}, "messages", "9999"),
]


@pytest.mark.parametrize(("path", "body", "field", "piece"), REFUSED)
def test_refusals_name_the_field(path: str, body: dict[str, Any], field: str, piece: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, body)
        assert status == 400 and piece in reply["error"]["message"]
        assert reply["error"]["message"].startswith(field + " ")
        assert reply["error"].get("param", field) == field

    served(check)


def test_a_whole_number_with_a_point_is_named_as_an_integer() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(RESPONSES, {"input": "hi", "max_output_tokens": 2.0})
        assert status == 200 and type(reply["max_output_tokens"]) is int

    served(check)
