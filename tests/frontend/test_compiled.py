"""A compiled program does what its function does, without it: the same prompts, values and errors, less waiting."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ramet import (
    LLM,
    CallFailed,
    Compiled,
    Mock,
    ProgramError,
    RunTimeout,
    assistant,
    function,
    gen,
    movable,
    select,
    user,
)
from ramet.frontend.backends.base import Capabilities, Completion, GenCall
from ramet.frontend.prompt import Prompt

EXPAND = "Please expand the following tip into a detailed paragraph of three sentences: "


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_total_tokens=16384) as llm:
        yield llm


def both(program: Any, **arguments: Any) -> tuple[Any, Any]:
    """States of the function and of its graph, after a trip through JSON as well."""
    compiled = program.compile()
    read = Compiled.from_json(compiled.to_json())
    assert read.graph == compiled.graph
    states = [each.run(backend=Mock(), **arguments) for each in (program, compiled, read)]
    for state in states:
        state.sync()
    assert states[1].text() == states[2].text()
    return states[0], states[1]


def values(state: Any) -> dict[str, Any]:
    return {name: state[name] for name in state.results()}


@function
def expand(s, tip, end="\n"):
    s += EXPAND + tip + end
    s += gen("paragraph", max_tokens=6)
    return s["paragraph"]


@function
def tips(s, topic):
    s += "2 tips for " + topic + ".\n1." + gen("tip_1", max_tokens=4) + "\n2." + gen("tip_2", max_tokens=4)
    first, second = expand(tip=s["tip_1"]), expand(s["tip_2"], max_new_tokens=9)
    s += "Tip 1: " + first["paragraph"] + f"\nTip 2: {second.ret_value:>70}|{s['tip_1']!r}\n"
    s["both"] = [first["paragraph"], {"topic": topic, "text": f"{topic} {second['paragraph']}"}]
    return s["both"][0], topic


@function
def judged(s, essay, num):
    s += user(essay)
    with s.assistant():
        forks = s.fork(num)
        forks += lambda i: f"Judge {i}: " + gen("judgement", max_tokens=5) + gen(max_tokens=2)
        forks.join()
        for judgement in s["judgement"]:
            s += judgement + "\n"
        with s.copy() as other:
            other += gen("aside", n=2, max_tokens=3)
        with s.var_scope("verdict"):
            s += s["aside"][1] + select("grade", choices=["A", "B", "C"])
        more = s.fork(2)
        more += [" one" + gen("judgement"), " two"]
        more.join("concate_and_append")


@function
async def compared(s, word):
    forks = s.fork(2)
    forks += lambda i: f"{i} {word}" + gen("x", max_tokens=3)
    s += "First " + forks[0]["x"] + " and " + forks[1]["x"]
    inner = await expand.arun(tip=forks[1]["x"])
    s += inner["paragraph"]
    return [await forks[0]["x"], f"{word}!"]


@pytest.mark.parametrize(
    ("program", "known", "arguments"),
    [
        (tips, {}, {"topic": "health"}),
        (judged, {"num": 3}, {"essay": "An essay."}),
        (compared, {}, {"word": "fox"}),
        (tips.bind(topic="sleep"), {}, {}),
    ],
    ids=["nested", "forks", "async", "bound"],
)
def test_a_graph_does_what_its_function_does(program: Any, known: Any, arguments: Any):
    interpreted, compiled = both(program.bind(**known), **arguments)
    assert compiled.text() == interpreted.text() and compiled.messages() == interpreted.messages()
    assert compiled.ret_value == interpreted.ret_value
    assert values(compiled) == values(interpreted)


def test_the_model_says_the_same_to_both(llm: LLM):
    @function
    def program(s, topic):
        s += "2 tips for " + topic + ".\n1." + gen("tip", max_tokens=12)
        s += expand(s["tip"], temperature=0)["paragraph"] + select("grade", choices=["A", "B"])
        forks = s.fork(2)
        forks += lambda i: f" {i}:" + gen("x", max_tokens=4)
        forks.join("concate_and_append")

    states = [each.run("staying healthy", temperature=0, backend=llm) for each in (program, program.compile())]
    assert states[0].text() == states[1].text() and values(states[0]) == values(states[1])


def test_a_compiled_program_is_a_program(llm: LLM, tmp_path: Path):
    compiled = tips.compile(backend=llm)
    assert compiled.run("health", temperature=0)["tip_1"] == tips.run("health", temperature=0, backend=llm)["tip_1"]
    topics = ["health", "sleep", "health"]
    batch = compiled.run_batch([{"topic": each} for each in topics], temperature=0)
    assert [state.ret_value[1] for state in batch] == topics
    state = compiled.run("health", temperature=0, stream=True)
    assert "".join(state.text_iter("tip_1")) == state["tip_1"]
    assert asyncio.run(compiled.bind(topic="sleep").arun(temperature=0)).ret_value[1] == "sleep"
    file = tmp_path / "done.jsonl"
    mock = Mock()
    tips.run_batch([("a",), ("b",)], backend=mock, resume=file)
    for _ in range(2):
        compiled.run_batch([("a",), ("b",)], backend=mock, resume=file)  # another program than its function
    assert len(mock.calls) == 4 * 4


def test_defaults_are_the_function_s_and_arguments_are_checked():
    compiled = expand.compile()
    assert compiled.run("x", backend=Mock()).text().startswith(EXPAND + "x\n")
    assert compiled.run("x", end="?", backend=Mock()).text().startswith(EXPAND + "x?")
    with pytest.raises(TypeError, match="missing a required argument: 'tip'"):
        compiled.run(backend=Mock())
    with pytest.raises(TypeError, match="no parameter 'top'"):
        compiled.bind(top="x")
    with pytest.raises(TypeError, match="int cannot be appended"):
        compiled.run(5, backend=Mock())


def test_a_graph_runs_where_its_function_is_not(tmp_path: Path):
    file = tmp_path / "tips.json"
    file.write_text(tips.compile().to_json())
    code = (
        "import sys; from pathlib import Path; from ramet import Compiled, Mock\n"
        "program = Compiled.from_json(Path(sys.argv[1]).read_text())\n"
        "print(program.run('health', backend=Mock()).text(), end='')\n"
        "assert not {'torch', 'test_compiled'} & sys.modules.keys()"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert ran.stdout == tips.run("health", backend=Mock()).text()


def test_what_json_has_no_form_of_is_refused():
    class Kind:
        pass

    def made(make: Any) -> Any:
        return function(lambda s: s.extend(make())).compile()

    with pytest.raises(ProgramError, match="choices_method is a function"):
        made(lambda: select("x", choices=["a"], choices_method=lambda scored: 0)).to_json()
    with pytest.raises(ProgramError, match="not JSON serializable"):
        function(lambda s: s.set_var("x", Kind())).compile().to_json()
    with pytest.raises(ProgramError, match="of a type"):
        made(lambda: gen("x", json_schema=dict[str, int])).to_json()


# -- waiting ----------------------------------------------------------------------------------------------------------


class Meeting(Mock):
    """Calls whose prompts have a word in them are answered when `num` of them have come."""

    def __init__(self, word: str, num: int) -> None:
        super().__init__(lambda prompt, call: "x")
        self._word, self._left, self._all = word, num, asyncio.Event()

    async def generate(self, prompt: Prompt, call: GenCall, on_text: Any = None) -> list[Completion]:
        if self._word in prompt.text():
            self._left -= 1
            if self._left <= 0:
                self._all.set()
            await self._all.wait()
        return await super().generate(prompt, call, on_text)


@function
def one_after_the_other(s):
    s += "a" + gen("a")
    first = expand(s["a"])  # waits for "a" only
    s += first["paragraph"]  # the function waits here, and has not asked for the second
    second = expand("b")
    s += second["paragraph"]


def test_a_graph_does_not_wait_where_its_function_does():
    state = one_after_the_other.compile().run(backend=Meeting("expand", 2), timeout_s=30)
    assert state["a"] == "x" and state.text() == "axxx"
    with pytest.raises(CallFailed) as failed:
        one_after_the_other.run(backend=Meeting("expand", 2), timeout_s=0.2)
    assert isinstance(failed.value, RunTimeout)


# -- errors -----------------------------------------------------------------------------------------------------------


def refuse(prompt: str, call: Any) -> str:
    if EXPAND in prompt:
        raise ValueError("no paragraphs today")
    return "x"


def test_a_failure_names_the_line_of_the_function():
    compiled = function(lambda s: s.extend("a" + gen("a") + expand("t")["paragraph"] + gen("b"))).compile()
    state = compiled.run(backend=Mock(refuse))
    assert state["a"] == "x"
    with pytest.raises(CallFailed, match="no paragraphs today") as failed:
        state["b"]
    assert "gen('paragraph')" in str(failed.value) and "test_compiled.py" in str(failed.value)
    assert isinstance(state.error(), CallFailed)


def test_a_returned_value_that_fails_is_raised():
    with pytest.raises(CallFailed, match="no paragraphs today"):
        tips.compile().run("health", backend=Mock(refuse))


def test_values_of_types_are_appended_as_in_the_function():
    @function
    def program(s):
        s += "n: " + gen("n", dtype=int)
        s += f"{s['n']:03d} " + "again " + s["n"]

    graph = program.compile()
    for each in (program, graph, Compiled.from_json(graph.to_json())):
        state = each.run(backend=Mock(["7"]))
        assert (state.text(), state["n"] + 1) == ("n: 7007 again 7", 8)


def test_a_value_that_is_no_text_is_not_appended():
    @function
    def program(s):
        s += gen("x", json_schema={"type": "object"}) + gen("y", json_schema=dict[str, int])
        s += s["y"]

    state = program.compile().run(backend=Mock(["{}", '{"a": 1}']))
    with pytest.raises(CallFailed, match="dict cannot be appended"):
        state.text()


def test_calls_end_with_the_run():
    run = one_after_the_other.compile().run(backend=Meeting("expand", 3))
    run.cancel()
    assert isinstance(run.error(), CallFailed)


# -- passes -----------------------------------------------------------------------------------------------------------


def test_movable_texts_come_before_arguments_and_never_over_a_call():
    @function
    def program(s, question, name):
        s += "Here is a question: " + question + movable("\nAct as an expert.\n") + name + movable("Be brief.\n")
        s += gen("x") + name + movable("Again.")
        with s.user():
            s += name + movable("End.")

    moved = "Here is a question: \nAct as an expert.\nBe brief.\nQ?N"
    state = program.compile().run("Q?", "N", backend=Mock(lambda prompt, call: "x"))
    assert state.text() == moved + "xAgain.NEnd.N"
    state = program.run("Q?", "N", backend=Mock(lambda prompt, call: "x"))
    assert state.text() == "Here is a question: Q?\nAct as an expert.\nNBe brief.\nxNAgain.NEnd."


def test_a_moved_text_does_not_change_which_value_is_read():
    @function
    def program(s):
        other = s.fork(1)[0]
        other += gen("x")
        s += other["x"]
        other += gen("x")
        s += movable("first ") + other["x"]

    state = program.compile().run(backend=Mock(["one ", "two "]))
    assert state.text() == "first one two "


def test_movable_takes_a_text():
    with pytest.raises(TypeError, match="movable\\(\\) takes a text, not int"):
        movable(5)


def test_a_program_explains_itself():
    compiled = tips.compile()
    assert compiled.explain().splitlines() == [
        "4 calls of the model, at most 3 after one another",
        "11 characters are the same in every run; then comes Argument topic",
        f"Prefetch {EXPAND[:60] + '...'!r} for streams 1, 2",
    ]
    judges = judged.bind(num=3).compile()
    assert judges.explain().startswith("9 calls of the model, at most 4 after one another")


class Holding(Mock):
    """Writes down prefixes beside calls."""

    capabilities = Capabilities(prefixes=True, follow_ups=False)

    def __init__(self) -> None:
        super().__init__(lambda prompt, call: "x")
        self.held: list[tuple[int, str, float]] = []

    async def generate(self, *args: Any, **more: Any) -> list[Completion]:
        await asyncio.sleep(0.1)  # as a model takes its time, in which what is prefetched comes first
        return await super().generate(*args, **more)

    async def hold(self, prompt: Prompt, seconds: float) -> None:
        self.held.append((len(self.calls), prompt.text(), seconds))


def test_the_prefix_of_programs_that_are_called_later_is_computed_first_and_let_go_when_they_have_come():
    backend = Holding()
    state = tips.compile().run("health", backend=backend)
    state.sync()
    backend.loop.start(asyncio.sleep(0)).result()
    assert [text for _, text, _ in backend.held] == [EXPAND, EXPAND]
    assert backend.held[0][0] == 0 and backend.held[0][2] > 0 and backend.held[1][2] == 0
    assert backend.held[1][0] >= 3  # both programs have called, beside the two tips


def test_without_hints_nothing_is_prefetched():
    backend = Holding()
    tips.compile().run("health", backend=backend, hints=False).sync()
    assert backend.held == []


def test_the_model_finds_what_was_prefetched(llm: LLM):
    """With one call at a time the prefix would be computed by the first expansion."""
    long = "Please expand the following tip into a paragraph. " * 8

    @function
    def inner(s, tip):
        s += long + tip + gen("paragraph", max_tokens=4)

    @function
    def outer(s):
        s += "A tip:" + gen("tip", max_tokens=16, ignore_eos=True)
        s += inner(s["tip"])["paragraph"]
        return s["tip"]

    def cached(program: Any) -> int:
        llm.flush_cache()
        seen = Recorded(llm)
        program.run(temperature=0, backend=seen).sync()
        return seen.cached[-1]

    assert cached(outer) == 0
    assert cached(outer.compile()) > 60


class Recorded(Mock):
    """An LLM, and how much of each prompt it found."""

    def __init__(self, llm: LLM) -> None:
        from ramet.frontend.backends.chosen import as_backend

        super().__init__()
        self._inner = as_backend(llm)
        self.capabilities = self._inner.capabilities
        self.cached: list[int] = []

    @property
    def loop(self) -> Any:
        return self._inner.loop

    async def generate(self, prompt: Prompt, call: GenCall, on_text: Any = None) -> list[Completion]:
        outputs = await self._inner.generate(prompt, call, on_text)
        self.cached.append(outputs[0].meta["cached_tokens"])
        return outputs

    async def hold(self, prompt: Prompt, seconds: float) -> None:
        await self._inner.hold(prompt, seconds)

    async def end(self, programs: list[str]) -> None:
        await self._inner.end(programs)


def test_the_beginning_of_a_program_is_cached(llm: LLM):
    @function
    def program(s, question):
        s += user("You answer questions about countries in few words. " * 8 + question)
        s += assistant(gen("answer", max_tokens=4))
        if s["answer"] == "no":
            s += "never"

    llm.flush_cache()
    assert program.cache(backend=llm) == "You answer questions about countries in few words. " * 8
    state = program.run("Why?", backend=llm)
    assert state.get_meta_info("answer")["cached_tokens"] > 60
    assert expand.cache(backend=Holding()) == EXPAND


def test_a_text_is_cached_by_its_backend():
    backend = Holding()
    backend.cache_prefix("Once upon a time", 5.0)
    assert backend.held == [(0, "Once upon a time", 5.0)]
    with pytest.raises(ProgramError, match="Mock holds no prefixes"):
        Mock().cache_prefix("a")


def test_a_graph_that_reads_what_is_not_there_says_so():
    text = function(lambda s: s.extend(gen("x") + "a") or s.extend(s["x"])).compile().to_json()
    assert '"name": "x"' in text
    node = '{\n    "op": "VariableOf",\n    "stream": 0,\n    "name": "x"'
    assert node in text
    broken = Compiled.from_json(text.replace(node, node + ',\n    "version": 3'))
    with pytest.raises(ProgramError, match=r"Variable x \(3\) of stream 0 is read where there is none yet"):
        broken.run(backend=Mock())
