"""POST /v1/embeddings and /v1/score: prompts to numbers, which intake/embeddings.py makes.

A mean needs every token computed; a last token's vector reuses a cached prefix.
"""

import asyncio
from typing import Annotated, Any, Literal

from aiohttp import web

from ramet.ipc.params import about
from ramet.runtime.engine_client.submission import Sequence, check_numbers
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import embeddings as numbers
from ramet.runtime.intake import prompts
from ramet.runtime.intake.limits import MAX_INPUTS
from ramet.runtime.server.http.exchange import encode, read_body, respond, set_request_id, written
from ramet.runtime.server.http.service import Service, check_model
from ramet.runtime.server.openai.replies import Embedding, EmbeddingReply, PromptUsage, ScoreReply, usage_of
from ramet.runtime.text.pooling import Pooling

ModelName = Annotated[str | None, about("name of the served model, or absent")]


class EmbeddingsBody(numbers.EmbedFields, frozen=True, kw_only=True):
    """/v1/embeddings; `pooling` and `normalize` are what only this server knows."""

    model: ModelName = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None, about('"float" (default), or "base64" of little-endian float32')
    ] = None
    user: Annotated[str | None, about("accepted, changes nothing")] = None


class ScoreBody(numbers.ScoreFields, frozen=True, kw_only=True):
    """/v1/score: which of a few tokens follows."""

    model: ModelName = None


async def embeddings(service: Service, request: web.Request) -> web.Response:
    """OpenAI's embeddings: a vector for each text or list of token ids."""
    body = await read_body(request, EmbeddingsBody)
    model = check_model(service, body.model)
    rid = set_request_id(request, f"embd-{prompts.new_id()}", None)
    limits = service.client.limits
    items, pooling = numbers.read_inputs(rid, body, service.pooling, limits)
    if len(items) > MAX_INPUTS:
        raise ClientError("input", f"has {len(items)} entries, must have 1 to {MAX_INPUTS}")
    check_numbers("input", len(items), limits.hidden_size)
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    data = [await _embedding(sequence, pooling, body) for sequence in done]
    counted = usage_of(done)
    usage = PromptUsage(counted.prompt_tokens, counted.total_tokens)
    return respond(EmbeddingReply(data=data, model=model, usage=usage))


async def _embedding(sequence: Sequence, pooling: Pooling, body: EmbeddingsBody) -> Any:
    """One entry of the reply, encoded. Others are served in between: thousands of them take seconds."""
    await asyncio.sleep(0)
    vector = numbers.vector_of(sequence.hidden, pooling, body.dimensions)
    shape = numbers.in_base64(vector) if body.encoding_format == "base64" else vector.tolist()
    return written(encode(Embedding(index=sequence.index, embedding=shape)))


async def score(service: Service, request: web.Request) -> web.Response:
    """The probability of each label token after query and item, for each item."""
    body = await read_body(request, ScoreBody)
    model = check_model(service, body.model)
    rid = set_request_id(request, f"score-{prompts.new_id()}", None)
    items = numbers.read_pairs(rid, body, service.client.limits.vocab_size)
    check_numbers("items", len(items), len(body.label_token_ids) + 1)
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    scores = [numbers.label_scores(sequence.logprobs, body.apply_softmax) for sequence in done]
    return respond(ScoreReply(model=model, scores=scores, usage=usage_of(done)))
