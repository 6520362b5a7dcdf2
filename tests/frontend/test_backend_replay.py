"""Replay: calls and their answers in a file, recorded once and answered from there."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from interview import FACTS

from ramet import (
    CallFailed,
    Mock,
    Replay,
    Unsupported,
    assistant,
    function,
    gen,
    image,
    select,
    separate_reasoning,
    system,
    user,
)


@function
def program(s: Any, city: str = "Paris") -> None:
    s += system("Be brief.") + user(f"About {city}?") + assistant(gen("about", max_tokens=8, stop="."))
    s += user("Nice?") + assistant(select("nice", choices=["yes", "no"]))
    s += user("People?") + assistant(gen("people", dtype=int))
    forks = s.fork(2)
    forks += user("More?") + assistant(gen("more", n=2, max_tokens=4))
    forks.join()


def values(state: Any) -> dict[str, Any]:
    assert state.error() is None
    return {name: (state[name], state.get_meta_info(name)) for name in ("about", "nice", "people", "more")}


def record(path: Path, **arguments: Any) -> dict[str, Any]:
    return values(program.run(backend=Replay(path, record=Mock()), **arguments))


@pytest.mark.parametrize("streaming", [False, True])
def test_what_was_recorded_is_replayed(tmp_path: Path, streaming: bool):
    path = tmp_path / "calls.jsonl"
    recorded = record(path)
    state = program.run(backend=Replay(path), stream=streaming)
    assert values(state) == recorded
    if streaming:
        assert "".join(state.text_iter("about")) == recorded["about"][0]


def test_the_file_is_lines_of_json_that_may_be_given_as_entries(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    recorded = record(path)
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(entries) == 5
    assert entries[0]["prompt"][:3] == [{"begin": "system"}, "Be brief.", {"end": "system"}]
    assert values(program.run(backend=Replay(entries))) == recorded


def test_equal_calls_are_answered_in_their_order(tmp_path: Path):
    @function
    def twice(s: Any) -> None:
        forks = s.fork(3)
        for fork in forks:
            fork += "A word:" + gen("word")
            fork.sync()
        forks.join()

    path, words = tmp_path / "calls.jsonl", [" one", " two", " three"]
    assert twice.run(backend=Replay(path, record=Mock(words)))["word"] == words
    assert twice.run(backend=Replay(path))["word"] == words
    backend = Replay(path)
    assert twice.run(backend=backend)["word"] == words
    with pytest.raises(CallFailed, match="this call was recorded 3 times, and is asked once more"):
        twice.run(backend=backend)["word"]


def test_a_call_that_was_not_recorded_names_the_nearest_prompt(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    record(path)
    error = r"not recorded; the nearest prompt agrees in 15 characters, then has 'Paris\?', and this one 'Rome\?'"
    with pytest.raises(CallFailed, match=error):
        program.run("Rome", backend=Replay(path))["about"]


def test_a_call_with_other_parameters_names_them(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    record(path)
    with pytest.raises(CallFailed, match="one with the same prompt was, with other gen"):
        program.run(backend=Replay(path), temperature=0.5)["about"]
    with pytest.raises(CallFailed, match="not recorded; nothing was"):
        program.run(backend=Replay([]))["about"]


def test_a_call_that_is_not_strict_is_its_prompt_and_choices(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    recorded = record(path)
    assert values(program.run(backend=Replay(path, strict=False), temperature=0.5)) == recorded


def test_what_is_missing_is_recorded(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    first, mock = record(path), Mock()
    assert values(program.run(backend=Replay(path, record=mock))) == first
    assert mock.calls == []
    second = values(program.run("Rome", backend=Replay(path, record=mock)))
    assert len(mock.calls) == 5
    assert values(program.run("Rome", backend=Replay(path))) == second


def test_many_programs_are_replayed_at_once(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    cities = [{"city": f"City {number}"} for number in range(30)]
    recorded = [values(state) for state in program.run_batch(cities, backend=Replay(path, record=Mock()))]
    replayed = [values(state) for state in program.run_batch(cities, backend=Replay(path), num_threads=8)]
    assert replayed == recorded


def test_what_an_output_keeps_to_is_part_of_a_call(tmp_path: Path):
    @function
    def held(s: Any, schema: Any) -> None:
        s += "A city: " + gen("it", json_schema=schema)

    path = tmp_path / "calls.jsonl"
    held.run(FACTS, backend=Replay(path, record=Mock(['{"a":1}']))).sync()
    assert held.run(dict(reversed(FACTS.items())), backend=Replay(path))["it"] == '{"a":1}'
    with pytest.raises(CallFailed, match="with other held"):
        held.run({"type": "object"}, backend=Replay(path))["it"]


def test_thoughts_and_media_are_kept(tmp_path: Path):
    @function
    def look(s: Any, image: bytes) -> None:
        import ramet

        s += user(ramet.image(image) + "What?") + assistant(separate_reasoning(gen("it")))

    path = tmp_path / "calls.jsonl"
    look.run(b"\x00png", backend=Replay(path, record=Mock([" a cat"]))).sync()
    assert look.run(b"\x00png", backend=Replay(path))["it"] == " a cat"
    with pytest.raises(CallFailed, match="one with the same prompt was, with other turns"):
        look.run(b"\x00jpg", backend=Replay(path))["it"]


class Picture:
    """As an image of Pillow has it."""

    mode, size = "L", (2, 1)

    def __init__(self, content: bytes) -> None:
        self._content = content

    def getpalette(self) -> None:
        return None

    def tobytes(self) -> bytes:
        return self._content


def test_a_picture_in_memory_is_known_by_what_it_shows(tmp_path: Path):
    @function
    def look(s: Any, picture: Any) -> None:
        s += user(image(picture) + "What?") + assistant(gen("it"))

    path = tmp_path / "calls.jsonl"
    look.run(Picture(b"ab"), backend=Replay(path, record=Mock([" a cat"]))).sync()
    assert look.run(Picture(b"ab"), backend=Replay(path))["it"] == " a cat"
    with pytest.raises(CallFailed, match="with other turns"):
        look.run(Picture(b"ac"), backend=Replay(path))["it"]
    with pytest.raises(CallFailed, match="image: a object cannot be told from others in a file: give a path, a URL"):
        look.run(object(), backend=Replay(path, record=Mock()))["it"]


def test_parameters_may_be_values_of_variables(tmp_path: Path):
    @function
    def counted(s: Any) -> None:
        s += "How many? " + gen("num", dtype=int)
        s += gen("words", max_tokens=s["num"])

    path = tmp_path / "calls.jsonl"
    recorded = counted.run(backend=Replay(path, record=Mock(["2", " one two three"])))
    assert recorded["words"] == " one two"
    assert counted.run(backend=Replay(path))["words"] == " one two"


def test_hints_of_the_recorder_are_not_promised(tmp_path: Path):
    recorder = Mock()
    recorder.capabilities = replace(recorder.capabilities, follow_ups=True, prefixes=True)
    can = Replay(tmp_path / "calls.jsonl", record=recorder).capabilities
    assert not can.follow_ups
    assert not can.prefixes


def test_what_the_recorder_cannot_do_is_refused(tmp_path: Path):
    from ramet import OpenAI

    backend = Replay(tmp_path / "x", record=OpenAI("gpt-4o", api_key="k"))
    with pytest.raises(Unsupported, match="takes chats only"):
        backend_program(backend)


def backend_program(backend: Any) -> None:
    @function
    def plain(s: Any) -> None:
        s += "Hi" + gen("it")

    plain.run(backend=backend)


def test_a_file_that_is_none(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    with pytest.raises(OSError, match=r"calls\.jsonl"):
        Replay(path)
    path.write_text('{"prompt": [], "call": {}}\n{"prompt": 3}\n')
    with pytest.raises(ValueError, match=r"calls\.jsonl, line 2: "):
        Replay(path)
