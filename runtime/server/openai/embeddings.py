"""POST /v1/embeddings, /v1/score and /v1/rerank: prompts to numbers, which intake/embeddings.py makes.

A mean needs every token computed; a last token's vector reuses a cached prefix. A rerank has the shape of Cohere's and
Jina's replies: the worth of a document is how much likelier the model answers yes than no when it is asked (method
"generate"), or the cosine of two embeddings ("embed").
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from aiohttp import web
from msgspec import UNSET, Meta, Struct

from ramet.ipc.messages import ID_BYTES, Chat, unpack_ids
from ramet.ipc.params import about, shown
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence, check_bytes, check_numbers
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import embeddings as numbers
from ramet.runtime.intake import other_servers, prompts
from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.chat import rendered_by
from ramet.runtime.intake.fields import Rid, Text, including
from ramet.runtime.intake.limits import MAX_INPUTS
from ramet.runtime.intake.parsers.reasoning import make_reasoning
from ramet.runtime.long_list import LongList, in_parts
from ramet.runtime.server.http.exchange import read_body, respond, respond_in_turn, set_request_id
from ramet.runtime.server.http.service import Service, check_model
from ramet.runtime.server.openai import replies
from ramet.runtime.text.pooling import Pooling

# The document comes last but for the question, so that all prompts of a request share a long prefix.
QUESTION = """\
Judge one search result. What is wanted: {instruct}
Query: {query}
Document: {document}
Is this document what is wanted for this query? Answer yes or no."""
THEN = "\n\nAnswer:"  # behind a question that no chat template frames
INSTRUCT = "a document that answers the query"
NUMBERS_OF_A_SCORE = 4  # as many numbers a score counts as, which takes an exponential and some steps
AT_ONCE = 64  # questions that are rendered while others wait for theirs
AFTER_A_COLON = ((" yes", " no"), ("yes", "no"))
IN_A_TURN = (("yes", "no"), ("Yes", "No"))
Judged = tuple[list[float], list[Sequence]]  # the worth of each document, and what was run to find it
ModelName = Annotated[str | None, about("name of the served model, or absent")]


@including(other_servers.EMBEDDINGS)
class EmbeddingsBody(numbers.EmbedFields, Checked, frozen=True, kw_only=True):
    """/v1/embeddings; `pooling` and `normalize` are what only this server knows."""

    model: ModelName = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None, about('"float" (default), or "base64" of little-endian float32')
    ] = None
    user: Annotated[str | None, about("accepted, changes nothing")] = None
    rid: Annotated[Rid | None, about("name of the request, for /abort_request")] = None
    request_id: Annotated[Rid | None, about("vLLM's name of `rid`")] = None


@including(other_servers.SCORES)
class ScoreBody(numbers.ScoreFields, Checked, frozen=True, kw_only=True):
    model: ModelName = None


class Document(Struct, frozen=True):
    text: Annotated[Text, about("what is judged")]


class RerankBody(Struct, frozen=True, kw_only=True):
    """/v1/rerank, as Cohere's and Jina's clients write it; `method` and `instruct` are extensions."""

    query: Annotated[Text, about("what the documents are compared with")]
    documents: Annotated[Annotated[list[Text | Document], Meta(min_length=1)], about('texts, or objects with a "text"')]
    top_n: Annotated[Annotated[int, Meta(ge=1)] | None, about("only this many of the best; by default all")] = None
    return_documents: Annotated[bool | None, about("results carry their texts; by default true")] = None
    instruct: Annotated[str | None, about('what makes a document a good one; with method "generate"')] = None
    method: Annotated[
        Literal["generate", "embed"] | None,
        about('"generate" (default): how much likelier the model says yes than no; "embed": cosine of embeddings'),
    ] = None
    model: ModelName = None


async def embeddings(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's embeddings: a vector for each text or list of token ids."""
    body = await read_body(request, EmbeddingsBody)
    model = check_model(service, body.model)
    rid = set_request_id(request, f"embd-{prompts.new_id()}", body.rid or body.request_id)
    limits = service.client.limits
    if prompts.is_batch(body.input) and len(body.input) > MAX_INPUTS:
        raise ClientError("input", f"has {len(body.input)} entries, must have 1 to {MAX_INPUTS}")
    items, pooling = numbers.read_inputs(rid, body, service.pooling, limits)
    check_numbers("input", len(items), limits.hidden_size)
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    vectors = [await _vector(sequence, pooling, body.dimensions) for sequence in done]
    counted = replies.usage_of(done)
    usage = replies.PromptUsage(counted.prompt_tokens, counted.total_tokens)
    as_text = body.encoding_format == "base64"
    data: Any = LongList(in_parts(partial(_embeddings, vectors, as_text), 0, len(vectors), len(vectors[0])))
    return await respond_in_turn(request, replies.EmbeddingReply(data=data, model=model, usage=usage))


async def _vector(sequence: Sequence, pooling: Pooling, dimensions: int | None) -> numbers.Vector:
    """Others are served in between: thousands of them take seconds. What is not finite is found before any is sent."""
    await asyncio.sleep(0)
    return numbers.vector_of(sequence.hidden, pooling, dimensions)


def _embeddings(vectors: list[numbers.Vector], as_text: bool, start: int, stop: int) -> list[replies.Embedding]:
    write: Callable[[numbers.Vector], Any] = numbers.in_base64 if as_text else list
    return [replies.Embedding(index=i, embedding=write(vectors[i])) for i in range(start, stop)]


def given_bytes(given: str | list[int]) -> int:
    """Of a text or token ids, as `check_bytes` counts."""
    return len(given) * (1 if isinstance(given, str) else ID_BYTES)


