"""What a traced function may do with a value that only a run knows; all else is refused, never done wrongly."""

import asyncio
import enum
import sys
from collections import namedtuple
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ramet import (
    Mock,
    ProgramError,
    assistant,
    function,
    gen,
    image,
    movable,
    select,
    separate_reasoning,
    user,
    video,
)
from ramet.frontend.nodes import shown


@dataclass
class Person:
    name: str
    leaves: int = 0
    result: str = "x"


Pair = namedtuple("Pair", "left right")


@function
def inner(s, word):
    s += "in " + word + gen("y", max_tokens=3)


def same(program: Any, *args: Any, **kwargs: Any) -> Any:
    """The state of a graph, which has the values and the text of its function's."""
    states = [each.run(*args, backend=Mock(), **kwargs) for each in (program, program.compile())]
    for state in states:
        state.sync()
    interpreted, compiled = states
    assert compiled.text() == interpreted.text()
    assert compiled.ret_value == interpreted.ret_value
    assert {name: compiled[name] for name in compiled.results()} == {
        name: interpreted[name] for name in interpreted.results()
    }
    return compiled


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_refusal_that_the_function_catches_is_that_of_the_trace():
    @function
    def program(s):
        s += "score: " + gen("score")
        try:
            score = int(s["score"])
        except Exception:  # noqa: BLE001 - of a program that is careless
            score = 0
        s += f" -> {score}"

    with pytest.raises(ProgramError, match="the value of 'score' is known only"):
        program.compile()


def test_the_first_refusal_is_told_and_not_what_followed_from_it():
    @function
    def program(s, x):
        try:
            len(x)
        except ProgramError:
            raise KeyError("x") from None

    with pytest.raises(ProgramError, match="the argument 'x' is known only"):
        program.trace()


@pytest.mark.parametrize("attribute", ["name", "result", "leaves", "marks", "looked_at", "age"])
def test_attributes_of_a_value_are_looks_at_it(attribute: str):
    @function
    def program(s):
        s += "a" + gen("person", json_schema=Person)
        s += str(getattr(s["person"], attribute))

    with pytest.raises(ProgramError, match="the value of 'person' is known only"):
        program.trace()


@pytest.mark.parametrize("attribute", ["name", "result", "leaves", "age"])
def test_attributes_of_a_value_that_is_not_awaited_are_refused(attribute: str):
    @function
    async def program(s):
        s += "a" + gen("person", json_schema=Person)
        s += str(getattr(s["person"], attribute))

    with pytest.raises(TypeError, match="'person' is still to come: await it"):
        program.run(backend=Mock(['{"name": "Ada"}']))


SUMS = {
    "comparison": lambda x: "a" + x == "ab",
    "condition": lambda x: bool("a" + x),
    "method": lambda x: ("a" + x).strip(),
    "length": lambda x: len(x + "a"),
    "number": lambda x: x + 1,
    "list": lambda x: [1] + x,  # noqa: RUF005
}


@pytest.mark.parametrize("look", SUMS.values(), ids=SUMS.keys())
def test_a_sum_with_a_value_is_a_value(look: Any):
    with pytest.raises(ProgramError, match=r"the argument 'x'.* is known only"):
        function(lambda s, x: look(x)).trace()


TEXTS = {
    "method": lambda x: str(x).strip(),
    "comparison": lambda x: str(x) == "a",
    "reversed comparison": lambda x: "a" == str(x),  # noqa: SIM300
    "length": lambda x: len(repr(x)),
    "membership": lambda x: "a" in str(x),
    "key": lambda x: {str(x): 1},
    "number": lambda x: int(str(x)),
    "fraction": lambda x: float(str(x)),
    "slice": lambda x: str(x)[:1],
    "iteration": lambda x: list(str(x)),
    "condition": lambda x: bool(str(x)),
    "representation": lambda x: repr(str(x)),
}


