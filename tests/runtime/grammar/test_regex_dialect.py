"""The normal form of a pattern: every text that matches it matches the pattern in Python's re."""

import re

import pytest
from constrained import NAMES, compiled, takes
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, sampled

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.regex import found_within, normal_form, write

PATTERNS = [
    r"a|bc", r"^(\d{3}-){1,2}\w+$", r"(?i)hello", r"(?i)[^k]+", r"[^\W\d_]+", r"\S+\s", r"\D\W", r"a{,3}b", r"x{",
    r"(?s)a.b", r"a.b", r"[]a]+", r"[^]a]+", r"[a\-z]", r"[\d\-x]", r"\N{DIGIT ONE}\u0041\x41\101", r"(?P<n>a)?b",
    r"(?i)ab|cd", r"(?#no)a", r"x{a}", "a{٣}",
    r"a*?b+?c??", r"(^a|b)$", r"\Aab\Z", r"(?i:a)b", r"(?a)\w\W", r"(a|b||c)+", r"", r"[&&~~||]+", r"[[a]+", r"\.\*\\",
    r"\ud7ff\U0001F600", r"(?m)^a$", r"[\s\S]", r"[é-ü]+", r"(?i)é", r"a{2}", r"(?:a{1,2}){2}", r"\"'/#<>&~ ",
]  # fmt: skip
TEXTS = st.text(
    st.sampled_from("abcxyzAKkſ\u212a éÉ12٣ \n\t\x1c\u2003\ufeff-_.{}[]&~|\"'/#<>\\*\x00\U0001f600\ud7ff"), max_size=8
)


@pytest.mark.parametrize("pattern", sampled(PATTERNS, 8))
def test_what_the_normal_form_matches_the_pattern_matches(pattern: str):
    normal = re.compile(normal_form(pattern))

    @given(st.one_of(TEXTS, st.from_regex(normal, fullmatch=True)))
    @examples(30, 300)
    def every_text(text: str) -> None:
        if normal.fullmatch(text):
            assert re.fullmatch(pattern, text), repr(text)
        elif "\0" not in text and text.isascii():
            assert not re.fullmatch(pattern, text), repr(text)

    every_text()


LETTERS = "kK\u212asSſiIİıµμΜéÉßẞ"
CASES = ["{}", "[{}]", "[{}x]", "[^{}]", "[^{}x]"]
FLAGS = ["(?i){}", "(?ai){}", "(?ia:{})", "(?a)(?i:{})", "(?a:(?i:{}))", "(?i)(?a:{})", "(?i:(?a:{}))", "(?a)(?ui:{})",
         "(?a:(?u:(?i:{})))", "(?ai)(?-i:{})", "(?ai)(?u:(?a:{}))"]  # fmt: skip


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("case", CASES)
def test_cases_are_pythons_under_any_flag(flags: str, case: str):
    for letter in LETTERS:
        pattern = flags.format(case.format(letter))
        normal = re.compile(normal_form(pattern))
        for other in LETTERS:
            assert bool(normal.fullmatch(other)) == bool(re.fullmatch(pattern, other)), (pattern, other)


@pytest.mark.parametrize("flags", ["(?a){}", "(?a:{})", "(?a)(?u:{})", "(?u:(?a:{}))"])
@pytest.mark.parametrize("name", [r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"[\W]", r"[^\w]"])
def test_no_class_has_more_than_pythons_under_any_flag(flags: str, name: str):
    normal = re.compile(normal_form(flags.format(name)))
    for char in "a1_ é٣\u2003\u00a0!":
        assert not normal.fullmatch(char) or re.fullmatch(flags.format(name), char), char


@pytest.mark.parametrize(
    "pattern", ["a", "^a", "a$", "^a|b", "(^a|b)c", "(a|b$)", "", "^$", r"^\d+(\.\d+)?$", "a|^", "(?i)^k"]
)
def test_what_a_search_would_find(pattern: str):
    normal = re.compile(write(found_within(pattern)))

    @given(TEXTS)
    def every_text(text: str) -> None:
        if normal.fullmatch(text):
            assert re.search(pattern, text), repr(text)
        elif "\0" not in text and text.isascii() and not text.endswith("\n"):
            assert not re.search(pattern, text), repr(text)

    every_text()


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a(?=b)", "lookahead at offset 1"),
        ("(?!b)a", "lookahead at offset 0"),
        ("a(?<=a)", "lookbehind at offset 1"),
        ("a(?<!b)", "lookbehind at offset 1"),
        (r"(a)\1", "a backreference at offset 3"),
        (r"(?P<n>a)(?P=n)", "a backreference at offset 8"),
        (r"a\b", r"the word boundary \b at offset 1"),
        (r"\Ba", r"the word boundary \B at offset 0"),
        ("a\0", "a NUL character at offset 1"),
        (r"a\x00", "a NUL character at offset 1"),
        (r"\0", "a NUL character at offset 0"),
        (r"\ud800", "half a surrogate pair at offset 0"),
        ("(?>a)", "an atomic group at offset 0"),
        ("ba++", "a possessive quantifier at offset 2"),
        ("(a)?(?(1)b|c)", "a conditional group at offset 4"),
        ("(?x) a", "the flag x at offset 0"),
        ("(?i)[^é-ü]", "a negated class of letters beyond ASCII without regard to case at offset 4"),
        ("a^b", "^ at offset 1, not at its start"),
        ("a$b", "$ at offset 1, not at its end"),
        (r"(^a)*", "^ at offset 1"),
        ("(", "missing ), unterminated subpattern at offset 0"),
        (r"\p{L}", r"bad escape \p at offset 0"),
        ("(" * 101 + "a" + ")" * 101, "more than 100 deep at offset 101"),
        (r"(?#()[(]\((a)" + "(" * 101 + "a" + ")" * 101, "more than 100 deep at offset 114"),
        ("((a{99}){99}){99}", "is too large"),
        ("a" * 70_000, "70000 bytes"),
        ("a|b+" + "c" * 65_536, "a pattern of 65540 bytes"),
        ("|".join(["a" * 65_536] * 4), "texts of 262147 bytes"),
        ("(?:" * 5_000 + ")" * 5_000, "too complex"),
    ],
)
def test_what_no_automaton_expresses_is_refused_with_its_offset(pattern: str, words: str):
    with pytest.raises(GrammarError, match=re.escape(words)):
        normal_form(pattern)


PROBES = [
    "a",
    "bc",
    "ab",
    "abc",
    "123-456-x",
    "HeLLo",
    "ab c",
    "a\nb",
    "a.b",
    "]a",
    "é",
    "٣",
    "k",
    "K",
    "\U0001f600",
    "x{",
    "a{٣}",
    "aaa",
    "&~",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_backend_reads_the_normal_form_alike(name, pattern):
    ready = compiled(name, ConstraintKind.REGEX, pattern)
    normal = re.compile(normal_form(pattern))
    for text in PROBES:
        assert takes(ready, text) == bool(normal.fullmatch(text)), text