async def score(service: Service, request: web.Request) -> web.StreamResponse:
    """The probability of each label token after query and item, for each item."""
    body = await read_body(request, ScoreBody)
    model = check_model(service, body.model)
    rid = set_request_id(request, f"score-{prompts.new_id()}", None)
    pairs = [body.items] if isinstance(body.items, str) else body.items
    joined = len(pairs) * given_bytes(body.query) + sum(map(given_bytes, pairs))
    check_bytes("items", joined, "each goes with query: send fewer, or a shorter query")
    items = numbers.read_pairs(rid, body, service.client.limits)
    check_numbers("items", len(items), len(body.label_token_ids) + 1)
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    each = NUMBERS_OF_A_SCORE * len(body.label_token_ids)
    scores: Any = LongList(in_parts(partial(_scores, done, body.apply_softmax), 0, len(done), each))
    return await respond_in_turn(request, replies.ScoreReply(model=model, scores=scores, usage=replies.usage_of(done)))


def _scores(done: list[Sequence], softmax: bool | None, start: int, stop: int) -> list[list[float]]:
    return [numbers.label_scores(sequence.logprobs, softmax) for sequence in done[start:stop]]


async def rerank(service: Service, request: web.Request) -> web.Response:
    """Documents sorted by how well they fit a query."""
    body = await read_body(request, RerankBody)
    model = check_model(service, body.model)
    prompts.check_count("documents", len(body.documents))
    documents = [each if isinstance(each, str) else each.text for each in body.documents]
    asked = len(documents) * (len(body.query) + len(body.instruct or "")) + sum(map(len, documents))
    check_bytes("documents", asked, "each goes with query: send fewer, or a shorter query")
    top_n = len(documents) if body.top_n is None else body.top_n
    if top_n > len(documents):
        raise ClientError("top_n", f"is {shown(top_n)}, must be in [1, {len(documents)}], the number of documents")
    rid = set_request_id(request, f"rerank-{prompts.new_id()}", None)
    judge = _by_embeddings if body.method == "embed" else _by_answers
    worths, done = await judge(service, rid, body, documents)
    best = sorted(range(len(documents)), key=lambda i: (-worths[i], i))[:top_n]
    with_texts = body.return_documents is not False
    results = [replies.Ranked(i, worths[i], replies.RankedText(documents[i]) if with_texts else UNSET) for i in best]
    return respond(replies.RerankReply(id=rid, model=model, results=results, usage=replies.usage_of(done)))


async def answer_ids(service: Service) -> tuple[int, int]:
    """The tokens that stand for yes and no.

    The first ones of the bare words where they begin a turn, of " yes" and " no" after a colon, for a word there begins
    with its space; where these are the same token (a space by itself), the first ones of the next pair.
    """
    known = service.first_tokens
    for words in IN_A_TURN if service.style.has_template else AFTER_A_COLON:
        for word in words:
            if word not in known:
                known[word] = unpack_ids((await service.client.tokenize(word, add_special_tokens=False)).ids)[0]
        yes, no = (known[word] for word in words)
        if yes != no:
            return yes, no
    fact = "is 'generate', but in this model's vocabulary yes and no begin with the same token"
    raise ClientError("method", fact, "use method 'embed'")


async def _by_answers(service: Service, rid: str, body: RerankBody, documents: list[str]) -> Judged:
    spec = RequestSpec(numbers.NEXT_TOKEN, LogprobSpec(ids=await answer_ids(service)))
    with service.client.open(streaming=False) as submission:
        items: list[Prompt] = []
        for start in range(0, len(documents), AT_ONCE):
            chosen = enumerate(documents[start : start + AT_ONCE], start)
            asked = [_question(service, Prompt(rid, spec, place=f"documents[{i}]"), body, text) for i, text in chosen]
            items += await submission.during(asyncio.gather(*asked))
        done = await service.client.run_in_turn(items, submission)
    return [numbers.label_scores(sequence.logprobs, softmax=True)[0] for sequence in done], done


async def _question(service: Service, prompt: Prompt, body: RerankBody, document: str) -> Prompt:
    question = QUESTION.format(instruct=body.instruct or INSTRUCT, query=body.query, document=document)
    if not service.style.has_template:
        return prompt._replace(text=question + THEN)
    chat = Chat([{"role": "user", "content": question}], kwargs={"enable_thinking": False})
    try:
        asked = await rendered_by(service.client.render, chat)
    except ClientError as error:
        raise error.at(prompt.place) from None
    if service.style.reasoning is not None and make_reasoning(service.style.reasoning, asked.tail).starts_inside:
        fact = "is 'generate', but this model thinks before it answers, and its chat template cannot be told not to"
        raise ClientError("method", fact, "use method 'embed'")
    return prompt._replace(ids=asked.ids)


async def _by_embeddings(service: Service, rid: str, body: RerankBody, documents: list[str]) -> Judged:
    hidden_size = service.client.limits.hidden_size
    if not hidden_size:
        raise ClientError("method", "is 'embed', but the model has no hidden states", "use method 'generate'")
    if body.instruct:
        fact = f"is {shown(body.instruct)}, but method 'embed' asks nothing"
        raise ClientError("instruct", fact, "write it into query")
    check_numbers("documents", len(documents) + 1, hidden_size)
    pooling = service.pooling._replace(normalize=True)
    contents = [("query", body.query), *((f"documents[{i}]", text) for i, text in enumerate(documents))]
    items = [numbers.prompt_to_embed(rid, place, pooling, text=text) for place, text in contents]
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    wanted, worths = numbers.vector_of(done[0].hidden, pooling), []
    for sequence in done[1:]:
        await asyncio.sleep(0)  # others are served in between
        worths.append(numbers.cosine(wanted, numbers.vector_of(sequence.hidden, pooling)))
    return worths, done
