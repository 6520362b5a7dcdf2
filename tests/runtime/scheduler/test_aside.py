"""Outputs that are too slow to parse in a step continue in processes of their own, and other rows are not held."""

import json
import math
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import psutil
import pytest
from bench_top import BenchTop
from constrained import bytewise
from constrained import compiled as compiled_by
from grammars import Grammars
from msgspec.structs import replace
from samples import sampled
from schedules import TOKENIZER, what_clients_see

from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import Constraint, ConstraintKind, LogprobSpec
from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.grammar import after_tail
from ramet.runtime.grammar import aside as aside_module
from ramet.runtime.grammar import bounded as bounded_module
from ramet.runtime.grammar.aside import AsideFailed, AsideGrammar, Parsers
from ramet.runtime.grammar.aside_process import MEMORY_BYTES, Kill, Parent
from ramet.runtime.grammar.base import BackendName, GrammarError, Vocabulary
from ramet.runtime.grammar.bounded import Apart, Bounded
from ramet.runtime.grammar.compiled import Loaded
from ramet.runtime.grammar.ending import EndTokens
from ramet.runtime.grammar.jump import Retokenizer
from ramet.runtime.grammar.output import ConstrainedOutput, JumpMode, ThoughtRule
from ramet.runtime.scheduler.features.constrained import Constrained

END = 0
PROMPT = [11, 12, 13, 14, 15]
AMBIGUOUS = "root ::= s\ns ::= s s s | s s | [a-z ]"
LEFT = 'root ::= e\ne ::= e "+" e | e "*" e | e e | [a-z]'
NULLABLE = 'root ::= a\na ::= a a | b | ""\nb ::= a b a | [a-z ] | ""'
STEP_ITEMS = 5000
overlaps = pytest.mark.parametrize("overlap", ["off", "on"])


def ebnf(text: str, backend: BackendName = "llguidance", **more: str) -> Constraint:
    return Constraint(ConstraintKind.EBNF, text, backend=backend, **more)


