"""The backend without a model: it ends outputs as a model's are ended, and refuses replies that are no texts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet import BackendError, CallFailed, Mock, function, gen, select
from ramet.runtime.text.stops import StopMatcher


@function
def ask(s: Any, **arguments: Any) -> None:
    s += "Hi" + gen("x", **arguments)


@pytest.mark.parametrize(
    ("stop", "keeps", "text"),
    [
        (["bcd", "c"], False, "ab"),  # "c" is complete first
        (["bcd", "bc"], False, "a"),
        (["bcd", "c"], True, "abc"),
        (["x"], False, "abcdef"),
        (["x"], True, "abcdef"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_an_output_ends_at_the_stop_that_is_complete_first(stop: list[str], keeps: bool, text: str, streaming: bool):
    state = ask.run(backend=Mock(["abcdef"]), stop=stop, no_stop_trim=keeps, stream=streaming)
    assert state["x"] == text and state.text() == "Hi" + text
    matched = next((each for each in ("c", "bc") if each in stop), None)
    assert state.get_meta_info("x")["finish_reason"] == {"type": "stop", "matched": matched}


@given(
    st.text("ab1 ", max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=2),
    st.lists(st.sampled_from(["a+", "b1|a", r"\d\b", "(ab)+1", "b$", "[^a]b"]), max_size=2),
)
def test_an_output_ends_at_stop_patterns_as_the_runtime_ends_it(text: str, stops: list[str], patterns: list[str]):
    state = ask.run(backend=Mock([text]), stop=stops, stop_regex=patterns)
    matcher = StopMatcher(tuple(stops), tuple(patterns))
    found = next((match for char in text if (match := matcher.feed(char)) is not None), None)
    assert state["x"] == (text if found is None else text[: found.start])
    reason = {"type": "stop", "matched": None if found is None else found.pattern}
    assert state.get_meta_info("x")["finish_reason"] == reason


def test_a_stop_pattern_that_is_none_is_named():
    state = ask.run(backend=Mock(["abc"]), stop_regex="(a")
    with pytest.raises(CallFailed, match=r"stop_regex is \['\(a'\], must be valid patterns: missing \)"):
        str(state["x"])


@pytest.mark.parametrize("name", ["replies", "picks"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (" Lima", r" is ' Lima', must be a list of texts, or a function: \[' Lima'\] is the one text"),
        ([" Lima", 42], r"\[1\] is 42, must be a text"),
        ([None], r"\[0\] is None, must be a text"),
        (42, " is 42, must be a list of texts, or a function"),
    ],
)
def test_replies_that_are_no_texts_are_refused(name: str, given: Any, words: str):
    with pytest.raises(TypeError, match=f"^{name}{words}"):
        Mock(**{name: given})


def test_a_function_that_gives_no_text_is_named():
    state = ask.run(backend=Mock(lambda prompt, call: 42))  # type: ignore[arg-type,return-value]
    with pytest.raises(CallFailed, match="Mock: the function of its replies gave 42, must be a text"):
        state["x"]
    assert isinstance(state.error().reason, BackendError)


def test_replies_may_come_from_any_iterable():
    @function
    def twice(s: Any) -> None:
        s += gen("x") + select("y", ["a", "b"]) + gen("z")

    state = twice.run(backend=Mock((each for each in (" one", " two")), iter("b")))  # type: ignore[arg-type]
    assert state.text() == " oneb two"


def test_what_it_picks_is_certain():
    @function
    def pick(s: Any) -> None:
        s += select("y", ["a", "b", "c"])

    state = pick.run(backend=Mock(picks=["b"]))
    assert state.get_meta_info("y")["probabilities"] == [0.0, 1.0, 0.0]
