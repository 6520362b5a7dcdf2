"""The time of the tokenizers library alone, for texts that a server tokenises. No server is involved.

A shape may cost a server much only because the library takes long for its text. Its own time, measured in this process
and in the same run, says how much of a figure that is.
"""

import re
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from tokenizers import Tokenizer

from ramet.bench.abuse.bodies import AbusiveBody

FIELDS = ("text", "prompt", "input", "documents", "choices")  # of bodies, which have texts for the tokenizer
MAX_BYTES = 1 << 20  # of texts that are tokenised for one figure
SELECT = "/language/select"
MAX_CHOICE_TOKENS = 1 << 17  # of all choices of a call: those behind are not tokenised
# what a refusal says of texts that were tokenised before it; that of one refused unread says "has more than"
_COUNTED = re.compile(r"has \d+ tokens|come to more than \d+ tokens")


def was_tokenised(statuses: Mapping[str, int], said: Mapping[str, str]) -> bool:
    """Whether a body of which this is how it was answered has been through the library, as far as the server got."""
    return any(status.startswith("2") or _COUNTED.search(said.get(status, "")) for status in statuses)


def texts_of(body: AbusiveBody) -> list[str]:
    """The texts that a server would tokenise if it took the body, or none if it has none."""
    try:
        written = orjson.loads(body.data)
    except orjson.JSONDecodeError:
        return []
    given: list[Any] = []
    for name in FIELDS if isinstance(written, dict) else ():
        value = written.get(name)
        given += value if isinstance(value, list) else [value]
    return [text for text in given if isinstance(text, str)]


def seconds_per_body(folder: Path, body: AbusiveBody) -> float:
    """CPU seconds of the library for the texts of the body that a server tokenises, by those of its first MiB."""
    texts = texts_of(body)
    total, used, done, num_tokens = sum(map(len, texts)), 0.0, 0, 0
    most = MAX_CHOICE_TOKENS if body.path == SELECT else None
    for text in texts:
        # the server refuses choices when those that are left have too many tokens, however few they may be
        if most is not None and num_tokens + (total - done) // _longest_entry(folder) > most:
            return used
        part = text[: MAX_BYTES - done]
        seconds, num = _timed(folder, part)
        used, num_tokens, done = used + seconds, num_tokens + num, done + len(part)
        if done >= MAX_BYTES:
            break
    return used * total / done if done else 0.0


def _timed(folder: Path, text: str) -> tuple[float, int]:
    """CPU seconds for one text, and how many tokens it has. The call is the server's, which keeps no offsets."""
    source = _tokenizer(folder)  # is read first, which does not count
    start = time.process_time()
    ids = source.encode_batch_fast([text])[0].ids
    return time.process_time() - start, len(ids)


@cache
def _tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@cache
def _longest_entry(folder: Path) -> int:
    """Bytes of the longest token of a byte-level vocabulary."""
    return max(map(len, _tokenizer(folder).get_vocab()))
