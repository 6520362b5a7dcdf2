"""The table of routes: path, methods, handler, and the shapes that /openapi.json and the documentation tell.

Decides nothing else. Bodies are what handlers read; replies and events are held against what they send by a test.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web

from ramet.runtime.server import (
    admin,
    anthropic,
    health,
    native,
    openai_chat,
    openai_completions,
    openai_embeddings,
    openai_other,
    openai_rerank,
    openai_responses,
    openai_scores,
    openapi,
)
from ramet.runtime.server import reply_types as told
from ramet.runtime.server.anthropic_types import CountBody, MessagesBody
from ramet.runtime.server.chat_types import ChatBody
from ramet.runtime.server.event_types import AnthropicEvent, ResponseEvent
from ramet.runtime.server.openai_types import CompletionBody, DetokenizeBody, TokenizeBody
from ramet.runtime.server.pooling_types import EmbeddingsBody, RerankBody, ScoreBody
from ramet.runtime.server.responses_types import ResponsesBody
from ramet.runtime.server.service import Handler, Service

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
        WRITE, native.generate, native.GenerateBody, told.GenerateReply | list[told.GenerateReply], told.GenerateReply
    ),
    "/v1/chat/completions": Route(POST, openai_chat.chat_completions, ChatBody, told.ChatReply, told.ChatChunk),
    "/v1/completions": Route(
        POST, openai_completions.completions, CompletionBody, told.CompletionReply, told.CompletionReply
    ),
    "/v1/responses": Route(POST, openai_responses.responses, ResponsesBody, told.ResponseReply, ResponseEvent),
    "/v1/messages": Route(POST, anthropic.messages, MessagesBody, told.AnthropicReply, AnthropicEvent),
    "/v1/messages/count_tokens": Route(POST, anthropic.count_tokens, CountBody, told.TokenCount),
    "/v1/embeddings": Route(POST, openai_embeddings.embeddings, EmbeddingsBody, told.EmbeddingReply),
    "/v1/score": Route(POST, openai_scores.score, ScoreBody, told.ScoreReply),
    "/v1/rerank": Route(POST, openai_rerank.rerank, RerankBody, told.RerankReply),
    "/v1/models": Route(GET, openai_other.models, reply=told.ModelList),
    "/v1/tokenize": Route(POST, openai_other.tokenize, TokenizeBody, told.TokenizeReply),
    "/tokenize": Route(POST, openai_other.tokenize, TokenizeBody, told.TokenizeReply),
    "/v1/detokenize": Route(POST, openai_other.detokenize, DetokenizeBody, told.DetokenizeReply),
    "/detokenize": Route(POST, openai_other.detokenize, DetokenizeBody, told.DetokenizeReply),
    "/health": Route(GET, health.health, reply=told.Status),
    "/health_generate": Route(GET, health.health_generate, reply=told.Status),
    "/ready": Route(GET, health.ready, reply=told.Status),
    "/metrics": Route(GET, health.metrics),
    "/get_model_info": Route(GET, admin.model_info, reply=told.ModelInfo),
    "/model_info": Route(GET, admin.model_info, reply=told.ModelInfo),
    "/get_server_info": Route(GET, admin.server_info, reply=told.ServerInfo),
    "/server_info": Route(GET, admin.server_info, reply=told.ServerInfo),
    "/flush_cache": Route(EITHER, admin.flush_cache, reply=told.Flushed),
    "/abort_request": Route(POST, admin.abort_request, admin.AbortBody, told.AbortReply),
    "/openapi.json": Route(GET, openapi_json),
}

NAMED: dict[str, Named] = {
    "/v1/models/": Named(GET, openai_other.model, (Part("GET", "", told.ModelCard),)),
    "/v1/requests/": Named(GET, admin.where, (Part("GET", "", told.RequestState),)),
    "/v1/responses/": Named(
        ("GET", "POST", "DELETE"),
        openai_responses.stored,
        (
            Part("GET", "", told.ResponseReply),
            Part("DELETE", "", told.DeletedResponse),
            Part("GET", "/input_items", told.ResponseItems),
        ),
    ),
}
