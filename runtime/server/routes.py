"""The table of routes: path, methods, handler, and the structs that it reads and sends, for /openapi.json."""

from functools import cache

from aiohttp import web

from ramet.ipc.live import PrefixFound
from ramet.runtime.intake.calls import GenerateBody
from ramet.runtime.intake.language import EndBody, LanguageGenerateBody, RenderBody, SelectBody
from ramet.runtime.intake.reply import GenerateReply
from ramet.runtime.language.replies import Ended, LanguageReply, RenderedPrompt, SelectReply
from ramet.runtime.server.anthropic import replies as anthropic
from ramet.runtime.server.anthropic.chat import CountBody, MessagesBody
from ramet.runtime.server.anthropic.messages import count_tokens, messages
from ramet.runtime.server.http.service import Access, Named, Operation, Route, Service
from ramet.runtime.server.language import handlers as language
from ramet.runtime.server.live import handlers as live
from ramet.runtime.server.live.feed import LiveEvent
from ramet.runtime.server.native import adapters, admin, memory, pausing, profiling, slowing, weights
from ramet.runtime.server.native import loads as of_loads
from ramet.runtime.server.native.generate import generate
from ramet.runtime.server.native.logging import LoggingBody, configure_logging
from ramet.runtime.server.native.sessions import CloseBody, OpenBody, close_session, open_session
from ramet.runtime.server.openai import pooled_replies as pooled
from ramet.runtime.server.openai import replies as openai
from ramet.runtime.server.openai import responses_replies as of_responses
from ramet.runtime.server.openai.chat import chat_completions
from ramet.runtime.server.openai.classify import ClassifyBody, EncodeBody, PoolingBody, classify, encode, pooling
from ramet.runtime.server.openai.completions import completions
from ramet.runtime.server.openai.embeddings import EmbeddingsBody, embeddings
from ramet.runtime.server.openai.models import detokenize, model, models, tokenize
from ramet.runtime.server.openai.responses import responses, stored
from ramet.runtime.server.openai.responses_chat import ResponsesBody
from ramet.runtime.server.openai.scores import RerankBody, ScoreBody, rerank, score
from ramet.runtime.server.openai.types import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from ramet.runtime.server.spec import openapi
from ramet.runtime.server.ui import pages

GET, POST, EITHER, WRITE = ("GET",), ("POST",), ("GET", "POST"), ("POST", "PUT")


CLASSIFIED = pooled.ClassifyReply | pooled.Encoded | list[pooled.Encoded]


async def openapi_json(service: Service, request: web.Request) -> web.Response:
    """This interface as OpenAPI 3.1."""
    return web.Response(body=_document(), content_type="application/json")


@cache
def _document() -> bytes:
    return openapi.document(ROUTES, NAMED)


