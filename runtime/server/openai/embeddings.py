"""POST /v1/embeddings.

Decides how many inputs there may be, and how vectors are written. What an input is and how a vector is made:
intake/embeddings.py. A mean needs every token computed; a last token's vector reuses a cached prefix.
"""

import asyncio
from typing import Any

from aiohttp import web

from ramet.runtime.engine_client.submission import Sequence, check_numbers
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.embeddings import Recipe, in_base64, read_inputs, read_recipe, vector_of
from ramet.runtime.intake.limits import MAX_INPUTS
from ramet.runtime.server.http.exchange import encode, read_body, respond, set_request_id, written
from ramet.runtime.server.http.model_names import check_model
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.pooling_types import EmbeddingsBody
from ramet.runtime.server.openai.replies import Embedding, EmbeddingReply, PromptUsage, usage_of


async def embeddings(service: Service, request: web.Request) -> web.Response:
    """OpenAI's embeddings: a vector for each text or list of token ids."""
    body = await read_body(request, EmbeddingsBody)
    model = check_model(service, body.model)
    rid = set_request_id(request, f"embd-{prompts.new_id()}", None)
    limits = service.client.limits
    recipe = read_recipe(body, service.pooling, limits.hidden_size)
    packed = body.encoding_format == "base64"
    items = read_inputs(rid, body, recipe.kind, limits.vocab_size)
    if len(items) > MAX_INPUTS:
        raise ClientError("input", f"has {len(items)} entries, must have 1 to {MAX_INPUTS}")
    check_numbers("input", len(items), limits.hidden_size)
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    data = [await _embedding(sequence, recipe, packed) for sequence in done]
    counted = usage_of(done)
    usage = PromptUsage(counted.prompt_tokens, counted.total_tokens)
    return respond(EmbeddingReply(data=data, model=model, usage=usage))


async def _embedding(sequence: Sequence, recipe: Recipe, packed: bool) -> Any:
    """One entry of the reply, encoded. Others are served in between: thousands of them take seconds."""
    await asyncio.sleep(0)
    vector = vector_of(sequence.hidden, recipe)
    shape = in_base64(vector) if packed else vector.tolist()
    return written(encode(Embedding(index=sequence.index, embedding=shape)))