@pytest.fixture(scope="module")
def parsers() -> Iterator[Parsers]:
    made = Parsers(Vocabulary(TOKENIZER, BUNDLED_MODEL, TOKENIZER.vocab_size, frozenset([END])), 20, STEP_ITEMS, 0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def aside(parsers: Parsers) -> Grammars:
    return Grammars(TOKENIZER, frozenset([END]), parsers=parsers, step_items=STEP_ITEMS)


@pytest.fixture(scope="module")
def early(parsers: Parsers) -> Grammars:
    """Grammars whose outputs are moved aside after a few tokens."""
    return Grammars(TOKENIZER, frozenset([END]), parsers=parsers, step_items=700)


def bench(grammars: Grammars, **options: Any) -> BenchTop:
    return BenchTop(tokenizer=TOKENIZER, grammars=grammars, eos_ids=[END], **options)


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


@contextmanager
def without_replies(parsers: Parsers) -> Iterator[None]:
    """No process is forked, and no end of one is heard of."""
    assert parsers._process is not None
    parent = psutil.Process(parsers._process.pid)
    parent.suspend()
    try:
        yield
    finally:
        parent.resume()


def what_is_left(top: BenchTop) -> dict[str, Any]:
    state = top.reporter.state()
    return {name: state[name] for name in ("leased_tokens", "owned_tokens", "penalty_slots") if state[name]}


HARD = {"ambiguous": AMBIGUOUS, "left": LEFT, "nullable": NULLABLE}
BOTH: list[BackendName] = ["llguidance", "xgrammar"]


@pytest.mark.parametrize(("backend", "name", "overlap"), sampled(list(product(BOTH, HARD, ["off", "on"])), 4))
def test_an_ambiguous_grammar_ends_its_own_request_and_holds_no_other(
    aside: Grammars, parsers: Parsers, monkeypatch: pytest.MonkeyPatch, overlap: str, name: str, backend: BackendName
) -> None:
    monkeypatch.setattr(parsers, "budget_s", 0.25)
    top, before = bench(aside, overlap=overlap), parsers.num_opened
    top.add(1, PROMPT, 400, constraint=ebnf(HARD[name], backend, place="grammar"), ignore_eos=True)
    top.add(2, [*PROMPT, 16], 100, ignore_eos=True)
    while parsers.num_opened == before:
        top.turn()
    with without_replies(parsers):
        while 2 not in top.finish:
            top.turn()
    assert len(top.tokens[2]) == 100 and top.finish_order == [2]
    top.run()
    finish = top.finish[1]
    assert (finish.kind, finish.error.status, finish.error.place) == (FinishKind.ABORT, 400, "grammar")
    assert str(finish.error).startswith("grammar takes longer to parse than the 0.25 s of --grammar-output-s, in ")
    assert top.tokens[1] and what_is_left(top) == {}


# -- the same outputs --------------------------------------------------------------------------------------------------


def outputs(grammars: Grammars, constraint: Constraint, overlap: str, **asked: Any) -> BenchTop:
    top = bench(grammars, overlap=overlap, jump_forward="off")
    top.add(1, PROMPT, 13, constraint=constraint, **{"ignore_eos": True, **asked})
    top.add(5, [*PROMPT, 3], 11, constraint=constraint, **{"ignore_eos": True, **asked})
    top.add(9, [*PROMPT, 4], 30)
    top.run()
    assert what_is_left(top) == {}
    return top


PLAIN = Grammars(TOKENIZER, frozenset([END]))
SUMS = 'root ::= e\ne ::= e "+" e | e "-" e | "(" e ")" | [0-9a-f]'
TWOS = "root ::= s\ns ::= s s | [a-z ] | [a-z] [a-z]"


ASKED = [
    {},
    {"n": 3, "temperature": 1.0, "sampling_seed": 5},
    {"frequency_penalty": 1.0, "repetition_penalty": 1.3},
    {"logprobs": LogprobSpec(None, 3, (5, 9))},
    {"min_new_tokens": 9, "ignore_eos": False},
    {"stop": ("in", "er")},
    {"ignore_eos": False},
]


@pytest.mark.parametrize(("backend", "asked", "overlap"), sampled(list(product(BOTH, ASKED, ["off", "on"])), 6))
def test_what_is_parsed_aside_is_the_same_output(
    early: Grammars, overlap: str, backend: BackendName, asked: dict[str, Any]
) -> None:
    assert early.parsers is not None
    texts = {"llguidance": TWOS, "xgrammar": SUMS}
    before = early.parsers.num_opened
    one, other = (outputs(grammars, ebnf(texts[backend], backend), overlap, **asked) for grammars in (PLAIN, early))
    assert early.parsers.num_opened > before
    assert one.finish.keys() == other.finish.keys()
    for uid in one.finish:
        assert what_clients_see(other, uid) == what_clients_see(one, uid), uid


@pytest.mark.parametrize(("backend", "page_size", "overlap"), sampled(list(product(BOTH, [1, 16], ["off", "on"])), 3))
def test_a_retraction_of_what_is_parsed_aside_changes_no_output(
    early: Grammars, overlap: str, page_size: int, backend: BackendName
) -> None:
    tops = []
    for grammars in (PLAIN, early):
        top = bench(grammars, overlap=overlap, page_size=page_size, jump_forward="off")
        for uid in range(1, 5):
            text = {"llguidance": TWOS, "xgrammar": SUMS}[backend]
            top.add(uid, [uid, *PROMPT], 14, constraint=ebnf(text, backend), ignore_eos=True, frequency_penalty=1.0)
        at = {3, 7, 11}  # tokens
        while 1 not in top.finish:
            top.turn()
            if len(top.tokens[1]) in at:
                at.remove(len(top.tokens[1]))
                top.scheduler._steps.apply_in_flight()
                for request in [top.scheduler.running.retract(each) for each in top.scheduler.running]:
                    top.scheduler.waiting.add(request)
        top.run()
        tops.append(top)
        assert what_is_left(top) == {} and top.finish[1].num_retractions >= 3
    assert dict(tops[0].tokens) == dict(tops[1].tokens)


@overlaps
def test_what_is_parsed_aside_may_follow_a_thought(early: Grammars, overlap: str) -> None:
    one, other = (outputs(grammars, ebnf(TWOS, after="e"), overlap) for grammars in (PLAIN, early))
    assert dict(one.tokens) == dict(other.tokens)


FORCED = '{"type": "array", "minItems": 500, "maxItems": 500, "items": {"const": "abcabcabc"}}'


@pytest.mark.parametrize("jump_forward", ["ff", "retokenize"])
@overlaps
def test_an_output_that_moves_aside_within_a_jump_is_the_same_output(
    early: Grammars, overlap: str, jump_forward: str
) -> None:
    """It moves after some of the tokens that follow without a choice: the others of them are drawn."""
    assert early.parsers is not None
    before, tops = early.parsers.num_opened, []
    for grammars in (PLAIN, early):
        top = bench(grammars, overlap=overlap, jump_forward=jump_forward, context=1400)
        top.add(1, PROMPT, 1300, constraint=Constraint(ConstraintKind.JSON_SCHEMA, FORCED))
        top.add(9, [*PROMPT, 4], 30)
        top.run()
        tops.append(top)
        assert what_is_left(top) == {}
    assert early.parsers.num_opened > before
    assert tops[0].finish[1] == tops[1].finish[1] and dict(tops[0].tokens) == dict(tops[1].tokens)


@overlaps
def test_an_abort_ends_what_is_parsed_aside(aside: Grammars, overlap: str) -> None:
    top = bench(aside, overlap=overlap)
    top.add(1, PROMPT, 400, constraint=ebnf(AMBIGUOUS, "xgrammar"), ignore_eos=True)
    top.turn()
    assert list(top.scheduler.running.held) == [1]
    top.abort(1)
    top.run()
    assert top.finish[1].kind is FinishKind.ABORT and what_is_left(top) == {}
    assert aside.parsers is not None and not aside.parsers.num_open


def started(grammars: Grammars, text: str) -> AsideGrammar:
    """An output that is parsed aside from its beginning and has these tokens."""
    loaded = grammars.get(ebnf(AMBIGUOUS, "xgrammar", whitespace="single-space"))
    assert isinstance(loaded, Loaded) and isinstance(loaded.compiled, Bounded)
    return loaded.compiled.apart.start(ids_of(text))


def parse(*outputs: AsideGrammar) -> None:
    for grammar in outputs:
        grammar.begin()
    while any(grammar.pending for grammar in outputs):
        outputs[0].parsers.poll(1.0)


def children(parsers: Parsers) -> set[psutil.Process]:
    """Processes of outputs that have ended may be among them: nobody waits for their end."""
    return set() if parsers._process is None else set(psutil.Process(parsers._process.pid).children())


def begin(parsers: Parsers, *outputs: AsideGrammar) -> set[psutil.Process]:
    """Begin the outputs, and wait until each has a process. Returns these processes."""
    answered = started(Grammars(TOKENIZER, frozenset([END]), parsers=parsers, step_items=STEP_ITEMS), "a")
    parse(answered)  # no process is still to be forked for an output that has ended since: commands keep their order
    before = children(parsers)
    for grammar in outputs:
        grammar.begin()
    while len(found := children(parsers) - before) < len(outputs):
        parsers.poll(0.01)
    answered.rest()
    return found


def test_the_end_of_an_output_ends_a_process_that_is_parsing(aside: Grammars, parsers: Parsers) -> None:
    grammar = started(aside, "a b c d")
    (process,) = begin(parsers, grammar)
    process.suspend()  # it parses for ever
    grammar.rest()
    psutil.wait_procs([process])


def test_processes_of_one_output_share_its_budget(aside: Grammars, parsers: Parsers) -> None:
    """Each retraction of a request ends its process, and its output goes on in another one."""
    grammar = started(aside, "a b c d")
    parse(grammar)
    first_s = grammar.spent_s
    grammar.rest()
    parse(grammar)
    assert grammar.spent_s > first_s > 0
    other = started(aside, "a b c d e f g h" * 10)
    other.spent_s = parsers.budget_s
    parse(other)
    with pytest.raises(GrammarError, match="the 20 s of --grammar-output-s"):
        other.check()
    grammar.rest()


def test_outputs_beyond_the_number_of_processes_wait_for_one(
    aside: Grammars, parsers: Parsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside_module, "MAX_PROCESSES", 1)
    first, second, third = (started(aside, "a b") for _ in range(3))
    parse(first)
    for waits in (second, third):
        waits.begin()
    assert (len(parsers._links), parsers.num_open) == (1, 3) and second.pending
    assert first._link is not None
    parsers._command_parent(Kill(first._link.key))
    parse(second)
    second.rest()
    parse(third)
    third.rest()
    assert not parsers.num_open


def test_a_parser_that_is_killed_ends_its_request_alone(early: Grammars) -> None:
    top = bench(early)
    for uid in (1, 2):
        top.add(uid, PROMPT, 30, constraint=ebnf(SUMS, "xgrammar"), ignore_eos=True)
    while not top.tokens[1]:
        top.turn()
    running = top.scheduler.running.get(1)
    assert running is not None and early.parsers is not None
    grammar = running.request.own[Constrained].output.aside
    assert grammar is not None and grammar._link is not None
    early.parsers._command_parent(Kill(grammar._link.key))
    while grammar.runs:  # a busy machine ends it late
        early.parsers.poll(1.0)
    top.run()
    assert (top.finish[2].kind, len(top.tokens[2])) == (FinishKind.LENGTH, 30)
    killed = top.finish[1]
    assert (
        killed.error.status == 500 and str(killed.error) == "ebnf was not parsed: its process ended with signal SIGKILL"
    )


# -- libraries that have no limit --------------------------------------------------------------------------------------


PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}  # fmt: skip
UNLIMITED = {
    "schema": Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(PERSON)),
    "regex": Constraint(ConstraintKind.REGEX, "[a-z]{1,9}( [a-z]{1,9}){2,9}"),
}
LIBRARIES: list[BackendName] = ["xgrammar", "outlines"]


