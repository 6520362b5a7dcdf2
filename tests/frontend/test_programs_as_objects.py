"""Programs and their nodes as objects of Python: pickled, copied, printed; of objects, and functions that raise."""

import asyncio
import copy
import pickle
import string
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from ramet import Mock, function, gen, select, user


@function
def echo(s: Any, word: str, more: str = "") -> str:
    s += word + more + gen("x")
    return str(s["x"])


def echoed(program: Any, word: str) -> str:
    """In another process."""
    return str(program.run(word, backend=Mock(lambda prompt, _: f"<{prompt}>")).ret_value)


def test_a_program_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(echo)) is echo
    bound = pickle.loads(pickle.dumps(echo.bind(more="!")))
    assert bound.function is echo.function and bound.bound == {"more": "!"}
    compiled = pickle.loads(pickle.dumps(echo.compile()))
    assert compiled.run("a", backend=Mock(["b"])).text() == "ab"


def test_a_process_pool_takes_programs():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(echoed, [echo, echo.bind(more="!")], ["a", "b"])) == ["<a>", "<b!>"]


def test_one_without_a_name_of_its_own_is_no_pickle_but_may_be_copied():
    local = function(lambda s: s.extend(gen("x")))
    with pytest.raises(TypeError, match=r"^cannot pickle .*: programs go by their names"):
        pickle.dumps(local)
    assert copy.deepcopy({"program": local})["program"] is local and copy.copy(local) is local


@pytest.mark.parametrize(
    "text",
    [
        lambda node: f"{node!s}",
        lambda node: "{}".format(node),  # noqa: UP032
        lambda node: "Hi %s" % node,  # noqa: UP031
        lambda node: str(node),
        lambda node: string.Template("Hi $x").substitute(x=node),
    ],
)
@pytest.mark.parametrize("node", [gen("v"), select("v", ["a", "b"]), user("x"), "Hi" + gen("v")], ids=repr)
def test_a_node_does_not_become_a_text(node: Any, text: Callable[[Any], str]):
    with pytest.raises(TypeError, match=r"put texts and calls together with \+"):
        text(node)


@function
def first_of(s: Any, words: list[str]) -> None:
    s += next(iter(words)) + gen("x")


def test_stop_iteration_of_a_plain_function_ends_who_awaits_it():
    async def run() -> None:
        with pytest.raises(RuntimeError, match="first_of raised StopIteration"):
            await asyncio.wait_for(first_of.arun([], backend=Mock()), 120)
        assert (await asyncio.wait_for(first_of.arun(["a"], backend=Mock(["b"])), 120)).text() == "ab"

    asyncio.run(run())
    with pytest.raises(StopIteration):
        first_of.run([], backend=Mock())


class Asks:
    async def __call__(self, s: Any, word: str) -> Any:
        s += word + gen("x")
        return await s["x"]


def test_an_object_with_an_async_call_is_an_async_program():
    assert function(Asks()).run("a", backend=Mock(["b"])).ret_value == "b"
