"""One output under its constraint: what may be drawn, where it ends, where the constraint begins."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from constrained import SIZE, allowed, backend, bytewise, compiled, ids_of, vocabulary
from effort import num_lines

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.ending import EndTokens
from ramet.runtime.grammar.jump import Retokenizer
from ramet.runtime.grammar.output import ConstrainedOutput, IllegalToken, Jump, JumpMode, ThoughtRule
from ramet.runtime.text.tokenizer import Tokenizer

ENDS = sorted(vocabulary().eos_ids)
NO_EOS = EndTokens(np.array([], np.int32), np.array([], np.int32), False, 0)
TOKENIZER = vocabulary().tokenizer


def ending(*, stops: list[int] | None = None, ignore_eos: bool = False, min_new: int = 0) -> EndTokens:
    every = sorted({*ENDS, *(stops or [])})
    return EndTokens(np.array(ENDS, np.int32), np.array(every, np.int32), ignore_eos, min_new)


def output(
    pattern: str, end: EndTokens | None = None, mode: JumpMode = JumpMode.FF, thought: ThoughtRule = ThoughtRule()
) -> ConstrainedOutput:
    of = compiled("llguidance", ConstraintKind.REGEX, pattern)
    retokenizer = Retokenizer(TOKENIZER)
    return ConstrainedOutput(of, backend("llguidance"), TOKENIZER, end or ending(), mode, thought, retokenizer)


def legal(one: ConstrainedOutput, num_output: int) -> set[int]:
    """As a step makes the mask of a row."""
    bits = np.full(-(-SIZE // 32), -1, np.int32)
    if one.active and not one.grammar.must_end:
        one.backend.fill_masks([one.grammar], [0], bits[None])
    one.finish_mask(bits, num_output)
    return {int(i) for i in np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))}


def feed(one: ConstrainedOutput, tokens: list[int]) -> list[Jump]:
    return [jump for token in tokens if (jump := one.accept(token)) is not None]


def only(text: str) -> int:
    (token,) = ids_of(text)
    return token


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_mask_costs_no_more_where_thousands_of_tokens_may_not_end_the_output():
    def make(num_stops: int) -> Callable[[], object]:
        one = output("[a-z]*", ending(min_new=9, stops=list(range(SIZE - num_stops, SIZE))))
        assert legal(one, 0) == legal(output("[a-z]*"), 0) - {*ENDS, *range(SIZE - num_stops, SIZE)}
        bits = np.full(-(-SIZE // 32), -1, np.int32)
        return lambda: one.finish_mask(bits, 0)

    assert num_lines(make(1000)) == num_lines(make(10))


@pytest.mark.parametrize("end", ENDS)
def test_any_end_of_sequence_ends_an_output_that_may_end(end: int):
    one = output("ab?")
    one.accept(only("a"))
    assert legal(one, 1) == {*ENDS, only("b")}
    one.accept(end)
    assert one.ended and one.next_jump(np.array([only("a"), end])) is None


def test_an_end_that_the_constraint_does_not_allow_is_an_error():
    one = output("ab")
    one.accept(only("a"))
    with pytest.raises(IllegalToken):
        one.accept(ENDS[0])
    assert not one.ended


def test_a_token_that_the_constraint_does_not_allow_is_an_error():
    with pytest.raises(IllegalToken):
        output("ab").accept(only("c"))


def test_what_must_end_ends_with_the_first_end_of_sequence():
    one = output("[ab]")
    one.accept(only("a"))
    assert not one.ended and one.end_token == ENDS[0]
    assert legal(one, 1) == {ENDS[0]}
    assert one.next_jump(np.array([only("a")])) == Jump(0, (ENDS[0],))


def test_what_must_end_ends_at_once_where_nothing_says_so():
    one = output("[ab]", NO_EOS)
    one.accept(only("a"))
    assert one.ended and one.end_token is None and one.next_jump(np.array([only("a")])) is None


def test_ignore_eos_forbids_ends_while_there_is_more_to_say():
    one = output("a+", ending(ignore_eos=True))
    feed(one, [only("a")])
    assert legal(one, 1).isdisjoint(ENDS) and only("a") in legal(one, 1)
    full = output("a", ending(ignore_eos=True))
    feed(full, [only("a")])
    assert legal(full, 1) == {ENDS[0]}


def test_min_new_tokens_forbids_ends_until_then():
    one = output("a*", ending(min_new=2))
    assert legal(one, 0).isdisjoint(ENDS) and legal(one, 1).isdisjoint(ENDS)
    assert legal(one, 2) > set(ENDS)


def test_min_new_tokens_forbids_stop_tokens_until_then():
    stop = only("b")
    one = output("[abc]*", ending(stops=[stop], min_new=2))
    assert legal(one, 1).isdisjoint([stop, *ENDS])
    assert legal(one, 2) > {stop, *ENDS}


def test_a_stop_token_that_is_all_the_constraint_leaves_is_legal():
    stop = only("b")
    one = output("[b]", ending(stops=[stop], min_new=9))
    assert legal(one, 0) == {stop}


def test_ids_that_no_logit_belongs_to_change_nothing():
    far = 32 * (-(-SIZE // 32)) + 5
    end = EndTokens(np.array([*ENDS, far], np.int32), np.array([*ENDS, far], np.int32), True, 3)
    assert legal(output("a+", end), 0) == legal(output("a+", ending(ignore_eos=True, min_new=3)), 0)
    thinking = legal(output("a", end, thought=ThoughtRule(b"x")), 0)
    assert len(thinking) == 32 * (-(-SIZE // 32)) - len(ENDS)


# -- what need not be drawn --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [JumpMode.FF, JumpMode.RETOKENIZE])
def test_what_is_forced_is_a_jump(mode: JumpMode):
    one = output('"name": [0-9]', mode=mode)
    jump = one.next_jump(np.array([], np.int32))
    assert jump is not None and jump.num_dropped == 0
    assert b"".join(TOKENIZER.token_bytes(token) or b"" for token in jump.tokens) in (b'"name":', b'"name": ')


def test_nothing_is_forced_when_jumps_are_off():
    one = output("abc", mode=JumpMode.OFF)
    assert one.next_jump(np.array([], np.int32)) is None


def test_a_retokenised_jump_replaces_only_what_the_constraint_has_accepted():
    one = output("[a-z]{2}the end", mode=JumpMode.RETOKENIZE, thought=ThoughtRule(b"!"))
    feed(one, ids_of("so!"))
    taken = bytewise("qu")
    feed(one, taken)
    known = [*ids_of("so!"), *taken]
    jump = one.next_jump(np.array(known, np.int32))
    assert jump is not None and jump.num_dropped <= 2
    text = b"".join(TOKENIZER.token_bytes(t) or b"" for t in [*known[: len(known) - jump.num_dropped], *jump.tokens])
    assert text == b"so!quthe end"
    one.drop(jump.num_dropped)
    feed(one, list(jump.tokens))
    assert one.grammar.must_end


# -- after reasoning ---------------------------------------------------------------------------------------------------


def test_a_constraint_begins_after_its_marker():
    one = output("a", thought=ThoughtRule(b"</think>"))
    feed(one, ids_of("well, a"))
    assert not one.active and len(legal(one, 3)) == 32 * (-(-SIZE // 32)) - len(ENDS)
    assert feed(one, ids_of("</think>")) == [] and one.active
    assert legal(one, 4) == {only("a")}


def test_no_end_is_legal_before_the_marker():
    one = output("a", ending(stops=[only("z")], min_new=3), thought=ThoughtRule(b"</think>"))
    assert legal(one, 0).isdisjoint([*ENDS, only("z")])
    assert legal(one, 3).isdisjoint(ENDS) and only("z") in legal(one, 3)


def test_a_marker_may_be_spelled_by_several_tokens():
    one = output("a", thought=ThoughtRule(b"</think>"))
    assert feed(one, bytewise("</th</think>")) == [] and one.active


def test_nothing_is_forced_before_the_marker():
    one = output("abc", thought=ThoughtRule(b"</think>"))
    feed(one, ids_of("so"))
    assert one.next_jump(np.array(ids_of("so"))) is None
    feed(one, ids_of("</think>"))
    assert one.next_jump(np.array([0])) is not None


@pytest.mark.parametrize("mode", list(JumpMode))
def test_a_thought_may_come_first_where_the_model_opens_it(mode: JumpMode):
    opens = TOKENIZER.added_tokens["<think>"]
    one = output("abc", mode=mode, thought=ThoughtRule(b"</think>", "<think>"))
    assert legal(one, 0) == allowed(output("abc").grammar) and one.opening == opens
    assert one.next_jump(np.array([], np.int32)) is None
    assert feed(one, [opens, *ids_of("so")]) == [] and not one.active and one.opening is None
    assert legal(one, 2).isdisjoint(ENDS) and only("z") in legal(one, 2)
    assert feed(one, ids_of("</think>")) == [] and one.active
    assert legal(one, 4) == allowed(output("abc").grammar)


def test_a_thought_that_is_not_opened_never_comes():
    one = output("abc", thought=ThoughtRule(b"</think>", "<think>"))
    assert feed(one, [only("a")]) == [] and one.active and one.opening is None
    assert legal(one, 1) == legal_after("abc", "a")
    assert one.next_jump(np.array([only("a")])) is not None
    empty = output("a?", thought=ThoughtRule(b"</think>", "<think>"))
    assert feed(empty, ENDS[:1]) == [] and empty.ended
    longer = output("a?", thought=ThoughtRule(b"</think>", "<think>"), end=ending(min_new=1))
    assert legal(longer, 0) == legal_after("a?", "") - set(ENDS)


def test_a_tag_that_the_vocabulary_does_not_have_opens_no_thought():
    one = output("abc", thought=ThoughtRule(b"</think>", "<no such token>"))
    assert one.active and one.opening is None
    assert legal(one, 0) == allowed(output("abc").grammar)


def with_surplus() -> tuple[list[int], int, str]:
    """A token that has the marker's last byte and more, what is spelled before it, and the marker."""
    token = next(i for i in range(TOKENIZER.vocab_size) if TOKENIZER.token_bytes(i) == b'>{"')
    return bytewise("so <end"), token, "<end>"


