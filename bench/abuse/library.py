"""The time of the tokenizers library alone, for texts that a server tokenises. No server is involved.

A shape may cost a server much only because the library takes long for its text. Its own time, measured in this process
and in the same run, says how much of a figure that is.
"""

import time
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from tokenizers import Tokenizer

from ramet.bench.abuse.bodies import Body

FIELDS = ("text", "prompt", "input", "documents", "choices")  # of bodies, which have texts for the tokenizer
MAX_BYTES = 1 << 20  # of texts that are tokenised for one figure


def texts_of(body: Body) -> list[str]:
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


def seconds_per_body(folder: Path, body: Body) -> float:
    """CPU seconds of the library for all texts of the body, by those of its first MiB."""
    texts = texts_of(body)
    total, used, done = sum(map(len, texts)), 0.0, 0
    _tokenizer(folder)  # is read first, which does not count
    for text in texts:
        part = text[: MAX_BYTES - done]
        start = time.process_time()
        _tokenizer(folder).encode(part)
        used += time.process_time() - start
        done += len(part)
        if done >= MAX_BYTES:
            break
    return used * total / done if done else 0.0


@cache
def _tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
