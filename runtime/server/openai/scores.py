"""POST /v1/score: how likely each of a few tokens comes next.

Decides how query and items become prompts, and what a score is: the model's own probability, at temperature 1 and
without penalties, whatever defaults the model or the server has.
"""

import math
from collections.abc import Sequence as Many
from typing import Any

from aiohttp import web

from ramet.ipc.params import SamplingParams, shown
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence, check_numbers
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.limits import MOST_IDS
from ramet.runtime.server.http import problems, request_ids
from ramet.runtime.server.http.model_names import check_model
from ramet.runtime.server.http.request_body import read_object
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.pooling_types import ScoreBody
from ramet.runtime.server.openai.types import usage

# Greedy: its log-probabilities are those of T = 1, and nothing but the model's logits goes into them.
NEXT_TOKEN = SamplingParams(max_new_tokens=1, temperature=0.0)


async def score(service: Service, request: web.Request) -> web.Response:
    """The probability of each label token after query and item, for each item."""
    body = convert(await read_object(request), ScoreBody)
    model = check_model(service, body.model)
    rid = request_ids.of_request(request, f"score-{prompts.new_id()}", None)
    vocab_size = service.client.limits.vocab_size
    labels = read_labels(body.label_token_ids, vocab_size)
    items = read_pairs(rid, body, RequestSpec(NEXT_TOKEN, LogprobSpec(ids=labels)), vocab_size)
    check_numbers("items", len(items), len(labels) + 1)
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    of_labels = shares if body.apply_softmax else probabilities
    scores = [of_labels(next_logprobs(sequence)) for sequence in done]
    return problems.reply({"object": "scoring", "model": model, "scores": scores, "usage": usage(done)})


def next_logprobs(sequence: Sequence) -> list[float]:
    """Of the tokens that were asked about, in their order."""
    assert sequence.scores is not None, f"{sequence.uid} told no log-probabilities"
    (place,) = sequence.scores.output
    assert place.chosen is not None
    return [-math.inf if value is None else value for value, _, _ in place.chosen]


def probabilities(logprobs: Many[float]) -> list[float]:
    return [math.exp(value) for value in logprobs]


def shares(logprobs: Many[float]) -> list[float]:
    """They add up to 1."""
    best = max(logprobs)
    weights = [math.exp(value - best) for value in logprobs]
    total = sum(weights)
    return [weight / total for weight in weights]


def read_labels(ids: list[int], vocab_size: int) -> tuple[int, ...]:
    if len(ids) > MOST_IDS:
        raise ClientError("label_token_ids", f"has {len(ids)} entries, must have at most {MOST_IDS}")
    prompts.pack_checked("label_token_ids", ids, vocab_size)
    return tuple(ids)


def read_pairs(rid: str, body: ScoreBody, spec: RequestSpec, vocab_size: int) -> list[Prompt]:
    """One prompt for each item, in order."""
    if isinstance(body.query, str):
        prompts.check_text("query", body.query)
    else:
        prompts.pack_checked("query", body.query, vocab_size)
    if isinstance(body.items, str):
        return [_pair(rid, "items", spec, body.query, body.items, bool(body.item_first), vocab_size)]
    if not isinstance(body.items, list):
        raise ClientError("items", f"is {shown(body.items)}, must be a text, a list of texts, or lists of token ids")
    prompts.check_count("items", len(body.items), len(body.items))
    return [
        _pair(rid, f"items[{i}]", spec, body.query, item, bool(body.item_first), vocab_size)
        for i, item in enumerate(body.items)
    ]


def _pair(rid: str, place: str, spec: RequestSpec, query: Any, item: Any, item_first: bool, vocab_size: int) -> Prompt:
    """Texts are joined as texts and ids as ids: tokens may span the seam of texts."""
    if isinstance(query, str) and isinstance(item, str):
        texts = prompts.check_text("query", query), prompts.check_text(place, item)
        return Prompt(rid, spec, text="".join(texts[::-1] if item_first else texts), place=place)
    if isinstance(query, list) and isinstance(item, list):
        ids = prompts.pack_checked("query", query, vocab_size), prompts.pack_checked(place, item, vocab_size)
        return Prompt(rid, spec, ids=b"".join(ids[::-1] if item_first else ids), place=place)
    wanted = "a string" if isinstance(query, str) else "a list of token ids"
    raise ClientError(place, f"is {shown(item)}, must be {wanted}, as query is")
