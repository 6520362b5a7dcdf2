"""Log-probabilities in the shapes of OpenAI's completions. Decides names only; the figures come from scores.py."""

import asyncio
from collections.abc import Sequence as Many
from typing import Any

import orjson

from ramet.ipc.spec import LogprobSpec
from ramet.runtime.intake.reading import MAX_AT_ONCE
from ramet.runtime.logprobs import LogprobLists, Place, Triple


def read_logprobs(logprobs: int | bool | None, echo: bool) -> LogprobSpec | None:
    """`logprobs` is how many of the best tokens are told at each place; with `echo` the prompt's places as well."""
    if logprobs is None or logprobs is False:
        return None
    return LogprobSpec(0 if echo else None, int(logprobs), texts=True)


class CompletionLogprobs:
    """One choice's places so far: `text_offset` counts characters from the start of its text."""

    def __init__(self) -> None:
        self._offset = 0

    def take(self, places: Many[Place]) -> dict[str, Any]:
        """The next places, as one object of parallel lists."""
        tokens = [text or "" for _, _, text in (place.token for place in places)]
        offsets = []
        for place, token in zip(places, tokens, strict=True):
            held = max(0, place.length - len(token))  # characters of tokens before it, which only now are certain
            offsets.append(self._offset + held)
            self._offset += place.length
        return {
            "tokens": tokens,
            "token_logprobs": [place.token[0] for place in places],
            "top_logprobs": [_by_text(place) for place in places],
            "text_offset": offsets,
        }


def _by_text(place: Place) -> dict[str, float] | None:
    """The best tokens and the place's own; of tokens with one text the likelier counts."""
    if place.top is None:
        return None
    found: dict[str, float] = {}
    for value, _, text in sorted((*place.top, place.token), key=lambda triple: -(triple[0] or 0.0)):
        assert value is not None
        found.setdefault(text or "", value)
    return found


async def whole_chat_logprobs(scores: LogprobLists) -> dict[str, Any]:
    """All of the output's places, as JSON already; others are served in between."""
    written = []
    for start in range(0, len(scores.output), MAX_AT_ONCE):
        written.append(orjson.dumps(chat_logprobs(scores, start, start + MAX_AT_ONCE)["content"])[1:-1])
        await asyncio.sleep(0)
    return {"content": orjson.Fragment(b"[" + b",".join(written) + b"]"), "refusal": None}


def chat_logprobs(scores: LogprobLists, start: int, end: int | None = None) -> dict[str, Any]:
    """The output's places from `start` on in the shape of OpenAI's chat completions."""
    content = [
        {**_told(place.token, scores), "top_logprobs": [_told(top, scores) for top in place.top or ()]}
        for place in scores.output[start:end]
    ]
    return {"content": content, "refusal": None}


def _told(triple: Triple, scores: LogprobLists) -> dict[str, Any]:
    value, token, text = triple
    spelled = scores.raw.get(token, (text or "").encode())
    return {"token": text or "", "logprob": value, "bytes": list(spelled)}
