"""Prompts as clients write them -> prompts of the engine. Shared by /generate and the OpenAI endpoints.

Decides what a valid prompt looks like without a tokenizer: types, emptiness, ids inside the vocabulary, and how many
sequences one request may ask for. Length against the context is checked where text becomes ids.
"""

import os
import re
from array import array
from collections.abc import Mapping
from collections.abc import Sequence as Many
from typing import Any

from ramet.ipc.messages import pack_ids
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.limits import MAX_RID_CHARS, MOST_EMBED, RID

_RID = re.compile(RID)
MAX_SEQUENCES = 16_384  # prompts times samples of one request


def check_text(place: str, text: Any) -> str:
    if not isinstance(text, str):
        raise ClientError(place, f"is {shown(text)}, must be a string")
    if not text:
        raise ClientError(place, "is '', must not be empty")
    return text


def pack_checked(place: str, ids: Any, vocab_size: int) -> bytes:
    """A list of token ids as packed int32."""
    if not isinstance(ids, list):
        raise ClientError(place, f"is {shown(ids)}, must be a list of token ids")
    if not ids:
        raise ClientError(place, "is [], must not be empty")
    if set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) >= vocab_size:
        at = next(i for i, token in enumerate(ids) if type(token) is not int or not 0 <= token < vocab_size)
        raise ClientError(f"{place}[{at}]", f"is {shown(ids[at])}, must be a token id in [0, {vocab_size})")
    return pack_ids(ids)


def pack_embeds(place: str, rows: Any, hidden_size: int) -> bytes:
    """A list of embeddings, one for each token, as packed float32."""
    if not hidden_size:
        raise ClientError(place, "is set, but what runs here has no embeddings")
    if not isinstance(rows, list) or not rows:
        raise ClientError(place, f"is {shown(rows)}, must be a list of embeddings, one for each token")
    packed = array("f")
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != hidden_size:
            fact = f"{len(row)} numbers" if isinstance(row, list) else shown(row)
            raise ClientError(f"{place}[{i}]", f"is {fact}, must be a list of {hidden_size} numbers")
        if not set(map(type, row)) <= {int, float}:
            raise ClientError(f"{place}[{i}]", "holds something that is no number")
        if not max(map(abs, row)) <= MOST_EMBED:
            raise ClientError(f"{place}[{i}]", f"holds a number outside [-{MOST_EMBED:g}, {MOST_EMBED:g}]")
        packed.extend(row)
    return packed.tobytes()


def is_batch_of_embeds(value: list[Any]) -> bool:
    """A list of prompts, as opposed to one list of embeddings."""
    return bool(value) and isinstance(value[0], list) and bool(value[0]) and isinstance(value[0][0], list)


def is_batch_of_ids(value: list[Any]) -> bool:
    """A list of lists, as opposed to one list of ids."""
    return bool(value) and isinstance(value[0], list)


def check_count(place: str, prompts: int, samples: int) -> None:
    """`samples`: over all prompts together."""
    if prompts == 0:
        raise ClientError(place, "is [], must hold at least one prompt")
    if samples > MAX_SEQUENCES:
        raise ClientError(place, f"asks for {samples} sequences (prompts times n), must be at most {MAX_SEQUENCES}")


def check_length(place: str, length: int, count: int, batch: bool) -> None:
    """Of a list that gives one value per prompt."""
    if not batch:
        raise ClientError(place, "is a list, must be one value for one prompt")
    if length != count:
        raise ClientError(place, f"has {length} entries, must have one for each of the {count} prompts")


def check_rid(place: str, rid: str) -> str:
    if not 0 < len(rid) <= MAX_RID_CHARS:
        raise ClientError(place, f"is {shown(rid)}, must have 1 to {MAX_RID_CHARS} characters")
    if not _RID.fullmatch(rid):
        raise ClientError(place, f"is {shown(rid)}, must have no line breaks and other control characters")
    return rid


def new_id() -> str:
    return os.urandom(16).hex()


def refuse_unbuilt(given: Mapping[str, Any], neutral: Mapping[str, Many[Any]]) -> None:
    """A known field whose feature is not built: any value that asks for something is refused, never ignored."""
    for name, nothing in neutral.items():
        value = given[name]
        items = value if isinstance(value, list) else [value]
        if len(items) > MAX_SEQUENCES:
            raise ClientError(name, f"has {len(items)} entries, must have at most {MAX_SEQUENCES}")
        if not all(item is None or _same(item, nothing) for item in items):
            raise ClientError(name, f"is {shown(value)}, but this feature is not built yet", "omit it")


def _same(item: Any, nothing: Many[Any]) -> bool:
    """0 and false are equal to Python, but not to a client."""
    return any(type(item) is type(each) and item == each for each in nothing)
