"""Every field that the installed clients can send is a field of the server's body, so that none is ignored unread."""

from typing import Any

import pytest
import requests
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_create_params
from live import Live
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import chat_completion_stream_options_param
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

SENT = {
    "/v1/chat/completions": chat_create_params.CompletionCreateParamsStreaming,
    "/v1/completions": completion_create_params.CompletionCreateParamsStreaming,
    "/v1/embeddings": embedding_create_params.EmbeddingCreateParams,
    "/v1/responses": response_create_params.ResponseCreateParamsStreaming,
    "/v1/messages": message_create_params.MessageCreateParamsStreaming,
    "/v1/messages/count_tokens": message_count_tokens_params.MessageCountTokensParams,
}


@pytest.fixture(scope="module")
def schemas(server: Live) -> Any:
    return requests.get(server.url + "/openapi.json", timeout=10).json()


def fields_of(schemas: Any, path: str) -> set[str]:
    found = schemas["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return set(schemas["components"]["schemas"][found["$ref"].rsplit("/", 1)[1]]["properties"])


@pytest.mark.parametrize("path", SENT)
def test_every_field_of_a_client_is_known(schemas: Any, path: str) -> None:
    assert set(SENT[path].__annotations__) - fields_of(schemas, path) == set()


def test_every_field_of_the_beta_messages_is_known(schemas: Any) -> None:
    sent = set(beta_create_params.MessageCreateParamsStreaming.__annotations__)
    assert sent - fields_of(schemas, "/v1/messages") == set()


def test_every_stream_option_is_known(schemas: Any) -> None:
    options = set(chat_completion_stream_options_param.ChatCompletionStreamOptionsParam.__annotations__)
    assert options <= set(schemas["components"]["schemas"]["StreamOptions"]["properties"])
