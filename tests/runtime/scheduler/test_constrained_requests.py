"""Requests under constraints in the scheduler: while they compile, when a jump ends them, when a grammar fails."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from grammars import Grammars
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from schedules import TOKENIZER, what_clients_see

from ramet.ipc.channel import encode
from ramet.ipc.control import FlushCache
from ramet.ipc.messages import FinishKind, Wake
from ramet.ipc.spec import Constraint, ConstraintKind, LogprobSpec
from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.base import Grammar, GrammarError
from ramet.runtime.grammar.compile import Compiling, GrammarSource
from ramet.runtime.grammar.compiled import Failed, Loaded
from ramet.runtime.grammar.output import MAX_FORCED, IllegalToken
from ramet.runtime.scheduler.features.stop_patterns import forced_bytes

END = 0
PROMPT = [11, 12, 13, 14, 15]
overlaps = pytest.mark.parametrize("overlap", ["off", "on"])
jumps = pytest.mark.parametrize("jump", ["off", "ff", "retokenize"])


def regex(pattern: str, **more: str) -> Constraint:
    return Constraint(ConstraintKind.REGEX, pattern, **more)


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def text_of(top: BenchTop, uid: int) -> str:
    return TOKENIZER.decode([token for token in top.tokens[uid] if token != END])


def bench(grammars: GrammarSource | None = None, **options: Any) -> BenchTop:
    source = grammars or Grammars(TOKENIZER, frozenset([END]))
    return BenchTop(tokenizer=TOKENIZER, grammars=source, eos_ids=[END], **options)


def nothing_is_held(top: BenchTop) -> None:
    state = top.reporter.state()
    assert state["leased_tokens"] == state["owned_tokens"] == state["penalty_slots"] == 0
    assert not top.scheduler.running.memory.deferred.all and not top.features.constraints.compiling
    source: Any = top.features.constraints._source
    assert source is None or source.num_requests == 0, "a request that has ended still has its constraint"


# -- while it compiles -------------------------------------------------------------------------------------------------


def held() -> tuple[Grammars, BenchTop]:
    grammars = Grammars(TOKENIZER, frozenset([END]), held=True)
    return grammars, bench(grammars)


def release(grammars: Grammars, top: BenchTop, failed: Failed | None = None) -> None:
    grammars.release(failed)
    top.inbox.send(Wake())


def test_each_key_has_its_constraint_compiled_by_itself_and_counted_as_its_own():
    grammars, top = held()
    for uid, name in enumerate(("a", "a", "b"), 1):
        spec = {"namespace": ("", "", "", f"key {name}"), "key_name": name}
        top.add(uid, PROMPT, 3, constraint=regex("[ab]{3}"), **spec)
    top.turn()
    assert len(grammars.compiling) == 2 and grammars.owners == ["a", "a", "b"]


def test_a_request_waits_for_its_constraint_and_others_do_not():
    grammars, top = held()
    top.add(1, PROMPT, 20, constraint=regex("[ab]{3}"))
    top.add(2, PROMPT, 5)
    top.turn()
    assert top.scheduler.where(1) == {
        "state": "waiting",
        "reason": "its regex is being compiled",
        "retractions": 0,
    }
    top.run()
    assert list(top.finish) == [2] and 1 not in top.opened
    release(grammars, top)
    top.run()
    assert re.fullmatch("[ab]{3}", text_of(top, 1)) and top.scheduler.where(1) is None


def test_one_compile_serves_requests_of_several_fields():
    grammars, top = held()
    top.add(1, PROMPT, 20, constraint=regex("[ab]{3}", place="regex"))
    top.add(2, PROMPT, 20, n=2, constraint=regex("[ab]{3}", place="guided_regex"))
    top.turn()
    assert len(grammars.compiling) == 1
    release(grammars, top)
    top.run()
    assert all(re.fullmatch("[ab]{3}", text_of(top, uid)) for uid in (1, 2, 3))


def test_an_abort_ends_a_request_whose_constraint_compiles():
    grammars, top = held()
    top.add(1, PROMPT, 20, constraint=regex("a|b"))
    top.add(2, PROMPT, 20, constraint=regex("a|b"))
    top.turn()
    top.abort(1)
    top.turn()
    assert top.finish[1].kind is FinishKind.ABORT and top.tokens[1] == [] and grammars.num_requests == 1
    release(grammars, top)
    top.run()
    assert text_of(top, 2) in ("a", "b")


def test_a_constraint_that_nobody_waits_for_is_unwanted():
    grammars, top = held()
    top.add(1, PROMPT, 20, n=2, constraint=regex("a|b"))
    top.turn()
    assert grammars.num_requests == 2
    top.abort(1)
    top.turn()
    assert grammars.num_requests == 1
    top.abort(2)
    top.turn()
    assert grammars.num_requests == 0
    release(grammars, top)
    top.turn()
    assert sorted(top.finish) == [1, 2] and top.scheduler.idle


def test_the_cache_is_flushed_while_a_constraint_compiles():
    grammars, top = held()
    top.add(1, PROMPT, 3)
    top.run()
    top.add(2, PROMPT, 20, constraint=regex("a|b"))
    top.control(FlushCache, timeout_s=0.0)
    top.turn()
    assert [reply.ok for reply in top.replies] == [True] and top.scheduler.cache.tree_tokens == 0
    release(grammars, top)
    top.run()
    assert top.opened[2].cached_tokens == 0 and text_of(top, 2) in ("a", "b")


def test_a_lease_that_is_asked_for_while_a_constraint_compiles_begins_with_its_prompt():
    grammars, top = held()
    top.add(1, PROMPT, 20, constraint=regex("a|b"), prefix_lease_s=50)
    top.turn()
    release(grammars, top)
    top.run()
    assert [lease.length for lease in top.features.leases.leases] == [len(PROMPT)]


@pytest.mark.parametrize(
    ("failed", "message"),
    [
        (Failed("has no end", "close it"), "guided_regex has no end (close it)"),
        (Failed("takes longer", status=504), "guided_regex takes longer"),
    ],
)
def test_a_refusal_ends_its_requests_alone(failed: Failed, message: str):
    grammars, top = held()
    top.add(1, PROMPT, 20, n=2, constraint=regex("(", place="guided_regex"))
    top.add(3, PROMPT, 6)
    top.turn()
    release(grammars, top, failed)
    top.run()
    for uid in (1, 2):
        finish = top.finish[uid]
        assert (finish.kind, str(finish.error), finish.error.status) == (FinishKind.ABORT, message, failed.status)
        assert finish.error.place == "guided_regex" and top.tokens[uid] == []
    assert len(top.tokens[3]) == 6
    nothing_is_held(top)


@pytest.mark.parametrize("failed", [Failed("has no end"), None], ids=["refused", "compiled"])
def test_no_message_to_the_detokenizer_has_the_constraints_of_its_requests(failed: Failed | None):
    """256 that are refused in one turn were a message of 54 MB, for which all streams waited half a second."""
    grammars, top = held()
    for uid in (1, 2, 3):
        top.add(uid, PROMPT, 5, constraint=regex("a" * 10_000), logit_bias=((300, 1.0),) * 1000, custom_params={"a": 1})
    top.turn()
    release(grammars, top, failed)
    top.run()
    assert len(top.finish) == 3
    assert all(len(encode(opened)) < 200 for opened in top.opened.values())


def test_who_asks_after_a_timeout_does_not_get_it():
    """It arrives between the end of the compile and the message that says so."""
    grammars, top = held()
    top.add(1, PROMPT, 20, constraint=regex("a|b"))
    top.turn()
    grammars.release(Failed("takes longer", status=504))
    top.add(2, PROMPT, 20, constraint=regex("a|b"))
    top.inbox.send(Wake())
    top.turn()
    assert top.finish[1].error.status == 504 and 2 not in top.finish
    release(grammars, top)
    top.run()
    assert text_of(top, 2) in ("a", "b")


def test_without_a_grammar_backend_a_constraint_is_refused():
    top = BenchTop(tokenizer=TOKENIZER, eos_ids=[END])
    top.add(1, PROMPT, 20, constraint=regex("a", place="regex"))
    top.run()
    assert top.finish[1].error.status == 400 and "LLM" in str(top.finish[1].error)
    assert str(top.finish[1].error).startswith("regex cannot be kept to: the grammar backend is none (")


# -- jumps -------------------------------------------------------------------------------------------------------------

LONG = "The whole output of this request is known before the model has said anything."


@overlaps
def test_what_is_forced_from_beginning_to_end_takes_no_step(overlap: str):
    top = bench(overlap=overlap)
    top.add(1, PROMPT, 90, constraint=regex(re.escape(LONG)))
    top.run()
    assert top.tokens[1] == [*ids_of(LONG), END] and top.runner.steps == 0
    assert (top.finish[1].kind, top.finish[1].matched) == (FinishKind.STOP, END)
    nothing_is_held(top)


@overlaps
@jumps
def test_max_new_tokens_ends_an_output_inside_forced_text(overlap: str, jump: str):
    for num_new in (1, 4, len(ids_of(LONG))):
        top = bench(overlap=overlap, jump_forward=jump)
        top.add(1, PROMPT, num_new, constraint=regex(re.escape(LONG)))
        top.add(2, PROMPT, num_new + 1, constraint=regex("[0-9]" + re.escape(LONG)))
        top.run()
        assert top.tokens[1] == ids_of(LONG)[:num_new]
        assert (top.finish[1].kind, top.finish[1].length) == (FinishKind.LENGTH, num_new)
        assert len(top.tokens[2]) == num_new + 1 and top.finish[2].kind is FinishKind.LENGTH
        nothing_is_held(top)


@overlaps
@pytest.mark.parametrize("jump", ["ff", "retokenize"])
def test_a_step_appends_a_bounded_number_of_forced_tokens(overlap: str, jump: str):
    text = LONG * 120
    spelled = ids_of(text)
    assert len(spelled) > 4 * MAX_FORCED
    top = bench(overlap=overlap, jump_forward=jump, context=4096, total=8192, rows=2)
    top.add(1, PROMPT, 4000, constraint=regex(re.escape(text)))
    top.run()
    assert text_of(top, 1) == text and top.finish[1].kind is FinishKind.STOP
    assert max(len(step.uids) for step in top.told) <= 3 * MAX_FORCED  # where it begins, and after the draw
    if jump == "ff":
        assert top.tokens[1] == [*spelled, END] and 0 < top.runner.steps <= 2 * (len(spelled) // MAX_FORCED + 1)


@overlaps
@pytest.mark.parametrize("jump", ["ff", "retokenize"])
def test_a_step_appends_less_forced_text_where_stop_patterns_are_large(overlap: str, jump: str):
    text = LONG * 3
    tops = []
    for patterns in (("bef[0-9]re",), ("(?s)(.?){450}#no",)):
        top = bench(overlap=overlap, jump_forward=jump)
        top.add(1, PROMPT, 400, constraint=regex(re.escape(text)), stop_regex=patterns)
        top.run()
        assert text_of(top, 1) == text and top.finish[1].kind is FinishKind.STOP
        tops.append(top)
    small, large = ([len(step.uids) for step in top.told] for top in tops)
    assert forced_bytes(("(?s)(.?){450}#no",)) < len(text) / 3 and 0 < max(large) < max(small) / 2


@overlaps
@jumps
def test_a_stop_string_inside_forced_text_ends_it(overlap: str, jump: str):
    top = bench(overlap=overlap, jump_forward=jump)
    top.add(1, PROMPT, 90, constraint=regex(re.escape(LONG)), stop=("request is kn",))
    top.add(2, PROMPT, 90, constraint=regex(f"[0-9]{re.escape(LONG)}"), stop_regex=("bef[aeiou]re",))
    top.run()
    for uid, matched in ((1, "request is kn"), (2, "bef[aeiou]re")):
        assert top.finish[uid].kind is FinishKind.STOP and top.finish[uid].matched == matched
        assert "anything" not in text_of(top, uid)
    assert TOKENIZER.decode(top.tokens[1])[: top.finish[1].cut] == "The whole output of this "


@overlaps
@jumps
def test_a_stop_token_inside_forced_text_ends_it(overlap: str, jump: str):
    spelled = ids_of(LONG)
    top = bench(overlap=overlap, jump_forward=jump)
    top.add(1, PROMPT, 90, constraint=regex(re.escape(LONG)), stop_token_ids=(spelled[7],))
    top.run()
    assert top.tokens[1] == spelled[: spelled.index(spelled[7]) + 1]
    assert top.finish[1].matched == spelled[7]


CHOICES = re.escape(LONG[:30]) + "(yes|no|perhaps)" + re.escape(LONG[30:]) + "[0-9]{2}"


@overlaps
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"n": 3, "temperature": 1.0, "sampling_seed": 5},
        {"frequency_penalty": 1.0},
        {"repetition_penalty": 1.3},
        {"logprobs": LogprobSpec(None, 3, (5, 9))},
        {"logprobs": LogprobSpec(1, 1, ())},
        {"min_new_tokens": 25},
        {"ignore_eos": True},
        {"prefix_lease_s": 20},
    ],
    ids=lambda asked: next(iter(asked), "plain"),
)
def test_forced_tokens_are_as_drawn_ones(overlap: str, page_size: int, asked: dict[str, Any]):
    """Their log-probabilities, and what penalties count, are those of steps that draw each of them."""
    tops = []
    for jump in ("off", "ff"):
        top = bench(overlap=overlap, jump_forward=jump, page_size=page_size)
        top.add(1, PROMPT * 7, 60, constraint=regex(CHOICES), **asked)
        top.add(8, [*PROMPT * 7, 3], 60, constraint=regex(CHOICES, after="e"), **asked)
        top.run()
        tops.append(top)
    off, ff = tops
    assert ff.finish.keys() == off.finish.keys()
    for uid in off.finish:
        assert what_clients_see(ff, uid) == what_clients_see(off, uid), uid
    assert ff.runner.steps < off.runner.steps


@overlaps
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("jump", ["ff", "retokenize"])
def test_a_retraction_between_jumps_changes_no_output(overlap: str, page_size: int, jump: str):
    roomy, tight = ({"total": total, "rows": 8} for total in (2048, 96))
    outputs = []
    for room in (roomy, tight):
        top = bench(overlap=overlap, page_size=page_size, jump_forward=jump, schedule_conservativeness=0.01, **room)
        for uid in range(1, 7):
            top.add(uid, [uid, *PROMPT], 80, constraint=regex("([a-z]{4} is told; ){6}"), frequency_penalty=1.0)
        top.run()
        outputs.append(dict(top.tokens))
        nothing_is_held(top)
    assert sum(finish.num_retractions for finish in top.finish.values()) > 0
    assert all(re.fullmatch("([a-z]{4} is told; ){6}", text_of(top, uid)) for uid in range(1, 7))
    if jump == "ff":  # what retokenize replaces depends on whether there was memory for it
        assert outputs[0] == outputs[1]


@overlaps
def test_where_memory_is_short_forced_tokens_are_drawn(overlap: str):
    few, forced = 24, ids_of(LONG)
    tops = []
    for jump in ("off", "ff"):
        top = bench(overlap=overlap, jump_forward=jump, total=len(forced) + few, rows=2, schedule_conservativeness=0.01)
        top.add(1, PROMPT, len(forced) + 2, constraint=regex("[0-9]" + re.escape(LONG)))
        top.add(2, [9, 8, 7], 10)
        top.run()
        tops.append(top)
    off, ff = tops
    assert ff.tokens == off.tokens and TOKENIZER.decode(ff.tokens[1][:-1])[1:] == LONG


@overlaps
@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_an_abort_between_jumps_sends_all_that_was_accepted(overlap: str, after: int):
    for jump in ("ff", "retokenize"):
        top = bench(overlap=overlap, jump_forward=jump)
        top.add(1, PROMPT, 90, constraint=regex("([a-z]{3} is told; ){9}"))
        for _ in range(after):
            top.turn()
        known = top.scheduler.running.get(1)
        assert known is not None
        output = known.output.tolist()
        top.abort(1)
        top.run()
        assert top.tokens[1] == output and top.finish[1].kind is FinishKind.ABORT
        nothing_is_held(top)


# -- a grammar that fails ----------------------------------------------------------------------------------------------


class Failing:
    """A grammar of any text that fails when it has taken `last` tokens."""

    may_end = True
    must_end = False

    def __init__(self, last: int, error: Exception, where: str) -> None:
        self.left, self.error, self.where = last, error, where

    def accept(self, token: int) -> bool:
        self.left -= 1
        self._fail("accept")
        return True

    def _fail(self, where: str) -> None:
        if self.left <= 0 and where == self.where:
            raise self.error

    def fill_mask(self, bits: Ints) -> None:
        self._fail("fill_mask")
        bits[:] = -1

    def forced(self) -> list[int]:
        self._fail("forced")
        return []

    def forced_text(self) -> bytes:
        return b""

    def rollback(self, num_tokens: int) -> None:
        self.left += num_tokens

    def fork(self) -> "Failing":
        return Failing(self.left, self.error, self.where)


class FailingBackend:
    """A constraint's text says how many tokens its grammar takes. `where`: what fails then."""

    name = "llguidance"
    canonical = True

    def __init__(self, error: Exception, where: str = "fill_mask") -> None:
        self.error, self.where = error, where
        self.num_requests = self.num_bytes = 0

    def get(self, constraint: Constraint, owner: str = "") -> Loaded | Failed | Compiling:
        self.num_requests += 1
        return Loaded(FailingCompiled(int(constraint.text), self.error, self.where), self)  # type: ignore[arg-type]

    def take_compiled(self) -> list[Compiling]:
        return []

    def leave(self, constraint: Constraint) -> None:
        self.num_requests -= 1

    def close(self) -> None:
        pass

    def fill_masks(self, grammars: Sequence[Grammar], rows: Sequence[int], bits: Ints) -> None:
        for grammar, row in zip(grammars, rows, strict=True):
            grammar.fill_mask(bits[row])


