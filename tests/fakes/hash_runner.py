"""A runner whose next token is a hash of what it can read through the slot table, and nothing else.

A real pool of one integer per slot and a real slot table: if the scheduler ever hands out a wrong slot, forgets a fill,
lets a prefix be overwritten or shares what it should not, the tokens differ from `expected_output`, which sees only the
prompt. Where a token is banned, the next one that is not banned stands in for it; so it does where a grammar does not
allow it. A penalised row never draws a token twice (while there are others): it bans what its penalty slot has counted.
"""

import zlib
from collections import defaultdict
from collections.abc import Collection
from typing import Any

import numpy as np

from ramet.ipc.messages import ModelFacts, RouteLayout
from ramet.runtime.engine.batch import PART_ROWS, Batch, Done, RouteSource, StepResult
from ramet.runtime.engine.extras import (
    Answer,
    Ask,
    Command,
    FeatureRows,
    HiddenRows,
    PromptLogprobs,
    SlotCopy,
    SlotUpdate,
)
from ramet.runtime.engine.step_cost import StepCost
from ramet.runtime.sampling.columns import HealedPlace, HealedRow, LogprobRow, PenaltyReset, PlaceLogprobs

VOCABULARY = 97
NEVER_WRITTEN = -7
SMALLEST = np.finfo(np.float32).min


def next_token(sequence: np.ndarray, banned: Collection[int] = (), size: int = VOCABULARY) -> int:
    token = zlib.crc32(sequence.astype(np.int32).tobytes()) % size
    while token in banned:
        token = (token + 1) % size
    return token


def next_allowed(sequence: np.ndarray, banned: Collection[int], allowed: np.ndarray) -> int:
    """allowed [W] int32: bits. What is banned is drawn all the same where nothing else is allowed."""
    tokens = np.flatnonzero(np.unpackbits(allowed.view(np.uint8), bitorder="little"))
    assert len(tokens), "a mask allows nothing"
    better = np.array([token for token in tokens.tolist() if token not in banned]) if banned else tokens
    tokens = better if len(better) else tokens
    return int(tokens[zlib.crc32(sequence.astype(np.int32).tobytes()) % len(tokens)])


def expected_output(prompt: list[int], num_new: int, banned: Collection[int] = (), until: int = 0) -> list[int]:
    """The first `until` tokens avoid the `banned` ones."""
    sequence = list(prompt)
    for i in range(num_new):
        sequence.append(next_token(np.array(sequence, dtype=np.int32), banned if i < until else ()))
    return sequence[len(prompt) :]


def expected_without_repeats(prompt: list[int], num_new: int, seen: Collection[int] = ()) -> list[int]:
    """What a penalised row draws; `seen` is avoided as well."""
    output: list[int] = []
    for _ in range(num_new):
        output.append(next_token(np.array(prompt + output, dtype=np.int32), {*seen, *output}))
    return output


def logprob(sequence: np.ndarray | list[int], token: int) -> float:
    """What is told of `token` after `sequence`: a hash of both."""
    return -float(zlib.crc32(np.array([*sequence, token], dtype=np.int32).tobytes()) % 1000)


def hidden_state(sequence: np.ndarray | list[int]) -> list[float]:
    """Of a sequence's last token: its length, and a hash of all that it reads."""
    return [float(len(sequence)), float(zlib.crc32(np.array(sequence, dtype=np.int32).tobytes()) % 1000)]


def scored(reads: list[np.ndarray], targets: list[int], num_top: int, ids: list[int]) -> PlaceLogprobs:
    """The "best" tokens are 0, 1, 2, ..."""
    tops = [list(range(num_top))] * len(reads)
    return PlaceLogprobs(
        np.array([logprob(read, token) for read, token in zip(reads, targets, strict=True)], dtype=np.float32),
        np.array(tops, dtype=np.int32).reshape(len(reads), num_top),
        np.array([[logprob(read, t) for t in range(num_top)] for read in reads], np.float32).reshape(
            len(reads), num_top
        ),
        np.array([[logprob(read, t) for t in ids] for read in reads], np.float32).reshape(len(reads), len(ids)),
    )


def certain(token: int, num_top: int, ids: list[int]) -> PlaceLogprobs:
    """Of the only token that a mask leaves: the others, in the order of ids, have the smallest number there is."""
    top = [token, *(other for other in range(num_top + 1) if other != token)][:num_top]
    values = np.array([[0.0 if t == token else SMALLEST for t in (*top, *ids)]], np.float32)
    return PlaceLogprobs(
        np.zeros(1, np.float32), np.array([top], np.int32), values[:, :num_top], values[:, num_top:].copy()
    )


class HashStep:
    """A step that was computed; it draws at once, or when its masks are there."""

    runs = True

    def __init__(self, runner: "HashRunner", batch: Batch) -> None:
        self._runner, self._batch = runner, batch
        self._allowed: np.ndarray | None = None

    def draw(self, allowed: np.ndarray) -> None:
        self._allowed = allowed

    def result(self) -> StepResult:
        return self._runner.finish(self._batch, self._allowed)


