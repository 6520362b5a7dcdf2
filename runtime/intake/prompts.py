"""Prompts as clients write them, checked without a tokenizer; their length is checked where text becomes ids."""

import math
import os
from array import array
from typing import Any, TypeVar

from ramet.ipc.content import Content
from ramet.ipc.messages import Limits
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.limits import MAX_EMBED, MAX_SEQUENCES
from ramet.runtime.text.context import MAX_CALL_IDS, longer_than_context

T = TypeVar("T")
R = TypeVar("R")
Placed = tuple[str, Content]  # the place of a prompt, and what it is


def placed(place: str, given: Any, is_list: bool) -> list[tuple[str, Any]]:
    """What stands in a field, each item of a list with its own place."""
    return [(f"{place}[{i}]", item) for i, item in enumerate(given)] if is_list else [(place, given)]


def is_batch(given: Any) -> bool:
    """Whether a text, token ids, or a list of either is such a list."""
    return isinstance(given, list) and not isinstance(given[0], int)


def num_prompts(given: Any) -> int:
    """The number of prompts in a text, token ids, or a list of either."""
    return len(given) if given and is_batch(given) else 1


def read_contents(
    place: str, given: Any, limits: Limits, hint: str = "", new: int | None = None
) -> tuple[list[Placed], bool]:
    """The content of each prompt, and whether the client sent a list of them. The first one says what all must be.

    given: a text, token ids, or a list of either, not empty. `hint`: for ids outside the vocabulary. `new`: as in
    `check_context`.
    """
    batch = is_batch(given)
    items = given if batch else [given]
    kind, words = (str, "a string") if isinstance(items[0], str) else (list, "a list of token ids")

    def measured(i: int) -> tuple[str, Any]:
        at, item = f"{place}[{i}]" if batch else place, items[i]
        if not isinstance(item, kind):
            raise ClientError(at, f"is {shown(item)}, must be {words}, as the first one is")
        if kind is list:  # all are measured before any of them is looked at
            check_context(at, len(item), limits, new)
        return at, item

    each = [measured(i) for i in range(len(items))]
    if kind is str:
        return [(at, Content(text)) for at, text in each], batch
    return [(at, Content(ids=pack_checked(at, ids, limits.vocab_size, hint))) for at, ids in each], batch


def check_context(place: str, tokens: int, limits: Limits, new: int | None = None) -> None:
    """`new`: how many tokens of the context the output needs, 0 or 1; None: the tokenizer process checks it."""
    if tokens > limits.context_length - (new or 0):
        raise longer_than_context(place, f"{tokens} tokens", limits.context_length, new)


def pack_checked(place: str, ids: list[Any], vocab_size: int, hint: str = "") -> bytes:
    """A list of token ids as packed int32. `ids`: of JSON, so no number that is not an int counts as one."""
    if not ids:
        return b""
    try:
        packed = array("I", ids)  # an OverflowError for what is negative
        if max(ids) < vocab_size:
            return packed.tobytes()
    except (TypeError, OverflowError):
        pass  # what is wrong is looked for below
    at = next(i for i, token in enumerate(ids) if type(token) is not int or not 0 <= token < vocab_size)
    hint = hint if type(ids[at]) is int else ""
    raise ClientError(f"{place}[{at}]", f"is {shown(ids[at])}, must be a token id in [0, {vocab_size})", hint)


def pack_to_decode(place: str, ids: Any, vocab_size: int) -> bytes:
    """Ids of a text, which no context bounds, as packed int32."""
    if not isinstance(ids, list):
        raise ClientError(place, f"is {shown(ids)}, must be a list of token ids, as the first one is")
    check_most(place, "ids", len(ids), MAX_CALL_IDS)
    return pack_checked(place, ids, vocab_size)


def pack_embeds(place: str, rows: list[list[float]], limits: Limits) -> bytes:
    """A list of embeddings, one for each token, as packed float32."""
    hidden_size = limits.hidden_size
    if not hidden_size:
        raise ClientError(place, "is set, but what runs here has no embeddings")
    if not limits.takes_embeds:
        raise ClientError(place, "is set, but layers of this model have embeddings of their own, which need token ids")
    if not rows:
        raise ClientError(place, "is [], must not be empty: at least one entry")
    check_context(place, len(rows), limits)
    packed = array("f")
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != hidden_size:
            fact = f"{len(row)} numbers" if isinstance(row, list) else shown(row)
            raise ClientError(f"{place}[{i}]", f"is {fact}, must be a list of {hidden_size} numbers")
        try:
            packed += array("f", row)
        except TypeError:
            raise ClientError(f"{place}[{i}]", "holds something that is not a number") from None
        if not (min(row) >= -MAX_EMBED and max(row) <= MAX_EMBED) or math.isnan(sum(row)):
            raise ClientError(f"{place}[{i}]", f"holds a number outside [-{MAX_EMBED:g}, {MAX_EMBED:g}]")
    return packed.tobytes()


def check_most(place: str, unit: str, number: int, most: int, hint: str = "") -> None:
    if number > most:
        raise ClientError(place, f"has {number} {unit}, must have at most {most}", hint)


def check_prompts(place: str, given: Any) -> None:
    """`given`: a prompt or a list of them. Called before any of them is looked at."""
    if is_batch(given):
        check_count(place, len(given))


def check_count(place: str, samples: int) -> None:
    """`samples`: over all prompts together."""
    if samples > MAX_SEQUENCES:
        raise ClientError(place, f"asks for {samples} sequences (prompts times n), must be at most {MAX_SEQUENCES}")


def check_length(place: str, length: int, count: int, batch: bool) -> None:
    """Check a list that gives one value per prompt. Raises ClientError."""
    if not batch:
        raise ClientError(place, "is a list, must be one value for one prompt")
    if length != count:
        raise ClientError(place, f"has {length} entries, must have one for each of the {count} prompts")


def new_id() -> str:
    return os.urandom(16).hex()
