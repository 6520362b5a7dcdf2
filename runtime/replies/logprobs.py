"""Log-probabilities and hidden states as clients see them, kept packed as they came until a reply is written.

A log-probability is a triple [logprob, id, text or null].

Decides the lists of meta_info and what stands where nothing is known (null). Knows no transport. Used by the HTTP
server and by the in-process LLM, so that both answer alike. N places, k best tokens and m chosen ones at each.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from ramet.ipc.messages import HiddenStates, Logprobs
from ramet.ipc.spec import HiddenMode, LogprobSpec
from ramet.runtime.replies.long_list import Listed, LongList, in_parts, listed

Triple = tuple[float | None, int, str | None]
PARTS = ("input", "output")


class Place(NamedTuple):
    """One token with what was asked about its place; `top` and `chosen` are None where nothing comes before it."""

    token: Triple
    top: list[Triple] | None
    chosen: list[Triple] | None
    length: int  # characters that it adds to the text; 0 unless texts are asked for


class Places:
    """Consecutive tokens of a sequence: packed columns, of which only what is read becomes objects."""

    def __init__(self, chosen: Sequence[tuple[int, str | None]], texts: dict[int, str] | None) -> None:
        """`chosen`: tokens whose log-probability is told at each place. `texts`: of all that may occur; None: none."""
        self._chosen_tokens, self._texts = chosen, texts
        self._ids, self._values = array("i"), array("f")  # [N]
        self._top_ids, self._top_values = array("i"), array("f")  # [N, k], without the bare place
        self._chosen, self._lengths = array("f"), array("i")  # [N, m], without the bare place; [N] or []
        self._num_bare = 0  # 1: of the first place only the token is known, for nothing comes before it

    def add(self, logprobs: Logprobs) -> int:
        """How many log-probabilities these are."""
        self._ids.frombytes(logprobs.ids)
        self._values.frombytes(logprobs.values)
        self._top_ids.frombytes(logprobs.top_ids)
        self._top_values.frombytes(logprobs.top_values)
        self._chosen.frombytes(logprobs.chosen)
        self._lengths.frombytes(logprobs.lengths)
        if len(self._values) == 1 and math.isnan(self._values[0]) and not (logprobs.top_ids or logprobs.chosen):
            self._num_bare = 1
        return (len(logprobs.values) + len(logprobs.top_values) + len(logprobs.chosen)) // 4

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Place]:
        return iter(self[:])

    def __getitem__(self, at: slice) -> list[Place]:
        start, stop, _ = at.indices(len(self))
        tokens, tops = self.tokens(start, stop), self.tops(start, stop)
        return list(map(Place, tokens, tops, self.chosen(start, stop), self.lengths(start, stop)))

    @property
    def num_top(self) -> int:
        """k"""
        return len(self._top_ids) // max(1, len(self) - self._num_bare)

    def tokens(self, start: int, stop: int) -> list[Triple]:
        ids, values = self._ids[start:stop], self._values[start:stop]
        known = [value if value == value else None for value in values]  # NaN equals nothing
        return list(zip(known, ids, self._texts_of(ids)))

    def tops(self, start: int, stop: int) -> list[list[Triple] | None]:
        k, (first, last) = self.num_top, self._known(start, stop)
        ids, values = self._top_ids[first * k : last * k], self._top_values[first * k : last * k]
        flat: list[Triple] = list(zip(values, ids, self._texts_of(ids)))
        return self._by_place(start, stop, [flat[i * k : (i + 1) * k] for i in range(last - first)])

    def chosen(self, start: int, stop: int) -> list[list[Triple] | None]:
        m, (first, last) = len(self._chosen_tokens), self._known(start, stop)
        rows = (self._chosen[i * m : (i + 1) * m] for i in range(first, last))
        made: list[list[Triple]] = [
            [(value, token, text) for value, (token, text) in zip(row, self._chosen_tokens)] for row in rows
        ]
        return self._by_place(start, stop, made)

    def lengths(self, start: int, stop: int) -> Sequence[int]:
        return self._lengths[start:stop] or [0] * (stop - start)

    def _known(self, start: int, stop: int) -> tuple[int, int]:
        """Indices of these places among those that are not bare."""
        return max(0, start - self._num_bare), max(0, stop - self._num_bare)

    def _by_place(self, start: int, stop: int, made: list[list[Triple]]) -> list[list[Triple] | None]:
        """None where nothing is known, so also where the model computed what is no number."""
        bare: list[list[Triple] | None] = [None] * (stop - start - len(made))
        values = self._values[start + len(bare) : stop]
        return bare + [row if value == value else None for value, row in zip(values, made, strict=True)]

    def _texts_of(self, ids: Iterable[int]) -> Iterable[str | None]:
        return repeat(None) if self._texts is None else map(self._texts.__getitem__, ids)


class LogprobLists:
    """What came of one sequence's log-probabilities. `output` and `prompt` are in the order of the tokens."""

    def __init__(self, ask: LogprobSpec, chosen_texts: tuple[str, ...] = ()) -> None:
        """`chosen_texts`: of `ask.ids`, where texts are asked for."""
        self._ask = ask
        chosen = list(zip(ask.ids, chosen_texts or (None,) * len(ask.ids), strict=True))
        self._texts: dict[int, str] = {}
        self.prompt, self.output = (Places(chosen, self._texts if ask.texts else None) for _ in PARTS)
        self.raw: dict[int, bytes] = {}  # token id -> its bytes, of tokens with texts that are no whole characters

    def add(self, logprobs: Logprobs) -> int:
        """How many log-probabilities these are."""
        self._texts |= logprobs.texts
        self.raw |= logprobs.raw
        return (self.prompt if logprobs.of_prompt else self.output).add(logprobs)

    def meta(self, first_output: int = 0, first_prompt: int = 0) -> dict[str, Listed]:
        """The keys of meta_info; of output and prompt only the places from those on."""
        found: dict[str, Listed] = {}
        for name, places, first in zip(PARTS, (self.prompt, self.output), (first_prompt, first_output), strict=True):
            found[f"{name}_token_logprobs"] = listed(places.tokens, first, len(places))
            if self._ask.num_top:
                found[f"{name}_top_logprobs"] = listed(places.tops, first, len(places), self._ask.num_top)
            if self._ask.ids:
                found[f"{name}_token_ids_logprobs"] = listed(places.chosen, first, len(places), len(self._ask.ids))
        return found


