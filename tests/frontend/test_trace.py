"""A traced program is a graph of what its function appends, and refuses what only a run knows; no call is made."""

import asyncio
import json
from typing import Any

import pytest

from ramet import (
    Compiled,
    Graph,
    Mock,
    OpenAI,
    ProgramError,
    Unsupported,
    assistant,
    function,
    gen,
    image,
    movable,
    select,
    separate_reasoning,
    system,
)
from ramet.frontend.nodes import shown


def nodes(graph: Graph, stream: int = 0) -> list[str]:
    return [shown(expr) for expr in graph.streams[stream]]


@function
def expand(s, tip):
    s += "Expand: " + tip + "\n"
    s += s.gen("paragraph", max_tokens=8)


@function
def tips(s, topic):
    s += "2 tips for " + topic + ".\n1." + s.gen("tip_1", stop=".") + "\n2." + s.gen("tip_2", stop=".")
    first, second = expand(tip=s["tip_1"]), expand(tip=s["tip_2"], temperature=0)
    s += "Tip 1: " + first["paragraph"] + f"\nTip 2: {second['paragraph']}\n"


def test_the_graph_of_the_paper_s_figure_4():
    graph = tips.trace()
    assert nodes(graph) == [
        "ConstantText '2 tips for '",
        "Argument topic",
        "ConstantText '.\\n1.'",
        "Gen tip_1, stop=('.',)",
        "ConstantText '\\n2.'",
        "Gen tip_2, stop=('.',)",
        "ConstantText 'Tip 1: '",
        "Variable paragraph of stream 1",
        "ConstantText '\\nTip 2: '",
        "Variable paragraph of stream 2 in a text",
        "ConstantText '\\n'",
    ]
    assert nodes(graph, 1)[1:] == [
        "ConstantText 'Expand: '",
        "Variable tip_1 of stream 0",
        "ConstantText '\\n'",
        "Gen paragraph, max_new_tokens=8",
    ]
    assert [graph.streams[stream][0].sampling for stream in (1, 2)] == [
        {"max_new_tokens": 128},
        {"max_new_tokens": 128, "temperature": 0.0},
    ]


def test_a_graph_is_printed_stream_by_stream(capsys: pytest.CaptureFixture[str]):
    @function
    def judged(s, essay, num):
        s += essay
        forks = s.fork(num)
        forks += lambda i: f"{i}: " + gen("judgement")
        forks.join()
        s += select("grade", choices=["A", "B"])

    judged.trace(num=2).print_graph_dfs()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("stream 0: ") and printed[0].endswith("judged")
    assert [line.strip() for line in printed[1:]] == [
        "Argument essay", "Fork 2: streams 1 to 2",
        "stream 1", "GetForkItem 0 of stream 0", "ConstantText '0: '", "Gen judgement",
        "stream 2", "GetForkItem 1 of stream 0", "ConstantText '1: '", "Gen judgement",
        "Join gather_variable of the forks from stream 1", "Select grade of 2: 'A | B'",
    ]  # fmt: skip
    assert printed[3].startswith("    stream 1") and printed[-1].startswith("  Select")


def test_no_call_is_made_and_the_function_runs_once():
    ran = []

    @function
    def program(s, x):
        ran.append(x)
        s += x + gen("y")
        s.sync()

    mock = Mock()
    program.trace(backend=mock)
    assert len(ran) == 1 and mock.calls == []


def test_turns_scopes_media_thoughts_and_samples_are_nodes():
    @function
    def program(s, question):
        s += system("Be kind.")
        with s.user():
            s += image("sea.png") + question + image(question) + image(f"{question}.png")
        s += assistant(separate_reasoning(gen("a", n=2)) + movable("!"))
        with s.var_scope("scope"):
            s += "b" + gen()
        s["kept"] = s["a"][1]
        s += s["kept"] + s["scope"] + s["a_reasoning_content"][0]

    assert nodes(program.trace()) == [
        "Begin system", "ConstantText 'Be kind.'", "End system",
        "Begin user", "Media image", "Argument question", "Media image of Argument question",
        "Media image of Text of Argument question in a text, ConstantText '.png'", "End user",
        "Begin assistant", "Gen a, n=2", "ConstantText '!' (movable)", "End assistant",
        "ScopeBegin scope", "ConstantText 'b'", "Gen (unnamed)", "ScopeEnd scope",
        "SetVariable kept", "Variable a[1] of stream 0", "Variable scope of stream 0",
        "Variable a_reasoning_content[0] of stream 0",
    ]  # fmt: skip


def test_known_and_bound_arguments_are_constants():
    @function
    def program(s, country, n, end="."):
        s += country * n + end

    assert nodes(program.trace(country="Peru", n=2, end="!")) == ["ConstantText 'PeruPeru!'"]
    graph = program.bind(n=1).trace(country="Chile")
    assert [each.name for each in graph.parameters] == ["end"] and graph.parameters[0].default == "."
    with pytest.raises(TypeError, match="no parameter 'm'"):
        program.trace(m=1)


def test_a_parameter_of_the_function_may_be_called_backend():
    @function
    def program(s, backend):
        s += backend

    assert nodes(program.trace()) == ["Argument backend"]
    assert nodes(program.trace(backend="x")) == ["ConstantText 'x'"]


def test_an_async_program_is_traced():
    @function
    async def inner(s, word):
        s += word + gen("x")
        return await s["x"]

    @function
    async def outer(s, word):
        called = inner(word)
        plainly = await inner.arun(word, temperature=0)
        s += "a" + (await called)["x"] + plainly["x"] + gen("y")
        await s.sync()

    graph = outer.trace()
    assert nodes(graph) == [
        "ConstantText 'a'", "Variable x of stream 2", "Variable x of stream 1", "Gen y",
    ]  # fmt: skip
    assert nodes(graph, 1)[1:] == ["Argument word", "Gen x"]


