"""Random programs: the function, its graph and the graph's JSON make the same calls, texts and values.

A program is written by draws of its seed, so that a trace and each run of it write the same: texts, calls with and
without names, samples, thoughts, turns, scopes, forks in forks, both joins, copies, programs that are called, and
values of all of these in lines, texts, sums and other variables.
"""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from ramet import (
    Compiled,
    Mock,
    ProgramError,
    function,
    gen,
    image,
    movable,
    select,
    separate_reasoning,
)
from ramet.frontend.backends.base import Completion, GenCall, SelectCall
from ramet.frontend.in_a_row import calls_in_a_row
from ramet.frontend.prompt import Prompt

MAX_NESTED = 3
CHOICES = [f"<{i}>" for i in range(300)]


@function
def inner(s, a, b="zz"):
    with s.user():
        s += "in " + a
    with s.assistant():
        s += gen("p", max_tokens=3) + gen(max_tokens=2)
        forks = s.fork(2)
        forks += [b + gen("q", max_tokens=1), gen("q", max_tokens=2)]
        forks.join()
        s += s["q"][1]
    s["returned"] = f"{s['p']}/" + a
    return s["returned"], s["q"][0]


class Writer:
    """Writes to the states of one run, or of a trace. `values`: texts that it may use."""

    def __init__(self, seed: int, *values: Any) -> None:
        self._draw, self.values, self._num = random.Random(seed), list(values), 0
        self._texts: dict[Any, set[str]] = {}  # variables of each state whose values are texts
        self._new: dict[Any, set[str]] = {}  # those that it made itself
        self._open: set[tuple[Any, str]] = set()  # scopes
        self._moves: list[Callable[[Any, int], None]] = [
            self.text, self.gen, self.samples, self.line, self.value, self.value, self.formatted, self.select,
            self.forks, self.forks, self.copy, self.scope, self.called, self.called, self.set, self.media, self.turn,
            self.unnamed, self.thoughts, self.same_names,
        ]  # fmt: skip

    def write(self, s: Any, num: int) -> None:
        for _ in range(num):
            self.step(s, 0)

    def step(self, s: Any, nested: int) -> None:
        self._draw.choice(self._moves)(s, nested)

    def text(self, s: Any, _: int) -> None:
        s += self._draw.choice(["text ", "", "é\n", "{}%s ", movable("")])

    def gen(self, s: Any, _: int) -> None:
        name = self._name()
        s += "g" + gen(name, max_tokens=self._draw.randint(1, 4), stop=self._draw.choice([None, " a"]))
        self._made(s, name)

    def samples(self, s: Any, _: int) -> None:
        name, n = self._name(), self._draw.randint(2, 3)
        s += gen(name, n=n, max_tokens=3)
        self._made(s, name, is_text=False)
        self.values += s[name]

    def line(self, s: Any, _: int) -> None:
        name = self._name()
        s += self._value() + ": " + gen(name, max_tokens=2) + "|" + self._value() + gen(max_tokens=1)
        self._made(s, name)

    def value(self, s: Any, _: int) -> None:
        s += self._value()

    def formatted(self, s: Any, _: int) -> None:
        s += f"<{self._value():>12}|{self._value()!r}|{self._value()!s:<9}>" + str(self._value())

    def select(self, s: Any, _: int) -> None:
        name = self._name()
        s += select(name, choices=CHOICES)
        self._made(s, name)

    def unnamed(self, s: Any, _: int) -> None:
        s += gen(max_tokens=2)

    def same_names(self, s: Any, _: int) -> None:
        name = self._name()
        s += gen(name, max_tokens=1) + gen(name, max_tokens=2)
        self._made(s, name)

    def thoughts(self, s: Any, _: int) -> None:
        s += separate_reasoning(gen("answer", max_tokens=3))
        self._made(s, "answer")
        self._made(s, "answer_reasoning_content")

    def media(self, s: Any, _: int) -> None:
        s += image("sea.png") + "picture"

    def turn(self, s: Any, nested: int) -> None:
        if nested == 0:
            with self._draw.choice([s.user, s.assistant])():
                self._steps(s, 1, self._draw.randint(1, 3))

    def set(self, s: Any, _: int) -> None:
        name, value = self._name(), self._value()
        s[name] = self._draw.choice([value, f"kept {value}", "sum of " + value + self._value(), "constant"])
        self._made(s, name)
        s[f"{name}d"] = {"list": [self._value(), f"{value}!"], 1: (value + "?", None)}

    def called(self, s: Any, _: int) -> None:
        options = self._draw.choice([{}, {}, {"temperature": 0, "max_tokens": 5}, {"stop": "a"}])
        values = [self._value() for _ in range(self._draw.randint(1, 2))]
        state = inner(*values, **options)
        self.values += [state["p"], state["gen_0"], *state.ret_value]
        if self._draw.random() < 0.3:
            state += gen("more", max_tokens=2)
            self.values.append(state["more"])

    def scope(self, s: Any, nested: int) -> None:
        name = self._name()
        if nested < MAX_NESTED and (s, name) not in self._open:
            self._open.add((s, name))
            with s.var_scope(name):
                s += gen(max_tokens=1)
                self._steps(s, nested + 1, self._draw.randint(0, 2))
            self._open.remove((s, name))
            self._made(s, name)

    def copy(self, s: Any, nested: int) -> None:
        if nested < MAX_NESTED:
            with s.copy() as other:
                self._child(s, other)
                self._steps(other, nested + 1, self._draw.randint(1, 3))
            for name in sorted(self._new[other]):
                self._made(s, name, is_text=name in self._texts[other])

    def forks(self, s: Any, nested: int) -> None:
        if nested >= MAX_NESTED:
            return
        forks = s.fork(self._draw.randint(1, 3))
        for child in forks:
            self._child(s, child)
        forks += lambda i: f"fork {i}"
        if self._draw.random() < 0.5:
            name = self._name()
            forks += gen(name, max_tokens=2)
            for child in forks:
                self._made(child, name)
        for child in forks:
            self._steps(child, nested + 1, self._draw.randint(0, 3))
        mode = self._draw.choice(["gather_variable", "concate_and_append", None])
        if mode is not None:
            self._join(s, forks, mode)

    def _join(self, s: Any, forks: Any, mode: str) -> None:
        try:
            forks.join(mode)
        except ProgramError:  # the forks have turns of their own
            forks.join()
        for name in sorted({name for child in forks for name in self._new[child]}):
            self._texts[s].discard(name)
            self._new[s].add(name)
            if all(name in self._texts[child] for child in forks) and isinstance(s[name], list):
                self.values += [value for value in s[name] if not isinstance(value, list | dict)]

    def _steps(self, s: Any, nested: int, num: int) -> None:
        for _ in range(num):
            self.step(s, nested)

    def _child(self, s: Any, child: Any) -> None:
        self._texts[child] = set(self._texts.setdefault(s, set()))
        self._new[child] = set()

    def _made(self, s: Any, name: str, is_text: bool = True) -> None:
        self._new.setdefault(s, set()).add(name)
        texts = self._texts.setdefault(s, set())
        if is_text:
            texts.add(name)
            self.values.append(s[name])
        else:
            texts.discard(name)

    def _value(self) -> Any:
        return self._draw.choice(self.values)

    def _name(self) -> str:
        """Often one that there is already."""
        self._num += 1
        return self._draw.choice([f"v{self._num}", f"v{self._draw.randint(0, 4)}"])


