"""POST /v1/embeddings.

Decides what an input may look like, and how vectors are written. Knows no pooling: vectors.py. A prompt whose mean is
told computes every token; one whose last token is told reuses a cached prefix.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
from aiohttp import web

from ramet.ipc.messages import Limits
from ramet.ipc.params import shown
from ramet.runtime.engine_client.submission import Prompt, Sequence, check_numbers
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert, one_of
from ramet.runtime.server.http import problems, request_ids
from ramet.runtime.server.http.model_names import check_model
from ramet.runtime.server.http.request_body import read_object
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.pooling_types import FORMATS, KINDS, MOST_INPUTS, EmbeddingsBody
from ramet.runtime.server.openai.types import usage
from ramet.runtime.server.openai.vectors import Recipe, in_base64, prompt_to_embed, vector_of
from ramet.runtime.text.pooling import Kind, Pooling

OTHER_VOCABULARY = (
    "are they ids of another model's tokenizer? LangChain's OpenAIEmbeddings sends such, unless "
    "check_embedding_ctx_length=False"
)


async def embeddings(service: Service, request: web.Request) -> web.Response:
    """OpenAI's embeddings: a vector for each text or list of token ids."""
    body = convert(await read_object(request), EmbeddingsBody)
    model = check_model(service, body.model)
    rid = request_ids.of_request(request, f"embd-{prompts.new_id()}", None)
    limits = service.client.limits
    recipe = read_recipe(body, service.pooling, limits.hidden_size)
    packed = (
        one_of("encoding_format", FORMATS[0] if body.encoding_format is None else body.encoding_format, FORMATS)
        == "base64"
    )
    items = read_inputs(rid, body, recipe.kind, limits)
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    data = [await _written(sequence, recipe, packed) for sequence in done]
    counted = usage(done)
    told = {name: counted[name] for name in ("prompt_tokens", "total_tokens")}
    return problems.reply({"object": "list", "data": data, "model": model, "usage": told})


def read_recipe(body: EmbeddingsBody, default: Pooling, hidden_size: int) -> Recipe:
    if not hidden_size:
        raise ClientError("model", "has no hidden states, so there are no embeddings")
    if body.dimensions is not None and not 1 <= body.dimensions <= hidden_size:
        raise ClientError("dimensions", f"is {shown(body.dimensions)}, must be in [1, {hidden_size}]")
    kind = KINDS[one_of("pooling", default.kind if body.pooling is None else body.pooling, KINDS)]
    return Recipe(kind, default.normalize if body.normalize is None else body.normalize, body.dimensions)


def read_inputs(rid: str, body: EmbeddingsBody, kind: Kind, limits: Limits) -> list[Prompt]:
    """One prompt for each input, in order."""
    contents = list(_contents(body, limits.vocab_size))
    if not 0 < len(contents) <= MOST_INPUTS:
        raise ClientError("input", f"has {len(contents)} entries, must have 1 to {MOST_INPUTS}")
    check_numbers("input", len(contents), limits.hidden_size)
    return [prompt_to_embed(rid, place, kind, content) for place, content in contents]


def _contents(body: EmbeddingsBody, vocab_size: int) -> Iterator[tuple[str, str | bytes]]:
    """(place, text or packed ids) of each input. The first entry of a list says what the others must be."""
    match body.input:
        case str() as text:
            yield "input", prompts.check_text("input", text)
        case [str(), *_] as texts:
            for i, item in enumerate(texts):
                yield f"input[{i}]", prompts.check_text(f"input[{i}]", item)
        case [] | [list(), *_] as lists:
            for i, item in enumerate(lists):
                yield f"input[{i}]", _pack(f"input[{i}]", item, vocab_size)
        case [*ids]:
            yield "input", _pack("input", ids, vocab_size)
        case other:
            raise ClientError("input", f"is {shown(other)}, must be a string, a list of strings, or token ids")


def _pack(place: str, ids: Any, vocab_size: int) -> bytes:
    try:
        return prompts.pack_checked(place, ids, vocab_size)
    except ClientError as error:
        strange = isinstance(ids, list) and bool(ids) and all(isinstance(token, int) for token in ids)
        raise ClientError(error.place, error.fact, OTHER_VOCABULARY if strange else "") from None


async def _written(sequence: Sequence, recipe: Recipe, packed: bool) -> orjson.Fragment:
    """One entry of the reply. Others are served in between: thousands of them take seconds."""
    await asyncio.sleep(0)
    vector = vector_of(sequence, recipe)
    shape = in_base64(vector) if packed else vector.tolist()
    return orjson.Fragment(orjson.dumps({"object": "embedding", "index": sequence.index, "embedding": shape}))
