"""POST /v1/embeddings in OpenAI's shape. A mean needs every token computed; a last token reuses a cached prefix."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from aiohttp import web

from ramet.ipc.params import about
from ramet.runtime.engine_client.prompt import Prompt, check_numbers
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import embeddings as numbers
from ramet.runtime.intake import prompts
from ramet.runtime.intake.fields import Rid
from ramet.runtime.intake.limits import MAX_INPUTS
from ramet.runtime.replies.long_list import long_list
from ramet.runtime.server.http.exchange import read_body, respond_in_turn
from ramet.runtime.server.http.request_id import set_request_id
from ramet.runtime.server.http.service import Service, check_model
from ramet.runtime.server.openai import replies
from ramet.runtime.text.pooling import Pooling
from ramet.runtime.workers.offload import offloaded

ModelName = Annotated[str | None, about("name of the served model, or absent")]
User = Annotated[str | None, about("accepted, changes nothing")]
NamedRid = Annotated[Rid | None, about("name of the request, for /abort_request")]
OtherRid = Annotated[Rid | None, about("vLLM's name of `rid`")]
Format = Annotated[Literal["float", "base64"] | None, about('"float" (default), or "base64" of little-endian float32')]
Writer = Callable[[numbers.Vector], Any]


class EmbeddingsBody(numbers.EmbedFields, frozen=True, kw_only=True):
    """/v1/embeddings; `pooling`, `normalize` and `prompt_name` are what only this server knows."""

    model: ModelName = None
    encoding_format: Format = None
    user: User = None
    rid: NamedRid = None
    request_id: OtherRid = None


async def embeddings(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's embeddings: a vector for each text or list of token ids."""
    body = await read_body(request, EmbeddingsBody)
    model = check_model(service, body.model)
    rid = set_request_id(request, f"embd-{prompts.new_id()}", body.rid or body.request_id)
    vectors, done = await embedded(service, rid, body)
    counted = replies.usage_of(done)
    usage = replies.PromptUsage(counted.prompt_tokens, counted.total_tokens)
    write = writer_of(body.encoding_format)
    data = long_list(lambda i: replies.Embedding(index=i, embedding=write(vectors[i])), len(vectors), len(vectors[0]))
    return await respond_in_turn(request, replies.EmbeddingReply(data=data, model=model, usage=usage))


async def embedded(
    service: Service, rid: str, fields: numbers.EmbedFields, place: str = "input"
) -> tuple[list[numbers.Vector], list[GeneratedSequence]]:
    """A vector of each input of the field `place`, and what was run for it. Raises ClientError."""
    check_inputs(place, fields.input)
    limits = service.client.limits
    reading = partial(numbers.read_inputs, rid, fields, service.pooling, limits, place)
    items, pooling = await offloaded(reading, prompts.num_prompts(fields.input))
    check_numbers(place, len(items), numbers.embedding_size(limits))
    done = await run_all(service, items)
    return [await vector_of(sequence, pooling, fields.dimensions) for sequence in done], done


def check_inputs(place: str, given: Any) -> None:
    if prompts.is_batch(given) and len(given) > MAX_INPUTS:
        raise ClientError(place, f"has {len(given)} entries, must have 1 to {MAX_INPUTS}")


async def run_all(service: Service, items: list[Prompt]) -> list[GeneratedSequence]:
    with service.client.open(streaming=False) as submission:
        return await service.client.run_in_turn(items, submission)


async def vector_of(sequence: GeneratedSequence, pooling: Pooling, dimensions: int | None = None) -> numbers.Vector:
    """Others are served in between: thousands of them take seconds. What is not finite is found before any is sent."""
    await asyncio.sleep(0)
    return numbers.vector_of(sequence.pooled, pooling, dimensions)


def writer_of(encoding: str | None) -> Writer:
    return numbers.in_base64 if encoding == "base64" else list
