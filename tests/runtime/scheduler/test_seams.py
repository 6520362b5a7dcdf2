"""What would come beside the core without changing it: each seam is shown by a double of a few lines."""

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from delayed_runner import DelayedRunner, fingerprint
from grammars import Grammars
from hash_runner import HashRunner, expected_output
from schedules import TOKENIZER

from ramet.ipc.spec import Constraint, ConstraintKind, LogprobSpec
from ramet.runtime.engine.batch import Batch
from ramet.runtime.scheduler.features import planned
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
    monkeypatch.setattr(planned, "OF_ROWS", (*planned.OF_ROWS, (RowFlag.IGNORE_EOS, plan_drafts)))
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


# -- a runner that leads others --------------------------------------------------------------------------------------


class LedStep:
    """A step that every rank computes, as it was sent to them; masks go to all, and the leader's answer counts."""

    def __init__(self, *ranks: Any) -> None:
        self.ranks, self.runs = ranks, ranks[0].runs

    def draw(self, allowed: np.ndarray) -> None:
        sent = pickle.dumps(allowed)
        for each in self.ranks:
            each.draw(pickle.loads(sent))

    def result(self) -> Any:
        own, *others = (each.result() for each in self.ranks)
        assert {fingerprint(each) for each in others} == {fingerprint(own)}, "the ranks have drawn different tokens"
        return own


class _Leading:
    def __init__(self: Any, *sizes: int) -> None:
        super().__init__(*sizes)  # type: ignore[call-arg]
        self.followers = [type(self).__mro__[2](*sizes) for _ in range(2)]

    def launch(self: Any, batch: Batch) -> LedStep:
        sent = pickle.dumps(batch)
        ranks = [super().launch(batch), *(each.launch(pickle.loads(sent)) for each in self.followers)]  # type: ignore[misc]
        return LedStep(*ranks)


class Rank(HashRunner):
    vocab_size = TOKENIZER.vocab_size


class LateRank(DelayedRunner):
    vocab_size = TOKENIZER.vocab_size


class LeadingRunner(_Leading, Rank):
    pass


class LateLeadingRunner(_Leading, LateRank):
    pass


def served_by(runners: Any, overlap: str) -> BenchTop:
    """Rows that are retracted, share prefixes, are penalised, masked, aborted and return log-probabilities."""
    top = BenchTop(
        total=160, context=160, rows=8, schedule_conservativeness=0.01, overlap=overlap, runners=runners,
        tokenizer=TOKENIZER, grammars=Grammars(TOKENIZER, frozenset([0])), eos_ids=[0],
    )  # fmt: skip
    asked: dict[int, dict[str, Any]] = {
        1: {}, 2: {"temperature": 1.0, "sampling_seed": 7}, 3: {"frequency_penalty": 1.0},
        4: {"constraint": Constraint(ConstraintKind.REGEX, "[ab]{50}")},
        5: {"logprobs": LogprobSpec(start=0, num_top=2)}, 6: {"temperature": 0.7, "sampling_seed": 3},
    }  # fmt: skip
    for uid, more in asked.items():
        top.add(uid, [11, 12, 13, 14, 15, 15 + uid // 3, uid], 60, **more)
        top.turn()
    for _ in range(4):
        top.turn()
    top.abort(6)
    top.run()
    assert top.scheduler.running.num_retractions > 0 and top.finish.keys() == asked.keys()
    return top


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_runner_leads_ranks_that_get_its_steps(overlap: str) -> None:
    alone, led = served_by((Rank, LateRank), overlap), served_by((LeadingRunner, LateLeadingRunner), overlap)
    assert led.tokens == alone.tokens and led.finish == alone.finish
    runner: Any = led.runner
    for each in runner.followers:
        assert (each.steps, each.draws) == (runner.steps, runner.draws)
        for name in ("pool", "table", "drawn"):
            np.testing.assert_array_equal(getattr(each, name), getattr(runner, name))
