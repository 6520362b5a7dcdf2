"""Replay: calls and their answers in a file, recorded once and answered from there."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from interview import FACTS
from PIL import Image

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
from ramet.frontend.backends.base import Completion, GenCall, OnText
from ramet.frontend.prompt import Prompt


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
    assert len(entries) == 1 + 5
    assert entries[1]["prompt"][:3] == [{"begin": "system"}, "Be brief.", {"end": "system"}]
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


class LastFirst(Mock):
    """Of each three calls that run beside each other the last one is answered first."""

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        outputs = await super().generate(prompt, call, on_text)
        number = len(self.calls) % 3
        while len(self.calls) % 3:
            await asyncio.sleep(0)
        for _ in range(0 if number == 0 else 30 - 10 * number):
            await asyncio.sleep(0)
        return outputs


@function
def drawn(s: Any) -> None:
    forks = s.fork(3)
    forks += ["A word:" + gen("word", temperature=temperature) for temperature in (0.5, 0.5, 1)]
    forks.join()


@pytest.mark.parametrize("strict", [True, False])
def test_equal_calls_beside_each_other_are_answered_in_the_order_of_asking(tmp_path: Path, strict: bool):
    path, words = tmp_path / "calls.jsonl", [" one", " two", " three"]
    assert drawn.run(backend=Replay(path, record=LastFirst(words)))["word"] == words
    lines = path.read_text().splitlines()
    assert [json.loads(line)["outputs"][0]["text"] for line in lines[1:]] == words[::-1]
    assert drawn.run(backend=Replay(path, strict=strict))["word"] == words
    recorded, more = Replay(path, record=LastFirst([" four", " five", " six"])), [" four", " five", " six"]
    assert [drawn.run(backend=recorded)["word"] for _ in range(2)] == [words, more]
    replayed = Replay(path, strict=strict)
    assert [drawn.run(backend=replayed)["word"] for _ in range(2)] == [words, more]


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


def test_a_picture_in_memory_is_known_by_what_it_shows(tmp_path: Path):
    @function
    def look(s: Any, picture: Any) -> None:
        s += user(image(picture) + "What?") + assistant(gen("it"))

    path = tmp_path / "calls.jsonl"
    one, other = (Image.frombytes("L", (2, 1), content) for content in (b"ab", b"ac"))
    look.run(one, backend=Replay(path, record=Mock([" a cat"]))).sync()
    assert look.run(one.copy(), backend=Replay(path))["it"] == " a cat"
    with pytest.raises(CallFailed, match="with other turns"):
        look.run(other, backend=Replay(path))["it"]


def test_a_file_is_known_by_its_content_wherever_it_lies(tmp_path: Path):
    @function
    def look(s: Any, picture: Any) -> None:
        s += user(image(picture) + "What?") + assistant(gen("it"))

    path, moved, other = tmp_path / "calls.jsonl", tmp_path / "moved.png", tmp_path / "other.png"
    (tmp_path / "a.png").write_bytes(b"a cat")
    look.run(tmp_path / "a.png", backend=Replay(path, record=Mock([" a cat"]))).sync()
    moved.write_bytes(b"a cat")
    other.write_bytes(b"a dog")
    for same in (moved, b"a cat", "data:image/png;base64,YSBjYXQ="):
        assert look.run(same, backend=Replay(path))["it"] == " a cat"
    with pytest.raises(CallFailed, match="with other turns"):
        look.run(other, backend=Replay(path))["it"]


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


@function
def of_documents(s: Any) -> None:
    s += "Documents:"
    forks = s.fork(2)
    forks += [" one", " two"]
    forks.join("concate_and_append")
    s += " Answer:" + gen("answer", stop="\n", max_tokens=4)


@function(num_api_spec_tokens=32)
def ahead(s: Any) -> None:
    s += "a:" + gen("a", stop="\n") + "\nanswer:" + gen("answer", stop="\n")


@function(num_api_spec_tokens=32)
def ahead_in_a_turn(s: Any) -> None:
    s += user("Hi") + assistant("a:" + gen("a", stop="\n") + "\nanswer:" + gen("answer", stop="\n"))


ANSWERED = "a: one\nanswer: two\n"


@pytest.mark.parametrize(
    ("program", "reply", "capabilities"),
    [
        (of_documents, None, {"contexts": True}),
        (ahead, lambda prompt, call: ANSWERED[len(prompt) :], {"options": frozenset()}),
        (ahead_in_a_turn, lambda prompt, call: ANSWERED, {"continues": False}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("as_entries", [False, True])
def test_a_file_replays_what_its_backend_could_do(
    tmp_path: Path, program: Any, reply: Any, capabilities: dict[str, Any], as_entries: bool
):
    path, recorder = tmp_path / "calls.jsonl", Mock(reply)
    recorder.capabilities = replace(recorder.capabilities, **capabilities)
    recorded = program.run(temperature=0, backend=Replay(path, record=recorder))["answer"]
    replay = Replay([json.loads(line) for line in path.open()] if as_entries else path)
    assert program.run(temperature=0, backend=replay)["answer"] == recorded
    assert replay.capabilities == recorder.capabilities


def test_a_file_without_a_record_of_its_backend_is_read(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    recorded = record(path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    assert values(program.run(backend=Replay(path))) == recorded
    second = record(path, city="Rome")
    assert values(program.run("Rome", backend=Replay(path))) == second


def test_files_may_be_put_together(tmp_path: Path):
    one, other, both = tmp_path / "one", tmp_path / "other", tmp_path / "both"
    recorded = [record(one), record(other, city="Rome")]
    both.write_bytes(one.read_bytes() + other.read_bytes())
    assert [values(program.run(city, backend=Replay(both))) for city in ("Paris", "Rome")] == recorded


def test_the_recorder_may_be_given_as_any_backend_is(tmp_path: Path):
    replay = Replay(tmp_path / "calls.jsonl", record="http://127.0.0.1:9")
    assert "the server at http://127.0.0.1:9" in str(program.run(backend=replay).error())
    with pytest.raises(TypeError, match="int is not a backend"):
        Replay(tmp_path / "calls.jsonl", record=3)  # type: ignore[arg-type]


def test_a_last_line_that_was_cut_off_is_asked_again(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    recorded = record(path)
    whole = path.read_bytes()
    for num_bytes in (len(whole) - 1, len(whole) - 20, len(whole.splitlines()[0]) + 5, 20, 1, 0):
        path.write_bytes(whole[:num_bytes])
        assert values(program.run(backend=Replay(path, record=Mock()))) == recorded
        assert path.read_bytes() == whole
    path.write_bytes(whole[:-20])
    with pytest.raises(CallFailed, match="was recorded 1 times, and is asked once more"):
        program.run(backend=Replay(path))["more"]
    assert path.read_bytes() == whole[:-20], "a file that is only read stays as it is"


def backend_program(backend: Any) -> None:
    @function
    def plain(s: Any) -> None:
        s += "Hi" + gen("it")

    plain.run(backend=backend)


def test_a_file_that_is_none(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    with pytest.raises(OSError, match=r"calls\.jsonl"):
        Replay(path)
    for second in ('{"prompt": 3}\n', '{"prompt": 3}', "[]", "notes", "not"):
        content = '{"prompt": [], "call": {}}\n' + second
        path.write_text(content)
        with pytest.raises(ValueError, match=r"calls\.jsonl, line 2: "):
            Replay(path, record=Mock())
        assert path.read_text() == content
