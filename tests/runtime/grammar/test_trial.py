"""A short text that a constraint allows, and what a constraint makes of a text."""

import json
import re

import pytest
from constrained import NAMES, backend, compiled, vocabulary

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.base import BackendName, GrammarError
from ramet.runtime.grammar.byte_fsm import build_byte_fsm
from ramet.runtime.grammar.compiled import Loaded
from ramet.runtime.grammar.output import JumpMode
from ramet.runtime.grammar.shortest import literals_of, shortest_text
from ramet.runtime.grammar.trial import Trial, TrialOracle, draw
from ramet.runtime.grammar.vocabulary import TokenTable


def tried(pattern: str, text: str, mode: JumpMode, name: BackendName = "llguidance", has_fsm: bool = True) -> Trial:
    fsm = build_byte_fsm(pattern) if has_fsm else None
    loaded = Loaded(compiled(name, ConstraintKind.REGEX, pattern), backend(name), fsm)
    tokens = TokenTable(vocabulary())
    return draw(loaded, tokens, TrialOracle(tokens, text), mode)


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
    text = shortest_text(compiled(name, ConstraintKind.REGEX, pattern), TokenTable(vocabulary()))
    assert text is not None and re.fullmatch(pattern, text) and len(text) <= length


def test_a_text_that_takes_too_many_draws_is_not_found() -> None:
    assert (
        shortest_text(compiled("llguidance", ConstraintKind.REGEX, "[0-9a-f]{500}"), TokenTable(vocabulary())) is None
    )


REGEX, SCHEMA, EBNF, TAG = ConstraintKind
SUM = 'root ::= sum " = " number\nsum ::= term (" + " term)+\nterm ::= number | "(" sum ")"\nnumber ::= [0-9]+'
EMAIL = {"type": "string", "pattern": "^[a-z]+@[a-z]+\\.com$"}
THREE_NAMES = {
    "type": "object",
    "properties": {name: {"type": "string", "minLength": 3} for name in "abc"},
    "required": ["a", "b", "c"],
    "additionalProperties": False,
}


def tag(*elements: dict[str, object]) -> str:
    return json.dumps({"type": "structural_tag", "format": {"type": "sequence", "elements": elements}})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("kind", "text", "sample"),
    [
        (REGEX, r"The capital of Peru is [A-Z][a-z]+\.", "The capital of Peru is Aa."),
        (REGEX, "[a-z]+!", "a!"),
        (REGEX, "[a-z]* FROM", " FROM"),
        (REGEX, r"\w+@\w+\.com", "a@a.com"),
        (REGEX, r"[^@]+@[a-z]+\.com", "a@a.com"),
        (REGEX, "[a-z]{20}x[0-9]{30}!", "a" * 20 + "x" + "0" * 30 + "!"),
        (REGEX, r"(.|\n)*\nEnd\.", "\nEnd."),
        (EBNF, 'root ::= "SELECT " [a-z]+ " FROM " [a-z]+', "SELECT a FROM a"),
        (EBNF, 'start: "SELECT " /[a-z]+/ " FROM " /[a-z]+/', "SELECT a FROM a"),
        (EBNF, SUM, "0 + 0 = 0"),
        (EBNF, 'root ::= [а-я]+ "。"', "а。"),
        (SCHEMA, json.dumps(EMAIL), '"a@a.com"'),
        (SCHEMA, json.dumps({"type": "string", "format": "email"}), '"a@a"'),
        (SCHEMA, json.dumps({"type": "string", "minLength": 60}), f'"{"a" * 60}"'),
        (SCHEMA, json.dumps(THREE_NAMES), '{"a": "aaa", "b": "aaa", "c": "aaa"}'),
        (TAG, tag({"type": "any_text"}, {"type": "const_string", "value": "<end>"}), "<end>"),
    ],
)
def test_a_repetition_before_more_text_is_left(name: BackendName, kind: ConstraintKind, text: str, sample: str) -> None:
    is_lark = text.startswith("start:")
    if (name == "outlines" and kind in (EBNF, TAG)) or (name == "xgrammar" and is_lark):
        with pytest.raises(GrammarError):  # it is refused by name
            compiled(name, kind, text)
    else:
        found = shortest_text(compiled(name, kind, text), TokenTable(vocabulary()), literals_of(Constraint(kind, text)))
        assert found == sample


@pytest.mark.parametrize(
    ("kind", "text", "literals"),
    [
        (REGEX, r"[\s\]xyz]*ab\.c{2,3}|\n- x+\d", ["ab.c", "\n- x"]),
        (EBNF, 'root ::= "ab" x "\\n\\"c"\nx ::= [a-z]+ "d" "\\xff"', ["ab", '\n"c', "\\xff"]),
        (SCHEMA, '{"const": "abc"}', []),
        (TAG, '{"begin": "<a>", "end" : "</a>"}', ["<a>", "</a>"]),
    ],
)
def test_the_literals_of_a_constraint(kind: ConstraintKind, text: str, literals: list[str]) -> None:
    assert literals_of(Constraint(kind, text)) == literals


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


def test_a_refusal_counts_what_it_does_not_name() -> None:
    refusal = tried("[0-9abc]", "x", JumpMode.OFF).refusal
    assert refusal is not None and len(refusal.expected) == 8 and refusal.num_more == 5
    few = tried("[0-7]", "x", JumpMode.OFF).refusal
    assert few is not None and len(few.expected) == 8 and few.num_more == 0