ROUTES: dict[str, Route] = {
    "/generate": Route(WRITE, generate, GenerateBody, GenerateReply | list[GenerateReply], GenerateReply),
    "/open_session": Route(POST, open_session, OpenBody, str),
    "/close_session": Route(POST, close_session, CloseBody),
    "/language/generate": Route(
        POST, language.generate, LanguageGenerateBody, LanguageReply | list[LanguageReply], LanguageReply
    ),
    "/language/select": Route(POST, language.select, SelectBody, SelectReply),
    "/language/render": Route(POST, language.render, RenderBody, RenderedPrompt),
    "/language/end": Route(POST, language.end, EndBody, Ended),
    "/v1/chat/completions": Route(POST, chat_completions, ChatBody, openai.ChatReply, openai.ChatChunk),
    "/v1/completions": Route(POST, completions, CompletionBody, openai.CompletionReply, openai.CompletionReply),
    "/v1/responses": Route(POST, responses, ResponsesBody, of_responses.ResponseReply, of_responses.ResponseEvent),
    "/v1/messages": Route(POST, messages, MessagesBody, anthropic.AnthropicReply, anthropic.AnthropicEvent),
    "/v1/messages/count_tokens": Route(POST, count_tokens, CountBody, anthropic.TokenCount),
    "/v1/embeddings": Route(POST, embeddings, EmbeddingsBody, openai.EmbeddingReply),
    "/v1/score": Route(POST, score, ScoreBody, pooled.LabelScores | pooled.PairScores),
    "/score": Route(POST, score, ScoreBody, pooled.LabelScores | pooled.PairScores),
    "/v1/rerank": Route(POST, rerank, RerankBody, pooled.RerankReply),
    "/rerank": Route(POST, rerank, RerankBody, pooled.RerankReply),
    "/v1/classify": Route(POST, classify, ClassifyBody, CLASSIFIED),
    "/classify": Route(POST, classify, ClassifyBody, CLASSIFIED),
    "/pooling": Route(POST, pooling, PoolingBody, pooled.PoolingReply),
    "/encode": Route(POST, encode, EncodeBody, pooled.Encoded | list[pooled.Encoded]),
    "/v1/models": Route(GET, models, reply=openai.ModelList, access=Access.READ),
    "/v1/tokenize": Route(POST, tokenize, TokenizeBody, openai.TokenizeReply),
    "/tokenize": Route(POST, tokenize, TokenizeBody, openai.TokenizeReply),
    "/v1/detokenize": Route(POST, detokenize, DetokenizeBody, openai.DetokenizeReply),
    "/detokenize": Route(POST, detokenize, DetokenizeBody, openai.DetokenizeReply),
    "/health": Route(GET, admin.health, reply=admin.Status, access=Access.OPEN),
    "/ping": Route(EITHER, admin.health, reply=admin.Status, access=Access.OPEN),
    "/version": Route(GET, admin.version, reply=admin.Version, access=Access.OPEN),
    "/health_generate": Route(GET, admin.health_generate, reply=admin.Status),
    "/ready": Route(GET, admin.ready, reply=admin.Status, access=Access.OPEN),
    "/metrics": Route(GET, admin.metrics, access=Access.SCRAPE),
    "/get_model_info": Route(GET, admin.model_info, reply=admin.ModelInfo, access=Access.READ),
    "/model_info": Route(GET, admin.model_info, reply=admin.ModelInfo, access=Access.READ),
    "/get_server_info": Route(GET, admin.server_info, reply=admin.ServerInfo, access=Access.READ),
    "/server_info": Route(GET, admin.server_info, reply=admin.ServerInfo, access=Access.READ),
    "/v1/loads": Route(GET, of_loads.loads, reply=of_loads.Loads, access=Access.WATCH),
    "/flush_cache": Route(POST, admin.flush_cache, admin.FlushBody, admin.Flushed, access=Access.ADMIN),
    "/abort_request": Route(POST, admin.abort_request, admin.AbortBody, admin.AbortReply, access=Access.ADMIN),
    "/start_profile": Route(POST, profiling.start_profile, profiling.ProfileBody, access=Access.ADMIN),
    "/stop_profile": Route(POST, profiling.stop_profile, access=Access.ADMIN),
    "/trace": Route(GET, profiling.trace, access=Access.ADMIN),
    "/pause_generation": Route(POST, pausing.pause, pausing.PauseBody, pausing.PauseReply, access=Access.ADMIN),
    "/continue_generation": Route(POST, pausing.go_on, pausing.ContinueBody, pausing.PauseReply, access=Access.ADMIN),
    "/configure_logging": Route(POST, configure_logging, LoggingBody, access=Access.ADMIN),
    "/release_memory_occupation": Route(POST, memory.release, memory.TagsBody, type(None), access=Access.ADMIN),
    "/resume_memory_occupation": Route(POST, memory.resume, memory.TagsBody, type(None), access=Access.ADMIN),
    "/slow_down": Route(POST, slowing.slow_down, slowing.SlowBody, type(None), access=Access.ADMIN),
    "/update_weights_from_disk": Route(
        POST, weights.update, weights.UpdateBody, weights.UpdateReply, access=Access.ADMIN
    ),
    "/update_weight_version": Route(
        POST, weights.rename, weights.VersionBody, weights.VersionReply, access=Access.ADMIN
    ),
    "/load_lora_adapter": Route(POST, adapters.load, adapters.LoadBody, adapters.AdapterReply, access=Access.ADMIN),
    "/unload_lora_adapter": Route(
        POST, adapters.unload, adapters.UnloadBody, adapters.AdapterReply, access=Access.ADMIN
    ),
    "/v1/load_lora_adapter": Route(POST, adapters.load, adapters.LoadBody, adapters.AdapterReply, access=Access.ADMIN),
    "/v1/unload_lora_adapter": Route(
        POST, adapters.unload, adapters.UnloadBody, adapters.AdapterReply, access=Access.ADMIN
    ),
    "/openapi.json": Route(GET, openapi_json, access=Access.READ),
    "/": Route(GET, pages.root, reply=pages.Root, access=Access.OPEN),
    "/ui": Route(GET, pages.index, access=Access.OPEN),
    "/ui/live": Route(GET, live.live, event=LiveEvent, access=Access.WATCH),
    "/ui/history": Route(GET, live.history, reply=live.LastHour, access=Access.WATCH),
    "/ui/prefix": Route(POST, live.prefix, live.PrefixBody, PrefixFound, access=Access.ADMIN),
    "/ui/node": Route(POST, live.node, live.NodeBody, live.NodeText, access=Access.ADMIN),
}

NAMED: dict[str, Named] = {
    "/ui/": Named(GET, pages.file, (), Access.OPEN),
    "/v1/models/": Named(GET, model, (Operation("GET", "", openai.ModelCard),), Access.READ),
    "/v1/requests/": Named(GET, admin.where, (Operation("GET", "", admin.RequestState),), Access.READ),
    "/v1/responses/": Named(
        ("GET", "POST", "DELETE"),
        stored,
        (
            Operation("GET", "", of_responses.ResponseReply),
            Operation("DELETE", "", of_responses.DeletedResponse),
            Operation("GET", "/input_items", of_responses.ResponseItems),
            Operation("POST", "/cancel", of_responses.ResponseReply),
        ),
    ),
}
