"""POST /v1/score, /score, /v1/rerank and /rerank: scores of label tokens, scores of pairs, and documents in order.

A score's body with `query` and `items` is SGLang's and gets its reply; one with `text_1` and `text_2`, under any of the
names that vLLM has for them, is vLLM's. A rerank has the shape of Cohere's and Jina's replies, which vLLM has too.
"""

import time
from functools import partial
from typing import Annotated

from aiohttp import web
from msgspec import UNSET, Meta, Struct

from ramet.ipc.messages import ID_BYTES
from ramet.ipc.params import about
from ramet.runtime.engine_client.prompt import check_bytes, check_numbers
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake import scores as numbers
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.classes import UseActivation
from ramet.runtime.intake.fields import Some, Text, unbuilt
from ramet.runtime.intake.other_servers import Overrides, OverrideToken, PairNames
from ramet.runtime.replies.long_list import long_list
from ramet.runtime.server.http.exchange import read_body, respond, respond_in_turn
from ramet.runtime.server.http.request_id import set_request_id
from ramet.runtime.server.http.service import Service, check_model
from ramet.runtime.server.openai import pooled_replies as replies
from ramet.runtime.server.openai.embeddings import ModelName, NamedRid, OtherRid, User, run_all
from ramet.runtime.server.openai.relevance import JudgedPairs, Method, Pair, judged, usual_method
from ramet.runtime.server.openai.replies import usage_of
from ramet.runtime.workers.offload import offloaded

NUMBERS_OF_A_SCORE = 4  # as many numbers a score counts as, which takes an exponential and some steps
NUMBERS_OF_A_SEQUENCE = 512  # the same of a sequence whose scores are read: 0.1 ms
FIRST, SECOND = ("text_1", "queries", "data_1"), ("text_2", "documents", "data_2")  # vLLM's names
Texts = Text | Some[Text] | None
REQUIRED = ("query", "items", "label_token_ids")  # of SGLang's scores
BY_TOKENS = numbers.ScoreFields.__struct_fields__


class ScoreBody(PairNames, frozen=True, kw_only=True):
    """SGLang's: `query`, `items` and `label_token_ids`. vLLM's: `text_1` and `text_2`, by one of their names."""

    query: Annotated[numbers.Query | None, numbers.QUERY] = None
    items: Annotated[numbers.Items | None, numbers.ITEMS] = None
    label_token_ids: Annotated[numbers.LabelIds | None, numbers.LABEL_IDS] = None
    apply_softmax: Annotated[bool | None, about("scores of an item add up to 1")] = None
    item_first: Annotated[bool | None, about("the query follows the item")] = None
    text_1: Annotated[Texts, about("what each text is compared with: one, or one for each")] = None
    text_2: Annotated[Texts, about("a text, or several")] = None
    queries: Annotated[Texts, about("a newer name of `text_1`")] = None
    documents: Annotated[Texts, about("a newer name of `text_2`")] = None
    data_1: Annotated[Texts, about("another name of `text_1`")] = None
    data_2: Annotated[Texts, about("another name of `text_2`")] = None
    use_activation: UseActivation = None
    model: ModelName = None
    user: User = None
    rid: NamedRid = None
    request_id: OtherRid = None
    embed_override_token_id: OverrideToken = None
    query_embed_overrides: Overrides = None
    item_embed_overrides: Overrides = None
    return_pooled_hidden_states: Annotated[bool | None, unbuilt("hidden states", neutral=(False,))] = None


class Document(Struct, frozen=True):
    text: Annotated[Text, about("what is judged")]


class RerankBody(PairNames, frozen=True, kw_only=True):
    """As Cohere's, Jina's, vLLM's and SGLang's clients write it; `method` is an extension."""

    query: Annotated[Text, about("what the documents are compared with")]
    documents: Annotated[Annotated[list[Text | Document], Meta(min_length=1)], about('texts, or objects with a "text"')]
    top_n: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        about("only this many of the best; all by default, and where it is more than there are"),
    ] = None
    return_documents: Annotated[bool | None, about("results carry their texts; by default true")] = None
    instruct: Annotated[
        str | None, about('what makes a document a good one; with the methods "generate" and "qwen3"')
    ] = None
    method: Annotated[
        Method | None,
        about(
            'by default what the model is made for: "classify", a classifier with one label; "qwen3", yes or no in '
            'Qwen3-Reranker\'s form; "generate", how much likelier the model says yes than no; "embed", cosine'
        ),
    ] = None
    use_activation: UseActivation = None
    model: ModelName = None
    user: User = None
    rid: NamedRid = None
    request_id: OtherRid = None


def given_bytes(given: str | list[int]) -> int:
    """Of a text or token ids, as `check_bytes` counts."""
    return len(given) * (1 if isinstance(given, str) else ID_BYTES)


async def score(service: Service, request: web.Request) -> web.StreamResponse:
    """The probability of each label token after query and item, for each item; or one score of each pair of texts."""
    body = await read_body(request, ScoreBody)
    model = check_model(service, body.model)
    rid = set_request_id(request, f"score-{prompts.new_id()}", body.rid or body.request_id)
    of_tokens, of_pairs = _given(body, BY_TOKENS), _given(body, FIRST + SECOND)
    if of_tokens and of_pairs:
        fact = f"and {of_pairs[0]}: exactly one of them must be set, for they ask for two kinds of scores"
        raise ClientError(of_tokens[0], fact)
    if (pairs := await offloaded(partial(_pairs, body))) is None:
        return await _label_scores(service, request, rid, model, body)
    return await _pair_scores(service, request, rid, model, JudgedPairs(rid, None, body.use_activation), pairs)


