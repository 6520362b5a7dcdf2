"""Log-probabilities in the shapes of OpenAI's endpoints. The numbers come from runtime/logprobs.py."""

import asyncio
from collections.abc import Sequence as Many

from ramet.ipc.spec import LogprobSpec
from ramet.runtime.intake.reading import MAX_AT_ONCE
from ramet.runtime.logprobs import LogprobLists, Place, Triple
from ramet.runtime.server.http.exchange import encode, written
from ramet.runtime.server.openai.replies import CompletionLogprobs, TokenLogprob, TopLogprob


def read_logprobs(logprobs: int | bool | None, echo: bool) -> LogprobSpec | None:
    """`logprobs` is how many of the best tokens come with each place; with `echo` the prompt's places as well."""
    if logprobs is None or logprobs is False:
        return None
    return LogprobSpec(0 if echo else None, int(logprobs), texts=True)


class CompletionPlaces:
    """One choice's places so far: `text_offset` counts characters from the start of its text."""

    def __init__(self) -> None:
        self._offset = 0

    def take(self, places: Many[Place]) -> CompletionLogprobs:
        """The next places, as one object of parallel lists."""
        tokens = [place.token[2] or "" for place in places]
        offsets = []
        for place, token in zip(places, tokens, strict=True):
            held = max(0, place.length - len(token))  # characters of tokens before it, which only now are certain
            offsets.append(self._offset + held)
            self._offset += place.length
        values = [place.token[0] for place in places]
        return CompletionLogprobs(tokens, values, [_by_text(place) for place in places], offsets)


def _by_text(place: Place) -> dict[str, float] | None:
    """The best tokens and the place's own; of tokens with one text the likelier counts."""
    if place.top is None:
        return None
    found: dict[str, float] = {}
    for value, _, text in sorted((*place.top, place.token), key=lambda triple: -(triple[0] or 0.0)):
        assert value is not None
        found.setdefault(text or "", value)
    return found


async def all_token_logprobs(lists: LogprobLists) -> list[TokenLogprob]:
    """Of the whole output, encoded already; others are served in between."""
    encoded = []
    for start in range(0, len(lists.output), MAX_AT_ONCE):
        encoded.append(encode(token_logprobs(lists, start, start + MAX_AT_ONCE))[1:-1])
        await asyncio.sleep(0)
    whole: list[TokenLogprob] = written(b"[" + b",".join(encoded) + b"]")
    return whole


def token_logprobs(lists: LogprobLists, start: int, end: int) -> list[TokenLogprob]:
    """Of the output's places in [start, end)."""
    return [
        TokenLogprob(*_spelled(place.token, lists), [TopLogprob(*_spelled(top, lists)) for top in place.top or ()])
        for place in lists.output[start:end]
    ]


def _spelled(triple: Triple, lists: LogprobLists) -> tuple[str, float, list[int]]:
    """The text, the log-probability and the bytes."""
    value, token, text = triple
    assert value is not None
    return text or "", value, list(lists.raw.get(token, (text or "").encode()))
