"""How a compiled program waits, fails and lets go: values made of others, lines that are refused, event loops."""

import asyncio
import gc
import sys
import weakref
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from ramet import CallFailed, Compiled, Graph, Mock, ProgramError, function, gen, movable, video
from ramet.frontend.backends.base import Capabilities, Completion, GenCall
from ramet.frontend.nodes import shown
from ramet.frontend.prompt import Prompt

EXPAND = "Please expand the following tip into a detailed paragraph of three sentences: "


@function
def inner(s, word):
    s += EXPAND + word + gen("y", max_tokens=2)
    return s["y"]


@function
async def awaited(s, word):
    s += word + gen("y", max_tokens=2)
    return await s["y"]


class Slow(Mock):
    async def generate(self, prompt: Prompt, call: GenCall, on_text: Any = None) -> list[Completion]:
        await asyncio.sleep(0.05)
        return await super().generate(prompt, call, on_text)


# -- values that are made of others -----------------------------------------------------------------------------------


def test_a_thousand_values_that_are_made_of_one_another():
    @function
    def program(s):
        s += "q" + gen("x")
        s["kept"] = s["x"]
        for _ in range(1000):
            s["kept"] = f"{s['kept']},"
        s += s["kept"]
        return s["kept"]

    state = program.compile().run(backend=Slow(["out"]), timeout_s=30)
    assert state.ret_value == "out" + 1000 * ","
    assert state.text() == "qoutout" + 1000 * ","


def test_an_error_reaches_the_last_of_values_that_are_made_of_one_another():
    @function
    def program(s):
        s += "q" + gen("x")
        s["kept"] = f"{s['x']:d}"
        for _ in range(300):
            s["kept"] = f"{s['kept']},"

    state = program.compile().run(backend=Slow(["out"]), timeout_s=30)
    with pytest.raises(CallFailed, match="the value of 'kept' failed: ValueError: Unknown format code 'd'"):
        state["kept"]


def test_a_run_does_as_much_for_each_value_however_many_are_read():
    """All values of a stream that are read were looked at after each of its nodes."""

    def functions_called(num: int) -> int:
        @function
        def program(s, x):
            for i in range(num):
                s[f"v{i}"] = f"{x}"
            return [s[f"v{i}"] for i in range(num)]

        compiled, called = program.compile(), Counter[str]()
        sys.setprofile(lambda frame, event, argument: called.update([event]))
        try:
            compiled.run("a", backend=Mock())
        finally:
            sys.setprofile(None)
        return called["call"]

    assert functions_called(400) < 11 * functions_called(40)


def test_what_a_program_stores_has_no_meta_information():
    @function
    def program(s):
        s += gen("a", n=2, max_tokens=1)
        s["one"], s["all"] = s["a"][1], s["a"]

    for each in (program, program.compile()):
        state = each.run(backend=Mock())
        assert [state.get_meta_info(name) for name in ("one", "all")] == [None, None]
        assert len(state.get_meta_info("a")) == 2


def test_a_run_is_let_go_without_the_collector():
    @function
    def program(s):
        s += "a" + gen("x", max_tokens=1)
        s["kept"] = f"{s['x']}!"
        s += inner(s["kept"])["y"]

    state = program.compile().run(backend=Mock())
    state.sync()
    state.run.backend.loop.start(asyncio.sleep(0)).result()
    let_go = weakref.ref(state)
    gc.disable()
    try:
        del state
        assert let_go() is None
    finally:
        gc.enable()


# -- errors -----------------------------------------------------------------------------------------------------------


@function
def misformatted(s):
    s += "a" + gen("x")
    s["kept"] = f"{s['x']:d}"


def test_a_value_that_cannot_be_made_fails_the_run():
    compiled = misformatted.compile()
    error = compiled.run(backend=Mock(["out"])).error()
    assert isinstance(error, CallFailed) and isinstance(error.reason, ValueError)
    (state,) = compiled.run_batch([{}], backend=Mock(["out"]), on_error="return")
    assert isinstance(state.error(), CallFailed)


def test_a_value_of_a_called_program_that_cannot_be_made_fails_the_run():
    @function
    def program(s):
        misformatted()
        s += "b" + gen("y")

    state = program.compile().run(backend=Slow(["out", "out"]))
    assert isinstance(state.error(), CallFailed) and "kept" in str(state.error())


def test_an_argument_that_cannot_be_formatted_fails_before_its_line_is_sent():
    mock = Mock()
    with pytest.raises(CallFailed, match="a text of 'x' failed: ValueError"):
        function(lambda s, x: s.extend("a" + gen("y") + f"{x:d}")).compile().run("a", backend=mock)
    assert mock.calls == []


def test_none_is_told_by_its_name():
    def program(s: Any, hint: Any = None) -> None:
        if hint is not None:  # a trace cannot notice it
            s += hint

    with pytest.raises(TypeError, match="the argument 'hint' is None, and is appended"):
        function(program).compile().run(backend=Mock())


# -- lines ------------------------------------------------------------------------------------------------------------


