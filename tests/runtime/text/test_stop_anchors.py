r"""Stop patterns with ^ $ \A \Z \b \B: what `re.search` over the text so far finds after each token, in linear time."""

import re
import sys
from itertools import accumulate, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime.text import search
from ramet.runtime.text.automaton import PatternError
from ramet.runtime.text.pattern import build_automaton
from ramet.runtime.text.search import CACHE_UNITS, steps_of
from ramet.runtime.text.stops import StopMatch, StopMatcher

FLAGS = {"": 0, "(?m)": re.M, "(?a)": re.A, "(?im)": re.I | re.M, "(?s)": re.S}


def first_token(pattern: str, tokens: list[str]) -> int | None:
    """The first token after which `re` finds the pattern in the text so far."""
    texts = enumerate(accumulate(tokens))
    return next((index for index, text in texts if tokens[index] and re.search(pattern, text)), None)


def first_span(body: str, flags: int, text: str) -> tuple[int, int] | None:
    """Of all matches in this text the one that ends first, and of those the one that starts first, by trying all."""
    for end in range(len(text) + 1):
        exactly = re.compile(rf"(?:{body})(?=(?s:.{{{len(text) - end}}})\Z)", flags)
        for start in range(end + 1):
            if exactly.match(text, start):
                return start, end
    return None


def fed(pattern: str, tokens: list[str]) -> tuple[int | None, StopMatch | None]:
    """The token at which the matcher finds a match, and the match."""
    matcher = StopMatcher((), (pattern,))
    for index, token in enumerate(tokens):
        match = matcher.feed(token)
        if match is not None:
            return index, match
    return None, None


@pytest.mark.parametrize(
    ("pattern", "tokens", "stop"),
    [
        ("^foo", ["f", "oo", "x"], (1, 0, 3)),
        ("^foo", ["a", "foo", "\n", "foo"], None),  # only where the output starts
        ("(?m)^foo", ["a", "foo", "\n", "foo"], (3, 5, 8)),
        (r"(?m)\Afoo", ["a\n", "foo"], None),
        (r"\n^foo", ["\n", "foo"], None),
        ("foo$", ["foobar", " foo", "x"], (1, 7, 10)),  # where the text so far ends
        ("foo$", ["foo", "bar"], (0, 0, 3)),
        ("foo$", ["a foo\n"], (0, 2, 5)),  # in front of a newline that ends it
        ("foo$", ["foox", "foo\n\n"], None),
        ("oo\n$", ["foo\n\n"], (0, 1, 4)),
        (r"foo\Z", ["foo\n", "foo"], (1, 4, 7)),
        ("(?m)foo$", ["foo\n\n"], (0, 0, 3)),
        ("foo$\n", ["a foo\n", "b"], (0, 2, 6)),
        (r"foo$\n\Z", ["foo\nb", "foo\n"], (1, 5, 9)),
        (r"\bfoo\b", ["afoo", " foot", " foo", "ls"], (2, 10, 13)),
        (r"\bfoo\b", ["foo", "ls"], (0, 0, 3)),  # the end of the text so far is a boundary
        (r"foo\B", ["foo", "ls"], (1, 0, 3)),
        (r"\Boo", ["foo"], (0, 1, 3)),
        (r"\b", ["  ", "\n", "x"], (2, 3, 3)),
        (r"x\b", ["xé", "x"], (1, 2, 3)),
        (r"(?a)x\b", ["xé"], (0, 0, 1)),
        (r"(?m)^$", ["a", "\n", "b"], (1, 2, 2)),  # the line that begins there is empty so far
        (r"(?m)^END$", ["END ", "\nEN", "D", "ED"], (2, 5, 8)),
        (r"(?:^|,)a", ["b", "a,", "a"], (2, 2, 4)),
        (r"(?:a$|ab)c?", ["ab", "c"], (0, 0, 2)),
        (r" |a.$", ["a "], (0, 0, 2)),  # both end there; which one starts first is known at the end
        (r"(?m:^)a(?-m:$)", ["a b\n", "a"], (1, 4, 5)),
    ],
)  # fmt: skip
def test_anchors_stop_where_re_finds_them(pattern: str, tokens: list[str], stop: tuple[int, int, int] | None) -> None:
    assert first_token(pattern, tokens) == (stop and stop[0])
    assert fed(pattern, tokens) == ((stop[0], StopMatch(pattern, *stop[1:])) if stop else (None, None))