class FailingCompiled:
    num_bytes = 1

    def __init__(self, last: int, error: Exception, where: str) -> None:
        self._last, self._error, self._where = last, error, where

    def start(self) -> Failing:
        if self._where == "start" and self._last < 1000:
            raise self._error
        return Failing(self._last, self._error, self._where)


@overlaps
@pytest.mark.parametrize("where", ["fill_mask", "accept", "forced"])
def test_a_grammar_that_becomes_too_complex_ends_its_output_alone(overlap: str, where: str):
    top = bench(FailingBackend(GrammarError("became too complex", hint="be brief"), where), overlap=overlap)
    top.add(1, PROMPT, 12, constraint=regex("4", place="guided_regex"), frequency_penalty=1.0)
    top.add(2, PROMPT, 12, constraint=regex("1000"), ignore_eos=True)
    top.add(3, PROMPT, 12)
    top.run()
    assert (top.finish[1].kind, top.finish[1].error.status) == (FinishKind.ABORT, 400)
    assert str(top.finish[1].error) == "guided_regex became too complex (be brief)" and len(top.tokens[1]) == 4
    assert top.finish[1].error.place == "guided_regex"
    assert len(top.tokens[2]) == 12 and len(top.tokens[3]) > 0
    nothing_is_held(top)


@overlaps
@pytest.mark.parametrize("where, last", [("fill_mask", 0), ("accept", 1)])
def test_a_grammar_that_fails_where_it_begins_inside_a_token_ends_its_output_alone(
    overlap: str, where: str, last: int
) -> None:
    top = bench(FailingBackend(GrammarError("became too complex"), where), overlap=overlap)
    prompt = [*PROMPT, *ids_of(" th")]
    top.add(1, prompt, 12, constraint=regex(str(last)), token_healing=True)
    top.add(2, prompt, 12, constraint=regex("1000"), ignore_eos=True, token_healing=True)
    top.add(3, prompt, 12, token_healing=True)
    top.run()
    assert top.opened[1].tail_bytes == 3
    assert (top.finish[1].kind, top.finish[1].error.status) == (FinishKind.ABORT, 400)
    assert str(top.finish[1].error) == "regex became too complex"
    assert len(top.tokens[2]) == 12 and len(top.tokens[3]) > 0
    nothing_is_held(top)


