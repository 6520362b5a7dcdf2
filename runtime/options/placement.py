"""Which cores the model's threads and the other processes run on, and which memory nodes hold weights and keys.

Decides by --cpu-affinity, the usable cores and the machine's memory nodes; pure but for `bind_*`, which bind the
calling thread, and with it the threads that it starts. Threads move freely within the cores that they have: one that
is bound to a core loses what that core loses to another process (docs/log.md has figures).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ramet.runtime.errors import ConfigError
from ramet.runtime.machine import memory_nodes, read_list, set_memory_policy, usable_cores

AUTO, NONE = "auto", "none"  # of --cpu-affinity, beside a list of cores

Cores = tuple[int, ...]  # ascending


@dataclass(frozen=True, slots=True)
class Placement:
    model: Cores | None = None  # of the model's threads; None: wherever the system puts them
    others: Cores | None = None  # of the server's other processes
    nodes: Cores = ()  # memory nodes over which what the model allocates is spread; none: as the system does

    def __str__(self) -> str:
        if self.model is None:
            cores = "any core for every process"
        else:
            others = "any core" if self.others is None else _named(self.others)
            cores = f"the model on {_named(self.model)}, other processes on {others}"
        if not self.nodes:
            return cores
        return f"{cores}, memory {'on node' if len(self.nodes) == 1 else 'spread over nodes'} {shown(self.nodes)}"


def placement_of(affinity: str) -> Placement:
    """On this machine. Raises ConfigError."""
    return place(affinity, _usable(), memory_nodes())


def place(affinity: str, usable: Cores, nodes: Mapping[int, frozenset[int]]) -> Placement:
    """`nodes`: the cores of each memory node. Raises ConfigError.

    auto binds nothing to cores, and spreads memory where usable cores are on several nodes. A list of cores is for the
    model, the others are left to the other processes; memory comes from the nodes of these cores.
    """
    if affinity == NONE:
        return Placement()
    if affinity == AUTO:
        return Placement(nodes=_nodes_of(usable, nodes, least=2))
    asked = cores_of(affinity)
    if asked is None or not asked or not set(asked) <= set(usable):
        raise ConfigError(
            f"--cpu-affinity is {affinity!r}, must be {AUTO}, {NONE}, or some of the usable cores {shown(usable)}, as "
            "0-3,8"
        )
    others = tuple(core for core in usable if core not in asked)
    return Placement(asked, others or None, _nodes_of(asked, nodes, least=1) if len(nodes) > 1 else ())


def cores_of(text: str) -> Cores | None:
    """ "0-2,8" -> (0, 1, 2, 8); None: it is no such list."""
    try:
        return tuple(sorted(read_list(text)))
    except ValueError:
        return None


def shown(cores: Cores) -> str:
    """(0, 1, 2, 8) -> "0-2,8"."""
    firsts = [i for i in range(len(cores)) if i == 0 or cores[i] != cores[i - 1] + 1]
    runs = [(cores[first], cores[end - 1]) for first, end in zip(firsts, [*firsts[1:], len(cores)], strict=True)]
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _named(cores: Cores) -> str:
    return f"core{'s' * (len(cores) > 1)} {shown(cores)}"


def num_cores(model: Cores | None) -> int:
    """How many cores threads on these can use at once: a container may have a share of them. None: any."""
    return usable_cores() if model is None else min(len(model), usable_cores())


def bind_model(placement: Placement) -> None:
    """The calling thread is the one that runs the model; before it starts others and allocates what is large."""
    if placement.model is not None:
        os.sched_setaffinity(0, placement.model)
    if placement.nodes:
        set_memory_policy(placement.nodes)


def bind_others(placement: Placement) -> None:
    """The calling thread is the first one of a process that does not run the model."""
    if placement.others is not None:
        os.sched_setaffinity(0, placement.others)


def _usable() -> Cores:
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def _nodes_of(cores: Cores, nodes: Mapping[int, frozenset[int]], least: int) -> Cores:
    """Those that have some of the cores; none if they are fewer than `least`."""
    found = tuple(sorted(node for node, own in nodes.items() if own & set(cores)))
    return found if len(found) >= least else ()
