"""Checks of a request that need the vocabulary or the pattern compiler. Knows no prompt text."""

from collections.abc import Sequence

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.text.pattern import MAX_STATES, PatternError, build_automaton


def check_ids(place: str, ids: Sequence[int], vocab_size: int) -> None:
    """Raises ClientError for the first id outside [0, vocab_size)."""
    if not ids or (min(ids) >= 0 and max(ids) < vocab_size):
        return
    index = next(i for i, token in enumerate(ids) if not 0 <= token < vocab_size)
    raise ClientError(f"{place}[{index}]", f"is {ids[index]}, must be a token id in [0, {vocab_size})")


def check_stop_patterns(patterns: Sequence[str]) -> None:
    """Raises ClientError for the first pattern that is not served, or that makes all of them together too large."""
    states = 0
    for index, pattern in enumerate(patterns):
        place = f"sampling_params.stop_regex[{index}]"
        try:
            states += build_automaton(pattern).size
        except PatternError as error:
            raise ClientError(place, f"is {shown(pattern)}, which {error}") from error
        if states > MAX_STATES:
            fact = f"brings all patterns to {states} states, must be at most {MAX_STATES} together"
            raise ClientError(place, fact, hint="lower the counted repeats")