class NoVideo(Mock):
    capabilities = Capabilities()


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        (lambda x: "a" + gen("x") + video("x.mp4"), ("a",)),
        (lambda x: "a" + gen("x") + x, (5,)),
    ],
    ids=["unsupported", "no text"],
)
def test_a_line_that_is_refused_sends_nothing(line: Any, arguments: Any):
    program = function(lambda s, x: s.extend(line(x))).compile()
    for each in (program, Compiled.from_json(program.to_json())):
        backend = NoVideo(lambda prompt, call: "x")
        for _ in range(20):
            with pytest.raises((ProgramError, TypeError)):
                each.run(*arguments, backend=backend)
        backend.loop.start(asyncio.sleep(0)).result()
        assert backend.calls == []


def lines(graph: Graph) -> list[str]:
    """The nodes of each line."""
    found: list[str] = []
    for node in graph.nodes:
        if node.goes_on:
            found[-1] += " + " + shown(node.expr)
        else:
            found.append(shown(node.expr))
    return found


def test_lines_stay_whole_where_texts_move():
    @function
    def program(s, x, y):
        s += "a " + x + movable("m1 ") + "b "
        s += movable("m2 ") + y
        s += movable("m3 ")
        s += movable("m4 ") + movable("m5 ") + "c" + gen("g")
        s += y + movable("m6 ")

    assert lines(program.compile().graph) == [
        "ConstantText 'a ' + "
        + "".join(f"ConstantText 'm{i} ' (movable) + " for i in range(1, 6))
        + "Argument x + ConstantText 'b '",
        "Argument y",
        "ConstantText 'c' + Gen g",
        "ConstantText 'm6 ' (movable) + Argument y",
    ]


# -- event loops, and programs that are compiled already --------------------------------------------------------------


def test_on_an_event_loop_what_would_wait_is_refused_before_anything_is_sent():
    compiled = inner.compile()

    @function
    async def program(s):
        compiled("w")

    mock = Mock()
    with pytest.raises(ProgramError, match="this would wait on the event loop"):
        program.run(backend=mock)
    assert mock.calls == []


def test_a_compiled_async_program_is_awaited_as_its_function_is():
    compiled = awaited.compile()
    for each in (awaited, compiled, Compiled.from_json(compiled.to_json())):

        async def program(s: Any, each: Any = each) -> Any:
            called = await each("w")
            s += called["y"]
            return called.ret_value

        state = function(program).run(backend=Mock(["out"]))
        assert (state.ret_value, state.text()) == ("out", "out")
    assert compiled.run("w", backend=Mock(["out"])).ret_value == "out"


def test_what_is_compiled_already_is_refused_by_a_trace():
    compiled, compiled_async = inner.compile(), awaited.compile()

    @function
    def program(s):
        with suppress(ProgramError):
            s += compiled("w")["y"]

    @function
    async def of_async(s):
        await compiled_async("w")

    for each in (program, of_async):
        with pytest.raises(ProgramError, match=r"(inner|awaited) is compiled already: call the function it comes from"):
            each.trace()
    with pytest.raises(ProgramError, match="compiled already"):
        compiled.compile()
    with pytest.raises(ProgramError, match="compiled already"):
        compiled.trace(word="a")
    assert compiled.trace() is compiled.graph
    assert function(lambda s: s.extend(compiled("w")["y"])).run(backend=Mock(["out"])).text() == "out"


# -- prefixes ---------------------------------------------------------------------------------------------------------


class Holding(Mock):
    capabilities = Capabilities(prefixes=True)

    def __init__(self) -> None:
        super().__init__(lambda prompt, call: "x")
        self.held: list[tuple[str, bool]] = []

    async def hold(self, prompt: Prompt, seconds: float) -> None:
        self.held.append((prompt.text(), seconds > 0))


def test_what_was_prefetched_for_a_program_that_is_never_called_is_let_go():
    @function
    def program(s, x):
        s += "a" + gen("a")
        s += x
        inner(s["a"])

    backend = Holding()
    with pytest.raises(TypeError):
        program.compile().run(5, backend=backend)
    for _ in range(3):
        backend.loop.start(asyncio.sleep(0)).result()
    assert backend.held == [(EXPAND, True), (EXPAND, False)]


def test_a_compiled_program_is_cached_by_its_own_backend_with_its_graph():
    backend = Holding()
    program = function(lambda s, x: s.extend(EXPAND + x + movable("again ") + gen("y")))
    assert program.compile(backend=backend).cache() == EXPAND + "again "
    assert backend.held == [(EXPAND + "again ", True)]


# -- explain ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda s, x: s.extend("abc" + gen("a") + x + 100 * "z"), "3 characters {}; then comes Gen a"),
        (lambda s, x: s.extend("abc"), "3 characters of its prompt {}"),
        (
            lambda s, x: s.extend("abc" + x + 100 * "z" + gen("a") + 100 * "y"),
            "3 characters {}; then comes Argument x\n100 more characters of constants come after it",
        ),
    ],
    ids=["call", "constants", "argument"],
)
def test_explain_names_what_ends_the_constants(program: Any, words: str):
    assert words.format("are the same in every run") in function(program).compile().explain()


def test_constants_of_scopes_and_of_joined_forks_are_the_same_in_every_run():
    @function
    def program(s):
        with s.var_scope("scope"):
            s += "abc"
        s["k"] = 1
        forks = s.fork(2)
        forks.join()
        s += "def" + gen("x")

    assert "6 characters are the same in every run; then comes Gen x" in program.compile().explain()
