"""The prompt's log-probabilities in vLLM's shape: for each token an object from token id to what is known of it."""

from functools import partial
from typing import Any

from ramet.runtime.intake.reply import Reply
from ramet.runtime.replies.logprobs import LogprobLists, Place, Places
from ramet.runtime.replies.long_list import listed


class PromptLogprob(Reply, frozen=True):
    """`rank`: 1 is the likeliest token's; null for the prompt's own token where it is not among the best."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptPlace = dict[str, PromptLogprob] | None  # null for the first token, which nothing comes before
PromptPlaces = list[PromptPlace]


def prompt_places(lists: LogprobLists, num_top: int) -> Any:
    """`num_top`: so many of the best at each place. Made in parts where they are many."""
    return listed(partial(_places, lists.prompt, num_top), 0, len(lists.prompt), num_top + 1)


def _places(places: Places, num_top: int, start: int, stop: int) -> PromptPlaces:
    return [_place(place, num_top) for place in places[start:stop]]


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
