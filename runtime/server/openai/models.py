"""The served model (GET /v1/models, /v1/models/{id}) and its tokenizer (POST /v1/tokenize, /v1/detokenize)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sized
from collections.abc import Sequence as Many
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from aiohttp import web
from msgspec.structs import replace

from ramet.ipc.messages import ID_BYTES, unpack_ids
from ramet.runtime.engine_client.prompt import in_pieces
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import EncodedChat, chat_of, write_chat
from ramet.runtime.intake.media import with_sources
from ramet.runtime.intake.other_tools import without_others
from ramet.runtime.replies.long_list import MAX_PART, MAX_SHORT, LongList, Part, listed
from ramet.runtime.server.http.asked import chat_ids
from ramet.runtime.server.http.exchange import read_body, read_object, respond, respond_in_turn
from ramet.runtime.server.http.request_id import RequestId
from ramet.runtime.server.http.service import Served, Service, read_model, unknown_model
from ramet.runtime.server.openai.replies import DetokenizeReply, ModelCard, ModelList, TokenizeReply
from ramet.runtime.server.openai.types import DetokenizeBody, TokenizeBody
from ramet.runtime.workers.offload import offloaded

A = TypeVar("A", bound=Sized)
T = TypeVar("T")
MAX_TOKENIZE = 4 << 20  # characters of one request: seconds of work that other requests wait for


async def models(service: Service, request: web.Request) -> web.Response:
    """The served model, and its adapters behind it."""
    own = _card(service)
    adapters = service.client.admin.adapters.paths.items()
    cards = [own, *(_of_adapter(own, name, path) for name, path in adapters)]
    return respond(ModelList(data=cards, first_id=own.id, last_id=cards[-1].id))


async def model(service: Service, request: web.Request, name: str) -> web.Response:
    """The served model, or one of its adapters; 404 for another name."""
    own, adapters = _card(service), service.client.admin.adapters.paths
    for known in (own.id, *adapters):
        if name == "/".join(filter(None, known.split("/"))):  # a path has lost its doubled and leading slashes
            return respond(own if known == own.id else _of_adapter(own, known, adapters[known]))
    raise unknown_model(service.served.names, name)


def _of_adapter(own: ModelCard, name: str, path: str) -> ModelCard:
    return replace(own, id=name, root=path, parent=own.id, display_name=name)


def _card(service: Service) -> ModelCard:
    name = service.client.admin.weights.model_name
    return ModelCard(
        id=name,
        created=service.started,
        root=name,
        max_model_len=service.client.limits.context_length,
        display_name=name,
        created_at=datetime.fromtimestamp(service.started, UTC).isoformat().replace("+00:00", "Z"),
    )


async def tokenize(service: Service, request: web.Request) -> web.StreamResponse:
    """A text, a list of texts or a chat to token ids."""
    body, chat = await read_object(request, partial(_read, service.served))
    limit = service.client.limits.context_length
    if chat is not None:
        ids = await chat_ids(service, chat)
        return await respond_in_turn(request, _listed([ids], True, limit))
    if body.prompt is None:
        raise ClientError("prompt", "is missing, must be a string or a list of strings", "or set messages")
    texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    prompts.check_count("prompt", len(texts))
    prompts.check_most("prompt", "characters in all", sum(map(len, texts)), MAX_TOKENIZE)
    replies = await _answers(lambda text: service.client.text.tokenize(text, body.add_special_tokens), texts)
    reply = _listed([reply.ids for reply in replies], isinstance(body.prompt, str), limit)
    return await respond_in_turn(request, reply)


def _read(served: Served, _: RequestId, given: dict[str, Any]) -> tuple[TokenizeBody, EncodedChat | None]:
    written = without_others(given, schema="function")
    body = convert(written, TokenizeBody)
    read_model(served.names, body.model)
    if body.messages is None:
        return body, None
    sourced = with_sources(written, body)
    chat = write_chat(chat_of(sourced), served.limits.media, has_media=sourced is not written)
    return replace(body, messages=[], tools=None, chat_template_kwargs=None), chat


async def _answers(ask: Callable[[A], Awaitable[T]], given: Many[A]) -> list[T]:
    """The answer for each. A few are asked at once: prompts of others wait in the tokenizer for these alone."""
    found: list[T] = []
    for piece in in_pieces(given, lambda each: (1, len(each))):
        found += await asyncio.gather(*map(ask, piece))
    return found


def _listed(packed: list[bytes], single: bool, limit: int) -> TokenizeReply:
    counts = [len(ids) // ID_BYTES for ids in packed]
    if single:
        return TokenizeReply(listed(partial(_ids_in, packed[0]), 0, counts[0]), counts[0], limit)  # type: ignore[arg-type]
    return TokenizeReply(LongList(_lists(packed, counts)), counts, limit)  # type: ignore[arg-type]


def _lists(packed: list[bytes], counts: list[int]) -> Iterator[Part]:
    """The ids of each prompt; of thousands some are made at once."""
    part: list[Any] = []
    num = 0
    for ids, count in zip(packed, counts, strict=True):
        part.append(listed(partial(_ids_in, ids), 0, count))
        num += 1 + min(count, MAX_SHORT)  # a longer one is made in parts of its own
        if num >= MAX_PART:
            yield part
            part, num = [], 0
    if part:
        yield part


def _ids_in(packed: bytes, start: int, stop: int) -> list[int]:
    return unpack_ids(packed[start * ID_BYTES : stop * ID_BYTES])


async def detokenize(service: Service, request: web.Request) -> web.Response:
    """Token ids, or lists of them, to text."""
    body = await read_body(request, DetokenizeBody)
    read_model(service.served.names, body.model)
    if not body.tokens:
        return respond(DetokenizeReply(""))
    prompts.check_prompts("tokens", body.tokens)
    batch = prompts.is_batch(body.tokens)
    vocab_size, each = service.client.limits.vocab_size, prompts.placed("tokens", body.tokens, batch)
    packed = await offloaded(lambda: [prompts.pack_to_decode(place, ids, vocab_size) for place, ids in each])
    skips = body.skip_special_tokens
    texts = await _answers(lambda ids: service.client.text.detokenize(ids, skips), packed)
    return respond(DetokenizeReply(texts if batch else texts[0]))