class HiddenLists:
    """The hidden states of one sequence, as meta_info or an embedding shows them when it has ended."""

    def __init__(self, which: HiddenMode, num_prompt: int) -> None:
        self._which, self._num_prompt = which, num_prompt
        self._width = 0
        self._numbers = array("f")  # [rows, width]

    @property
    def is_empty(self) -> bool:
        """None came so far."""
        return not self._numbers

    def add(self, states: HiddenStates) -> int:
        """How many numbers more these are."""
        self._width, values = states.width, array("f", states.values)
        self._numbers += values
        return len(values)

    @property
    def pooled(self) -> list[float]:
        """One vector for the whole prompt."""
        (row,) = self._rows(0, self._num_rows)
        return row

    def meta(self) -> Any:
        """All: the prompt's rows as one matrix, then a vector for each token read after it. Last: one vector."""
        if self._which is HiddenMode.LAST:
            return self._numbers[-self._width :].tolist() if self._numbers else []
        return LongList(self._parts())

    def _parts(self) -> Iterator[list[list[float]] | LongList]:
        in_prompt, each = min(self._num_prompt, self._num_rows), max(1, self._width)
        yield LongList(in_parts(self._rows, 0, in_prompt, each))
        yield from in_parts(self._rows, in_prompt, self._num_rows, each)

    @property
    def _num_rows(self) -> int:
        return len(self._numbers) // self._width if self._width else 0

    def _rows(self, start: int, stop: int) -> list[list[float]]:
        width = self._width
        return [self._numbers[i * width : (i + 1) * width].tolist() for i in range(start, stop)]