LEAF = st.sampled_from(["a", "b", ".", "[^a]", r"\w", r"\s", r"\n", "é", "^", "$", r"\A", r"\Z", r"\b", r"\B",
                        "(?m:^)", "(?m:$)", r"(?a:\b)", r"(?a:\w)", "(?i:A)"])  # fmt: skip
BODIES = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=7,
)
TOKENS = st.lists(st.text("ab é\n", max_size=3), max_size=6)


@examples(600, 8000)
@given(BODIES, st.sampled_from(list(FLAGS)), TOKENS)
def test_patterns_with_anchors_agree_with_re_after_each_token(body: str, flags: str, tokens: list[str]) -> None:
    pattern = flags + body
    try:
        build_automaton(pattern)
    except PatternError:
        assert all(re.search(pattern, text) for text in ("a", " ", "\n", "a\n", " a", "é "))  # it stops everything
        assume(False)
    index = first_token(pattern, tokens)
    found, match = fed(pattern, tokens)
    assert found == index
    if index is not None:
        assert match == StopMatch(pattern, *first_span(body, FLAGS[flags], "".join(tokens[: index + 1])))


@examples(300, 5000)
@given(BODIES, st.sampled_from(list(FLAGS)), TOKENS)
def test_nothing_shown_is_cut_by_an_anchored_pattern(body: str, flags: str, tokens: list[str]) -> None:
    try:
        matcher = StopMatcher((), (flags + body,))
    except PatternError:
        assume(False)
    shown = 0
    for token, length in zip(tokens, accumulate(map(len, tokens)), strict=True):
        match = matcher.feed(token)
        assert match is None or match.start >= shown
        shown = max(shown, length - matcher.held)


@pytest.mark.parametrize(
    "pattern", ["^", "$", r"\A", r"\Z", "(?m)^", "(?m)$", "^a*", "a*$", "(|b)$", "(^|a)*", r"(\b)*"]
)
def test_a_pattern_that_stops_every_output_at_once_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="the empty text"):
        build_automaton(pattern)


def lines_run(pattern: str, tokens: list[str]) -> int:
    """Lines of search.py that a text costs: every loop over its characters or its starts is in Python."""
    matcher = StopMatcher((), (pattern,))
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename == search.__file__:
            count += event == "line"
            return trace
        return None

    sys.settrace(trace)
    try:
        assert all(matcher.feed(token) is None for token in tokens)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize(
    "pattern", [r"(a|aa)+(a|aa)+\bb", r"(?m)^(a|\n)*z$", r"(\Ba|\ba)*\bz", r"(a*$\n?)*z", r"\s+$x"]
)
@pytest.mark.parametrize("tokens", [["aaa"], ["a"], ["a\n"], ["\n"], ["a a", "\n"]])
def test_the_cost_of_a_text_is_linear_in_its_length(pattern: str, tokens: list[str]) -> None:
    once = lines_run(pattern, tokens * 200)
    assert lines_run(pattern, tokens * 800) < 4.2 * once
    assert once < 200 * sum(map(len, tokens)) * 60 + 3000


def test_the_tokens_do_not_matter_without_an_end_or_a_boundary() -> None:
    text = "one\ntwo\nthree"
    for cuts in ([], [4], [3, 4], [7, 8, 9], list(range(len(text)))):
        pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
        assert fed(r"(?m)^th|\Atwo", pieces)[1] == StopMatch(r"(?m)^th|\Atwo", 8, 10)


def test_a_pattern_with_boundaries_and_many_states_keeps_its_cache_bounded() -> None:
    pattern = r"(\ba|b|\n)*a\B(a|b|\n){300}\bc$"
    matcher = StopMatcher((), (pattern,))
    for index in range(3000):
        assert matcher.feed("ab\n"[index * index % 3]) is None
        assert steps_of(pattern).units <= CACHE_UNITS + 4000


def test_characters_of_one_kind_share_what_is_remembered_of_them() -> None:
    pattern = "".join(f"[^{chr(97 + i)}]" for i in range(26)) + r"\b!"
    steps = steps_of(pattern)
    matcher = StopMatcher((), (pattern,))
    assert matcher.feed("".join(map(chr, range(0x4E00, 0x5A00)))) is None
    assert steps.num_kinds <= 4
