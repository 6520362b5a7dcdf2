"""The prompt's log-probabilities in vLLM's shape: for each token an object from token id to what is known of it."""

import asyncio
from collections.abc import Sequence as Many

from ramet.runtime.logprobs import LogprobLists, Place
from ramet.runtime.reply import Reply
from ramet.runtime.server.http.exchange import encode, written

MOST_AT_ONCE = 4096  # log-probabilities that are encoded before others are served


class PromptLogprob(Reply, frozen=True):
    """`rank`: 1 is the likeliest token's; null for the prompt's own token where it is not among the best."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptPlace = dict[str, PromptLogprob] | None  # null for the first token, which nothing comes before
PromptPlaces = list[PromptPlace]


async def prompt_places(lists: LogprobLists, num_top: int) -> PromptPlaces:
    """Encoded already; others are served in between. `num_top`: so many of the best at each place."""
    step, encoded = max(1, MOST_AT_ONCE // (num_top + 1)), list[bytes]()
    for start in range(0, len(lists.prompt), step):
        encoded.append(encode(_places(lists.prompt[start : start + step], num_top))[1:-1])
        await asyncio.sleep(0)
    whole: PromptPlaces = written(b"[" + b",".join(encoded) + b"]")
    return whole


def _places(places: Many[Place], num_top: int) -> PromptPlaces:
    return [_place(place, num_top) for place in places]


def _place(place: Place, num_top: int) -> PromptPlace:
    """The prompt's own token first."""
    value, own, text = place.token
    if value is None:
        return None
    found = {str(own): PromptLogprob(value, None, text or "")}
    for rank, (logprob, token, best) in enumerate((place.top or ())[:num_top], 1):
        assert logprob is not None
        found[str(token)] = PromptLogprob(logprob, rank, best or "")
    return found