@overlaps
@pytest.mark.parametrize("where", ["start", "fill_mask", "accept", "forced"])
@pytest.mark.parametrize("error", [RuntimeError("of the library"), IllegalToken("of the library")])
def test_a_library_that_raises_anything_ends_its_output_alone(
    overlap: str, where: str, error: Exception, caplog: pytest.LogCaptureFixture
):
    top = bench(FailingBackend(error, where), overlap=overlap)
    top.add(1, PROMPT, 12, constraint=regex("4"))
    top.add(2, PROMPT, 12, constraint=regex("1000"), ignore_eos=True)
    top.run()
    assert (top.finish[1].kind, top.finish[1].error.status) == (FinishKind.ABORT, 500)
    assert str(top.finish[1].error) == f"regex failed: internal error: {type(error).__name__}"
    assert "of the library" in caplog.text and len(top.tokens[2]) == 12
    nothing_is_held(top)


# -- rewinding ---------------------------------------------------------------------------------------------------------

Rewind = tuple[int, int, int, bool]  # which request, tokens that are dropped, tokens in their place, publish before
rewinds = st.lists(
    st.one_of(
        st.none(), st.tuples(st.integers(0, 5), st.integers(0, 40), st.integers(0, 20), st.booleans())
    ),  # none: a turn
    max_size=40,
)