@pytest.mark.parametrize("look", TEXTS.values(), ids=TEXTS.keys())
def test_the_text_of_a_value_is_not_looked_at(look: Any):
    with pytest.raises(ProgramError, match="the argument 'x' is known only"):
        function(lambda s, x: look(x)).trace()


def test_a_format_of_a_value_is_known():
    with pytest.raises(ProgramError, match="formats by a value that is known only"):
        function(lambda s, x, n: s.extend(f"{x:>{n}}")).trace()


ARGUMENTS = {
    "image of a value": lambda s, x: s.extend(gen("y") + "") or s.extend(image(s["y"])),
    "image of a text with a value": lambda s, x: s.extend(gen("y") + "") or s.extend(image(f"{x}{s['y']}.png")),
    "video": lambda s, x: s.extend(video("a.mp4", num_frames=x)),
    "options of select": lambda s, x: s.extend(select("c", ["a"], cache_salt=f"{x}")),
    "parser of thoughts": lambda s, x: s.extend(separate_reasoning(gen("c"), f"{x}")),
    "name of a scope": lambda s, x: s.var_scope(f"{x}").__enter__(),
    "name of a variable": lambda s, x: s.set_var(f"{x}", 1),
    "stop of a program": lambda s, x: inner("w", stop=f"{x}"),
    "options of a program": lambda s, x: inner("w", cache_salt=f"{x}"),
    "parameters of a program": lambda s, x: inner("w", sampling_params={"stop": f"{x}"}),
    "hints of a program": lambda s, x: inner("w", hints=x),
    "schema": lambda s, x: s.extend(gen("y", json_schema={"properties": {f"{x}": {}}})),
}


