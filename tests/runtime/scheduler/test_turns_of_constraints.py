"""What constraints of all rows may take of one turn, and what they cost where thousands of rows have one."""

import math
import re
import time
from collections.abc import Sequence

import pytest
from bench_top import BenchTop
from constrained import vocabulary
from effort import num_bytes
from grammars import Grammars
from manual_clock import ManualClock
from schedules import TOKENIZER

from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.arrays import Ints
from ramet.runtime.grammar import aside
from ramet.runtime.grammar.aside import Parsers
from ramet.runtime.grammar.base import Grammar
from ramet.runtime.grammar.bounded import Apart
from ramet.runtime.grammar.compile import Compiling
from ramet.runtime.grammar.compiled import Failed, Loaded
from ramet.runtime.grammar.output import MAX_FORCED
from ramet.runtime.scheduler.features import slow_rows
from ramet.runtime.scheduler.features.constrained_rows import FREE_FORCED, MAX_TURN_FORCED
from ramet.runtime.scheduler.features.masks import MAX_TOGETHER
from ramet.runtime.scheduler.features.slow_rows import DEBT_S, SlowRows
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import Hold

END = 0
PROMPT = [11, 12, 13, 14, 15]
ROWS = 8
MANY = 2 * MAX_TOGETHER
overlaps = pytest.mark.parametrize("overlap", ["off", "on"])


class Looked:
    """A grammar of any text. One act, at one place, takes more processor time than a turn has for all rows."""

    may_end = True
    must_end = False

    def __init__(self, looks: list[int], slow: str, slow_at: int, num_taken: int = 0) -> None:
        self.looks, self.slow, self.slow_at, self.num_taken = looks, slow, slow_at, num_taken

    def _act(self, what: str) -> None:
        if what == self.slow and self.num_taken == self.slow_at:
            self.looks[-1] += 1
            until_s = time.thread_time() + 1.5 * DEBT_S
            while time.thread_time() < until_s:
                pass

    def accept(self, token: int) -> bool:
        self._act("accept")
        self.num_taken += 1
        return True

    def fill_mask(self, bits: Ints) -> None:
        self._act("fill_mask")
        bits[:] = -1

    def forced(self) -> list[int]:
        self._act("forced")
        return []

    def forced_text(self) -> bytes:
        return b""

    def rollback(self, num_tokens: int) -> None:
        self.num_taken -= num_tokens

    def fork(self) -> "Looked":
        return Looked(self.looks, self.slow, self.slow_at, self.num_taken)


class LookedBackend:
    """`looks`: how many slow acts each turn had; a test adds an entry for each turn."""

    name = "llguidance"
    canonical = True
    num_bytes = 1

    def __init__(self, slow: str, slow_at: int) -> None:
        self.looks, self._slow, self._slow_at = [0], slow, slow_at

    def get(self, constraint: Constraint, owner: str = "") -> Loaded | Failed | Compiling:
        return Loaded(self, self)  # type: ignore[arg-type]

    def leave(self, constraint: Constraint) -> None:
        pass

    def take_compiled(self) -> list[Compiling]:
        return []

    def close(self) -> None:
        pass

    def start(self) -> Looked:
        return Looked(self.looks, self._slow, self._slow_at)

    def fill_masks(self, grammars: Sequence[Grammar], rows: Sequence[int], bits: Ints) -> None:
        for grammar, row in zip(grammars, rows, strict=True):
            grammar.fill_mask(bits[row])


@overlaps
@pytest.mark.parametrize("jump", ["ff", "off"])
@pytest.mark.parametrize("slow_at", [0, 1], ids=["begins", "draws"])
@pytest.mark.parametrize("slow", ["fill_mask", "accept", "forced"])
def test_a_turn_does_what_takes_long_until_its_time_is_spent(overlap: str, slow: str, slow_at: int, jump: str) -> None:
    if (slow, jump) == ("forced", "off"):
        return  # it is not asked
    backend = LookedBackend(slow, slow_at)
    top = BenchTop(tokenizer=TOKENIZER, grammars=backend, eos_ids=[END], overlap=overlap, jump_forward=jump)
    top.add(100, PROMPT, 40, ignore_eos=True)
    for uid in range(1, MANY + 1):
        top.add(uid, [*PROMPT, uid], 3, constraint=Constraint(ConstraintKind.REGEX, "x"), ignore_eos=True)
    while not top.scheduler.idle or not top.opened:
        top.turn()
        backend.looks.append(0)
    together = MAX_TOGETHER if (slow, slow_at) == ("fill_mask", 1) else 1  # rows whose first mask was quick
    assert sum(backend.looks) == MANY and max(backend.looks) == together
    assert all(len(top.tokens[uid]) == 3 for uid in range(1, MANY + 1)) and len(top.tokens[100]) == 40
    assert all(top.finish[uid].kind is FinishKind.LENGTH for uid in top.finish)


def test_outputs_that_end_where_they_begin_share_a_turn_and_leave_nothing_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_rows, "ALLOWANCE_S", math.inf)
    grammars = Grammars(TOKENIZER, frozenset([END]))
    top = BenchTop(tokenizer=TOKENIZER, grammars=grammars, eos_ids=[END], rows=64, total=64 * 512)
    text = "The whole output of this request is known before the model has said anything." * 3
    for first in range(1, 400, 20):
        for uid in range(first, first + 20):
            top.add(uid, [*PROMPT, uid % 250], 300, constraint=Constraint(ConstraintKind.REGEX, re.escape(text)))
        top.turn()
        assert sum(uid in top.finish for uid in range(first, first + 20)) >= 5
        top.run()


