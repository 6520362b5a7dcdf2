"""The stop matcher against a brute-force reference, over random strings, patterns and chunkings."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime.text.stops import StopMatch, StopMatcher

PATTERNS = ["ab+c", "b.a", "[ab]{3}c", "(?:a|bc)+b", r"\w c", "c[^b]*b", "a", "aab|b"]


def reference(stop: tuple[str, ...], patterns: tuple[str, ...], text: str) -> StopMatch | None:
    searched = [(s, re.compile(re.escape(s), re.S)) for s in stop] + [(p, re.compile(p)) for p in patterns]
    for end in range(1, len(text) + 1):
        for start in range(end):
            for name, compiled in searched:
                if compiled.fullmatch(text, start, end):
                    return StopMatch(name, start, end)
    return None


def cut_at(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(min(c, len(text)) for c in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4, unique=True).map(tuple)
REGEXES = st.lists(st.sampled_from(PATTERNS), max_size=2, unique=True).map(tuple)
TEXTS = st.text("abc \n", max_size=24)
CUTS = st.lists(st.integers(0, 24), max_size=8)


@examples(200, 3000)
@given(STOPS, REGEXES, TEXTS, CUTS)
def test_match_equals_brute_force_whatever_the_chunks(
    stop: tuple[str, ...], patterns: tuple[str, ...], text: str, cuts: list[int]
) -> None:
    expected = reference(stop, patterns, text)
    matcher = StopMatcher(stop, patterns)
    found = None
    fed = 0
    for chunk in cut_at(text, cuts):
        found = matcher.feed(chunk)
        fed += len(chunk)
        if expected is not None and fed >= expected.end:
            break
        assert found is None
    assert found == expected


@examples(200, 3000)
@given(STOPS, REGEXES, TEXTS, CUTS)
def test_nothing_shown_is_ever_cut(
    stop: tuple[str, ...], patterns: tuple[str, ...], text: str, cuts: list[int]
) -> None:
    expected = reference(stop, patterns, text)
    matcher = StopMatcher(stop, patterns)
    fed = 0
    for chunk in cut_at(text, cuts):
        matcher.feed(chunk)
        fed += len(chunk)
        assert 0 <= matcher.held <= fed
        if expected is not None:
            assert fed - matcher.held <= expected.start


@examples(200, 3000)
@given(STOPS.filter(bool), TEXTS)
def test_strings_hold_no_more_than_a_prefix_of_one(stop: tuple[str, ...], text: str) -> None:
    if reference(stop, (), text) is not None:
        return
    matcher = StopMatcher(stop, ())
    for char in text:
        matcher.feed(char)
    longest = max(k for s in stop for k in range(len(s)) if text.endswith(s[:k]))
    assert matcher.held == longest


@pytest.mark.parametrize(
    ("stop", "text", "match"),
    [
        (("abcd", "bc"), "xabcd", ("bc", 2, 4)),  # ends first, though it starts later
        (("c", "abc"), "xabc", ("abc", 1, 4)),  # same end: starts first
        (("aab",), "aaab", ("aab", 1, 4)),  # a false start inside the true one
        (("\n\n",), "a\nb\n\nc", ("\n\n", 3, 5)),
        (("STOP",), "STOSTOP", ("STOP", 3, 7)),
        (("終わり",), "話は終わりです", ("終わり", 2, 5)),
    ],
)
def test_which_string_wins(stop: tuple[str, ...], text: str, match: tuple[str, int, int]) -> None:
    whole, by_char = StopMatcher(stop), StopMatcher(stop)
    assert whole.feed(text) == StopMatch(*match)
    assert [by_char.feed(c) for c in text][-1] == StopMatch(*match)


def test_patterns_and_strings_follow_one_rule() -> None:
    assert StopMatcher(("bcd",), ("ab+",)).feed("abcd") == StopMatch("ab+", 0, 2)
    assert StopMatcher(("ab",), ("b",)).feed("ab") == StopMatch("ab", 0, 2)
    assert StopMatcher(("b",), ("ab",)).feed("ab") == StopMatch("ab", 0, 2)


def test_a_finished_matcher_repeats_its_match_and_holds_from_its_start() -> None:
    matcher = StopMatcher(("bc",))
    assert matcher.feed("abcd") == StopMatch("bc", 1, 3)
    assert matcher.held == 3
    assert matcher.feed("xyz") == StopMatch("bc", 1, 3)
    assert matcher.held == 6


def test_held_follows_the_earliest_live_start() -> None:
    matcher = StopMatcher(("wxyz",), ("a[bc]*d",))
    #          text:  q  w  x  a  b  c  q  w
    expected_held = [0, 1, 2, 1, 2, 3, 0, 1]
    held = []
    for char in "qwxabcqw":
        matcher.feed(char)
        held.append(matcher.held)
    assert held == expected_held
