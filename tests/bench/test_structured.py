"""Steps that jump-forward saves on texts known beforehand: exact figures, the same on every machine."""

import json
from functools import cache
from pathlib import Path

import pytest

from ramet.bench.constrained_cases import ConstrainedCase, different_schemas
from ramet.bench.one_thread import Grammars, vocabulary_of
from ramet.bench.programs import structured
from ramet.bench.programs.structured import MODES, forced_tokens, notes_cases, play
from ramet.runtime.config import BUNDLED_MODEL

TOKENS = vocabulary_of(BUNDLED_MODEL)
GRAMMARS = Grammars(TOKENS)


@cache
def steps(name: str, mode: str) -> int:
    played = play(TOKENS, GRAMMARS, [notes_cases()[name]], mode)
    assert played.texts == [notes_cases()[name].text]
    return played.steps


def counts(case: ConstrainedCase) -> tuple[int, int]:
    return forced_tokens(TOKENS, GRAMMARS, case)


@pytest.mark.parametrize("name", notes_cases())
def test_no_step_is_taken_for_a_forced_token(name: str):
    length, forced = counts(notes_cases()[name])
    assert steps(name, "ff") <= length - forced


@pytest.mark.parametrize("name", notes_cases())
def test_without_jumps_each_token_takes_a_step(name: str):
    assert steps(name, "off") == counts(notes_cases()[name])[0]


@pytest.mark.parametrize("name", notes_cases())
def test_retokenizing_saves_most_of_the_steps_too(name: str):
    saved = {mode: steps(name, "off") - steps(name, mode) for mode in MODES}
    assert saved["retokenize"] >= 0.9 * saved["ff"] > 0


def test_fixed_whitespace_forces_more():
    for name in ("city", "order"):
        assert counts(notes_cases()[name])[1] > 1.5 * counts(notes_cases()[f"{name}, {structured.FLEXIBLE}"])[1]


def test_schemas_at_once_take_as_many_steps_as_the_longest():
    group = different_schemas(4)
    assert len({case.constraint for case in group}) == 4
    longest = max(length - forced for length, forced in map(counts, group))
    assert play(TOKENS, GRAMMARS, group, "ff").steps == pytest.approx(longest, abs=2)
    assert play(TOKENS, GRAMMARS, group, "off").steps == max(counts(case)[0] for case in group)


def test_a_run_makes_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    lines = tmp_path / "lines.jsonl"
    argv = ["--rounds", "1", "--schemas", "2", "--max-new-tokens", "8", "--case", "500 choices"]
    argv += ["--output-file", str(lines)]
    assert structured.main(argv) == 0, capsys.readouterr()
    (record,) = map(json.loads, lines.read_text().splitlines())
    assert record["bench"] == "structured" and record["llm"]["same"]
    assert set(record["cases"]) == {"500 choices", "2 schemas at once"}
    for each in record["cases"].values():
        assert set(each["steps"]) == set(each["ms"]) == set(MODES)
    assert "500 choices" in capsys.readouterr().out
