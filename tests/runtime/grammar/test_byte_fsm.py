r"""The compressed finite state machine: against Python's `re`, and against languages that are listed in full."""

import random
import re
from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.byte_fsm import MAX_PATTERN_BYTES, ByteFsm, build_byte_fsm

CHARACTERS = "abcdBKé ſKß\n_1٣東👍\u0301"
LEAVES = st.sampled_from(
    [
        "a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\W", r"\s", r"\S", r"\d", "ab", "(?i:Bk)", "é", "[b-d]", r"\n",
        "東", "👍", "[^é]", "[à-ü東]", r"[^\w\s]", r"[\d_-]", r"(?a:\w)", "(?s:.)", "(?i:[^k])", "(?i:[à-ü])",
        "[👀-🙏]",
    ]
)  # fmt: skip
ANCHORS = st.sampled_from(["^", "$", r"\A", r"\Z", r"\b", r"\B", "(?m:^)", "(?m:$)", r"(?a:\b)"])
FLAGS = st.sampled_from(["", "(?i)", "(?s)", "(?a)", "(?m)", "(?ai)", "(?im)"])
REPEATS = ["*", "+", "?", "{2}", "{1,3}", "{2,}", "{,2}", "*?", "+?", "??", "{1,2}?"]


def trees(leaves: st.SearchStrategy[str], repeats: list[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
            st.tuples(inner, st.sampled_from(repeats)).map(lambda pair: f"({pair[0]}){pair[1]}"),
        ),
        max_leaves=6,
    )


def accepts(fsm: ByteFsm, text: str) -> bool:
    state = fsm.walk(fsm.start, text.encode())
    return state is not None and fsm.accepts(state)


def text_of(fsm: ByteFsm, rng: random.Random, max_bytes: int = 40) -> str | None:
    """A random text that it accepts, and now and then None."""
    state, found = fsm.start, bytearray()
    while not fsm.accepts(state) or (list(fsm.runs(state)) and rng.random() < 0.7):
        first, last, state = rng.choice(list(fsm.runs(state)))
        found.append(rng.choice([first, last, rng.randint(first, last)]))
        if len(found) > max_bytes:
            return None
    return found.decode()


def near(text: str, rng: random.Random) -> str:
    """The text with one character changed, left out or put in."""
    place = rng.randrange(len(text) + 1)
    return text[:place] + rng.choice(["", *CHARACTERS]) + text[place + rng.randrange(2) :]


@examples(300, 10_000)
@given(trees(LEAVES, REPEATS), FLAGS, st.text(CHARACTERS, max_size=6), st.integers(0, 1 << 32))
def test_accepts_what_re_matches_in_full(body: str, flags: str, text: str, seed: int) -> None:
    fsm, rng = build_byte_fsm(flags + body), random.Random(seed)
    assert accepts(fsm, text) == bool(re.fullmatch(flags + body, text))
    for _ in range(4):
        text = text_of(fsm, rng) or text
        for other in (text, near(text, rng)):
            assert accepts(fsm, other) == bool(re.fullmatch(flags + body, other)), other


@examples(200, 10_000)
@given(trees(LEAVES | ANCHORS, ["?", "*", "{1,2}"]), st.text("ab\n é", max_size=5), st.integers(0, 1 << 32))
def test_anchors_hold_where_re_says(pattern: str, text: str, seed: int) -> None:
    rng = random.Random(seed)
    try:
        fsm = build_byte_fsm(pattern)
    except GrammarError as error:
        assert str(error) == "matches no text" and not re.fullmatch(pattern, text)
        return
    for _ in range(4):
        for other in (text, near(text, rng)):
            assume(other or r"\B" not in pattern)  # `re` has two opinions on \B in the empty text, by its version
            assert accepts(fsm, other) == bool(re.fullmatch(pattern, other)), other
        text = text_of(fsm, rng) or text


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        (r"a$\n", "a\n", "a"), (r"(a$\n?)+", "a\n", "a\na"), (r"(?m)(a$\n?)+", "a\na", "aa"), (r"a\Z\n?", "a", "a\n"),
        (r"^a|b", "b", "^a"), (r"(a|^b)*", "ba", "ab"), (r"\w+\b[ .]\B.*", "né. x", "a!"), (r"(?a)a\bé", "aé", "aa"),
    ],
)  # fmt: skip
def test_anchors_inside_a_pattern(pattern: str, accepted: str, refused: str) -> None:
    fsm = build_byte_fsm(pattern)
    assert re.fullmatch(pattern, accepted) and accepts(fsm, accepted)
    assert not re.fullmatch(pattern, refused) and not accepts(fsm, refused)


Finite = tuple[str, frozenset[str]]  # a pattern, all texts that match it
MAX_TEXTS = 200


def finite(pattern: str, *texts: str) -> Finite:
    return pattern, frozenset(texts)