def random_program(seed: int) -> Any:
    @function
    def program(s, x, y):
        writer = Writer(seed, x, y)
        writer._texts[s], writer._new[s] = set(), set()
        writer.write(s, random.Random(seed).randint(3, 16))
        return [writer.values[-1], {"last": writer.values[-3:]}, f"{writer.values[0]} and " + writer.values[-1]]

    return program


class Service(Mock):
    """Has thoughts, too."""

    async def generate(self, prompt: Prompt, call: GenCall, on_text: Any = None) -> list[Completion]:
        outputs = await super().generate(prompt, call, on_text)
        for output in outputs:
            output.thought = f"thought of{output.text}"
        return outputs


def seen(state: Any) -> tuple[str, Any, dict[str, Any]]:
    state.sync()
    values = {name: (state[name], state.get_meta_info(name)) for name in sorted(state.results())}
    return state.text(), state.ret_value, values


def calls(backend: Mock) -> list[str]:
    return sorted(repr((prompt, call._replace(follow_up=None))) for prompt, call in backend.calls)


@pytest.mark.parametrize("seed", range(80))
def test_a_random_program_its_graph_and_its_json_do_the_same(seed: int):
    program = random_program(seed)
    compiled = program.compile()
    read = Compiled.from_json(compiled.to_json())
    assert read.graph == compiled.graph
    backends = [Service(), Service(), Service()]
    runs = [
        each.run("one", "two words", backend=backend)
        for each, backend in zip((program, compiled, read), backends, strict=True)
    ]
    first, *others = [seen(state) for state in runs]
    for other, backend in zip(others, backends[1:], strict=True):
        assert other == first and calls(backend) == calls(backends[0])


def deepest(text: str) -> int:
    return max((int(found) for found in re.findall(r"<(\d+)>", text)), default=0)


def after(prompt: str, call: GenCall | SelectCall) -> str:
    """One more than the calls whose texts the prompt has: those that this one has waited for."""
    return f"<{deepest(prompt) + 1}>"


@pytest.mark.parametrize("seed", range(80))
def test_calls_in_a_row_are_those_of_a_run(seed: int):
    compiled = random_program(seed).compile()
    backend = Service(after, after)
    compiled.run("one", "two", backend=backend).sync()
    measured = max((deepest(prompt) + 1 for prompt, _ in backend.calls), default=0)
    assert calls_in_a_row(compiled.graph) == measured