@overlaps
@pytest.mark.parametrize("page_size", [1, 16])
@given(rewinds=rewinds, total=st.sampled_from([160, 320, 2048]), penalised=st.booleans(), seed=st.integers(0, 99))
@examples(25, 400)
def test_a_rewind_loses_nothing(
    overlap: str, page_size: int, rewinds: list[Rewind | None], total: int, penalised: bool, seed: int
):
    top = BenchTop(page_size=page_size, overlap=overlap, total=total, rows=4, schedule_conservativeness=0.01)
    draw = np.random.default_rng(seed)
    for uid in range(1, 7):
        shared = [5] * int(draw.integers(0, 40))
        more = {"repetition_penalty": 1.2} if penalised else {}
        top.add(uid, [*shared, uid], int(draw.integers(20, 60)), prefix_lease_s=30 if uid == 1 else None, **more)
    for _ in range(4):
        top.turn()
    for rewind in rewinds:
        if rewind is None:
            top.turn()
            what_is_computed_is_known(top)
        else:
            rewind_one(top, rewind, draw)
    top.run()
    what_is_computed_is_known(top)
    nothing_is_held(top)
    assert sorted(top.finish) == list(range(1, 7)) and top.scheduler.running.free_rows.num_free == 4
    top.clock.advance(100)
    top.turn()
    top.scheduler.control.flush()
    top.turn()
    assert top.scheduler.cache.free_tokens == top.scheduler.cache.total_tokens


def rewind_one(top: BenchTop, rewind: Rewind, draw: np.random.Generator) -> None:
    which, num_dropped, num_new, publish = rewind
    running_set = top.scheduler.running
    able = [each for each in running_set if not each.prefilling and each.applied > each.request.prompt_len]
    if not able:
        return
    running = able[which % len(able)]
    if publish:
        running_set.memory.publish(running)
    dropped = min(num_dropped, running.num_output)
    tokens = draw.integers(0, 97, min(num_new, running.remaining + dropped - 1)).tolist()
    if dropped == 0 and running_set.table.planned_totals[running.row] > running.total:
        return  # a step draws what comes next
    rewritten = top.features.late.rewritten
    if not rewritten.replace(running, dropped, len(tokens)):
        return
    for token in tokens:
        running.append(token)
    rewritten.extend(running)


def what_is_computed_is_known(top: BenchTop) -> None:
    """The pool has, in every slot of a running request that counts as computed, the token that the request has."""
    for running in top.scheduler.running:
        slots, tokens = running.slots[: running.applied], running.tokens[: running.applied]
        assert top.runner.pool[slots].tolist() == tokens.tolist(), running.uid