async def _label_scores(
    service: Service, request: web.Request, rid: str, model: str, body: ScoreBody
) -> web.StreamResponse:
    given = {name: getattr(body, name) for name in BY_TOKENS}
    for name in REQUIRED:
        if given[name] is None:
            raise ClientError(name, f"is None, must be set: {', '.join(REQUIRED)} go together")
    fields = await offloaded(partial(convert, given, numbers.ScoreFields))
    prompts.check_prompts("items", fields.items)
    pairs = [fields.items] if isinstance(fields.items, str) else fields.items
    joined = len(pairs) * given_bytes(fields.query) + sum(map(given_bytes, pairs))
    check_bytes("items", joined, "each goes with query: send fewer, or a shorter query")
    items = await offloaded(partial(numbers.read_pairs, rid, fields, service.client.limits))
    check_numbers("items", len(items), len(fields.label_token_ids) + 1)
    done = await run_all(service, items)
    each = NUMBERS_OF_A_SEQUENCE + NUMBERS_OF_A_SCORE * len(fields.label_token_ids)
    scores = long_list(lambda i: numbers.label_scores(done[i], fields.apply_softmax), len(done), each)
    return await respond_in_turn(request, replies.LabelScores(model=model, scores=scores, usage=usage_of(done)))


async def _pair_scores(
    service: Service, request: web.Request, rid: str, model: str, asked: JudgedPairs, pairs: list[Pair]
) -> web.StreamResponse:
    """A model that is made to generate is compared by its embeddings here, as vLLM compares it."""
    usual = usual_method(service)
    worths, done = await judged(service, asked, "embed" if usual == "generate" else usual, pairs)
    data = long_list(lambda i: replies.PairScore(index=i, score=worths[i]), len(worths), NUMBERS_OF_A_SCORE)
    reply = replies.PairScores(id=rid, created=int(time.time()), model=model, data=data, usage=usage_of(done))
    return await respond_in_turn(request, reply)


def _pairs(body: ScoreBody) -> list[Pair] | None:
    """One with each, or each with its own; None for a body that names no pairs. Raises ClientError."""
    first, second = _named(body, FIRST), _named(body, SECOND)
    if first is None and second is None:
        return None
    if first is None or second is None:
        missing, other = (FIRST, second) if first is None else (SECOND, first)
        raise ClientError(missing[0], f"is absent, but {other} is set: both make a pair")
    num, most = _num(body, first), _num(body, second)
    if num not in (1, most):
        raise ClientError(first, f"has {num} texts, must have 1 or as many as {second}, {most}")
    prompts.check_count(second, most)
    queries, documents = _placed(body, first) * (most // num), _placed(body, second)
    check_bytes(second, sum(len(text) for _, text in queries + documents), "send fewer, or shorter texts")
    return [Pair(query, document, at, place) for (at, query), (place, document) in zip(queries, documents, strict=True)]


def _named(body: ScoreBody, names: tuple[str, ...]) -> str | None:
    """Which of these names the client has used. Raises ClientError for several."""
    given = _given(body, names)
    if len(given) > 1:
        raise ClientError(given[1], f"and {given[0]}: exactly one of them must be set")
    return given[0] if given else None


def _given(body: ScoreBody, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(body, name) is not None]


def _num(body: ScoreBody, name: str) -> int:
    """How many texts a field has."""
    given = getattr(body, name)
    return len(given) if isinstance(given, list) else 1


def _placed(body: ScoreBody, name: str) -> list[tuple[str, str]]:
    given = getattr(body, name)
    return prompts.placed(name, given, isinstance(given, list))


async def rerank(service: Service, request: web.Request) -> web.Response:
    """Documents sorted by how well they fit a query."""
    body = await read_body(request, RerankBody)
    model = check_model(service, body.model)
    prompts.check_count("documents", len(body.documents))
    documents = [each if isinstance(each, str) else each.text for each in body.documents]
    each = len(body.query) + len(body.instruct or "")
    total = len(documents) * each + sum(map(len, documents))
    check_bytes("documents", total, "each goes with query: send fewer, or a shorter query")
    rid = set_request_id(request, f"rerank-{prompts.new_id()}", body.rid or body.request_id)
    pairs = [Pair(body.query, document, "query", f"documents[{i}]") for i, document in enumerate(documents)]
    asked = JudgedPairs(rid, body.instruct, body.use_activation)
    worths, done = await judged(service, asked, body.method or usual_method(service), pairs)
    best = sorted(range(len(documents)), key=lambda i: (-worths[i], i))[: body.top_n]
    with_texts = body.return_documents is not False
    results = [replies.Ranked(i, worths[i], replies.RankedText(documents[i]) if with_texts else UNSET) for i in best]
    return respond(replies.RerankReply(id=rid, model=model, results=results, usage=usage_of(done)))
