"""By what a run is known again in a resume file: one key for one program and its arguments, two for two."""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ramet import Compiled, Mock, Program, function, gen
from ramet.frontend.canonical import body_form, canonical


def num_runs(path: Path, *batches: tuple[Program, list[Any]]) -> int:
    """How many programs ran, of batches one after the other with one file."""
    mock = Mock()
    for program, arguments in batches:
        program.run_batch(arguments, backend=mock, resume=path / "results")
    return len(mock.calls)


@function
def echo(s: Any, word: Any, end: str = "", *, times: int = 1) -> None:
    s += f"{word}{end}" * times + gen("x")


def of_words(before: Any) -> Program:
    @function
    def program(s: Any, x: int) -> None:
        s += f"{before}{x}" + gen("y")

    return program


def with_default(before: str) -> Program:
    @function
    def program(s: Any, x: int, before: str = before) -> None:
        s += f"{before}{x}" + gen("y")

    return program


def through_another(before: str) -> Program:
    def text(x: int) -> str:
        return f"{before}{x}"

    @function
    def program(s: Any, x: int) -> None:
        s += text(x) + gen("y")

    return program


def through_a_program(before: str) -> Program:
    return of_words(of_words("").bind(x=len(before)))


def decorated(before: str) -> Program:
    def text(s: Any, x: int) -> None:
        s += f"{before}{x}" + gen("y")

    @functools.wraps(text)
    def wrapper(s: Any, x: int) -> None:
        text(s, x)

    return function(wrapper)


@pytest.mark.parametrize(
    "make", [of_words, with_default, through_another, through_a_program, decorated], ids=lambda make: make.__name__
)
def test_what_a_function_closes_over_is_part_of_it(tmp_path: Path, make: Callable[[str], Program]):
    assert num_runs(tmp_path, *[(make(before), [(1,)]) for before in ("one", "another", "one")]) == 2


def test_a_function_of_the_same_name_with_other_code_is_another(tmp_path: Path):
    def make(code: str) -> Program:
        space: dict[str, Any] = {"gen": gen, "__name__": "somewhere"}
        exec(f"def program(s, x):\n    {code}", space)
        return function(space["program"])

    one, other = "s += 'one' + gen('y')", "s += 'two' + gen('y')"
    assert num_runs(tmp_path, *[(make(code), [(1,)]) for code in (one, other, "\n\n    " + one)]) == 2


def test_a_local_class_is_known_by_its_source():
    class Reply:
        mood: str

    assert "mood: str" in repr(canonical(Reply))
    space: dict[str, Any] = {"__name__": "somewhere"}
    exec("class Reply: ...", space)
    with pytest.raises(TypeError, match="the source of Reply is not there"):
        canonical(space["Reply"])


def test_a_program_that_calls_itself_has_a_key(tmp_path: Path):
    @function
    def program(s: Any, depth: int) -> None:
        s += f"{depth}" + gen("x")
        if depth:
            program(depth - 1)

    assert num_runs(tmp_path, (program, [(1,)]), (program, [(1,)])) == 2


@dataclass
class Called:
    before: str

    def __call__(self, s: Any, x: int) -> None: ...

    def method(self, s: Any, x: int) -> None: ...


def test_what_is_called_as_a_function_is_known_by_its_code_and_what_it_holds():
    one, other = Called("one"), Called("two")
    bodies = [one, other, one.method, other.method, functools.partial(one, x=1), functools.partial(one, x=2)]
    forms = [repr(body_form(body)) for body in bodies]
    assert len(set(forms)) == len(forms)
    assert Called.method.__code__.co_code.hex() in forms[2]
    assert body_form(Called("one")) == body_form(one)


class Retriever:
    pass


def test_what_cannot_be_told_from_others_is_refused_before_anything_runs(tmp_path: Path):
    mock = Mock()
    with pytest.raises(TypeError, match=r"resume: .*program closes over 'before': Retriever has no form in JSON"):
        of_words(Retriever()).run_batch([(1,)], backend=mock, resume=tmp_path / "r")
    with pytest.raises(TypeError, match=r"resume: batch_kwargs\[1\], parameter 'word': object has no form in JSON"):
        echo.run_batch([("a",), (object(),)], backend=mock, resume=tmp_path / "r", on_error="return")
    with pytest.raises(TypeError, match=r"resume: batch_kwargs\[0\], parameter 'end': object has no form in JSON"):
        echo.bind(end=object()).run_batch([("a",)], backend=mock, resume=tmp_path / "r", on_error="return")
    assert mock.calls == [] and not (tmp_path / "r").exists()
    of_words(Retriever()).run_batch([(1,)], backend=mock)


