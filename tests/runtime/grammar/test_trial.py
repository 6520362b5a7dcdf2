"""A short text that a constraint allows, and what a constraint makes of a text."""

import re

import pytest
from constrained import NAMES, backend, compiled, vocabulary

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import BackendName
from ramet.runtime.grammar.byte_fsm import build_byte_fsm
from ramet.runtime.grammar.compile import Loaded
from ramet.runtime.grammar.output import JumpMode
from ramet.runtime.grammar.shortest import shortest_text
from ramet.runtime.grammar.trial import Oracle, Trial, draw
from ramet.runtime.grammar.vocabulary import Tokens


def tried(pattern: str, text: str, mode: JumpMode, name: BackendName = "llguidance", has_fsm: bool = True) -> Trial:
    fsm = build_byte_fsm(pattern) if has_fsm else None
    loaded = Loaded(compiled(name, ConstraintKind.REGEX, pattern), backend(name), fsm)
    tokens = Tokens(vocabulary())
    return draw(loaded, tokens, Oracle(tokens, text), mode)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        ("(ab)*c", 1),
        ("a{3}", 3),
        ("wand|owl", 3),
        ("é+", 1),
        ("(ab)*", 0),
        ('"[^"]*"', 2),
        ("x(yes|no)+z", 5),
        ("👍|东京", 1),
    ],
)
def test_a_short_text_matches_and_is_short(name: BackendName, pattern: str, length: int) -> None:
    text = shortest_text(compiled(name, ConstraintKind.REGEX, pattern), Tokens(vocabulary()))
    assert text is not None and re.fullmatch(pattern, text) and len(text) <= length


def test_a_text_that_takes_too_many_draws_is_not_found() -> None:
    assert shortest_text(compiled("llguidance", ConstraintKind.REGEX, "[0-9a-f]{500}"), Tokens(vocabulary())) is None


PATTERN = r'\{"name": "[A-Za-z ]{1,20}", "house": "(Gryffindor|Slytherin)", "spells": \[[0-9]{1,3}\]\}'
TEXT = '{"name": "Harry Potter", "house": "Slytherin", "spells": [12]}'

FORCED = ['{"name": "', ' "house": "', 'lytherin", "spells": [', "}"]  # `",` is one token, which is drawn


@pytest.mark.parametrize("has_fsm", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_jumps_draw_the_same_text_in_fewer_steps(name: BackendName, has_fsm: bool) -> None:
    plain = tried(PATTERN, TEXT, JumpMode.OFF, name, has_fsm)
    canonical = len(vocabulary().tokenizer.encode(TEXT))
    assert plain.refusal is None and plain.num_draws == canonical + 1 and not plain.forced
    jumped = tried(PATTERN, TEXT, JumpMode.RETOKENIZE, name, has_fsm)
    assert jumped.refusal is None and jumped.num_draws < canonical / 2
    assert [TEXT[begin:end] for begin, end in jumped.forced] == FORCED


@pytest.mark.parametrize("name", NAMES)
def test_a_jump_inside_a_character_is_none(name: BackendName) -> None:
    for text in ("é京!", "東é!", "京東!"):  # two of them begin alike
        assert tried("[é東京]{2}!", text, JumpMode.RETOKENIZE, name, has_fsm=False).refusal is None


def test_what_is_drawn_is_what_is_not_forced() -> None:
    pattern, text = "(yes|no), (I am|you are) (here|there)", "no, I am there"
    steps = {mode: tried(pattern, text, mode).num_draws for mode in JumpMode}
    assert steps[JumpMode.RETOKENIZE] == 3  # no, I, there; nobody draws the end
    assert steps[JumpMode.RETOKENIZE] <= steps[JumpMode.FF] < steps[JumpMode.OFF]


@pytest.mark.parametrize(
    ("pattern", "text", "legal", "expected", "may_end"),
    [
        ("abc(d|e)", "abx", 2, b"c", False),
        ("[0-9]{2,3}", "12x", 2, b"0", True),
        ("é|è", "ê", 1, None, False),  # the first byte is the same
        ("ab", "abc", 2, None, True),
        ("abcd", "ab", 2, b"cd", False),
    ],
)
def test_a_refusal_says_where_and_what_may_follow(
    pattern: str, text: str, legal: int, expected: bytes | None, may_end: bool
) -> None:
    refusal = tried(pattern, text, JumpMode.OFF).refusal
    assert refusal is not None and refusal.num_bytes == legal and refusal.may_end == may_end
    assert expected is None or refusal.expected[0] == expected
