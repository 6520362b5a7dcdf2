"""The table of routes: path, methods, handler, and the structs that it reads and sends, for /openapi.json.

Decides nothing else. A test decodes what handlers send as the types that stand here.
"""

from aiohttp import web

from ramet.runtime.reply import GenerateReply
from ramet.runtime.server.anthropic import replies as anthropic
from ramet.runtime.server.anthropic.chat import CountBody, MessagesBody
from ramet.runtime.server.anthropic.messages import count_tokens, messages
from ramet.runtime.server.http.route import Named, Operation, Route
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.native import replies as native
from ramet.runtime.server.native.admin import AbortBody, abort_request, flush_cache, model_info, server_info, where
from ramet.runtime.server.native.generate import generate
from ramet.runtime.server.native.health import health, health_generate, metrics, ready
from ramet.runtime.server.native.types import GenerateBody
from ramet.runtime.server.openai import replies as openai
from ramet.runtime.server.openai import responses_replies as of_responses
from ramet.runtime.server.openai.chat import chat_completions
from ramet.runtime.server.openai.completions import completions
from ramet.runtime.server.openai.embeddings import embeddings
from ramet.runtime.server.openai.models import model, models
from ramet.runtime.server.openai.pooling_types import EmbeddingsBody, RerankBody, ScoreBody
from ramet.runtime.server.openai.rerank import rerank
from ramet.runtime.server.openai.responses import responses, stored
from ramet.runtime.server.openai.responses_chat import ResponsesBody
from ramet.runtime.server.openai.scores import score
from ramet.runtime.server.openai.tokens import detokenize, tokenize
from ramet.runtime.server.openai.types import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from ramet.runtime.server.spec import openapi

GET, POST, EITHER, WRITE = ("GET",), ("POST",), ("GET", "POST"), ("POST", "PUT")


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
    "/v1/chat/completions": Route(POST, chat_completions, ChatBody, openai.ChatReply, openai.ChatChunk),
    "/v1/completions": Route(POST, completions, CompletionBody, openai.CompletionReply, openai.CompletionReply),
    "/v1/responses": Route(POST, responses, ResponsesBody, of_responses.ResponseReply, of_responses.ResponseEvent),
    "/v1/messages": Route(POST, messages, MessagesBody, anthropic.AnthropicReply, anthropic.AnthropicEvent),
    "/v1/messages/count_tokens": Route(POST, count_tokens, CountBody, anthropic.TokenCount),
    "/v1/embeddings": Route(POST, embeddings, EmbeddingsBody, openai.EmbeddingReply),
    "/v1/score": Route(POST, score, ScoreBody, openai.ScoreReply),
    "/v1/rerank": Route(POST, rerank, RerankBody, openai.RerankReply),
    "/v1/models": Route(GET, models, reply=openai.ModelList),
    "/v1/tokenize": Route(POST, tokenize, TokenizeBody, openai.TokenizeReply),
    "/tokenize": Route(POST, tokenize, TokenizeBody, openai.TokenizeReply),
    "/v1/detokenize": Route(POST, detokenize, DetokenizeBody, openai.DetokenizeReply),
    "/detokenize": Route(POST, detokenize, DetokenizeBody, openai.DetokenizeReply),
    "/health": Route(GET, health, reply=native.Status),
    "/health_generate": Route(GET, health_generate, reply=native.Status),
    "/ready": Route(GET, ready, reply=native.Status),
    "/metrics": Route(GET, metrics),
    "/get_model_info": Route(GET, model_info, reply=native.ModelInfo),
    "/model_info": Route(GET, model_info, reply=native.ModelInfo),
    "/get_server_info": Route(GET, server_info, reply=native.ServerInfo),
    "/server_info": Route(GET, server_info, reply=native.ServerInfo),
    "/flush_cache": Route(EITHER, flush_cache, reply=native.Flushed),
    "/abort_request": Route(POST, abort_request, AbortBody, native.AbortReply),
    "/openapi.json": Route(GET, openapi_json),
}

NAMED: dict[str, Named] = {
    "/v1/models/": Named(GET, model, (Operation("GET", "", openai.ModelCard),)),
    "/v1/requests/": Named(GET, where, (Operation("GET", "", native.RequestState),)),
    "/v1/responses/": Named(
        ("GET", "POST", "DELETE"),
        stored,
        (
            Operation("GET", "", of_responses.ResponseReply),
            Operation("DELETE", "", of_responses.DeletedResponse),
            Operation("GET", "/input_items", of_responses.ResponseItems),
        ),
    ),
}
