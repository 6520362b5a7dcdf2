"""A runner without a model: every token is a formula of its request's seed and its position. Imports no torch.

For tests of everything around the model, and for measuring what the rest costs.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ramet.ipc.messages import ModelFacts
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import Batch, Done, Pending, RouteSource, StepResult
from ramet.runtime.engine.extras import PromptLogprobs
from ramet.runtime.engine.step_cost import MAX_CHUNK, StepCost
from ramet.runtime.sampling.columns import HealedPlace, LogitEntries, PlaceLogprobs

Script = Callable[[npt.NDArray[np.uint64], npt.NDArray[np.int64]], npt.NDArray[np.integer]]  # (seeds, positions) -> [Q]


class ScriptedRunner:
    """Runner whose token depends on nothing but (seed, position)."""

    adapters = weights = memory = media = pooler = None
    asynchronous = False
    routes: RouteSource | None = None

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        max_total_tokens: int,
        max_running: int,
        script: Script | None = None,
        *,
        step_s: float = 0.0,
        token_s: float = 0.0,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """A step takes `step_s`, and `token_s` more for each token of rows that do not decode: `wait` passes them."""
        self.facts = ModelFacts(context_length, max_total_tokens, vocab_size, max_running)
        self._script = script or self._scatter
        self._step_s, self._token_s, self._wait = step_s, token_s, wait

    @property
    def cost(self) -> StepCost | None:
        """That of its formula; None: its steps take no time."""
        if not (self._step_s or self._token_s):
            return None
        curve = ((1, self._step_s), (MAX_CHUNK, self._step_s + self._token_s * MAX_CHUNK))
        return StepCost(curve, 0.0, 0.0, 0.0)

    @property
    def resolved(self) -> dict[str, object]:
        return {"device": "none", "attention_backend": "none"}

    def close(self) -> None:
        """Nothing runs between two calls."""

    def refusal(self, name: str, custom_params: dict[str, Any]) -> str:
        return f"is {name!r}, but the scripted runner has no logits to process"

    def launch(self, batch: Batch) -> Pending:
        seconds = self._step_s + self._token_s * (len(batch.token_ids) - batch.num_decode)
        if seconds:
            self._wait(seconds)
        columns = batch.sampling
        tokens: Ints = self._script(columns.draw_params.seeds, columns.positions).astype(np.int32)
        drawn = tuple(_certain(1, row.num_top, len(row.ids)) for row in columns.logprobs)
        asked = (ask for ask in batch.asks if isinstance(ask, PromptLogprobs))  # there are no hidden states
        answers = tuple(_certain(len(ask.targets), ask.num_top, len(ask.ids)) for ask in asked)
        phases = {"forward": seconds, "sample": 0.0}
        healed = tuple(_evenly(len(row.inner)) for row in columns.healed)
        result = StepResult(tokens, drawn_logprobs=drawn, healed=healed, answers=answers, phases=phases)
        return Done(result, runs=True) if columns.masked is None else Masked(result, columns.masked, columns.openings)

    def _scatter(self, seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """A multiply-xorshift hash of both, spread over the vocabulary."""
        mixed = seeds + positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(32)
        return mixed % np.uint64(self.facts.vocab_size)


class Masked:
    """The formula's token where a grammar allows it, or it opens a thought, else the next one that is allowed."""

    runs = True

    def __init__(self, value: StepResult, masked: Ints, openings: LogitEntries | None) -> None:
        self.value, self._masked = value, masked
        spots = () if openings is None else zip(openings.rows, openings.ids, strict=True)
        self._opened = {row for row, token in spots if value.tokens[row] == token}

    def draw(self, allowed: Ints) -> None:
        for row, bits in zip(self._masked, allowed, strict=True):
            if row in self._opened:
                continue
            tokens = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
            place = int(np.searchsorted(tokens, self.value.tokens[row]))
            self.value.tokens[row] = tokens[place % len(tokens)]

    def result(self) -> StepResult:
        return self.value


def _evenly(num_inner: int) -> HealedPlace:
    """A prompt that is healed goes on with the token that is drawn."""
    return HealedPlace(0.0, 0.0, np.full(num_inner, -np.inf, np.float32))


def _certain(places: int, num_top: int, num_chosen: int) -> PlaceLogprobs:
    """Log-probabilities where there is no choice: 0, and token 0 for every other one."""
    return PlaceLogprobs(
        np.zeros(places, np.float32),
        np.zeros((places, num_top), np.int32),
        np.zeros((places, num_top), np.float32),
        np.zeros((places, num_chosen), np.float32),
    )