def test_who_leaves_before_it_has_looked_is_forgotten() -> None:
    backend = LookedBackend("forced", 0)
    top = BenchTop(tokenizer=TOKENIZER, grammars=backend, eos_ids=[END])
    for uid in range(1, 4):
        top.add(uid, [*PROMPT, uid], 3, constraint=Constraint(ConstraintKind.REGEX, "x"), ignore_eos=True)
    top.turn()
    assert Hold.LATE in top.scheduler.running.held[2] and Hold.LATE in top.scheduler.running.held[3]
    top.abort(2)
    top.run()
    assert top.finish[2].kind is FinishKind.ABORT and len(top.tokens[3]) == 3 and sum(backend.looks) == 2


@overlaps
@pytest.mark.parametrize("jump", ["ff", "retokenize"])
def test_jumps_of_all_rows_append_so_many_tokens_in_a_turn(overlap: str, jump: str) -> None:
    text = "The whole output of this request is known before the model has said anything." * 90
    spelled = TOKENIZER.encode(text, add_special_tokens=False)
    assert len(spelled) > 3 * MAX_FORCED
    room = {"context": 4096, "total": ROWS * 4096, "rows": ROWS}
    grammars = Grammars(TOKENIZER, frozenset([END]))
    top = BenchTop(
        tokenizer=TOKENIZER, grammars=grammars, eos_ids=[END], overlap=overlap, jump_forward=jump, deep_checks=False,
        **room,
    )  # fmt: skip
    for uid in range(1, ROWS + 1):
        top.add(uid, [*PROMPT, uid], 3500, constraint=Constraint(ConstraintKind.REGEX, re.escape(text)))
    top.run()
    each = [TOKENIZER.decode([token for token in top.tokens[uid] if token != END]) for uid in range(1, ROWS + 1)]
    assert each == [text] * ROWS
    assert max(len(step.uids) for step in top.told) <= MAX_TURN_FORCED + ROWS * (FREE_FORCED + 2) + MAX_FORCED


def test_tokens_that_nobody_drew_are_told_without_a_copy_for_each() -> None:
    def add(num: int) -> int:
        news = BenchTop().scheduler.results.news

        def all_of_them() -> None:
            for token in range(num):
                news.add_token(1, token)

        return num_bytes(all_of_them)

    assert add(4000) < 6 * add(1000)


class CountedLink(aside.Link):
    num_compared = 0

    def __eq__(self, other: object) -> bool:
        CountedLink.num_compared += 1
        return self is other

    __hash__ = aside.Link.__hash__


def test_an_output_that_waits_for_a_process_leaves_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "Link", CountedLink)
    monkeypatch.setattr(aside, "MAX_PROCESSES", 0)
    parsers = Parsers(vocabulary(), 1.0, 1000)
    outputs = [Apart(parsers, "llguidance", b"").start() for _ in range(100)]
    for output in outputs:
        output.begin()
    for output in reversed(outputs):
        output.rest()
    assert parsers.num_open == 0 and CountedLink.num_compared < 2 * len(outputs)


class CountedRow(RunningRequest):
    __slots__ = ()
    num_compared = 0

    def __eq__(self, other: object) -> bool:
        CountedRow.num_compared += 1
        return self is other

    __hash__ = RunningRequest.__hash__


def test_a_slow_row_is_held_without_a_search_among_those_that_are() -> None:
    top = BenchTop(rows=64, deep_checks=False)
    for uid in range(1, 65):
        top.add(uid, [*PROMPT, uid], 20)
    top.turn()
    slow = SlowRows(top.scheduler.running, 10.0, ManualClock())
    for running in top.scheduler.running:
        running.__class__ = CountedRow
        for _ in range(2):
            assert slow.charge(running, 2 * DEBT_S, "ebnf") is None
    assert len(top.scheduler.running.held) == 64 and CountedRow.num_compared == 0


WORDS = '{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"]}'


@overlaps
@pytest.mark.parametrize("jump", ["ff", "off"])
def test_masks_of_many_ordinary_rows_are_made_in_their_step(overlap: str, jump: str) -> None:
    room = {"context": 256, "total": 64 * 256, "rows": 64}
    grammars = Grammars(TOKENIZER, frozenset([END]))
    top = BenchTop(
        tokenizer=TOKENIZER, grammars=grammars, eos_ids=[END], overlap=overlap, jump_forward=jump, deep_checks=False,
        **room,
    )  # fmt: skip
    for uid in range(1, 65):
        top.add(uid, [*PROMPT, uid], 100, constraint=Constraint(ConstraintKind.JSON_SCHEMA, WORDS))
    num_held = 0
    while not top.scheduler.idle or not top.opened:
        top.turn()
        num_held += len(top.scheduler.running.held)
    assert len(top.finish) == 64
    assert num_held < 0.1 * sum(map(len, top.tokens.values()))  # a collection of the interpreter's may take long


@overlaps
def test_who_leaves_while_its_token_or_mask_waits_gives_everything_back(overlap: str) -> None:
    for slow in ("accept", "fill_mask"):
        backend = LookedBackend(slow, 0)
        top = BenchTop(tokenizer=TOKENIZER, grammars=backend, eos_ids=[END], overlap=overlap, jump_forward="off")
        for uid in range(1, 5):
            top.add(uid, [*PROMPT, uid], 3, constraint=Constraint(ConstraintKind.REGEX, "x"), ignore_eos=True)
        while Hold.LATE not in top.scheduler.running.held.get(4, Hold(0)):
            top.turn()
        top.abort(3, 4)
        top.run()
        assert [top.finish[uid].kind for uid in (1, 2, 3, 4)] == [FinishKind.LENGTH] * 2 + [FinishKind.ABORT] * 2
        state = top.reporter.state()
        assert state["leased_tokens"] == state["owned_tokens"] == 0 and sum(backend.looks) == 2
