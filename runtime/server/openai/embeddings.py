"""POST /v1/embeddings.

Decides what an input may look like, and how vectors are written. Knows no pooling: vectors.py. A prompt whose mean is
told computes every token; one whose last token is told reuses a cached prefix.
"""

import asyncio
from typing import Any

from aiohttp import web

from ramet.ipc.messages import Limits
from ramet.ipc.params import shown
from ramet.runtime.engine_client.submission import Prompt, Sequence, check_numbers
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.limits import MAX_INPUTS
from ramet.runtime.server.http import request_ids
from ramet.runtime.server.http.model_names import check_model
from ramet.runtime.server.http.replies import encode, respond, written
from ramet.runtime.server.http.request_body import read_body
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.pooling_types import EmbeddingsBody
from ramet.runtime.server.openai.replies import Embedding, EmbeddingReply, PromptUsage, usage_of
from ramet.runtime.server.openai.vectors import Recipe, in_base64, prompt_to_embed, vector_of
from ramet.runtime.text.pooling import Kind, Pooling

OTHER_VOCABULARY = (
    "are they ids of another model's tokenizer? LangChain's OpenAIEmbeddings sends such, unless "
    "check_embedding_ctx_length=False"
)


async def embeddings(service: Service, request: web.Request) -> web.Response:
    """OpenAI's embeddings: a vector for each text or list of token ids."""
    body = await read_body(request, EmbeddingsBody)
    model = check_model(service, body.model)
    rid = request_ids.of_request(request, f"embd-{prompts.new_id()}", None)
    limits = service.client.limits
    recipe = read_recipe(body, service.pooling, limits.hidden_size)
    packed = body.encoding_format == "base64"
    items = read_inputs(rid, body, recipe.kind, limits)
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    data = [await _embedding(sequence, recipe, packed) for sequence in done]
    counted = usage_of(done)
    usage = PromptUsage(counted.prompt_tokens, counted.total_tokens)
    return respond(EmbeddingReply(data=data, model=model, usage=usage))


def read_recipe(body: EmbeddingsBody, default: Pooling, hidden_size: int) -> Recipe:
    if not hidden_size:
        raise ClientError("model", "has no hidden states, so there are no embeddings")
    if body.dimensions is not None and body.dimensions > hidden_size:
        raise ClientError("dimensions", f"is {shown(body.dimensions)}, must be in [1, {hidden_size}]")
    return Recipe(
        body.pooling or default.kind, default.normalize if body.normalize is None else body.normalize, body.dimensions
    )


def read_inputs(rid: str, body: EmbeddingsBody, kind: Kind, limits: Limits) -> list[Prompt]:
    """One prompt for each input, in order."""
    contents, _ = prompts.read_contents("input", body.input, limits.vocab_size, OTHER_VOCABULARY)
    if len(contents) > MAX_INPUTS:
        raise ClientError("input", f"has {len(contents)} entries, must have 1 to {MAX_INPUTS}")
    check_numbers("input", len(contents), limits.hidden_size)
    return [prompt_to_embed(rid, place, kind, content) for place, content in contents]


async def _embedding(sequence: Sequence, recipe: Recipe, packed: bool) -> Any:
    """One entry of the reply, encoded. Others are served in between: thousands of them take seconds."""
    await asyncio.sleep(0)
    vector = vector_of(sequence, recipe)
    shape = in_base64(vector) if packed else vector.tolist()
    return written(encode(Embedding(index=sequence.index, embedding=shape)))