def looks_by(name: str) -> Any:
    return {
        "comparison": lambda s, x: x == "a",
        "order": lambda s, x: x < "a",
        "condition": lambda s, x: bool(x),
        "length": lambda s, x: len(x),
        "iteration": lambda s, x: list(x),
        "index": lambda s, x: x[0],
        "method": lambda s, x: x.strip(),
        "membership": lambda s, x: x in {"a"},
        "substring": lambda s, x: "a" in x,
        "number": lambda s, x: int(x),
        "size of a fork": lambda s, x: s.fork(x),
        "arithmetic": lambda s, x: x * 2,
    }[name]


LOOKS = (
    "comparison", "order", "condition", "length", "iteration", "index", "method", "membership", "substring", "number",
    "size of a fork", "arithmetic",
)  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
def test_what_looks_at_a_value_is_refused_with_the_line(look: str):
    @function
    def of_argument(s, x):
        s += "a"
        looks_by(look)(s, x)

    @function
    def of_call(s):
        s += "a" + gen("x")
        looks_by(look)(s, s["x"])

    with pytest.raises(ProgramError, match=r"the argument 'x' is known only .*/test_trace.py:\d+ in .* trace\(x="):
        of_argument.trace()
    with pytest.raises(ProgramError, match=r"the value of 'x' is known only .*/test_trace.py:\d+ in .*: it may be"):
        of_call.trace()


@pytest.mark.parametrize("change", ["upper", "lower", "title", "split", "slice", "replace", "repr", "json"])
def test_a_text_with_a_value_in_it_is_not_changed_unnoticed(change: str):
    @function
    def program(s, x):
        text = f"word {x}."
        changed = {
            "upper": text.upper(), "lower": text.lower(), "title": text.title(), "split": text.split()[1],
            "slice": text[:12], "replace": text.replace(" ", "_"),
            "repr": repr(text), "json": json.dumps(text),
        }  # fmt: skip
        s += changed[change]

    with pytest.raises(ProgramError, match=r"test_trace\.py:.* changes a text"):
        program.trace()


@pytest.mark.parametrize(
    "make",
    [
        lambda s, x: gen("y", stop=f"{x}"),
        lambda s, x: gen("y", regex=f"a{x}"),
        lambda s, x: gen("y", json_schema={"enum": [f"{x}"]}),
        lambda s, x: select("y", choices=["a", f"{x}"]),
        lambda s, x: gen(f"{x}"),
    ],
)
def test_arguments_of_calls_are_known(make: Any):
    @function
    def program(s, x):
        s += make(s, x)

    with pytest.raises(ProgramError, match=r"an argument of (gen|select) is known only when the program runs"):
        program.trace()


@pytest.mark.parametrize("ask", ["text", "messages", "error"])
def test_what_a_run_says_of_itself_is_not_known(ask: str):
    @function
    def program(s):
        s += gen("x")
        getattr(s, ask)()

    with pytest.raises(ProgramError, match="known only when the program runs"):
        program.trace()


def test_programs_inside_are_of_the_same_backend_and_single():
    @function
    def on_another(s):
        expand("tip", backend=Mock())

    @function
    def batch(s):
        expand.run_batch([{"tip": "a"}])

    with pytest.raises(ProgramError, match="has no backend of its own"):
        on_another.trace()
    with pytest.raises(ProgramError, match="run_batch is called inside of a traced program"):
        batch.trace()


def test_what_a_backend_cannot_do_is_refused_by_the_trace():
    @function
    def program(s):
        s += "a" + gen("x", ebnf='root ::= "a"')

    service = OpenAI("gpt-4o-mini", api_key="none")
    with pytest.raises(Unsupported, match="gen\\('x'\\)"):
        program.trace(backend=service)
    program.trace()


def test_errors_of_the_language_are_those_of_a_run():
    @function
    def nested(s):
        with s.user():
            s += system("a")

    with pytest.raises(ProgramError, match="turns do not nest"):
        nested.trace()
    with pytest.raises(TypeError, match="int cannot be appended"):
        function(lambda s: s.extend(5)).trace()


def test_a_state_is_no_value_of_a_graph():
    with pytest.raises(ProgramError, match="a state, which a graph has none of"):
        function(lambda s: s).trace()


def test_parameters_that_have_no_name_are_refused():
    def program(s, *words):
        s += "a"

    with pytest.raises(ProgramError, match="'words' has no name"):
        function(program).trace()


def test_traces_do_not_meet_in_threads():
    async def both() -> list[Graph]:
        return list(await asyncio.gather(*(asyncio.to_thread(tips.trace) for _ in range(16))))

    assert len({str(graph.nodes) for graph in asyncio.run(both())}) == 1


# -- what is refused of graphs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"ramet_graph": 1', '"ramet_graph": 9'), "ramet_graph must be 1"),
        (('"op": "Argument"', '"op": "Argent"'), "node 1: 'Argent' is no node"),
        (('"op": "Argument"', '"op": "Argument", "x": 1'), "node 1: Argument has no field 'x'"),
        (('"name": "topic"\n   }', '"name": "other"\n   }'), "reads the argument 'other', which there is not"),
        (('"stop": [\n      "."', '"stop": [\n      5'), "node 3: stop"),
        (('"stream": 2', '"stream": 7'), "reads a variable of stream 7, which there is not"),
        (('"outer": 0', '"outer": 5'), "is called by stream 5, which there is not"),
    ],
)
def test_what_is_no_graph_is_refused(change: tuple[str, str], message: str):
    text = tips.compile().to_json()
    assert change[0] in text
    with pytest.raises(ValueError, match=message):
        Compiled.from_json(text.replace(*change, 1))