def test_backends_are_not_part_of_a_key(tmp_path: Path):
    def judged(judge: Mock) -> Program:
        @function
        def program(s: Any, x: int) -> None:
            s += "a" + gen("y")
            echo.run("b", backend=judge)

        return program

    assert num_runs(tmp_path, (judged(Mock()), [(1,)]), (judged(Mock()), [(1,)])) == 1


def test_equal_arguments_have_one_key_however_they_are_given(tmp_path: Path):
    ways: list[tuple[Program, Any]] = [
        (echo, {"word": "a"}),
        (echo, ("a",)),
        (echo, ["a", ""]),
        (echo, {"times": 1, "word": "a", "end": ""}),
        (echo.bind(word="a"), {}),
        (echo.bind(word="b", times=1), {"word": "a"}),
    ]
    assert num_runs(tmp_path, *[(program, [arguments]) for program, arguments in ways]) == 1
    assert num_runs(tmp_path, (echo, [("a", "", ), {"word": "a", "end": "."}])) == 1  # fmt: skip


def test_arguments_that_do_not_fit_are_their_run_s_failure(tmp_path: Path):
    states = echo.run_batch([("a",), {"words": "a"}], backend=Mock(), on_error="return", resume=tmp_path / "r")
    assert [type(state.error()) for state in states] == [type(None), TypeError]


class Color(Enum):
    RED = "red"


@dataclass
class Point:
    x: Any


class Box(msgspec.Struct):
    x: Any


VALUES = [
    None, float("nan"), float("inf"), 1, 1.0, True, -0.0, 0.0, 2**70, "1", b"abc", "YWJj", "616263", "\ud800",
    (1,), [1], {1}, {1: 1}, {"1": 1}, {}, [], ["list", [1]], {"x": 1}, Point(1), Box(1), Color.RED, "red", Path("red"),
    date(2024, 5, 6), "2024-05-06", Point, Box, len, of_words, re, list[int], list[str], int | None,
    functools.partial(of_words, 1), Color.RED.name.lower, "a".upper, ...,
]  # fmt: skip


def test_no_two_values_that_differ_share_a_key(tmp_path: Path):
    arguments = [{"word": value} for value in VALUES if value != "\ud800"]
    assert num_runs(tmp_path, (echo, arguments), (echo, arguments[::-1])) == len(arguments)
    forms = [repr(canonical(value)) for value in VALUES]
    assert [form for form in forms if forms.count(form) > 1] == []


def test_the_order_of_a_dict_is_no_part_of_a_key(tmp_path: Path):
    assert num_runs(tmp_path, *[(echo, [({"a": 1, "b": [2]},)]), (echo, [({"b": [2], "a": 1},)])]) == 1


IN_A_PROCESS = """
import sys
from dataclasses import dataclass
from ramet import Mock, function, gen

@dataclass
class Tags:
    names: set

@function
def program(s, names, tags):
    if names in {"a", "b", "c", "d"}:
        return
    s += "v" + gen("x")

mock = Mock()
names = {"red", "green", "blue", "yellow"}
program.run_batch([(names, Tags(frozenset(names)))], backend=mock, resume=sys.argv[1])
print(len(mock.calls))
"""


def test_keys_are_the_same_in_every_process(tmp_path: Path):
    found = ""
    for seed in "123":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", IN_A_PROCESS, str(tmp_path / "r")]
        found += subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.split() == ["1", "0", "0"]


def test_a_graph_is_known_by_what_it_does(tmp_path: Path):
    @function
    def program(s: Any, x: str, k: str = "") -> None:
        s += f"{k} " + x + gen("y", json_schema=Point, stop=["\n"]) + gen("z", dtype=int)

    replies = {"y": '{"x": 1}'}
    one, other = program.compile(k="one"), program.compile(k="two")
    mock = Mock(lambda _, call: "7" if call.kind is int else replies["y"])
    for compiled in (one, other, program.bind(k="one"), one, other):
        compiled.run_batch([("a",)], backend=mock, resume=tmp_path / "r")
    assert len(mock.calls) == 3 * 2


def test_a_graph_that_was_read_from_json_is_the_same(tmp_path: Path):
    compiled = echo.compile(times=2)
    again = Compiled.from_json(compiled.to_json())
    assert num_runs(tmp_path, (compiled, [("a",)]), (again, [("a",)])) == 1
