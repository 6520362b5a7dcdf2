"""How the rows of a step sample, as plain host columns. Knows no torch and no request."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ramet.ipc.params import SamplingParams
from ramet.kernels import draw_params
from ramet.kernels.draw_params import HostDrawParams
from ramet.runtime.arrays import Floats, Ints

MIN_REPETITION = 1e-6  # a repetition_penalty of 0 divides by this
MAX_TEMPERATURE = 1e30  # makes all tokens alike; beyond float32's largest number a banned token's logit is NaN
REQUEST = "__req__"  # where a logit processor finds the RequestView among its parameters


@dataclass(frozen=True, slots=True)
class Penalties:
    """The P rows whose logits depend on what they have drawn. Every column is [P]."""

    rows: Ints  # indices into Q
    slots: Ints  # of the penalty state
    frequency: Floats  # times the count of a token
    presence: Floats  # once for each token that was drawn
    repetition: Floats  # > 0; scales the logits of tokens that were drawn (or are in the prompt)


@dataclass(frozen=True, slots=True)
class LogitEntries:
    """Single logits: (rows[i], ids[i]). No spot comes twice."""

    rows: Ints  # [B] indices into Q
    ids: Ints  # [B]


@dataclass(frozen=True, slots=True)
class RequestView:
    """One request as its processor sees it. The ids are copies: what is written to them changes nothing."""

    prompt_ids: Ints
    output_ids: Ints
    memory: dict[str, Any]  # the processor's own; kept from step to step, and as it was if a step is tried again


@dataclass(frozen=True, slots=True)
class ProcessorRow:
    """A row that asks for a logit processor: the request's parameters for it, and what it has read and written."""

    row: int  # index into Q
    uid: int
    params: dict[str, Any]
    prompt_ids: Ints
    output_ids: Ints


@dataclass(frozen=True, slots=True)
class ProcessorRows:
    """The rows that one logit processor is called for."""

    name: str
    rows: tuple[ProcessorRow, ...]


@dataclass(frozen=True, slots=True)
class FilterRows:
    """The rows that ask for one filter (runtime/sampling/filters.py). None of them takes its best token."""

    name: str  # the sampling parameter
    rows: Ints  # [F] indices into Q, in ascending order
    values: Floats  # [F] what each asks

    def among(self, rows: Ints) -> "FilterRows":
        """For a step of `rows` alone, in ascending order."""
        asked = np.isin(self.rows, rows)
        return FilterRows(self.name, np.searchsorted(rows, self.rows[asked]).astype(np.int32), self.values[asked])


@dataclass(frozen=True, slots=True)
class LogprobRow:
    """One place whose log-probabilities are returned: of its token, of the `num_top` best, of `ids`."""

    row: int  # index into Q
    num_top: int
    ids: Ints


@dataclass(frozen=True, slots=True)
class PlaceLogprobs:
    """Log-probabilities at N places of one sequence: of one token at each, of the k best, of m chosen ones."""

    values: Floats  # [N]
    top_ids: Ints  # [N, k], best first
    top_values: Floats  # [N, k]
    chosen: Floats  # [N, m]


@dataclass(frozen=True, slots=True)
class HealedRow:
    """A row that draws what covers the rest of its prompt's tail."""

    row: int  # index into Q; among the masked ones
    inner: Ints  # [P] tokens inside the tail


@dataclass(frozen=True, slots=True)
class HealedPlace:
    """Natural logarithms of probabilities, among all tokens, at the row's temperature: 1 where it is greedy."""

    covered: float  # that one of the tokens is drawn that cover the tail
    drawn: float  # of the one that was
    inner: Floats  # [P] of each token inside the tail


@dataclass(frozen=True, slots=True)
class PenaltyReset:
    """Set the counts of a penalty slot to those of `output`, and what it has seen to `prompt`."""

    slot: int
    output: Ints
    prompt: Ints  # empty unless the prompt counts as seen


@dataclass(frozen=True, slots=True)
class Forget:
    """The request has ended, or begins anew: what its logit processor remembers can go."""

    uid: int


@dataclass(frozen=True, slots=True)
class SamplingColumns:
    """One value for each of the Q drawing rows in every column."""

    draw_params: HostDrawParams  # [Q] in each column
    positions: npt.NDArray[np.int64]  # [Q] index of the token to draw in the row's own output
    penalties: Penalties | None = None
    biased: LogitEntries | None = None
    biases: Floats | None = None  # [B] what is added at each of `biased`
    processors: tuple[ProcessorRows, ...] = ()
    filters: tuple[FilterRows, ...] = ()
    banned: LogitEntries | None = None  # must not be drawn
    masked: Ints | None = None  # [K] rows whose tokens a grammar chooses; which ones is said when they are drawn
    openings: LogitEntries | None = None  # of masked rows, a token each: it is drawn where it would be without the mask
    healed: tuple[HealedRow, ...] = ()  # of masked rows, in ascending order
    logprobs: tuple[LogprobRow, ...] = ()

    @property
    def is_penalised_at_most(self) -> bool:
        """No row asks for anything but a draw from penalised logits."""
        is_changed = self.biased is not None or self.banned is not None or self.masked is not None
        return not (is_changed or self.processors or self.filters or self.logprobs)

    @property
    def is_cut(self) -> bool:
        """Whether a row leaves out unlikely tokens: by their rank, or beside the best one."""
        return draw_params.cuts_by_rank(self.draw_params) or draw_params.cuts_below_best(self.draw_params)

    @classmethod
    def greedy(cls, num: int) -> "SamplingColumns":
        """`num` rows that take their best token."""
        return cls(draw_params.neutral(num), np.zeros(num, np.int64))


def write_draw_params(columns: HostDrawParams, row: int, params: SamplingParams, seed: int) -> None:
    """WRITES what a request asks of its draws to `row` of the columns."""
    columns.temperature[row] = 0.0 if params.greedy else min(params.temperature, MAX_TEMPERATURE)
    columns.top_k[row], columns.top_p[row] = max(params.top_k, 0), params.top_p
    columns.min_p[row], columns.seeds[row] = params.min_p, seed
