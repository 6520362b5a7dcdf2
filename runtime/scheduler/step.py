"""The planned step, and how it is built: the core puts in rows and tokens, each feature what its rows ask beyond them.

A Step holds ids, numbers and arrays of its own, never a live request: nothing that happens after it was planned changes
what it says. R rows, T new tokens over all rows, Q rows that draw.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import NO_ROWS, Batch, StepResult
from ramet.runtime.engine.extras import Ask, Command, RowInput
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.scheduler.rows import RowTable, RunningRequest

S = TypeVar("S")


@dataclass(slots=True)
class StepTimes:
    """Where the time of one step went. Times are the scheduler's clock's, in seconds."""

    begun_s: float  # when its planning began
    plan_s: float  # for which it was planned and handed to the device
    run_s: float  # for which its result was waited for, or it was computed
    apply_s: float


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Tokens [start, stop) of the sequence in row `index` of the batch: whose answer it is."""

    index: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Step:
    """A planned step. Results are matched by (uid, epoch) of each row."""

    number: int  # 1, 2, ... in the order of planning, which is the order of launching
    uids: npt.NDArray[np.int64]  # [R]
    epochs: npt.NDArray[np.int64]  # [R]
    batch: Batch
    prefills: Ints  # indices into R of rows that compute tokens they were admitted with
    owners: tuple[TokenSpan, ...] = ()  # whose the answers are: one for each of batch.asks

    @property
    def num_prefill_tokens(self) -> int:
        return int(self.batch.num_new[self.prefills].sum())

    @property
    def draws_late(self) -> bool:
        """Its draw waits for masks, which depend on what earlier steps have drawn."""
        return self.batch.sampling.masked is not None

    @property
    def returns_more(self) -> bool:
        """Rows have asked for more than the tokens that they draw."""
        sampling = self.batch.sampling
        return bool(self.owners or sampling.logprobs or sampling.healed)

    def answered(self, kind: type[S], result: StepResult) -> Iterator[tuple[S, Any]]:
        """The answers whose owner is of this type."""
        for owner, answer in zip(self.owners, result.answers, strict=True):
            if isinstance(owner, kind):
                yield owner, answer


StepListener = Callable[[Step, StepResult, StepTimes], None]


@dataclass(slots=True)
class StepBuilder:
    """What a step computes, before its ids are looked up; features add to `inputs`, and ask."""

    number: int
    table: RowTable
    at: Callable[[int], RunningRequest]  # who runs in a row
    rows: Ints  # [R]
    num_new: Ints  # [R]
    num_prefills: int  # the last rows, which read known tokens; those before them read what they drew
    before: tuple[Command, ...]
    inputs: list[RowInput] = field(default_factory=list)
    to_ids: Callable[[Ints], Ints] | None = None  # makes ids of the vocabulary of known tokens; None: they are ids
    _asks: list[Ask] = field(default_factory=list)
    _owners: list[TokenSpan] = field(default_factory=list)
    ends: Ints = field(init=False)  # [R] tokens after the step
    starts: Ints = field(init=False)  # [R] tokens before it
    positions: Ints = field(init=False)  # [T] index of each new token in its own sequence

    def __post_init__(self) -> None:
        num_new = self.num_new
        self.starts = self.positions = self.table.scheduled[self.rows]
        self.ends = self.starts + num_new
        if self.num_prefills:
            own = np.arange(int(num_new.sum()), dtype=np.int32)
            self.positions = (np.repeat(self.ends - np.cumsum(num_new), num_new) + own).astype(np.int32)

    @property
    def firsts(self) -> Ints:
        """[R] index of each row's first token among the T."""
        firsts: Ints = np.cumsum(self.num_new) - self.num_new
        return firsts

    @property
    def num_decoding(self) -> int:
        """The first rows, which read what they drew."""
        return len(self.rows) - self.num_prefills

    def prompts(self) -> Iterator[tuple[int, int, RunningRequest]]:
        """Yield (index into R, index of its first token among the T, who it is) of each row that prefills."""
        firsts = self.firsts.tolist()
        for index in range(self.num_decoding, len(self.rows)):
            yield index, firsts[index], self.at(self.rows[index])

    def ask(self, owner: TokenSpan, ask: Ask) -> None:
        self._owners.append(owner)
        self._asks.append(ask)

    def build(self, draws: Ints, sampling: SamplingColumns, prompts: Ints = NO_ROWS) -> Step:
        """`draws` [Q]: indices of rows that draw. `prompts`: of rows that compute tokens they were admitted with."""
        table, rows, each_row, num_decode = self.table, self.rows, self.rows, len(self.rows)
        if self.num_prefills:
            each_row, num_decode = np.repeat(rows, self.num_new), int((self.num_new == 1).sum())
        token_ids = table.tokens[each_row, self.positions]
        if self.to_ids is not None:
            token_ids = self.to_ids(token_ids)
        relayed = np.flatnonzero(self.starts >= table.totals[rows]).astype(np.int32)  # they read what they drew last
        if len(relayed):
            token_ids[relayed] = 0
        batch = Batch(
            rows=rows,
            num_new=self.num_new,
            seq_lens=self.ends,
            token_ids=token_ids,
            positions=self.positions,
            slots=table.slots[each_row, self.positions],
            num_decode=num_decode,
            draws=draws,
            sampling=sampling,
            relayed=relayed,
            before=self.before,
            inputs=tuple(self.inputs),
            asks=tuple(self._asks),
            only_decodes=len(draws) == len(rows) and not self.num_prefills and not self._asks,
        )
        return Step(self.number, table.uids[rows], table.epochs[rows], batch, prompts, tuple(self._owners))
