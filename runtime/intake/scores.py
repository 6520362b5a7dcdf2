"""How likely each of a few tokens comes next: which prompts the engine gets, and the arithmetic on what comes back.

Decides how query and items become prompts, and what a score is: the model's own probability, at temperature 1 and
without penalties, whatever defaults the model or the server has.
"""

import math
from collections.abc import Sequence as Many
from typing import Any

from ramet.ipc.params import SamplingParams, shown
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.submission import Prompt
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.limits import MOST_IDS
from ramet.runtime.logprobs import LogprobLists

# Greedy: its log-probabilities are those of T = 1, and nothing but the model's logits goes into them.
NEXT_TOKEN = SamplingParams(max_new_tokens=1, temperature=0.0)


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


def _read_labels(ids: list[int], vocab_size: int) -> tuple[int, ...]:
    if len(ids) > MOST_IDS:
        raise ClientError("label_token_ids", f"has {len(ids)} entries, must have at most {MOST_IDS}")
    prompts.pack_checked("label_token_ids", ids, vocab_size)
    return tuple(ids)


def read_pairs(rid: str, query: Any, items: Any, labels: list[int], item_first: bool, vocab_size: int) -> list[Prompt]:
    """One prompt for each item, in order. `labels`: the tokens whose probabilities are asked for."""
    spec = RequestSpec(NEXT_TOKEN, LogprobSpec(ids=_read_labels(labels, vocab_size)))
    if isinstance(query, str):
        prompts.check_text("query", query)
    else:
        prompts.pack_checked("query", query, vocab_size)
    if isinstance(items, str):
        return [_pair(rid, "items", spec, query, items, item_first, vocab_size)]
    if not isinstance(items, list):
        raise ClientError("items", f"is {shown(items)}, must be a text, a list of texts, or lists of token ids")
    prompts.check_count("items", len(items), len(items))
    return [_pair(rid, f"items[{i}]", spec, query, item, item_first, vocab_size) for i, item in enumerate(items)]


def label_scores(logprobs: LogprobLists | None, apply_softmax: bool) -> list[float]:
    """Of the labels of one item, in their order. `apply_softmax`: they add up to 1."""
    return (shares if apply_softmax else probabilities)(next_logprobs(logprobs))


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
