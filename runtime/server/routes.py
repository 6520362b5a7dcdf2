"""The table of routes: path, methods, handler, and the shapes that /openapi.json and the documentation tell.

Decides nothing else. Bodies are what handlers read; replies and events are held against what they send by a test.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web

from ramet.runtime.server.anthropic.messages import count_tokens, messages
from ramet.runtime.server.anthropic.types import CountBody, MessagesBody
from ramet.runtime.server.http.service import Handler, Service
from ramet.runtime.server.native.admin import AbortBody, abort_request, flush_cache, model_info, server_info, where
from ramet.runtime.server.native.generate import GenerateBody, generate
from ramet.runtime.server.native.health import health, health_generate, metrics, ready
from ramet.runtime.server.openai.chat import chat_completions
from ramet.runtime.server.openai.chat_types import ChatBody, TokenizeBody
from ramet.runtime.server.openai.completions import completions
from ramet.runtime.server.openai.embeddings import embeddings
from ramet.runtime.server.openai.other import detokenize, model, models, tokenize
from ramet.runtime.server.openai.pooling_types import EmbeddingsBody, RerankBody, ScoreBody
from ramet.runtime.server.openai.rerank import rerank
from ramet.runtime.server.openai.responses import responses, stored
from ramet.runtime.server.openai.responses_types import ResponsesBody
from ramet.runtime.server.openai.scores import score
from ramet.runtime.server.openai.types import CompletionBody, DetokenizeBody
from ramet.runtime.server.spec import openapi
from ramet.runtime.server.spec.anthropic import AnthropicEvent, AnthropicReply, TokenCount
from ramet.runtime.server.spec.native import (
    AbortReply,
    Flushed,
    GenerateReply,
    ModelInfo,
    RequestState,
    ServerInfo,
    Status,
)
from ramet.runtime.server.spec.openai import (
    ChatChunk,
    ChatReply,
    CompletionReply,
    DetokenizeReply,
    EmbeddingReply,
    ModelCard,
    ModelList,
    RerankReply,
    ScoreReply,
    TokenizeReply,
)
from ramet.runtime.server.spec.responses import DeletedResponse, ResponseEvent, ResponseItems, ResponseReply

GET, POST, EITHER, WRITE = ("GET",), ("POST",), ("GET", "POST"), ("POST", "PUT")
NamedHandler = Callable[[Service, web.Request, str], Awaitable[web.Response]]


class Route(NamedTuple):
    methods: tuple[str, ...]
    handler: Handler
    body: Any = None  # struct of the request's body
    reply: Any = None  # type of a whole reply; None: not JSON, or any object
    event: Any = None  # type of an event of a stream, where there is one


class Part(NamedTuple):
    """One thing that a named path answers: a method, and what follows the name."""

    method: str
    tail: str
    reply: Any


class Named(NamedTuple):
    """A path that ends in a name, which may hold slashes."""

    methods: tuple[str, ...]
    handler: NamedHandler
    parts: tuple[Part, ...]


async def openapi_json(service: Service, request: web.Request) -> web.Response:
    """This interface as OpenAPI 3.1."""
    return web.Response(body=openapi.document(ROUTES, NAMED), content_type="application/json")


ROUTES: dict[str, Route] = {
    "/generate": Route(
        WRITE,
        generate,
        GenerateBody,
        GenerateReply | list[GenerateReply],
        GenerateReply,
    ),
    "/v1/chat/completions": Route(POST, chat_completions, ChatBody, ChatReply, ChatChunk),
    "/v1/completions": Route(POST, completions, CompletionBody, CompletionReply, CompletionReply),
    "/v1/responses": Route(POST, responses, ResponsesBody, ResponseReply, ResponseEvent),
    "/v1/messages": Route(POST, messages, MessagesBody, AnthropicReply, AnthropicEvent),
    "/v1/messages/count_tokens": Route(POST, count_tokens, CountBody, TokenCount),
    "/v1/embeddings": Route(POST, embeddings, EmbeddingsBody, EmbeddingReply),
    "/v1/score": Route(POST, score, ScoreBody, ScoreReply),
    "/v1/rerank": Route(POST, rerank, RerankBody, RerankReply),
    "/v1/models": Route(GET, models, reply=ModelList),
    "/v1/tokenize": Route(POST, tokenize, TokenizeBody, TokenizeReply),
    "/tokenize": Route(POST, tokenize, TokenizeBody, TokenizeReply),
    "/v1/detokenize": Route(POST, detokenize, DetokenizeBody, DetokenizeReply),
    "/detokenize": Route(POST, detokenize, DetokenizeBody, DetokenizeReply),
    "/health": Route(GET, health, reply=Status),
    "/health_generate": Route(GET, health_generate, reply=Status),
    "/ready": Route(GET, ready, reply=Status),
    "/metrics": Route(GET, metrics),
    "/get_model_info": Route(GET, model_info, reply=ModelInfo),
    "/model_info": Route(GET, model_info, reply=ModelInfo),
    "/get_server_info": Route(GET, server_info, reply=ServerInfo),
    "/server_info": Route(GET, server_info, reply=ServerInfo),
    "/flush_cache": Route(EITHER, flush_cache, reply=Flushed),
    "/abort_request": Route(POST, abort_request, AbortBody, AbortReply),
    "/openapi.json": Route(GET, openapi_json),
}

NAMED: dict[str, Named] = {
    "/v1/models/": Named(GET, model, (Part("GET", "", ModelCard),)),
    "/v1/requests/": Named(GET, where, (Part("GET", "", RequestState),)),
    "/v1/responses/": Named(
        ("GET", "POST", "DELETE"),
        stored,
        (
            Part("GET", "", ResponseReply),
            Part("DELETE", "", DeletedResponse),
            Part("GET", "/input_items", ResponseItems),
        ),
    ),
}