@pytest.mark.parametrize("mode", list(JumpMode))
def test_a_token_with_more_than_the_marker_gives_way_to_one_without(mode: JumpMode):
    before, token, marker = with_surplus()
    one = output("a", mode=mode, thought=ThoughtRule(marker.encode()))
    assert feed(one, before) == []
    jump = one.accept(token)
    assert jump == Jump(1, (only(">"),)) and not one.active
    one.drop(jump.num_dropped)
    assert feed(one, list(jump.tokens)) == [] and one.active
    assert legal(one, 9) == {only("a")}


def test_a_token_of_the_marker_that_begins_within_a_character_stays():
    """What comes before the surplus is no text by itself, and has no tokens."""
    spelled = Spelled(TOKENIZER, {SIZE: b"\x99.\n"})
    of, end = compiled("llguidance", ConstraintKind.REGEX, "a"), ending()
    thought = ThoughtRule(b"\xe2\x80\x99.")
    one = ConstrainedOutput(of, backend("llguidance"), spelled, end, JumpMode.FF, thought)  # type: ignore[arg-type]
    feed(one, bytewise("\u2019")[:2])
    assert one.accept(SIZE) is None and one.active
    assert legal(one, 3) == {only("a")}


class Spelled:
    """A tokenizer with tokens of its own beside a real one's."""

    def __init__(self, tokenizer: Tokenizer, more: dict[int, bytes]) -> None:
        self._tokenizer, self._more = tokenizer, more
        self.added_tokens = tokenizer.added_tokens

    def token_bytes(self, token: int) -> bytes | None:
        return self._more.get(token) or self._tokenizer.token_bytes(token)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)


