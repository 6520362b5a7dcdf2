"""POST /v1/tokenize and /v1/detokenize: texts and chats to token ids, and back."""

import asyncio

from aiohttp import web

from ramet.ipc.messages import unpack_ids
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import chat_of, rendered_by
from ramet.runtime.server.http.exchange import read_body, read_object, respond
from ramet.runtime.server.http.service import Service, check_model
from ramet.runtime.server.openai.replies import DetokenizeReply, TokenizeReply
from ramet.runtime.server.openai.types import DetokenizeBody, TokenizeBody

MAX_TOKENIZE = 4 << 20  # characters of one request: seconds of work that other requests wait for


async def tokenize(service: Service, request: web.Request) -> web.Response:
    """A text, a list of texts or a chat to token ids."""
    written = await read_object(request)
    body = convert(written, TokenizeBody)
    check_model(service, body.model)
    limit = service.client.limits.context_length
    if body.messages is not None:
        names = frozenset(tool.function.name for tool in body.tools or ())
        rendered = await rendered_by(service.client.render, chat_of(written, names))
        return respond(_whole(rendered.ids, limit))
    if body.prompt is None:
        raise ClientError("prompt", "is missing, must be a string or a list of strings", "or set messages")
    texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    prompts.check_count("prompt", len(texts))
    prompts.check_most("prompt", "characters in all", sum(map(len, texts)), MAX_TOKENIZE)
    replies = await asyncio.gather(*(service.client.tokenize(text, body.add_special_tokens) for text in texts))
    if isinstance(body.prompt, str):
        return respond(_whole(replies[0].ids, limit))
    lists = [unpack_ids(reply.ids) for reply in replies]
    return respond(TokenizeReply(list(lists), [len(each) for each in lists], limit))


def _whole(packed: bytes, limit: int) -> TokenizeReply:
    ids = unpack_ids(packed)
    return TokenizeReply(list(ids), len(ids), limit)


async def detokenize(service: Service, request: web.Request) -> web.Response:
    """Token ids, or lists of them, to text."""
    body = await read_body(request, DetokenizeBody)
    check_model(service, body.model)
    contents, batch = prompts.read_contents("tokens", body.tokens, service.client.limits.vocab_size)
    prompts.check_count("tokens", len(contents))
    skips = body.skip_special_tokens
    texts = await asyncio.gather(*(service.client.detokenize(content["ids"], skips) for _, content in contents))
    return respond(DetokenizeReply(texts if batch else texts[0]))
