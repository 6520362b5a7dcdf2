"""Log-probabilities and hidden states as clients see them, collected while a sequence grows.

A log-probability is a triple [logprob, id, text or null].

Decides the lists of meta_info and what stands where nothing is known (null). Knows no transport. Used by the HTTP
server and by the in-process LLM, so that both answer alike.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from operator import add
from typing import Any, NamedTuple

from ramet.ipc.messages import HiddenStates, Logprobs, Opened, unpack_ids
from ramet.ipc.spec import HiddenMode

Triple = tuple[float | None, int, str | None]
PARTS = ("input", "output")


class Place(NamedTuple):
    """One token with what was asked about its place; `top` and `chosen` are None where nothing comes before it."""

    token: Triple
    top: list[Triple] | None
    chosen: list[Triple] | None
    length: int  # characters that it adds to the text; 0 unless texts are asked for


class LogprobLists:
    """What came of one sequence's log-probabilities. `output` and `prompt` are in the order of the tokens."""

    def __init__(self, opened: Opened) -> None:
        assert opened.spec.logprobs is not None, f"{opened.uid} did not ask for log-probabilities"
        self._ask = opened.spec.logprobs
        self._chosen_texts: tuple[str | None, ...] = opened.chosen_texts or (None,) * len(self._ask.ids)
        self.prompt: list[Place] = []
        self.output: list[Place] = []
        self.raw: dict[int, bytes] = {}  # token id -> its bytes, of tokens with texts that are no whole characters

    def add(self, scores: Logprobs) -> int:
        """How many log-probabilities these are."""
        self.raw |= scores.raw
        (self.prompt if scores.of_prompt else self.output).extend(self._places(scores))
        return (len(scores.values) + len(scores.top_values) + len(scores.chosen)) // 4

    def meta(self, first_output: int = 0, first_prompt: int = 0) -> dict[str, Any]:
        """The keys of meta_info; of output and prompt only the places from those on."""
        found: dict[str, Any] = {}
        for name, places in zip(PARTS, (self.prompt[first_prompt:], self.output[first_output:]), strict=True):
            found[f"{name}_token_logprobs"] = [place.token for place in places]
            if self._ask.num_top:
                found[f"{name}_top_logprobs"] = [place.top for place in places]
            if self._ask.ids:
                found[f"{name}_token_ids_logprobs"] = [place.chosen for place in places]
        return found

    def _places(self, scores: Logprobs) -> Iterator[Place]:
        ids, values = unpack_ids(scores.ids), _floats(scores.values)
        top_ids, top_values, chosen = unpack_ids(scores.top_ids), _floats(scores.top_values), _floats(scores.chosen)
        num_top, num_chosen = len(top_ids) // len(ids), len(self._ask.ids)
        texts: Sequence[str | None] = scores.texts[: len(ids)] or (None,) * len(ids)
        lengths = unpack_ids(scores.lengths) or [0] * len(ids)
        top_texts: Sequence[str | None] = scores.texts[len(ids) :] or (None,) * len(top_ids)
        for i, (value, token) in enumerate(zip(values, ids, strict=True)):
            if math.isnan(value):
                yield Place((None, token, texts[i]), None, None, lengths[i])
                continue
            best = slice(i * num_top, (i + 1) * num_top)
            top = zip(top_values[best], top_ids[best], top_texts[best], strict=True)
            own = chosen[i * num_chosen : (i + 1) * num_chosen]
            ours = zip(own, self._ask.ids, self._chosen_texts, strict=True)
            yield Place((value, token, texts[i]), list(top), list(ours), lengths[i])


def _floats(packed: bytes) -> list[float]:
    values = array("f")
    values.frombytes(packed)
    return values.tolist()


class HiddenLists:
    """The hidden states of one sequence, as meta_info or an embedding shows them when it has ended."""

    def __init__(self, opened: Opened) -> None:
        self._which, self._num_prompt = opened.spec.hidden, opened.prompt_tokens
        self._rows: list[list[float]] = []

    def add(self, states: HiddenStates) -> int:
        """How many numbers more these are."""
        values, width = _floats(states.values), states.width
        if self._which is HiddenMode.MEAN and self._rows:  # long prompts come in parts, of which only the sum is kept
            self._rows[0] = list(map(add, self._rows[0], values))
            return 0
        self._rows += [values[i : i + width] for i in range(0, len(values), width)]
        return len(values)

    @property
    def pooled(self) -> list[float]:
        """One vector for the whole prompt: of its last token, or the mean over its tokens."""
        (row,) = self._rows
        return row if self._which is HiddenMode.LAST else [value / self._num_prompt for value in row]

    def meta(self) -> list[Any]:
        """All: the prompt's rows as one matrix, then a vector for each token read after it. Last: one vector."""
        if self._which is HiddenMode.LAST:
            return self._rows[-1] if self._rows else []
        return [self._rows[: self._num_prompt], *self._rows[self._num_prompt :]]