@pytest.mark.parametrize("give", ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_what_a_call_is_made_of_is_known(give: Any):
    with pytest.raises(ProgramError, match=r"known only when the program runs.*") as refused:
        function(give).trace()
    assert "test_trace_values.py" in str(refused.value)


@pytest.mark.parametrize(
    ("give", "name"),
    [
        (lambda x: gen("y", max_tokens=x), "max_tokens"),
        (lambda x: gen("y", stop=x), "stop"),
        (lambda x: gen("y", stop=["a", x]), "stop"),
        (lambda x: gen("y", regex="a" + x), "regex"),
        (lambda x: select("y", choices=[x, x]), "choices"),
        (lambda x: select("y", ["a"], temperature=x), "temperature"),
        (lambda x: inner("w", temperature=x), "temperature"),
    ],
)
def test_an_argument_that_is_not_known_is_named(give: Any, name: str):
    with pytest.raises(ProgramError, match=rf"the argument 'x'.* gives it as {name}: trace\(x=\.\.\.\)"):
        function(lambda s, x: give(x)).trace()


def test_an_argument_that_is_not_awaited_is_named():
    @function
    async def program(s):
        s += gen("n", dtype=int) + gen("x")
        s += gen("y", max_tokens=s["n"])

    with pytest.raises(TypeError, match="max_tokens is 'n', which is still to come: await it"):
        program.run(backend=Mock(["3", "x"]))


STORED = {
    "key": lambda x: {f"{x}": 1},
    "set": lambda x: {f"{x}"},
    "object": lambda x: Person(x),
    "object with a text": lambda x: [Person(f"{x}")],
    "call": lambda x: "a" + gen("y"),
}


@pytest.mark.parametrize("make", STORED.values(), ids=STORED.keys())
def test_what_a_graph_has_no_form_of_is_neither_stored_nor_returned(make: Any):
    with pytest.raises(ProgramError, match=r"stores .*"):
        function(lambda s, x: s.set_var("k", make(x))).trace()
    with pytest.raises(ProgramError, match=r"returns .*"):
        function(lambda s, x: make(x)).trace()


def test_a_clock_of_its_own_and_an_end_are_refused():
    with pytest.raises(ProgramError, match="no timeout_s of its own"):
        function(lambda s: inner("w", timeout_s=3)).trace()
    with pytest.raises(ProgramError, match="cancels its run"):
        function(lambda s: s.cancel()).trace()
    with pytest.raises(ZeroDivisionError):
        function(lambda s: 1 / 0).trace()


# -- what may be done -------------------------------------------------------------------------------------------------


def test_sums_are_stored_returned_formatted_and_appended_as_texts():
    @function
    def program(s, x):
        s += "a" + x + gen("y", max_tokens=2)
        s["sum"] = "A: " + x
        s["more"] = x + s["y"] + "."
        s += f"{'B: ' + x:>12}|{s['sum']}|" + ("C: " + s["y"])
        inner("D: " + s["more"])
        return "R: " + s["y"]

    assert same(program, "v")["sum"] == "A: v"


def test_a_part_of_a_sum_that_is_no_text_is_refused_when_it_runs():
    program = function(lambda s, x: "A: " + x).compile()
    with pytest.raises(ProgramError, match="what is returned failed: TypeError: int is added to a text"):
        program.run(5, backend=Mock())


def test_numbers_are_added_to_texts_and_to_nothing_else():
    @function
    def program(s):
        s += "1" + gen("a", dtype=int) + " " + gen("b", dtype=float)
        s += "sum of " + s["a"] + " and " + s["b"]

    state = program.compile().run(backend=Mock(["3", "4.5"]))
    assert state.text() == "13 4.5sum of 3 and 4.5"

    @function
    def adding(s):
        s += "1" + gen("a", dtype=int) + " " + gen("b", dtype=int)
        s["sum"] = s["a"] + s["b"]

    with pytest.raises(ProgramError, match="the value of 'a' is known only"):
        adding.compile()


def test_every_way_to_format_a_value():
    @function
    def program(s, x):
        s += gen("n", dtype=int, max_tokens=1)
        s += f"[{x!r:>10}] [{x!s:<8}] [{x:^9}] [{x!r}] [{x!s}] [{s['n']!s:>4}] [{s['n']:04d}] {x} {x:}"
        s += str(x) + repr(x) + "".join([str(x), f"{x}"])
        s += "%s %r" % (x, x) + "{:>5}|{}".format(x, str(x))  # noqa: UP031, UP032
        s["text"] = str(s["n"])

    states = [each.run("b'", backend=Mock(["7"])) for each in (program, program.compile())]
    assert states[0].text() == states[1].text() and states[1]["text"] == "7"


def test_texts_that_look_like_marks_are_texts_where_there_are_none():
    same(function(lambda s, x: s.extend("a \\ufdd0 b" + x)), "w")


def test_named_tuples_and_sets_of_constants_are_returned():
    @function
    def program(s):
        s += gen("x", max_tokens=1)
        s["seen"] = {1}
        return Pair(s["x"], [f"{s['x']}!"])

    assert isinstance(same(program).ret_value, Pair)
    compiled = program.compile()
    compiled.run(backend=Mock())["seen"].add(2)
    assert compiled.run(backend=Mock())["seen"] == {1}


def test_a_value_is_appended_to_forks():
    @function
    def program(s, x):
        forks = s.fork(2)
        forks += x
        forks += gen("y", max_tokens=2)
        forks.join()
        return s["y"]

    same(program, "b")


def test_parameters_of_any_name_and_kind():
    def named(state: Any, s: Any, *, state_1: Any = "d", end: Any) -> None:
        state += s + state_1 + end

    compiled = same(function(named), "a", end="b")
    assert compiled.text() == "adb"
    with pytest.raises(TypeError, match="too many positional arguments"):
        function(named).compile().run("a", "b", "c", backend=Mock())


def test_lists_of_thoughts_of_joins_and_of_a_run_s_own_n():
    @function
    def program(s):
        s += user("q") + assistant(separate_reasoning(gen("a", n=2, max_tokens=2)))
        called = inner("w", n=3)
        forks = s.fork(2)
        forks += gen("b", n=2, max_tokens=1)
        forks.join()
        (first, _), (_, last) = s["b"]
        thought, _ = s["a_reasoning_content"]
        return [first, last, len(s["a"]), thought, *called["y"]]

    assert len(same(program).ret_value) == 7


def test_a_text_that_moves_has_no_value_in_it():
    @function
    def program(s, x):
        s += x + movable(f"<{x}>") + gen("y", max_tokens=1)

    same(program, "a")


def test_two_values_of_one_name_in_one_line():
    @function
    def program(s):
        s += gen("x", max_tokens=1) + gen("x", max_tokens=2)
        first = s["x"]
        s += gen("x", max_tokens=3) + " " + first

    same(program)


# -- async programs ---------------------------------------------------------------------------------------------------


@function
async def gathered(s):
    forks = s.fork(2)
    forks += gen("x", max_tokens=2)
    one, two = await asyncio.gather(forks[0]["x"], forks[1]["x"])
    s += one + two


@function
async def of_a_join(s):
    forks = s.fork(2)
    forks += gen("x", n=2, max_tokens=2)
    forks.join()
    values = await s["x"]
    s += values[0][1] + (await forks[1]["x"])[0]


@function
async def of_constants(s):
    s["k"] = "v"
    s += s["k"] + await s["k"] + await s.get_var("k")


@function
async def in_time(s):
    s += "a" + gen("x", max_tokens=1)
    async with asyncio.timeout(120):
        s += await asyncio.wait_for(s["x"], 120)
    called = await inner.arun(s["x"])
    s += f"{called['y']}"


@function
async def of_other_programs(s):
    one, two = await asyncio.gather(in_time(), in_time())
    s += one["x"] + f"{two['x']}"
    return one["x"]


@pytest.mark.parametrize("program", [gathered, of_a_join, of_constants, in_time, of_other_programs])
def test_async_programs_await_what_plain_ones_look_up(program: Any):
    same(program)


def test_a_value_that_is_not_awaited_is_refused_as_in_a_run():
    @function
    async def program(s):
        s += gen("x")
        s += f"{s['x']}"

    for each in (lambda: program.trace(), lambda: program.run(backend=Mock())):
        with pytest.raises(TypeError, match="'x' is still to come: await it"):
            each()


# -- what is begun and kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    [
        lambda s, n: gen("x", max_tokens=n),
        lambda s, n: "%d" % n,  # noqa: UP031
        lambda s, n: "x" + (n + 1),
        lambda s, n: s.text(),
        lambda s, n: Path(n),
    ],
)
def test_the_beginning_ends_quietly_where_a_value_is_looked_at(look: Any):
    from ramet.frontend.trace import beginning

    @function
    def program(s, n):
        s += "the beginning"
        try:
            look(s, n)
        except ProgramError:
            s += "which is not sure"
        s += "neither"

    assert [shown(expr) for expr in beginning(program)] == ["ConstantText 'the beginning'"]


@pytest.fixture
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_forks_of_a_trace_may_be_given_to_threads(quick_switches: None):
    @function
    def program(s):
        forks = s.fork(4)

        def work(i: int) -> None:
            for j in range(8):
                more = forks[i].fork(2)
                more += [f"<{i}.{j}.{k}>" for k in range(2)]
                more.join("concate_and_append")
                forks[i] += gen(f"x{i}", max_tokens=1) + "|" + gen(max_tokens=1)
                forks[i] += f"[{forks[i][f'x{i}']}]"

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        forks.join("concate_and_append")

    for _ in range(5):
        same(program)


class Mode(enum.StrEnum):
    A = "a"


def test_values_of_json_are_of_exact_types():
    def program(s: Any, mode: Any = Mode.A) -> None:
        s += f"{mode}"

    with pytest.raises(ProgramError, match="a Mode, which is not JSON serializable"):
        function(program).compile().to_json()
