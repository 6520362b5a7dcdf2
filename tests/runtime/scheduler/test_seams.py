"""What would come beside the core without changing it: each seam is shown by a double of a few lines."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from delayed_runner import DelayedRunner
from hash_runner import HashRunner, expected_output

from ramet.runtime.engine.batch import Batch
from ramet.runtime.scheduler import batch as planning
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.step import StepBuilder, TokenSpan

PROMPTS = {uid: [uid, 5, 7, 11] for uid in (1, 2, 3)}


# -- work before a step ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fetch:
    """Keys and values that the next step reads come back from slower memory."""

    slots: tuple[int, ...]


class _Tiered:
    fetched: list[tuple[int, Fetch]]  # (number of the step, command)

    def _carry_out(self: Any, command: Any) -> None:
        if isinstance(command, Fetch):
            self.fetched = [*getattr(self, "fetched", []), (self.steps, command)]
        else:
            super()._carry_out(command)  # type: ignore[misc]


class TieredRunner(_Tiered, HashRunner):
    pass


class LateTieredRunner(_Tiered, DelayedRunner):
    pass


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_work_before_a_step_is_a_command(overlap: str) -> None:
    top = BenchTop(overlap=overlap, runners=(TieredRunner, LateTieredRunner))
    for uid, prompt in PROMPTS.items():
        top.add(uid, prompt, 12)
    fetches = {3: Fetch((1, 2)), 4: Fetch((3,))}
    for turn in range(1, 6):
        if turn in fetches:
            top.scheduler.running.memory.commands.append(fetches[turn])
        top.turn()
    top.run()
    assert top.runner.fetched == list(fetches.items())
    assert {uid: top.tokens[uid] for uid in PROMPTS} == {u: expected_output(p, 12) for u, p in PROMPTS.items()}


# -- several tokens of a row in a step's answer ----------------------------------------------------------------------


@dataclass(frozen=True)
class Drafts:
    """The tokens that the model expects after the one at index `first` of the T."""

    first: int
    num: int


class DraftSpan(TokenSpan):
    pass


def plan_drafts(step: StepBuilder) -> None:
    firsts = step.firsts
    for index in np.flatnonzero(step.table.flags[step.rows] & RowFlag.IGNORE_EOS).tolist():
        end = int(step.ends[index])
        step.ask(DraftSpan(index, end, end + 3), Drafts(int(firsts[index] + step.num_new[index]) - 1, 3))  # type: ignore[arg-type]


class _Drafting:
    def _answer(self: Any, batch: Batch, ask: Any) -> Any:
        if not isinstance(ask, Drafts):
            return super()._answer(batch, ask)  # type: ignore[misc]
        (read,) = self._reads(batch, ask.first, 1)
        return np.array(expected_output(read.tolist(), ask.num), np.int32)


class DraftingRunner(_Drafting, HashRunner):
    pass


class LateDraftingRunner(_Drafting, DelayedRunner):
    pass


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_several_tokens_of_a_row_are_an_answer(overlap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "OF_ROWS", (*planning.OF_ROWS, (RowFlag.IGNORE_EOS, plan_drafts)))
    monkeypatch.setattr(planning, "ANY_OF_ROWS", planning.ANY_OF_ROWS | RowFlag.IGNORE_EOS)
    top = BenchTop(overlap=overlap, runners=(DraftingRunner, LateDraftingRunner))
    drafted: list[tuple[int, int, list[int]]] = []  # (uid, position of the first, tokens)
    apply = top.scheduler.results.apply

    def note(step: Any, result: Any, *more: Any) -> None:
        for span, tokens in step.answered(DraftSpan, result):
            drafted.append((int(step.uids[span.index]), span.start, tokens.tolist()))
        apply(step, result, *more)

    top.scheduler.results.apply = note  # type: ignore[method-assign]
    for uid, prompt in PROMPTS.items():
        top.add(uid, prompt, 12, ignore_eos=uid != 2, logprobs=None)
    top.run()
    assert {uid for uid, _, _ in drafted} == {1, 3} and len(drafted) == 2 * 12
    for uid, start, tokens in drafted:
        assert tokens == expected_output(PROMPTS[uid], 16)[start - len(PROMPTS[uid]) :][:3]
