"""Graphs as JSON: what a program has comes back as it was, and what is no graph is a ValueError, whatever it is."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramet import (
    CallFailed,
    ClientError,
    Compiled,
    Mock,
    ProgramError,
    audio,
    function,
    gen,
    image,
    movable,
    select,
    separate_reasoning,
    system,
    user,
    video,
)
from ramet.frontend.media import sent, source_of
from ramet.frontend.prompt import MediaPiece


@function
def inner(s, tip):
    s += "Please expand the following tip into a detailed paragraph of three sentences: " + tip + gen("p")
    return s["p"]


@function
def program(s, x, y="d", *, z="e"):
    s += system("hi") + user(image("a.png") + x + movable("moved"))
    with s.assistant():
        s += gen("a", n=2, max_tokens=5, stop=".") + gen("i", dtype=int) + select("c", choices=["a", "b"])
        s += separate_reasoning(gen("t", logit_bias={5: 1.0}, return_logprob=True))
    forks = s.fork(2)
    forks += lambda i: f"{i}" + gen("z")
    forks.join()
    with s.copy() as other:
        other += gen("cp")
    with s.var_scope("sc"):
        s += "k" + s["z"][1]
    e = inner(s["a"][1], temperature=0.5)
    s += e.ret_value
    s["k"] = {"a": [f"{x} {s['c']:>4}", 1, "sum " + x], "b": (s["sc"], None, 1.5)}
    return s["k"], f"{y!r}{z}"


TEXT = program.compile().to_json()
WHOLE = json.loads(TEXT)


def reply(prompt: str, call: Any) -> str:
    return "7"


def read(whole: Any) -> Compiled:
    return Compiled.from_json(json.dumps(whole))


def test_a_graph_comes_back_as_it_was():
    compiled = program.compile()
    again = Compiled.from_json(TEXT)
    assert again.graph == compiled.graph and again.to_json() == TEXT
    states = [each.run("X", backend=Mock(reply)) for each in (compiled, again)]
    assert states[0].text() == states[1].text() and states[0].ret_value == states[1].ret_value


def test_bound_arguments_are_defaults_that_are_given_by_name():
    bound = inner.compile().bind(tip="sleep")
    again = Compiled.from_json(bound.to_json())
    assert again.run(backend=Mock(reply)).text() == bound.run(backend=Mock(reply)).text()
    assert "eat" in again.run(tip="eat", backend=Mock(reply)).text()
    first = Compiled.from_json(program.compile().bind(x="a").to_json())
    assert first.run("b", backend=Mock(reply)).ret_value[1] == "'b'e"


def test_keyword_only_parameters_stay_so():
    for each in (program.compile(), Compiled.from_json(TEXT)):
        assert each.run("X", z="last", backend=Mock(reply)).ret_value[1].endswith("last")
        with pytest.raises(TypeError, match="too many positional arguments"):
            each.run("X", "y", "z", backend=Mock(reply))


def test_media_are_paths_arguments_and_what_was_in_memory():
    def look(s: Any, where: Any, heard: Any) -> None:
        s += image(Path("sea.png")) + image(b"\x89PNG") + video(f"{where}/a.mp4", num_frames=3)
        s += audio(heard, sample_rate=8000)

    heard = np.zeros(4, np.int16)
    for program in (function(look), Compiled.from_json(function(look).compile().to_json())):
        media = list(program.run("here", heard, backend=Mock()).prompt().media())
        assert [piece.kind for piece in media] == ["image", "image", "video", "audio"]
        assert media[0].source == "sea.png" and media[2] == MediaPiece("video", "here/a.mp4", {"num_frames": 3})
        assert media[3] == MediaPiece("audio", source_of("audio", heard, 8000))
        assert sent("image", media[1].source) == sent("image", b"\x89PNG")


# -- what is no graph -------------------------------------------------------------------------------------------------


def graph(*nodes: Any, parameters: Any = (), returned: Any = None, **others: Any) -> dict[str, Any]:
    return {
        "ramet_graph": 1,
        "name": "m:f",
        "parameters": list(parameters),
        "nodes": list(nodes),
        "returned": returned or {"value": None},
        "spec_tokens": None,
        **others,
    }


def op(name: str, stream: int = 0, /, **fields: Any) -> list[Any]:
    where = {"where": ["f", 1, "g"], "options": {}} if name in ("Gen", "Select", "Media") else {}
    sampling = {"sampling": {}} if name in ("Gen", "Call") else {}
    kind = {"kind": "k", "options": {}} if name == "Call" else {}
    return [stream, {"op": name, **where, **sampling, **kind, **fields}]


FORK = [op("Fork", first=1, size=2), op("GetForkItem", 1, parent=0, index=0), op("GetForkItem", 2, parent=0, index=1)]
A = [{"name": "a"}]
X = {"op": "VariableOf", "stream": 0, "name": "x"}

BROKEN = {
    "fork that is huge": (graph(op("Fork", first=1, size=10**9)), "more than there are nodes for"),
    "fork of none": (graph(op("Fork", first=1, size=0)), "makes 0 forks"),
    "fork without its beginnings": (graph(*FORK[:2]), "streams 2 have no GetForkItem"),
    "fork of the root": (graph(op("Fork", first=0, size=1)), "makes stream 0, which there is already"),
    "fork of the same twice": (graph(*FORK, *FORK), "makes stream 1, which there is already"),
    "beginning of nobody": (graph(op("GetForkItem", 0, parent=0, index=0)), "does not begin stream 0"),
    "call on the root": (graph(op("Call", 0, outer=0)), "makes stream 0, which there is already"),
    "call by itself": (graph(op("Call", 1, outer=1)), "called by stream 1, which there is not"),
    "call with a clock": (graph(op("Call", 1, outer=0, timeout_s=3)), "Call has no field 'timeout_s'"),
    "call that speculates": (graph(op("Call", 1, outer=0, spec_tokens=0)), "spec_tokens is 0"),
    "call with other options": (graph(op("Call", 1, outer=0, options={"zz": 1})), "options have 'zz'"),
    "copy of two": (graph(*FORK, op("Join", first=1, mode="copy")), "joins 2 forks, and a copy is one"),
    "second join": (graph(*FORK, op("Join", first=1), op("Join", first=1)), "joined already"),
    "join of nothing": (graph(op("Join", first=1)), "begins no fork of its stream"),
    "join of a mode": (graph(*FORK, op("Join", first=1, mode="zz")), "has the mode 'zz'"),
    "stream that is a truth": (graph([True, op("ConstantText", text="a")[1]]), "Expected `int`, got `bool`"),
    "text that is a number": (graph(op("ConstantText", text=5)), "node 0: text: Expected `str`"),
    "role": (graph(op("Begin", role="zz", where=["f", 1, "g"])), "has the role 'zz'"),
    "scope that does not end": (graph(op("ScopeBegin", name="a")), "the scope 'a' of stream 0 does not end"),
    "scope that ends only": (graph(op("ScopeEnd", name="a")), "ends the scope 'a', which has not begun"),
    "version": (graph(op("VariableOf", stream=0, name="x", version=-1)), "reads version -1"),
    "index": (graph(op("VariableOf", stream=0, name="x", index=-1)), "reads index -1"),
    "line of nothing": (graph([*op("ConstantText", text="a"), True]), "goes on with a line that there is not"),
    "line of another stream": (
        graph(*FORK, op("ConstantText", text="a"), [*op("ConstantText", 1, text="a"), True]),
        "goes on with a line that there is not",
    ),
    "text in a prompt": (graph(op("Text", parts={"list": []})), "may not stand in a graph by itself"),
    "format of a constant": (graph(op("Formatted", value={"value": 5})), "formats what is no value"),
    "format of a call": (graph(op("Formatted", value=op("Gen", name="x")[1])), "formats what is no value"),
    "format by a conversion": (
        graph(op("Formatted", value={"op": "Argument", "name": "a"}, conversion="q"), parameters=A),
        "by 'q'",
    ),
    "call as a value": (graph(op("SetVariable", name="v", value=op("Gen", name="x")[1])), "has a Gen, which is no"),
    "call that is returned": (graph(returned=op("Gen", name="x")[1]), "has a Gen, which is no value"),
    "key that is a list": (
        graph(op("SetVariable", name="v", value={"dict": [[{"list": []}, {"value": 1}]]})),
        "unhashable",
    ),
    "key that only a run knows": (
        graph(op("SetVariable", name="v", value={"dict": [[X, {"value": 1}]]})),
        "has a key that only a run knows",
    ),
    "value of no form": (graph(returned={"value": []}), "is no value"),
    "two parameters of one name": (graph(parameters=A + A), "two parameters are 'a'"),
    "parameter that is no name": (graph(parameters=[{"name": "a b"}]), "'a b', which is not a name"),
    "parameter that is a word": (graph(parameters=[{"name": "if"}]), "'if', which is not a name"),
    "parameter that is a number": (graph(parameters=[{"name": 5}]), "Expected `str`"),
    "parameters in no order": (
        graph(parameters=[{"name": "a", "default": {"value": 1}}, {"name": "b"}]),
        "has no default, but one before it has",
    ),
    "argument of nobody": (graph(op("Argument", name="b"), parameters=A), "the argument 'b', which there is not"),
    "choices of a text": (graph(op("Select", name="c", choices="abc", method="exact_sequence")), "choices: Expected"),
    "choices of none": (graph(op("Select", name="c", choices=[], method="exact_sequence")), "at least one text"),
    "method": (graph(op("Select", name="c", choices=["a"], method="zz")), "choices_method is 'zz'"),
    "sampling": (graph(op("Gen", name="x", sampling={"zz": 1})), "'zz'"),
    "empty name": (graph(op("Gen", name="")), "its name is empty"),
    "type": (graph(op("Gen", name="x", kind="list")), "kind: Invalid enum value"),
    "form": (graph(op("Gen", name="x", held={"kind": "zz", "value": 5})), "held is of the kind 'zz'"),
    "medium": (graph(op("Media", kind="zz", source="a")), "kind: Invalid enum value"),
    "no medium": (graph(op("Media", kind="image", source="")), "is given an empty text"),
    "number as a medium": (graph(op("Media", kind="image", source=3)), "source is of type int, must be a path, a URL"),
    "medium of a text": (graph(op("Media", kind="image", source={"op": "Gen"})), "Gen needs 'name'"),
    "medium of a value": (
        graph(op("Media", kind="image", source={"op": "VariableOf", "stream": 0, "name": "x"})),
        "is of a variable, and media are known before a call",
    ),
    "frames of a picture": (
        graph(op("Media", kind="image", source="a", options={"num_frames": 3})),
        r"num_frames is not a parameter of image\(\)",
    ),
    "no frames": (graph(op("Media", kind="video", source="a", options={"num_frames": 0})), "num_frames is 0, must be"),
    "prefetch for nobody": (graph(op("Prefetch", pieces=["a"], streams=[1])), "is for a stream that is of no call"),
    "missing field": (graph(op("Fork", first=1)), "Fork needs 'size'"),
    "other field": (graph(x=1), "unknown field `x`"),
    "other version": (graph(ramet_graph=2), "ramet_graph must be 1"),
    "speculation": (graph(spec_tokens=0), "spec_tokens"),
    "name": (graph(name=5), "Expected `str`"),
    "nothing": ({"ramet_graph": 1}, "missing required field"),
    "list": ([], "this is not a graph"),
}


@pytest.mark.parametrize(("whole", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_no_graph_is_a_value_error_that_says_where(whole: Any, message: str):
    with pytest.raises(ValueError, match=message):
        read(whole)


@pytest.mark.parametrize("depth", [150, 2000, 100_000])
def test_values_that_are_too_deep_are_refused(depth: int):
    nested = '{"list":[' * depth + "]}" * depth
    text = json.dumps(graph()).replace('{"value": null}', nested)
    with pytest.raises(ValueError, match=r"inside one another|recursion"):
        Compiled.from_json(text)


def test_a_graph_that_ends_in_the_middle_is_refused():
    for end in range(0, len(TEXT) - 1, 97):
        with pytest.raises(ValueError):
            Compiled.from_json(TEXT[:end])


def test_the_smallest_graph_runs():
    assert read(graph(op("ConstantText", text="a"))).run(backend=Mock()).text() == "a"


# -- fuzz -------------------------------------------------------------------------------------------------------------

VALUES = (None, 5, -1, 0, 1.5, "", True, [], {}, "zzz", [1], {"op": "Gen"}, {"value": 1}, {"list": []}, 10**30)
DELETED = object()


def places(whole: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in whole if isinstance(whole, dict) else range(len(whole)) if isinstance(whole, list) else ():
        yield (*path, key)
        yield from places(whole[key], (*path, key))


PLACES = list(places(WHOLE))


def changed(draw: random.Random) -> Any:
    """The graph, with another value in a place or two, or one of its own parts there."""
    whole = copy.deepcopy(WHOLE)
    for _ in range(draw.randint(1, 2)):
        path = draw.choice(PLACES)
        value = draw.choice([*VALUES, DELETED, DELETED, at(WHOLE, draw.choice(PLACES))])
        try:
            into = at(whole, path[:-1])
            if value is DELETED:
                del into[path[-1]]
            else:
                into[path[-1]] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue  # the first change took the place away
    return whole


def at(whole: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        whole = whole[key]
    return whole


@pytest.mark.parametrize("seed", range(40))
def test_a_changed_graph_is_refused_or_runs_to_an_error_of_the_language(seed: int):
    draw = random.Random(seed)
    for _ in range(25):
        whole = changed(draw)
        try:
            compiled = read(whole)
        except ValueError:
            continue
        assert Compiled.from_json(compiled.to_json()).graph == compiled.graph
        try:
            state = compiled.run("X", backend=Mock(reply), timeout_s=20)
        except (ProgramError, ClientError, TypeError):
            continue
        error = state.error()
        assert error is None or isinstance(error, CallFailed), error
