"""POST /v1/rerank: documents in the order of their worth for a query, in the shape of Cohere's and Jina's replies.

The worth of a document is how much likelier the model answers yes than no when it is asked (method "generate"), or the
cosine of two embeddings ("embed").
"""

import asyncio
from typing import Annotated, Literal

from aiohttp import web
from msgspec import UNSET, Meta, Struct

from ramet.ipc.messages import Chat, unpack_ids
from ramet.ipc.params import about, shown
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence, check_numbers
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.chat import rendered_by
from ramet.runtime.intake.embeddings import NEXT_TOKEN, cosine, label_scores, prompt_to_embed, vector_of
from ramet.runtime.intake.fields import Text
from ramet.runtime.intake.parsers.reasoning import make_reasoning
from ramet.runtime.server.http.exchange import read_body, respond, set_request_id
from ramet.runtime.server.http.service import Service, check_model
from ramet.runtime.server.openai.embeddings import ModelName
from ramet.runtime.server.openai.replies import Ranked, RankedText, RerankReply, usage_of

# The document comes last but for the question, so that all prompts of a request share a long prefix.
QUESTION = """\
Judge one search result. What is wanted: {instruct}
Query: {query}
Document: {document}
Is this document what is wanted for this query? Answer yes or no."""
INSTRUCT = "a document that answers the query"
AT_ONCE = 64  # questions that are rendered while others wait for theirs
AFTER_A_COLON = ((" yes", " no"), ("yes", "no"))
IN_A_TURN = (("yes", "no"), ("Yes", "No"))
Judged = tuple[list[float], list[Sequence]]  # the worth of each document, and what was run to find it


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


async def rerank(service: Service, request: web.Request) -> web.Response:
    """Documents sorted by how well they fit a query."""
    body = await read_body(request, RerankBody)
    model = check_model(service, body.model)
    prompts.check_count("documents", len(body.documents))
    query, documents = body.query, [each if isinstance(each, str) else each.text for each in body.documents]
    top_n = len(documents) if body.top_n is None else body.top_n
    if top_n > len(documents):
        raise ClientError("top_n", f"is {shown(top_n)}, must be in [1, {len(documents)}], the number of documents")
    rid = set_request_id(request, f"rerank-{prompts.new_id()}", None)
    if body.method == "embed":
        worths, done = await _by_embeddings(service, rid, query, documents, body.instruct)
    else:
        worths, done = await _by_answers(service, rid, query, documents, body.instruct or INSTRUCT)
    best = sorted(range(len(documents)), key=lambda i: (-worths[i], i))[:top_n]
    with_texts = body.return_documents is not False
    results = [Ranked(i, worths[i], RankedText(documents[i]) if with_texts else UNSET) for i in best]
    return respond(RerankReply(id=rid, model=model, results=results, usage=usage_of(done)))


def judge_messages(query: str, document: str, instruct: str) -> list[dict[str, str]]:
    """The question as a chat."""
    return [{"role": "user", "content": QUESTION.format(instruct=instruct, query=query, document=document)}]


def flattened(messages: list[dict[str, str]]) -> str:
    """A chat as plain text that an answer follows, for a model without a chat template."""
    return "\n\n".join([*(message["content"] for message in messages), "Answer:"])


async def answer_ids(service: Service) -> tuple[int, int]:
    """The tokens that stand for yes and no.

    The first ones of the bare words where they begin a turn, of " yes" and " no" after a colon, for a word there begins
    with its space; where these are the same token (a space by itself), the first ones of the next pair.
    """
    for words in IN_A_TURN if service.style.has_template else AFTER_A_COLON:
        yes, no = [await _first_token(service, word) for word in words]
        if yes != no:
            return yes, no
    fact = "is 'generate', but in this model's vocabulary yes and no begin with the same token"
    raise ClientError("method", fact, "use method 'embed'")


async def _first_token(service: Service, word: str) -> int:
    """Asked for once in the server's life."""
    if word not in service.first_tokens:
        reply = await service.client.tokenize(word, add_special_tokens=False)
        service.first_tokens[word] = unpack_ids(reply.ids)[0]
    return service.first_tokens[word]


async def _by_answers(service: Service, rid: str, query: str, documents: list[str], instruct: str) -> Judged:
    spec = RequestSpec(NEXT_TOKEN, LogprobSpec(ids=await answer_ids(service)))
    with service.client.open(streaming=False) as submission:
        items: list[Prompt] = []
        for start in range(0, len(documents), AT_ONCE):
            chosen = enumerate(documents[start : start + AT_ONCE], start)
            unsent = [(Prompt(rid, spec, place=f"documents[{i}]"), text) for i, text in chosen]
            asked = (_question(service, prompt, query, text, instruct) for prompt, text in unsent)
            items += await submission.during(asyncio.gather(*asked))
        done = await service.client.run_in_turn(items, submission)
    return [label_scores(sequence.logprobs, softmax=True)[0] for sequence in done], done


async def _question(service: Service, prompt: Prompt, query: str, document: str, instruct: str) -> Prompt:
    messages = judge_messages(query, document, instruct)
    if not service.style.has_template:
        return prompt._replace(text=flattened(messages))
    try:
        asked = await rendered_by(service.client.render, Chat(messages, kwargs={"enable_thinking": False}))
    except ClientError as error:
        raise error.at(prompt.place) from None
    if service.style.reasoning is not None and make_reasoning(service.style.reasoning, asked.tail).starts_inside:
        fact = "is 'generate', but this model thinks before it answers, and its chat template cannot be told not to"
        raise ClientError("method", fact, "use method 'embed'")
    return prompt._replace(ids=asked.ids)


async def _by_embeddings(service: Service, rid: str, query: str, documents: list[str], instruct: str | None) -> Judged:
    hidden_size = service.client.limits.hidden_size
    if not hidden_size:
        raise ClientError("method", "is 'embed', but the model has no hidden states", "use method 'generate'")
    if instruct:
        raise ClientError("instruct", f"is {shown(instruct)}, but method 'embed' asks nothing", "write it into query")
    check_numbers("documents", len(documents) + 1, hidden_size)
    pooling = service.pooling._replace(normalize=True)
    items = [prompt_to_embed(rid, "query", pooling, text=query)]
    items += [prompt_to_embed(rid, f"documents[{i}]", pooling, text=text) for i, text in enumerate(documents)]
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    wanted, worths = vector_of(done[0].hidden, pooling), []
    for sequence in done[1:]:
        await asyncio.sleep(0)  # others are served in between
        worths.append(cosine(wanted, vector_of(sequence.hidden, pooling)))
    return worths, done
