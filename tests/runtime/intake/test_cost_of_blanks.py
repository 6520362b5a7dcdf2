"""White space that may belong to a marker is looked at once, however many pieces it comes in."""

import re
from collections.abc import Callable

import pytest

from ramet.runtime.intake.parsers import pieces
from ramet.runtime.intake.parsers.pieces import BLANKS, MAX_BLANKS
from ramet.runtime.intake.parsers.reasoning import make_reasoning, reasoning_names
from ramet.runtime.intake.parsers.tools import tool_parser_class

TOKENS = 2000
FORMATS = ("deepseek", "hermes", "llama3-json", "mistral", "pythonic")  # the others are names of these


class Counted(str):
    """Text that counts the characters that searches look at, and all that is made of it does so."""

    compared = 0

    def __getitem__(self, place: object) -> "Counted":
        return Counted(super().__getitem__(place))  # type: ignore[index]

    def __add__(self, other: str) -> "Counted":
        return Counted(super().__add__(other))

    def __radd__(self, other: str) -> "Counted":
        return Counted(other + str(self))

    def find(self, sub: str, start: int = 0, end: int | None = None) -> int:
        stop = len(self) if end is None else min(end, len(self))
        found = super().find(sub, start, stop)
        Counted.compared += max(0, (found + len(sub) if found >= 0 else stop) - start)
        return found

    def rstrip(self, chars: str | None = None) -> "Counted":
        stripped = super().rstrip(chars)
        Counted.compared += len(self) - len(stripped) + 1
        return Counted(stripped)


class CountedRun:
    """The pattern of a run of blanks, which counts what it reads."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def match(self, text: str, *bounds: int) -> re.Match[str] | None:
        found = self._pattern.match(text, *bounds)
        assert found is not None
        Counted.compared += found.end() - found.start() + 1
        return found


def comparisons(monkeypatch: pytest.MonkeyPatch, push: Callable[[str], object], tokens: list[str]) -> float:
    """For each token."""
    monkeypatch.setattr(pieces, "_BLANK_RUN", CountedRun(re.compile(f"[{BLANKS}]*")))
    Counted.compared = 0
    for token in tokens:
        push(Counted(token))
    return Counted.compared / len(tokens)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("before", ["", "x", "{", "x<"])
def test_a_run_of_blanks_costs_a_parser_of_calls_a_constant(
    monkeypatch: pytest.MonkeyPatch, name: str, before: str
) -> None:
    parser = tool_parser_class(name)(frozenset({"f"}))
    assert comparisons(monkeypatch, parser.push, [before, *" \n" * (TOKENS // 2)]) < 8


@pytest.mark.parametrize("name", reasoning_names())
@pytest.mark.parametrize("inside", [False, True])
def test_a_run_of_blanks_costs_a_parser_of_thoughts_a_constant(
    monkeypatch: pytest.MonkeyPatch, name: str, inside: bool
) -> None:
    tag = "[THINK]" if name == "mistral" else "<think>"
    parser = make_reasoning(name, tag if inside else "")
    assert comparisons(monkeypatch, parser.push, ["a", *" " * TOKENS, "b", *"\n" * TOKENS]) < 8


@pytest.mark.parametrize("name", FORMATS)
def test_blanks_at_the_very_start_cost_a_constant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    parser = tool_parser_class(name)(frozenset({"f"}))
    assert comparisons(monkeypatch, parser.push, list(" " * (MAX_BLANKS - 1))) < 8
    parser = make_reasoning("qwen3", "")
    assert comparisons(monkeypatch, parser.push, list(" " * (MAX_BLANKS - 1))) < 8


@pytest.mark.parametrize("name", ["mistral", "deepseek"])
def test_what_may_be_the_head_of_a_call_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    parser_class = tool_parser_class(name)
    parser = parser_class(frozenset({"f"}))
    parser.push(parser_class.opens)
    assert comparisons(monkeypatch, parser.push, list("f" + " " * 250)) < 8


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("number", [1, MAX_BLANKS - 1, MAX_BLANKS, MAX_BLANKS + 1, 3 * MAX_BLANKS])
@pytest.mark.parametrize("size", [1, 2, 100, 1000])
def test_what_waits_is_what_the_marker_would_swallow(name: str, number: int, size: int) -> None:
    parser_class = tool_parser_class(name)
    parser = parser_class(frozenset({"f"}))
    text = "x" + " " * number
    shown = [event for start in range(0, len(text), size) for event in parser.push(text[start : start + size])]
    assert "".join(shown) == "x" + " " * max(0, number - MAX_BLANKS)
    assert "".join(parser.push(parser_class.opens[0])) == ""
    assert "".join(parser.push("?")) == " " * min(number, MAX_BLANKS) + parser_class.opens[0] + "?"
