"""How relevant documents are to queries, by the method that the model is made for.

"classify": a classifier with one label reads both texts, joined by the tokenizer. "qwen3": a causal model answers yes
or no in Qwen3-Reranker's form. "generate": any other causal model is asked by its chat template. "embed": the cosine of
two embeddings, with the folder's prompts for queries and documents.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from ramet.ipc.content import Content
from ramet.ipc.messages import Chat, pack_ids, unpack_ids
from ramet.ipc.params import shown
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.places import FieldPlaces
from ramet.runtime.engine_client.prompt import Prompt, check_numbers
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import embeddings, reranker
from ramet.runtime.intake.chat import encode_chat, rendered_by
from ramet.runtime.intake.classes import check_labels, class_numbers, prompt_to_classify
from ramet.runtime.intake.parsers.reasoning import make_reasoning
from ramet.runtime.intake.prompts import check_context
from ramet.runtime.intake.scores import NEXT_TOKEN, label_scores
from ramet.runtime.replies.long_list import in_pieces
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.embeddings import run_all, vector_of

# The document comes last but for the question, so that all prompts of a request share a long prefix.
QUESTION = """\
Judge one search result. What is wanted: {instruct}
Query: {query}
Document: {document}
Is this document what is wanted for this query? Answer yes or no."""
THEN = "\n\nAnswer:"  # behind a question that no chat template frames
INSTRUCT = "a document that answers the query"
AT_ONCE = 64  # questions that are rendered, and answers that are read, while others wait for theirs
AFTER_A_COLON = ((" yes", " no"), ("yes", "no"))
IN_A_TURN = (("yes", "no"), ("Yes", "No"))
Method = Literal["generate", "embed", "classify", "qwen3"]
Judged = tuple[list[float], list[GeneratedSequence]]  # the worth of each pair, and what was run to find it


class Pair(NamedTuple):
    """Two texts with their places in the body."""

    query: str
    document: str
    query_at: str
    document_at: str


class JudgedPairs(NamedTuple):
    """How pairs are judged, but for the method."""

    rid: str
    instruct: str | None = None
    use_activation: bool | None = None


def usual_method(service: Service) -> Method:
    """What the model is made for."""
    if service.client.limits.num_labels:
        return "classify"
    if service.labels.is_reranker:
        return "qwen3"
    return "generate" if service.client.limits.generates else "embed"


async def judged(service: Service, asked: JudgedPairs, method: Method, pairs: list[Pair]) -> Judged:
    """Raises ClientError where the method does not fit the model."""
    if asked.instruct and method in ("embed", "classify"):
        fact = f"is {shown(asked.instruct)}, but method {method!r} asks nothing"
        raise ClientError("instruct", fact, "write it into query")
    if not service.client.limits.generates and method in ("generate", "qwen3"):
        fact = f"is {method!r}, but the model has no head that predicts tokens"
        raise ClientError("method", fact, f"use method {usual_method(service)!r}")
    match method:
        case "classify":
            return await _by_classes(service, asked, pairs)
        case "qwen3":
            return await _by_form(service, asked, pairs)
        case "embed":
            return await _by_embeddings(service, asked.rid, pairs)
        case "generate":
            return await _by_answers(service, asked, pairs)


async def _run(
    service: Service, pairs: list[Pair], prompt_of: Callable[[Pair], Awaitable[Prompt]]
) -> list[GeneratedSequence]:
    """Make the prompt of each pair, and run them, within one deadline."""
    with service.client.open(streaming=False) as submission:
        items: list[Prompt] = []
        for start in range(0, len(pairs), AT_ONCE):
            items += await submission.during(asyncio.gather(*map(prompt_of, pairs[start : start + AT_ONCE])))
        return await service.client.run_in_turn(items, submission)


# -- a classifier ------------------------------------------------------------------------------------------------------


async def _by_classes(service: Service, asked: JudgedPairs, pairs: list[Pair]) -> Judged:
    limits, labels = service.client.limits, service.labels
    check_labels(limits)
    if limits.num_labels != 1:
        fact = f"has a classifier with {limits.num_labels} labels, must have 1 for the relevance of a pair"
        raise ClientError("model", fact, "use /classify")

    async def joined(pair: Pair) -> Prompt:
        place = pair.document_at
        try:
            ids = (await service.client.text.tokenize(pair.query, pair=pair.document)).ids
        except ClientError as error:
            raise error.at(place) from None
        check_context(place, len(unpack_ids(ids)), limits, new=0)
        return prompt_to_classify(asked.rid, place, labels, Content(ids=ids))

    done = await _run(service, pairs, joined)
    return [class_numbers(each.pooled, labels, asked.use_activation)[0] for each in done], done


# -- yes or no ---------------------------------------------------------------------------------------------------------


async def answer_ids(service: Service) -> tuple[int, int]:
    """The tokens that stand for yes and no.

    The first ones of the bare words where they begin a turn, of " yes" and " no" after a colon, for a word there begins
    with its space; where these are the same token (a space by itself), the first ones of the next pair.
    """
    for words in IN_A_TURN if service.style.has_template else AFTER_A_COLON:
        yes, no = [(await _known(service, word))[0] for word in words]
        if yes != no:
            return yes, no
    fact = "is 'generate', but in this model's vocabulary yes and no begin with the same token"
    raise ClientError("method", fact, "use method 'embed'")


async def _known(service: Service, text: str) -> tuple[int, ...]:
    """The ids of a text that every such request needs."""
    known = service.known_ids
    if text not in known:
        known[text] = tuple(unpack_ids((await service.client.text.tokenize(text, add_special_tokens=False)).ids))
    return known[text]


async def _by_answers(service: Service, asked: JudgedPairs, pairs: list[Pair]) -> Judged:
    spec = RequestSpec(NEXT_TOKEN, LogprobSpec(ids=await answer_ids(service)))

    async def question(pair: Pair) -> Prompt:
        prompt = Prompt(asked.rid, spec, places=FieldPlaces(pair.document_at))
        return await _question(service, prompt, asked.instruct, pair)

    return await _answers(await _run(service, pairs, question))


async def _answers(done: list[GeneratedSequence]) -> Judged:
    """The share of yes among the two."""
    return await in_pieces(lambda sequence: label_scores(sequence, softmax=True)[0], done, AT_ONCE), done


async def _question(service: Service, prompt: Prompt, instruct: str | None, pair: Pair) -> Prompt:
    question = QUESTION.format(instruct=instruct or INSTRUCT, query=pair.query, document=pair.document)
    if not service.style.has_template:
        return prompt._replace(content=Content(question + THEN))
    chat = Chat([{"role": "user", "content": question}], kwargs={"enable_thinking": False})
    try:
        asked = await rendered_by(service.client.text.render, encode_chat(chat))
    except ClientError as error:
        raise error.at(prompt.places.prompt) from None
    if service.style.reasoning is not None and make_reasoning(service.style.reasoning, asked.tail).starts_inside:
        fact = "is 'generate', but this model thinks before it answers, and its chat template cannot be told not to"
        raise ClientError("method", fact, "use method 'embed'")
    return prompt._replace(content=Content(ids=asked.ids))


async def _by_form(service: Service, asked: JudgedPairs, pairs: list[Pair]) -> Judged:
    before, after = await _known(service, reranker.BEFORE), await _known(service, reranker.AFTER)
    yes, no = [(await _known(service, word))[0] for word in (reranker.YES, reranker.NO)]
    spec = RequestSpec(NEXT_TOKEN, LogprobSpec(ids=(yes, no)))
    limits, instruct = service.client.limits, asked.instruct or reranker.INSTRUCT

    async def filled(pair: Pair) -> Prompt:
        text = reranker.ASKED.format(instruct=instruct, query=pair.query, document=pair.document)
        try:
            ids = unpack_ids((await service.client.text.tokenize(text, add_special_tokens=False)).ids)
        except ClientError as error:
            raise error.at(pair.document_at) from None
        check_context(pair.document_at, len(before) + len(ids) + len(after), limits, new=1)
        content = Content(ids=pack_ids([*before, *ids, *after]))
        return Prompt(asked.rid, spec, content, places=FieldPlaces(pair.document_at))

    return await _answers(await _run(service, pairs, filled))


# -- embeddings --------------------------------------------------------------------------------------------------------


async def _by_embeddings(service: Service, rid: str, pairs: list[Pair]) -> Judged:
    """Each text is embedded once, however many pairs it is in."""
    limits = service.client.limits
    if not limits.hidden_size:
        raise ClientError("method", "is 'embed', but the model has no hidden states", "use method 'generate'")
    queries = {pair.query: pair.query_at for pair in reversed(pairs)}
    documents = {pair.document: pair.document_at for pair in reversed(pairs)}
    check_numbers(pairs[0].document_at, len(queries) + len(documents), embeddings.embedding_size(limits))
    pooling = embeddings.chosen(service.pooling)._replace(normalize=True)
    asked, wanted = ([(at, text) for text, at in reversed(side.items())] for side in (queries, documents))
    done = await run_all(service, embeddings.search_prompts(rid, asked, wanted, pooling, limits))
    vectors = [await vector_of(sequence, pooling) for sequence in done]
    of_query = dict(zip((text for _, text in asked), vectors[: len(asked)], strict=True))
    of_document = dict(zip((text for _, text in wanted), vectors[len(asked) :], strict=True))
    return [embeddings.cosine(of_query[pair.query], of_document[pair.document]) for pair in pairs], done
