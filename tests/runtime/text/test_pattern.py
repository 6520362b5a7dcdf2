"""Stop patterns: what is refused and why, quickly; and every small pattern against Python's own `re`."""

import random
import re
from functools import partial

import pytest
from effort import num_lines
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ramet.runtime.text.automaton import PatternError
from ramet.runtime.text.pattern import MAX_STATES, build_automaton
from ramet.runtime.text.search import CACHE_UNITS, steps_of
from ramet.runtime.text.stops import StopMatch, StopMatcher


def first_match(pattern: str, text: str, flags: int = 0) -> tuple[int, int] | None:
    """The earliest end, then the earliest start, by trying them all."""
    compiled = re.compile(pattern, flags)
    for end in range(1, len(text) + 1):
        for start in range(end):
            if compiled.fullmatch(text, start, end):
                return start, end
    return None


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("(?=a)b", "lookaround"), ("(?!a)b", "lookaround"), ("(?<=a)b", "lookaround"), ("a(?!)", "lookaround"),
        (r"(a)\1", "backreference"), ("(a)?(?(1)b|c)", "conditional"), ("(?>ab)c", "atomic"), ("a++b", "possessive"),
        (r"[(?=]\(?=(?#(?=)b(?=a)", "at position 17"), (r"\\1[\1](a)\1", "at position 10"), ("a{2}+", "at position 3"),
        ("(?<!^)a", "lookaround"), (r"\b(?=a)", "lookaround"), (r"(?m)^(a)$\n\1", "backreference"),
        ("a*", "empty text"), ("", "empty text"), ("(a|b?)", "empty text"), ("(?:){1000}", "empty text"),
        ("(a", "not a valid pattern"), ("[z-a]", "not a valid pattern"), ("a{2,1}", "not a valid pattern"),
        ("a{99999999999}", "not a valid pattern"), ("*", "not a valid pattern"),
        ("(a{1000}){1000}", str(MAX_STATES)), ("(((a{9}){99}){999}){9999}", str(MAX_STATES)),
        ("(?:){99999999}", str(MAX_STATES)), ("(a|b){1,3000}", str(MAX_STATES)),
    ],
)  # fmt: skip
def test_refused_pattern_names_the_construct(pattern: str, named: str) -> None:
    with pytest.raises(PatternError) as caught:
        build_automaton(pattern)
    assert named in str(caught.value)


def test_huge_repeats_are_refused_before_they_are_written_out() -> None:
    def refuse() -> None:
        for pattern in ("(a{1000}){1000}", "((((a{999}){999}){999}){999}){999}", "(|){65535}", "((){9999}a?){9999}"):
            with pytest.raises(PatternError):
                build_automaton(pattern)

    assert num_lines(refuse) < 20_000


@pytest.mark.parametrize("depth", [100, 1000, 50_000])
def test_deep_nesting_is_served_or_refused(depth: int) -> None:
    try:
        matcher = StopMatcher((), ("(" * depth + "a" + ")" * depth,))
    except PatternError as error:
        assert "nested" in str(error) and depth > 100
    else:
        assert matcher.feed("ba") is not None


@pytest.mark.parametrize(
    ("pattern", "text", "span"),
    [
        (r"\d+", "abc 123", (4, 5)),  # ends first: at the first digit
        (r"\d{3}", "ab12 1234", (5, 8)),
        (r"a.*b", "xaa\nab b", (4, 6)),  # the dot stops at a newline
        (r"(?s)a.*b", "xaa\nab b", (1, 6)),
        (r"(?i)stop", "StOp", (0, 4)),
        (r"(?i:s)top", "STOP Stop", (5, 9)),
        (r"(?i)a(?-i:b)c", "ABC AbC", (4, 7)),
        (r"(?i)straße", "STRAßE", (0, 6)),
        (r"(?m)end", "the end", (4, 7)),
        (r"[^\W\d_]{2}", "1_aé", (2, 4)),
        (r"(?a)\w{2}", "éa_", (1, 3)),
        (r"(?a:\w(?u:\w))", "ééaé", (2, 4)),
        (r"(?:ab|abc|c)", "zabc", (1, 3)),
        (r"b|abc|abbbb", "aabc", (2, 3)),
        (r"x*?y", "xxxy", (0, 4)),  # lazy or not: the same language, the earliest start
        (r"(a|ab)(c|bcd)", "abcd", (0, 3)),
        (r"京.", "東京は", (1, 3)),
        (r"(a?){20}b", "aaab", (0, 4)),
        (r"((a*)*)*b", "aab", (0, 3)),
    ],
)
def test_match_is_the_earliest_end_then_start(pattern: str, text: str, span: tuple[int, int]) -> None:
    assert StopMatcher((), (pattern,)).feed(text) == StopMatch(pattern, *span)
    assert first_match(pattern, text) == span


LEAF = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\s", "ab", "(?i:B)", "é", "[b-d]", r"\n"])
TREES = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=400, deadline=None)
@given(TREES, st.text("abcdBé \n", max_size=10), st.sampled_from(["", "(?i)", "(?s)"]))
def test_patterns_agree_with_re(body: str, text: str, flags: str) -> None:
    pattern = flags + body
    assume(re.compile(pattern).fullmatch("") is None)
    span = first_match(pattern, text)
    assert StopMatcher((), (pattern,)).feed(text) == (span and StopMatch(pattern, *span))


def test_text_is_searched_in_linear_time() -> None:
    def search(length: int) -> None:
        matcher = StopMatcher((), ("(a|aa)+(a|aa)+b",))
        assert matcher.feed("a" * length) is None
        assert matcher.held == length

    assert num_lines(partial(search, 50_000)) <= 11 * num_lines(partial(search, 5000))


def test_a_pattern_with_more_states_than_the_cache_holds_still_matches() -> None:
    pattern = "(a|b)*a(a|b){300}c"
    draw = random.Random(5)
    text = "".join(draw.choice("ab") for _ in range(1500)) + "a" + "b" * 300
    matcher = StopMatcher((), (pattern,))
    for index in range(0, len(text), 7):
        assert matcher.feed(text[index : index + 7]) is None
        assert steps_of(pattern).units <= CACHE_UNITS + 2000
    assert matcher.feed("c") == StopMatch(pattern, 0, len(text) + 1)
