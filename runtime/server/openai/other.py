"""/v1/models, /v1/tokenize and /v1/detokenize."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from ramet.ipc.messages import unpack_ids
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import chat_of, rendered_by
from ramet.runtime.server.http import problems
from ramet.runtime.server.http.model_names import check_model
from ramet.runtime.server.http.request_body import read_object
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.chat_types import TokenizeBody
from ramet.runtime.server.openai.types import DetokenizeBody

MAX_TOKENIZE = 4 << 20  # characters of one request: seconds of work that other requests wait for


async def models(service: Service, request: web.Request) -> web.Response:
    """The served model, as a list of one."""
    card = _card(service)
    ends = {"has_more": False, "first_id": card["id"], "last_id": card["id"]}
    return problems.reply({"object": "list", "data": [card], **ends})


async def model(service: Service, request: web.Request, name: str) -> web.Response:
    """The served model; 404 for another name."""
    # paths lose their doubled and leading slashes on the way, so names are compared without them
    served = service.args.model_name
    if _plain(name) != _plain(served):
        raise ClientError(
            "model", f"is {shown(name)}, this server serves {served!r}", status=404, code="model_not_found"
        )
    return problems.reply(_card(service))


async def tokenize(service: Service, request: web.Request) -> web.Response:
    """A text, a list of texts or a chat to token ids."""
    written = await read_object(request)
    body = convert(written, TokenizeBody)
    check_model(service, body.model)
    limit = service.client.limits.context_length
    if body.messages is not None:
        names = frozenset(tool.function.name for tool in body.tools or ())
        rendered = await rendered_by(service.client.render, chat_of(written, names))
        ids = unpack_ids(rendered.ids)
        return problems.reply({"tokens": ids, "count": len(ids), "max_model_len": limit})
    if body.prompt is None:
        raise ClientError("prompt", "is missing, must be a string or a list of strings", "or set messages")
    texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if isinstance(body.prompt, list):
        prompts.check_count("prompt", len(texts))
    characters = sum(map(len, texts))
    if characters > MAX_TOKENIZE:
        raise ClientError("prompt", f"has {characters} characters in all, must have at most {MAX_TOKENIZE}")
    replies = await asyncio.gather(*(service.client.tokenize(text, body.add_special_tokens) for text in texts))
    lists = [unpack_ids(reply.ids) for reply in replies]
    if isinstance(body.prompt, str):
        return problems.reply({"tokens": lists[0], "count": len(lists[0]), "max_model_len": limit})
    return problems.reply({"tokens": lists, "count": [len(each) for each in lists], "max_model_len": limit})


async def detokenize(service: Service, request: web.Request) -> web.Response:
    """Token ids, or lists of them, to text."""
    body = convert(await read_object(request), DetokenizeBody)
    check_model(service, body.model)
    contents, batch = prompts.read_contents("tokens", body.tokens, service.client.limits.vocab_size)
    prompts.check_count("tokens", len(contents))
    packed = [ids for _, ids in contents if isinstance(ids, bytes)]
    texts = await asyncio.gather(*(service.client.detokenize(ids, body.skip_special_tokens) for ids in packed))
    return problems.reply({"text": texts if batch else texts[0]})


def _card(service: Service) -> dict[str, Any]:
    """OpenAI's keys, then those of Anthropic's clients, who ask the same path."""
    name = service.args.model_name
    return {
        "id": name,
        "object": "model",
        "created": service.started,
        "owned_by": "ramet",
        "root": name,
        "parent": None,
        "max_model_len": service.client.limits.context_length,
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(service.started, UTC).isoformat().replace("+00:00", "Z"),
    }


def _plain(name: str) -> str:
    return "/".join(part for part in name.split("/") if part)