# -- taking back -------------------------------------------------------------------------------------------------------


def test_drop_takes_back_what_the_constraint_accepted():
    one = output("(ab)+")
    feed(one, [only("a"), only("b"), only("a")])
    one.drop(2)
    assert legal(one, 1) == legal_after("(ab)+", "a")


def legal_after(pattern: str, text: str) -> set[int]:
    one = output(pattern)
    feed(one, bytewise(text))
    return legal(one, len(text))


def test_drop_beyond_the_marker_takes_back_the_constraint_alone():
    one = output("(ab)+", thought=ThoughtRule(b"!"))
    feed(one, [only("!"), only("a"), only("b")])
    one.drop(2)
    assert one.active and legal(one, 1) == legal_after("(ab)+", "")
    one.drop(1)
    assert one.active and legal(one, 1) == legal_after("(ab)+", "")
    feed(one, [only("a")])
    assert legal(one, 2) == legal_after("(ab)+", "a")


def test_drop_before_the_marker_takes_nothing_back():
    one = output("a", thought=ThoughtRule(b"!"))
    feed(one, ids_of("well"))
    one.drop(1)
    assert feed(one, [only("!")]) == [] and one.active
    assert legal(one, 2) == {only("a")}


def test_what_had_no_room_is_drawn_without_a_choice():
    one = output("a", thought=ThoughtRule(b"z!"))
    one.expect(tuple(ids_of("z!")))
    for position, token in enumerate(ids_of("z!")):
        assert legal(one, position) == {token} and not one.active
        assert one.accept(token) is None
    assert one.active and legal(one, 2) == legal_after("a", "")


def test_a_constraint_that_begins_with_the_opening_tag_is_the_thought_itself():
    opens = TOKENIZER.added_tokens["<think>"]
    content = {"type": "regex", "pattern": "a"}
    tag = {"type": "tag", "begin": "<think>", "content": content, "end": "b"}
    text = json.dumps({"type": "structural_tag", "format": tag})
    of = compiled("llguidance", ConstraintKind.STRUCTURAL_TAG, text)
    one = ConstrainedOutput(of, backend("llguidance"), TOKENIZER, ending(), thought=ThoughtRule(b"</think>", "<think>"))
    assert one.opening is None and one.active
    assert feed(one, [opens]) == [] and one.active


@pytest.mark.parametrize(("min_new", "opens"), [(0, True), (1, False)])
def test_a_stop_token_opens_no_thought_before_min_new_tokens(min_new: int, opens: bool):
    tag = TOKENIZER.added_tokens["<think>"]
    one = output("abc", ending(stops=[tag], min_new=min_new), thought=ThoughtRule(b"</think>", "<think>"))
    assert one.opening == (tag if opens else None)
