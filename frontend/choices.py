"""How `select` picks one of several texts.

A backend with scores (`Capabilities.select == "scored"`) gives the log-probability of each token of each choice; a
method makes one number of them, and the largest wins. The first of equals does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

token_length_normalized = "token_length_normalized"
greedy_token_selection = "greedy_token_selection"
unconditional_likelihood_normalized = "unconditional_likelihood_normalized"
exact_sequence = "exact_sequence"
METHODS = (token_length_normalized, greedy_token_selection, unconditional_likelihood_normalized, exact_sequence)


class ScoredChoice(NamedTuple):
    text: str
    logprob: float  # of all of its tokens together
    token_logprobs: Sequence[Any]  # (log-probability, id, text or None) of each


ChoicesMethod: TypeAlias = str | Callable[[Sequence[ScoredChoice]], int]  # one of METHODS, or what gives an index


def means(choices: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """By the names that SGLang's programs read: the tokens of each choice, and the mean of their log-probabilities.

    `choices`: as the meta_info of a select has them. A mean is None where a probability is 0, which JSON cannot say.
    """
    tokens = [choice["token_logprobs"] for choice in choices]
    logprobs = [[token[0] for token in each] for each in tokens]
    mean = [None if None in each else fmean(each) for each in logprobs]
    return {"input_token_logprobs": tokens, "normalized_prompt_logprobs": mean}


def check_method(method: Any) -> ChoicesMethod:
    """Raises ValueError."""
    if callable(method) or method in METHODS:
        return method  # type: ignore[no-any-return]
    raise ValueError(f"choices_method is {method!r}, must be one of {', '.join(METHODS)}, or a function")


def picked(method: Callable[[Sequence[ScoredChoice]], int], scored: Sequence[ScoredChoice]) -> int:
    """Raises ValueError for an index that no choice has."""
    index = method(scored)
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(scored):
        raise ValueError(f"the choice method gave {index!r}, must be an index in [0, {len(scored)})")
    return index
