"""How likely each of a few tokens comes next: which prompts the engine gets, and the arithmetic on what comes back.

Decides how query and items become prompts, and what a score is: the model's own probability, at temperature 1 and
without penalties, whatever defaults the model or the server has.
"""

import math
from collections.abc import Sequence as Many
from typing import Annotated

from msgspec import Meta, Struct

from ramet.ipc.params import SamplingParams, about
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.submission import Prompt
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.fields import Ids, PromptId, Text
from ramet.runtime.intake.limits import MAX_IDS
from ramet.runtime.intake.prompts import check_count, pack_checked, read_contents
from ramet.runtime.logprobs import LogprobLists

# Greedy: its log-probabilities are those of T = 1, and nothing but the model's logits goes into them.
NEXT_TOKEN = SamplingParams(max_new_tokens=1, temperature=0.0)


class ScoreFields(Struct, frozen=True, kw_only=True):
    """Which of a few tokens follows."""

    query: Annotated[Text | Ids, about("what all prompts begin with: a text, or token ids")]
    items: Annotated[
        Text | Annotated[list[Text | Ids], Meta(min_length=1)],
        about("what follows it in each prompt: texts, or token ids as query is"),
    ]
    label_token_ids: Annotated[
        Annotated[list[PromptId], Meta(min_length=1, max_length=MAX_IDS)],
        about("the tokens whose probability is asked for"),
    ]
    apply_softmax: Annotated[bool | None, about("scores of an item add up to 1")] = None
    item_first: Annotated[bool | None, about("the query follows the item")] = None


def read_pairs(rid: str, fields: ScoreFields, vocab_size: int) -> list[Prompt]:
    """One prompt for each item. Texts are joined as texts and ids as ids: tokens may span the seam of texts."""
    labels = fields.label_token_ids
    pack_checked("label_token_ids", labels, vocab_size)
    spec = RequestSpec(NEXT_TOKEN, LogprobSpec(ids=tuple(labels)))
    [(_, query)], _ = read_contents("query", fields.query, vocab_size)
    items, _ = read_contents("items", fields.items, vocab_size)
    check_count("items", len(items))
    pairs = []
    for place, item in items:
        match (item, query) if fields.item_first else (query, item):
            case (str() as first, str() as second):
                pairs.append(Prompt(rid, spec, text=first + second, place=place))
            case (bytes() as first, bytes() as second):
                pairs.append(Prompt(rid, spec, ids=first + second, place=place))
            case _:
                wanted = "a string" if isinstance(query, str) else "a list of token ids"
                raise ClientError(place, f"must be {wanted}, as query is")
    return pairs


def label_scores(fields: ScoreFields, logprobs: LogprobLists | None) -> list[float]:
    """Of the labels of one item, in their order."""
    return (shares if fields.apply_softmax else probabilities)(next_logprobs(logprobs))


def next_logprobs(logprobs: LogprobLists | None) -> list[float]:
    """Of the tokens that were asked about, in their order."""
    assert logprobs is not None, "a prompt to score asks for log-probabilities"
    (place,) = logprobs.output
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
