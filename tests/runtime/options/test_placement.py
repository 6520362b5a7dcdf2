"""Where threads and memory go, by --cpu-affinity."""

import os
import threading

import pytest

from ramet.runtime.config import make_args, resolve
from ramet.runtime.errors import ConfigError
from ramet.runtime.machine import memory_policy
from ramet.runtime.options.placement import Placement, bind_model, bind_others, num_cores, place, placement_of, shown

ONE_NODE = {0: frozenset({0, 1, 2, 3})}
TWO_NODES = {0: frozenset({0, 1, 4, 5}), 1: frozenset({2, 3, 6, 7})}
EIGHT = tuple(range(8))


@pytest.mark.parametrize(
    ("affinity", "nodes", "placement"),
    [
        ("none", TWO_NODES, Placement()),
        ("auto", ONE_NODE, Placement()),
        ("auto", {}, Placement()),
        ("auto", TWO_NODES, Placement(nodes=(0, 1))),
        ("0-2", ONE_NODE, Placement((0, 1, 2), (3, 4, 5, 6, 7))),
        ("0-1,4-5", TWO_NODES, Placement((0, 1, 4, 5), (2, 3, 6, 7), (0,))),
        ("7, 0", TWO_NODES, Placement((0, 7), (1, 2, 3, 4, 5, 6), (0, 1))),
        ("0-7", TWO_NODES, Placement(EIGHT, None, (0, 1))),
    ],
)
def test_what_an_affinity_comes_to(affinity: str, nodes: dict[int, frozenset[int]], placement: Placement) -> None:
    assert place(affinity, EIGHT, nodes) == placement


def test_auto_spreads_memory_over_the_nodes_of_usable_cores_alone() -> None:
    assert place("auto", (2, 3), TWO_NODES) == Placement()


@pytest.mark.parametrize("affinity", ["", "all", "0-", "3-1", "0-8", "9", "0,,x"])
def test_a_wrong_affinity_names_the_option_its_value_and_the_usable_cores(affinity: str) -> None:
    with pytest.raises(ConfigError, match=r"--cpu-affinity is .* must be auto, none, or some of the usable cores 0-7"):
        place(affinity, EIGHT, ONE_NODE)


def test_a_wrong_affinity_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="--cpu-affinity is '4096', must be"):
        resolve(make_args(cpu_affinity="4096"))


def test_a_placement_in_words() -> None:
    assert shown((0, 1, 2, 8)) == "0-2,8" and shown((3,)) == "3"
    assert str(Placement()) == "any core for every process"
    assert str(Placement((0, 1), (2,), (0,))) == "the model on cores 0-1, other processes on core 2, memory on node 0"
    assert str(Placement((1,), (0, 2))) == "the model on core 1, other processes on cores 0,2"
    assert str(Placement((0, 1), None)) == "the model on cores 0-1, other processes on any core"
    assert str(Placement(nodes=(0, 1))) == "any core for every process, memory spread over nodes 0-1"


def test_threads_can_use_the_cores_of_the_model_that_a_container_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ramet.runtime.options.placement.usable_cores", lambda: 3)
    assert [num_cores(cores) for cores in (None, (5,), (0, 1), EIGHT)] == [3, 1, 2, 3]


def test_a_thread_is_bound_and_so_are_those_that_it_starts() -> None:
    usable = sorted(os.sched_getaffinity(0))
    first, last = (usable[0],), (usable[-1],)
    found = []

    def inner() -> None:
        found.append((os.sched_getaffinity(0), memory_policy()))

    def outer() -> None:
        bind_model(Placement(first, last, (0,)))
        thread = threading.Thread(target=inner)
        thread.start()
        thread.join()
        bind_others(Placement(first, last))
        found.append((os.sched_getaffinity(0), None))

    thread = threading.Thread(target=outer)
    thread.start()
    thread.join()
    (cores, policy), (others, _) = found
    assert cores == set(first) and others == set(last)
    assert policy in (None, (0, ()), (2, (0,)))  # where a sandbox forbids the call, memory comes as before
    assert sorted(os.sched_getaffinity(0)) == usable
    assert placement_of("none") == Placement()
