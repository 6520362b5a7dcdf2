"""Where a text ends that comes in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.frontend.backends import stops
from ramet.frontend.backends.stops import UntilStop, first_stop, without_begun_stop

TEXT = st.text(alphabet="ab ", max_size=20)
STOPS = st.lists(st.text(alphabet="ab ", min_size=1, max_size=4), max_size=3)


def test_the_stop_that_is_complete_first_counts():
    assert first_stop("one END two", ["two", "END"]) == (4, "END")
    assert first_stop("abc", ["abc", "b"]) == (1, "b")
    assert first_stop("abc", ["x"]) is None


@given(st.lists(TEXT, max_size=6), STOPS)
def test_pieces_give_what_the_whole_gives(pieces: list[str], stops: list[str]):
    told: list[str] = []
    until = UntilStop(stops, told.append)
    for piece in pieces:
        until.add(piece)
        assert until.text.startswith("".join(told)), "what was told stays"
    until.end()
    whole = "".join(pieces)
    cut = first_stop(whole, stops)
    assert "".join(told) == until.text
    if not until.matched:
        assert (cut, until.text) == (None, whole)
    else:
        assert cut == (len(until.text), until.matched)


@given(st.lists(st.text(alphabet="ab ", min_size=1, max_size=1), max_size=20), STOPS)
def test_nothing_is_held_back_without_need(letters: list[str], stops: list[str]):
    """What is not told yet is the beginning of a stop text."""
    told: list[str] = []
    until = UntilStop(stops, told.append)
    for letter in letters:
        until.add(letter)
        rest = until.text[len("".join(told)) :]
        assert not rest or any(stop.startswith(rest) for stop in stops)


def test_the_output_may_end_before_the_text_does():
    told: list[str] = []
    until = UntilStop(["END"], told.append)
    until.add("one E")
    until.end(len("one "))
    assert told == ["one "]
    assert until.text == "one "


@pytest.mark.parametrize(
    ("text", "matched", "whole"),
    [
        ("one\n", "\n\n", "one"),
        ("one EN", "END", "one "),
        ("one", "END", "one"),
        ("one\n", "\n", "one\n"),
        ("one EN", "ENTER", "one EN"),  # none of the call's
        ("one EN", 128009, "one EN"),
        ("one EN", None, "one EN"),
    ],
)
def test_the_beginning_of_the_stop_that_ended_a_stream_is_no_part_of_it(text: str, matched: object, whole: str):
    meta = {"finish_reason": {"type": "stop", "matched": matched}}
    assert without_begun_stop(text, meta, ["END", "\n\n", "\n"]) == whole


def test_a_long_text_of_many_pieces_is_read_once(monkeypatch: pytest.MonkeyPatch):
    num_read = 0

    def count(text: str, stops: tuple[str, ...]) -> tuple[int, str] | None:
        nonlocal num_read
        num_read += len(text)
        return first_stop(text, stops)

    monkeypatch.setattr(stops, "first_stop", count)
    until = UntilStop(["END", "\n\n"])
    for _ in range(20_000):
        until.add("word ")
    assert len(until.text) == 100_000
    assert num_read <= 2 * 100_000, "each piece searched the whole text"