def joined(first: Finite, second: Finite) -> Finite:
    return first[0] + second[0], frozenset(map("".join, product(first[1], second[1])))


def either(first: Finite, second: Finite) -> Finite:
    return f"(?:{first[0]}|{second[0]})", first[1] | second[1]


def at_most_twice(body: Finite, low: int) -> Finite:
    twice = frozenset(map("".join, product(body[1], repeat=2)))
    return f"(?:{body[0]}){{{low},2}}", frozenset([""] if not low else []) | body[1] | twice


LISTED = st.recursive(
    st.sampled_from(
        [
            *(finite(text, text) for text in ("ab", "abc", "é", "è", "東京")),
            *(finite(f"[{chars}]", *chars) for chars in ("ac", "àáâã", "a東", "👍👎")),
        ]
    ),
    lambda inner: st.one_of(
        st.builds(joined, inner, inner),
        st.builds(either, inner, inner),
        st.builds(at_most_twice, inner, st.sampled_from([0, 1])),
    ),
    max_leaves=7,
).filter(lambda listed: len(listed[1]) <= MAX_TEXTS)


@examples(200, 5000)
@given(LISTED)
def test_states_steps_and_forced_bytes_of_a_listed_language(listed: Finite) -> None:
    pattern, texts = listed[0], {text.encode() for text in listed[1]}
    fsm = build_byte_fsm(pattern)
    rests = {prefix: frozenset(t[len(prefix) :] for t in texts if t.startswith(prefix)) for prefix in prefixes(texts)}
    assert fsm.num_states == len(set(rests.values()))  # as few as there are different futures
    for prefix, rest in rests.items():
        state = fsm.walk(fsm.start, prefix)
        assert state is not None
        assert fsm.accepts(state) == (prefix in texts)
        assert fsm.forced(state) == common_start(rest)
        legal = {byte for byte in range(256) if fsm.step(state, byte) is not None}
        assert legal == {text[0] for text in rest if text}


def common_start(texts: Iterable[bytes]) -> bytes:
    first, last = min(texts), max(texts)
    length = next((i for i, byte in enumerate(first) if last[i] != byte), len(first))
    return first[:length]


def prefixes(texts: set[bytes]) -> set[bytes]:
    return {text[:length] for text in texts for length in range(len(text) + 1)}


def test_stored_automaton_is_the_same() -> None:
    fsm = build_byte_fsm('{"name": "[a-zé]{2}", "age": (?:[1-9][0-9]?|unknown)}')
    again = ByteFsm.from_bytes(fsm.to_bytes())
    assert again.draw() == fsm.draw() and again.num_states == fsm.num_states
    assert 0 < fsm.num_bytes < len(fsm.to_bytes())


DRAWING = """\
0 --"{"house": "--> 10
10 --[G]--> 11
10 --[\\xC3]--> 25
11 --"r"--> 13
25 --"\\xa9"--> 12
13 --[u]--> 17
13 --[y]--> 16
12 --[\\x0A}]--> 14 (end)
12 --[0-9]--> 15
17 --"ff}"--> 14 (end)
16 --"ffindor}"--> 14 (end)
15 --"}"--> 14 (end)"""


def test_drawing_shows_one_line_for_an_edge() -> None:
    drawing = build_byte_fsm('{"house": (Gryffindor}|Gruff}|é(\n|[0-9]?}))').draw()
    assert drawing.splitlines() == DRAWING.splitlines()


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("a(?=b)", "lookaround at position 1"), (r"(a)\1", "a backreference at position 3"),
        (r"\p{L}", r"bad escape \p at position 0"), ("a(b", "at position 1"), ("x{3,1}", "at position 2"),
        ("a++", "possessive repeat at position 1"), ("(?>a)", "an atomic group at position 0"),
        ("(a)?(?(1)b|c)", "a conditional group at position 4"), ("a" + "(" * 5000, "nested too deeply"),
        ("a^b", "matches no text"), (r"[^\s\S]", "matches no text"), ("\ud800", "matches no text"),
        ("(a{1,1000}){1,1000}", "2001000 states"), ("(((a{9}){99}){999}){9999}", "states with its repeats"),
        ("a" * (MAX_PATTERN_BYTES + 1), f"at most {MAX_PATTERN_BYTES}"), ("(a|b)*a(a|b){40}", "too many states"),
        (".*(a.{20}|b.{21}|c.{22})", "too many states"), (r"(\w{1,99}\s){1,99}", "states over the bytes"),
        ("(?:(?:[a-z]{1,20}){1,20}){1,20}", "too many states"), ("((a?){50}){50}b*", "too many states"),
    ],
)  # fmt: skip
def test_refused_pattern_says_why_and_where(pattern: str, named: str) -> None:
    with pytest.raises(GrammarError) as caught:
        build_byte_fsm(pattern)
    assert named in caught.value.fact