def long_from(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token that takes more than this is too long."""
    for bound in ("LONG_S", "TOO_LONG_S"):
        monkeypatch.setattr(bounded_module, bound, seconds)


@pytest.fixture
def fresh(parsers: Parsers) -> Grammars:
    """Nothing is known of any constraint."""
    return Grammars(TOKENIZER, frozenset([END]), parsers=parsers, step_items=STEP_ITEMS)


def test_an_output_is_moved_by_two_long_tokens_near_each_other_or_by_one_that_is_far_too_long(parsers: Parsers) -> None:
    compiled = compiled_by("xgrammar", ConstraintKind.REGEX, "[a-z]+")
    apart = Apart(parsers, "xgrammar", b"")
    long, short = 2 * bounded_module.LONG_S, bounded_module.LONG_S / 2
    rare = Bounded(compiled, apart, 0, measured=True)
    for _ in range(3):
        assert not rare.took(long) and not any(rare.took(short) for _ in range(bounded_module.FORGOTTEN))
    assert not isinstance(rare.start(), AsideGrammar)
    for tokens in ([long, short, long], [2 * bounded_module.TOO_LONG_S]):
        found = Bounded(compiled, apart, 0, measured=True)
        assert [found.took(each) for each in tokens] == [False] * (len(tokens) - 1) + [True]
        assert isinstance(found.start(), AsideGrammar) and found.took(long) and not found.took(short)


@pytest.mark.parametrize(
    ("backend", "name", "overlap"), sampled(list(product(LIBRARIES, UNLIMITED, ["off", "on"])), 3, seed=1)
)
def test_an_output_goes_aside_after_a_token_that_took_long(
    fresh: Grammars, parsers: Parsers, monkeypatch: pytest.MonkeyPatch, overlap: str, name: str, backend: BackendName
) -> None:
    constraint = replace(UNLIMITED[name], backend=backend, whitespace="single-space")
    one, before = outputs(PLAIN, constraint, overlap), parsers.num_opened
    long_from(math.inf, monkeypatch)
    assert dict(outputs(fresh, constraint, overlap).tokens) == dict(one.tokens)
    assert parsers.num_opened == before
    long_from(0.0, monkeypatch)
    for num_opened in (2, 4):  # at its first token, and of the constraint that is known now from the beginning
        other = outputs(fresh, constraint, overlap)
        assert parsers.num_opened == before + num_opened
        for uid in one.finish:
            assert what_clients_see(other, uid) == what_clients_see(one, uid), uid


@pytest.mark.parametrize("backend", LIBRARIES)
def test_the_end_of_a_prompt_is_read_aside_where_that_takes_long(
    fresh: Grammars, parsers: Parsers, monkeypatch: pytest.MonkeyPatch, backend: BackendName
) -> None:
    long_from(math.inf, monkeypatch)
    tops = []
    for most in (after_tail.MAX_ACCEPTED, 0):
        monkeypatch.setattr(after_tail, "MAX_ACCEPTED", most)
        after_tail.KNOWN.clear()
        before = parsers.num_opened
        top = bench(fresh, jump_forward="off")
        constraint = replace(UNLIMITED["regex"], backend=backend)
        top.add(1, [*PROMPT, *ids_of(" th")], 12, constraint=constraint, ignore_eos=True, token_healing=True)
        top.run()
        assert (parsers.num_opened > before) == (most == 0)
        tops.append(top)
    assert tops[0].tokens[1] and dict(tops[0].tokens) == dict(tops[1].tokens)


# -- where a prompt is healed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "tail", "overlap"), sampled(list(product(BOTH, [" th", " wor"], ["off", "on"])), 3)
)
def test_what_is_parsed_aside_may_begin_inside_a_token(
    early: Grammars, overlap: str, backend: BackendName, tail: str
) -> None:
    text = {"llguidance": TWOS, "xgrammar": 'root ::= [a-z]{1,9} " " root | [a-z]+'}[backend]
    tops = []
    for grammars in (PLAIN, early):
        top = bench(grammars, overlap=overlap, jump_forward="off")
        top.add(1, [*PROMPT, *ids_of(tail)], 12, constraint=ebnf(text, backend), ignore_eos=True, token_healing=True)
        top.add(2, [*PROMPT, 16], 20)
        top.run()
        assert top.finish[1].kind is not FinishKind.ABORT, str(top.finish[1].error)
        tops.append(top)
    assert dict(tops[0].tokens) == dict(tops[1].tokens)


def test_a_process_is_bounded_and_the_end_of_its_parent_ends_what_it_parses(aside: Grammars, parsers: Parsers) -> None:
    both = [started(aside, text) for text in ("a b", "c d")]
    processes = begin(parsers, *both)
    parse(*both)
    assert parsers._process is not None
    for child in processes:
        most, _ = child.rlimit(psutil.RLIMIT_AS)
        assert child.memory_info().vms < most < child.memory_info().vms + 2 * MEMORY_BYTES
    parsers._process.kill()
    parsers.poll(30.0)
    for grammar in both:
        with pytest.raises(AsideFailed, match="SIGKILL"):
            grammar.check()


# -- how an output moves, and how it ends ------------------------------------------------------------------------------

PAIRS = 'root ::= s\ns ::= s s s | s s | "xy"'  # becomes too complex where a token is accepted, not in a mask
NO_END = EndTokens(np.array([], np.int32), np.array([], np.int32), False, 0)


def output_of(
    grammars: Grammars, constraint: Constraint, end: EndTokens, mode: JumpMode = JumpMode.OFF
) -> ConstrainedOutput:
    loaded = grammars.get(replace(constraint, whitespace="single-space"))
    assert isinstance(loaded, Loaded)
    return ConstrainedOutput(
        loaded.compiled, loaded.backend, TOKENIZER, end, mode, ThoughtRule(), Retokenizer(TOKENIZER), loaded.fsm
    )


def settled(one: ConstrainedOutput) -> AsideGrammar:
    assert one.aside is not None
    parse(one.aside)
    one.aside.check()
    one.settle()
    return one.aside


def test_the_token_that_was_too_much_is_parsed_aside_with_those_before_it(early: Grammars) -> None:
    one, both, num = output_of(early, ebnf(PAIRS), NO_END), bytewise("xy"), 0
    while one.aside is None:
        one.accept(both[num % 2])
        num += 1
        assert num < 100
    grammar = settled(one)
    legal = [token for token in range(TOKENIZER.vocab_size) if grammar.allows(token) and token != END]
    following = {(TOKENIZER.token_bytes(token) or b"")[:1] for token in legal}
    assert following == {b"xy"[num % 2 :][:1]}, f"after {num} tokens"
    grammar.rest()


def test_nothing_is_appended_without_a_draw_to_what_is_parsed_aside(
    fresh: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    constant = Constraint(ConstraintKind.REGEX, "(the capital of France is Paris|no)", backend="xgrammar")
    one, start = output_of(fresh, constant, NO_END, JumpMode.RETOKENIZE), ids_of("the")
    for token in start:
        one.accept(token)
    assert one.window and one.next_jump(np.array(start, np.int32)) is not None
    long_from(0.0, monkeypatch)
    assert one.took(1.0)
    assert one.window == 0 and one.next_jump(np.array(start, np.int32)) is None
    grammar = settled(one)
    assert one.next_jump(np.array(start, np.int32)) is None and not one.ended
    grammar.rest()


def test_without_a_token_for_it_an_output_ends_where_its_parser_says_so(aside: Grammars) -> None:
    for end, ends in (
        (NO_END, True),
        (EndTokens(np.array([END], np.int32), np.array([END], np.int32), False, 0), False),
    ):
        one = output_of(aside, ebnf('root ::= "x" "y"', "xgrammar"), end)
        grammar = settled(one)
        for token in bytewise("xy"):
            assert not one.ended
            one.accept(token)
            settled(one)
        assert one.ended is ends and grammar.must_end
        grammar.rest()


@pytest.mark.parametrize("name", ["at its mask", "at a token"])
@overlaps
def test_an_output_that_cannot_be_moved_ends_its_request_alone(overlap: str, name: str) -> None:
    alone = Grammars(TOKENIZER, frozenset([END]), step_items=1000)
    top = bench(alone, overlap=overlap, jump_forward="off")
    text = {"at its mask": LEFT, "at a token": PAIRS}[name]
    top.add(1, PROMPT, 100, constraint=ebnf(text, place="grammar"), ignore_eos=True)
    top.add(2, [*PROMPT, 16], 30, constraint=ebnf("root ::= [a-z ]+"), ignore_eos=True)
    top.run()
    finish = top.finish[1]
    assert (finish.kind, finish.error.status, finish.error.place) == (FinishKind.ABORT, 400, "grammar")
    assert str(finish.error).startswith("grammar became too complex: ") and top.tokens[1]
    assert len(top.tokens[2]) == 30 and what_is_left(top) == {}


def gives_way(child: psutil.Process) -> bool:
    return os.sched_getscheduler(child.pid) == os.SCHED_IDLE


def test_a_process_whose_token_takes_long_gives_way_to_all_others(
    aside: Grammars, parsers: Parsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = started(aside, "a b c d")
    monkeypatch.setattr(aside_module, "SLOW_S", math.inf)
    (child,) = begin(parsers, grammar)
    parse(grammar)
    assert not gives_way(child)
    child.suspend()  # its next token takes for ever
    monkeypatch.setattr(aside_module, "SLOW_S", 0.0)
    monkeypatch.setattr(aside_module, "SLOW_TOKEN_S", math.inf)
    assert grammar.accept(*ids_of("a"))
    while not gives_way(child):
        parsers.poll(0.01)
    grammar.rest()
    psutil.wait_procs([child])


def test_so_does_one_all_of_whose_tokens_take_long(
    aside: Grammars, parsers: Parsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = started(aside, "a b c d")
    (child,) = begin(parsers, grammar)
    parse(grammar)
    num_tokens = len(ids_of("a b c d"))
    grammar.spent_s = 1.5 * num_tokens * aside_module.SLOW_TOKEN_S
    assert grammar.spent_s < aside_module.SLOW_S and not grammar.is_slow
    monkeypatch.setattr(aside_module, "SLOW_S", 0.0)
    assert grammar.is_slow
    while not gives_way(child):
        parsers.poll(0.01)
    grammar.spent_s = 0.5 * num_tokens * aside_module.SLOW_TOKEN_S
    assert not grammar.is_slow
    grammar.rest()
    psutil.wait_procs([child])


def test_a_failure_of_the_process_itself_is_no_fault_of_the_client(fresh: Grammars, parsers: Parsers) -> None:
    illegal = started(fresh, "#")
    parse(illegal)
    with pytest.raises(AsideFailed, match=r"^failed: internal error: token \d+ is not allowed by it$"):
        illegal.check()
    illegal.rest()
    loaded = fresh.get(ebnf(AMBIGUOUS, "xgrammar", whitespace="single-space"))
    assert isinstance(loaded, Loaded) and isinstance(loaded.compiled, Bounded)
    loaded.compiled.apart.prepared = b"no grammar"
    top = bench(fresh)
    top.add(1, PROMPT, 30, constraint=ebnf(AMBIGUOUS, "xgrammar", place="grammar"))
    top.add(2, [*PROMPT, 16], 30, ignore_eos=True)
    top.run()
    finish = top.finish[1]
    assert (finish.kind, finish.error.status, finish.error.place) == (FinishKind.ABORT, 500, "grammar")
    assert str(finish.error).startswith("grammar failed: internal error: ") and len(top.tokens[2]) == 30
    assert not parsers.num_open


def test_the_parent_of_parsers_ends_quietly_with_a_scheduler_that_has_not_read_its_news() -> None:
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.send(b"news")
    control.close()
    before = signal.getsignal(signal.SIGCHLD), signal.set_wakeup_fd(-1)
    try:
        Parent(theirs, Vocabulary(TOKENIZER, BUNDLED_MODEL, 4096, frozenset())).serve()
    finally:
        signal.signal(signal.SIGCHLD, before[0])
        signal.set_wakeup_fd(before[1])
        theirs.close()