class PoolRoutes:
    """The one expert of a token, in the second of three layers, is its id."""

    layout = RouteLayout(layers=3, sparse=(1,), per_token=1, experts=VOCABULARY)

    def __init__(self, pool: np.ndarray) -> None:
        self._pool = pool

    def read(self, slots: np.ndarray) -> np.ndarray:
        return self._pool[slots][:, None, None]


class HashRunner:
    vocab_size = VOCABULARY
    hidden_size = 2
    asynchronous = windowed = False
    pooler = None
    adapters = weights = memory = None
    media: Any = None
    num_snapshots: int | None = None
    cost: StepCost | None = None
    longrope_limit: int | None = None

    def __init__(self, max_total_tokens: int, max_running: int, context_length: int, page_size: int = 1) -> None:
        self.max_total_tokens, self.max_running, self.context_length = max_total_tokens, max_running, context_length
        self.pool = np.full(max_total_tokens + page_size, NEVER_WRITTEN, dtype=np.int32)
        self.counted: dict[int, set[int]] = {}  # penalty slot -> tokens
        self.table = np.zeros((max_running + 1 + PART_ROWS, context_length + 1), dtype=np.int32)
        self.drawn = np.full(max_running + 1 + PART_ROWS, NEVER_WRITTEN, dtype=np.int32)  # what each row drew last
        self.page_size = page_size
        self.steps = 0
        self.computed_tokens = 0
        self.largest_step = 0
        self.draws: list[tuple[int, int]] = []  # (seed, position) of every token that was drawn, in order
        self.heals = False  # outputs may begin with the end of their prompt
        self.routes: RouteSource = PoolRoutes(self.pool)
        self.break_rows: set[int] = set()  # rows whose next draw is "not finite"

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts(
            self.context_length, self.max_total_tokens, self.vocab_size, self.max_running, self.hidden_size,
            routes=self.routes.layout, windowed=self.windowed, longrope_limit=self.longrope_limit,
            num_snapshots=self.num_snapshots,
        )  # fmt: skip

    def close(self) -> None:
        pass

    def refusal(self, processor: str, params: dict[str, Any]) -> str:
        return "is not known to a hash"

    def launch(self, batch: Batch) -> Done | HashStep:
        self.compute(batch)
        return Done(self.finish(batch, None)) if batch.sampling.masked is None else HashStep(self, batch)

    def compute(self, batch: Batch) -> None:
        self.steps += 1
        self.computed_tokens += len(batch.token_ids)
        self.largest_step = max(self.largest_step, len(batch.token_ids))
        self._check_shapes(batch)
        for command in batch.before:
            self._carry_out(command)
        rows = np.repeat(batch.rows, batch.num_new)
        self.table[rows, batch.positions] = batch.slots
        token_ids = batch.token_ids.copy()
        token_ids[batch.relayed] = self.drawn[batch.rows[batch.relayed]]
        assert not len(token_ids) or token_ids.min() >= 0, "a number of media is given to the model as a token"
        self.pool[batch.slots] = token_ids
        for each in (each for each in batch.inputs if isinstance(each, FeatureRows)):
            assert self.media is not None
            self.media.check(each)
            own = each.features.values[each.start : each.start + each.num]
            self.pool[batch.slots[each.first : each.first + each.num]] = own
        self.draws += zip(batch.sampling.draw_params.seeds.tolist(), batch.sampling.positions.tolist(), strict=True)

    def _carry_out(self, command: Command) -> None:
        match command:
            case SlotCopy():
                assert NEVER_WRITTEN not in self.pool[command.source], "a slot is copied that was never written"
                self.pool[command.target] = self.pool[command.source]
            case SlotUpdate():
                self.table[command.row, command.start : command.start + len(command.slots)] = command.slots
            case PenaltyReset():
                self.counted[command.slot] = {*command.output.tolist(), *command.prompt.tolist()}

    def finish(self, batch: Batch, allowed: np.ndarray | None) -> StepResult:
        """allowed [K, W] int32: what the rows that a grammar masks may draw."""
        masks = {} if allowed is None else dict(zip(batch.sampling.masked.tolist(), allowed, strict=True))
        assert (batch.sampling.masked is None) == (allowed is None), "a step waits for its masks"
        banned = self._banned(batch)
        drawn = [self._draw(batch, at, banned[at], masks.get(at)) for at in range(len(batch.draws))]
        for at, slot in self._penalised(batch):
            self.counted[slot].add(drawn[at])
        self.drawn[batch.rows[batch.draws]] = drawn
        broken = tuple(i for i, at in enumerate(batch.draws) if int(batch.rows[at]) in self.break_rows)
        tokens = np.array(drawn, dtype=np.int32)
        drawn_logprobs = tuple(
            self._score_drawn(batch, row, drawn, masks.get(row.row)) for row in batch.sampling.logprobs
        )
        answers = tuple(self._answer(batch, ask) for ask in batch.asks)
        healed = tuple(self._heal(batch, row, drawn) for row in batch.sampling.healed)
        return StepResult(
            tokens,
            broken,
            drawn_logprobs=drawn_logprobs,
            healed=healed,
            answers=answers,
        )

    def _answer(self, batch: Batch, ask: Ask) -> Answer:
        return self._hidden(batch, ask) if isinstance(ask, HiddenRows) else self._score_prompt(batch, ask)

    def _heal(self, batch: Batch, asked: HealedRow, drawn: list[int]) -> HealedPlace:
        """One token in thirteen has no probability; the others have more inside a tail than where they cover it."""
        read = self._read(batch, asked.row)
        told = [logprob(read, token) for token in (VOCABULARY, drawn[asked.row], *asked.inner.tolist())]
        covered, own, *inner = (-np.inf if value % 13 == 0 else value / 100 for value in told)
        return HealedPlace(covered, own, np.array(inner, np.float32) / 8)

    def _read(self, batch: Batch, at: int) -> np.ndarray:
        """What is read before the `at`-th draw."""
        i = int(batch.draws[at])
        return self.pool[self.table[batch.rows[i], : batch.seq_lens[i]]]

    def _banned(self, batch: Batch) -> dict[int, set[int]]:
        """Index among the draws -> what it must not draw."""
        banned: dict[int, set[int]] = defaultdict(set)
        if batch.sampling.banned is not None:
            for at, token in zip(batch.sampling.banned.rows, batch.sampling.banned.ids, strict=True):
                banned[int(at)].add(int(token))
        for at, slot in self._penalised(batch):
            banned[at] |= self.counted[slot]
        return banned

    def _penalised(self, batch: Batch) -> list[tuple[int, int]]:
        """(index among the draws, penalty slot)"""
        penalties = batch.sampling.penalties
        return [] if penalties is None else list(zip(penalties.rows.tolist(), penalties.slots.tolist(), strict=True))

    def _draw(self, batch: Batch, at: int, banned: set[int], allowed: np.ndarray | None) -> int:
        """What is read decides; above temperature 0 the row's seed and position as well."""
        columns, read = batch.sampling, self._read(batch, at)
        assert NEVER_WRITTEN not in read, "a slot is read that was never written"
        if columns.draw_params.temperature[at] > 0:
            read = np.append(read, [int(columns.draw_params.seeds[at]) & 0x7FFFFFFF, int(columns.positions[at])])
        if allowed is None:
            return next_token(read, banned, self.vocab_size)
        opening = self._openings(batch).get(at)
        opens = opening is not None and next_token(read, banned, self.vocab_size) % 2
        return opening if opens else next_allowed(read, banned, allowed)

    def _openings(self, batch: Batch) -> dict[int, int]:
        """Index among the draws -> what opens a thought, which every other one of these rows does."""
        openings, positions = batch.sampling.openings, batch.sampling.positions
        if openings is None:
            return {}
        assert self.heals or not positions[openings.rows].any(), "a thought begins an output or there is none"
        return dict(zip(openings.rows.tolist(), openings.ids.tolist(), strict=True))

    def _score_drawn(
        self, batch: Batch, asked: LogprobRow, drawn: list[int], allowed: np.ndarray | None
    ) -> PlaceLogprobs:
        healed = any(row.row == asked.row for row in batch.sampling.healed)  # seen as if there was no mask
        if allowed is not None and np.bitwise_count(allowed).sum() == 1 and not healed:
            return certain(drawn[asked.row], asked.num_top, asked.ids.tolist())
        return scored([self._read(batch, asked.row)], [drawn[asked.row]], asked.num_top, asked.ids.tolist())

    def _reads(self, batch: Batch, first: int, num: int) -> list[np.ndarray]:
        """What each of the tokens [first, first + num) of the T can read, itself included."""
        starts = np.cumsum(batch.num_new) - batch.num_new
        row = int(np.searchsorted(starts, first, side="right")) - 1
        before = int(batch.seq_lens[row] - batch.num_new[row]) + first - int(starts[row])
        assert before + num <= batch.seq_lens[row], "a place of another row is asked for"
        slots = self.table[batch.rows[row]]
        return [self.pool[slots[: before + i + 1]] for i in range(num)]

    def _hidden(self, batch: Batch, rows: HiddenRows) -> np.ndarray:
        states = [hidden_state(read) for read in self._reads(batch, rows.first, rows.num)]
        told = np.array(states, dtype=np.float32)
        return told.sum(0, keepdims=True) if rows.summed else told

    def _score_prompt(self, batch: Batch, scoring: PromptLogprobs) -> PlaceLogprobs:
        reads = self._reads(batch, scoring.first, len(scoring.targets))
        return scored(reads, scoring.targets.tolist(), scoring.num_top, scoring.ids.tolist())

    def _check_shapes(self, batch: Batch) -> None:
        assert batch.slots.min() >= self.page_size, "the padding page was handed out"
        assert len(set(batch.slots.tolist())) == len(batch.slots), "one slot for two tokens of a step"
        assert len(set(batch.rows.tolist())) == len(batch.rows) and batch.rows.min() > 0
        assert (batch.num_new[: batch.num_decode] == 1).all() and batch.num_new.sum() == len(batch.token_ids)
