"""Prompts as clients write them, checked without a tokenizer; their length is checked where text becomes ids."""

import os
from array import array
from typing import Any

from ramet.ipc.messages import pack_ids
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.limits import MAX_EMBED, MAX_SEQUENCES

Content = tuple[str, dict[str, Any]]  # the place of a prompt, and its text, ids or embeds as a field of Prompt


def placed(place: str, given: Any, is_list: bool) -> list[tuple[str, Any]]:
    """What stands in a field, each item of a list with its own place."""
    return [(f"{place}[{i}]", item) for i, item in enumerate(given)] if is_list else [(place, given)]


def read_contents(place: str, given: Any, vocab_size: int, hint: str = "") -> tuple[list[Content], bool]:
    """Of each prompt, and whether the client sent a list of them. The first one says what all must be.

    given: a text, token ids, or a list of either, not empty. `hint`: for ids outside the vocabulary.
    """
    batch = isinstance(given, list) and not isinstance(given[0], int)
    each = placed(place, given, batch)
    kind, words = (str, "a string") if isinstance(each[0][1], str) else (list, "a list of token ids")
    for at, item in each:
        if not isinstance(item, kind):
            raise ClientError(at, f"is {shown(item)}, must be {words}, as the first one is")
    if kind is str:
        return [(at, {"text": text}) for at, text in each], batch
    return [(at, {"ids": pack_checked(at, ids, vocab_size, hint)}) for at, ids in each], batch


def pack_checked(place: str, ids: list[Any], vocab_size: int, hint: str = "") -> bytes:
    """A list of token ids as packed int32."""
    if not ids:
        return b""
    if set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) >= vocab_size:
        at = next(i for i, token in enumerate(ids) if type(token) is not int or not 0 <= token < vocab_size)
        hint = hint if type(ids[at]) is int else ""
        raise ClientError(f"{place}[{at}]", f"is {shown(ids[at])}, must be a token id in [0, {vocab_size})", hint)
    return pack_ids(ids)


def pack_embeds(place: str, rows: list[list[float]], hidden_size: int) -> bytes:
    """A list of embeddings, one for each token, as packed float32."""
    if not hidden_size:
        raise ClientError(place, "is set, but what runs here has no embeddings")
    if not rows:
        raise ClientError(place, "is [], must not be empty: at least one entry")
    packed = array("f")
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != hidden_size:
            fact = f"{len(row)} numbers" if isinstance(row, list) else shown(row)
            raise ClientError(f"{place}[{i}]", f"is {fact}, must be a list of {hidden_size} numbers")
        try:
            packed.extend(row)
        except TypeError:
            raise ClientError(f"{place}[{i}]", "holds something that is no number") from None
        if not max(map(abs, row)) <= MAX_EMBED:
            raise ClientError(f"{place}[{i}]", f"holds a number outside [-{MAX_EMBED:g}, {MAX_EMBED:g}]")
    return packed.tobytes()


def check_most(place: str, unit: str, number: int, most: int) -> None:
    if number > most:
        raise ClientError(place, f"has {number} {unit}, must have at most {most}")


def check_count(place: str, samples: int) -> None:
    """`samples`: over all prompts together."""
    if samples > MAX_SEQUENCES:
        raise ClientError(place, f"asks for {samples} sequences (prompts times n), must be at most {MAX_SEQUENCES}")


def check_length(place: str, length: int, count: int, batch: bool) -> None:
    """Of a list that gives one value per prompt."""
    if not batch:
        raise ClientError(place, "is a list, must be one value for one prompt")
    if length != count:
        raise ClientError(place, f"has {length} entries, must have one for each of the {count} prompts")


def new_id() -> str:
    return os.urandom(16).hex()
