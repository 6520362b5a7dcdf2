"""Scores: how likely a few tokens are to follow. Which prompts the engine gets, and the arithmetic on what comes back.

A score is the model's own probability, at temperature 1 and without penalties, whatever defaults the model or the
server has.
"""

import math
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from ramet.ipc.content import Content
from ramet.ipc.messages import Limits
from ramet.ipc.params import SamplingParams, about, shown
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.places import FieldPlaces
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.fields import Ids, PromptId, Some, Text
from ramet.runtime.intake.limits import MAX_IDS
from ramet.runtime.intake.prompts import check_prompts, pack_checked, read_contents

# Greedy: its log-probabilities are those of T = 1, and nothing but the model's logits goes into them.
NEXT_TOKEN = SamplingParams(max_new_tokens=1, temperature=0.0)
LabelIds = Annotated[list[PromptId], Meta(min_length=1, max_length=MAX_IDS)]
Query: TypeAlias = Text | Ids
Items: TypeAlias = Text | Some[Text | Ids]
QUERY = about("what all prompts begin with: a text, or token ids")
ITEMS = about("what follows it in each prompt: texts, or token ids as query is")
LABEL_IDS = about("the tokens whose probability is asked for")


class ScoreFields(Struct, frozen=True, kw_only=True):
    """Which of a few tokens follows."""

    query: Annotated[Query, QUERY]
    items: Annotated[Items, ITEMS]
    label_token_ids: Annotated[LabelIds, LABEL_IDS]
    apply_softmax: Annotated[bool | None, about("scores of an item add up to 1")] = None
    item_first: Annotated[bool | None, about("the query follows the item")] = None


def read_pairs(rid: str, fields: ScoreFields, limits: Limits) -> list[Prompt]:
    """One prompt for each item. Texts are joined as texts and ids as ids: tokens may span the seam of texts."""
    check_prompts("items", fields.items)
    labels = fields.label_token_ids
    pack_checked("label_token_ids", labels, limits.vocab_size)
    spec = RequestSpec(NEXT_TOKEN, LogprobSpec(ids=tuple(labels)))
    [(_, query)], _ = read_contents("query", fields.query, limits, new=1)
    items, several = read_contents("items", fields.items, limits, new=1)
    pairs = []
    for (place, item), given in zip(items, fields.items if several else [fields.items], strict=True):
        if (item.text is None) != (query.text is None):
            wanted = "a string" if query.text is not None else "a list of token ids"
            raise ClientError(place, f"is {shown(given)}, must be {wanted}, as query is")
        first, second = (item, query) if fields.item_first else (query, item)
        pairs.append(Prompt(rid, spec, _joined(first, second), places=FieldPlaces(place)))
    return pairs


def _joined(first: Content, second: Content) -> Content:
    """Two texts, or the ids of two."""
    if first.text is not None and second.text is not None:
        return Content(first.text + second.text)
    assert first.ids is not None and second.ids is not None
    return Content(ids=first.ids + second.ids)


def label_scores(sequence: GeneratedSequence, softmax: bool | None) -> list[float]:
    """Of the tokens that an ended prompt asked about, in their order. With `softmax` they add up to 1."""
    assert sequence.logprobs is not None, "a prompt to score asks for log-probabilities"
    (place,) = sequence.logprobs.output
    assert place.chosen is not None
    values = [-math.inf if value is None else value for value, _, _ in place.chosen]
    best = max(values) if softmax else 0.0
    weights = [math.exp(value - best) for value in values]
    total = sum(weights) if softmax else 1.0
    return [weight / total for weight in weights]
