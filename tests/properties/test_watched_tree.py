"""Whoever applies what a watch tells sees the tree as it is: over inserts, splits, evictions and leases."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from samples import examples

from ramet.ipc.live import NodeRow, TreeChanges
from ramet.runtime.cache.node import Node
from ramet.runtime.cache.radix import RadixTree
from ramet.runtime.cache.watched import TreeWatch

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=12)
NAMESPACES = st.sampled_from([(), ("a",), ("b",)])


class Seen:
    """What a viewer has made of everything that it was told."""

    def __init__(self) -> None:
        self.nodes: dict[int, NodeRow] = {}
        self.told: TreeChanges | None = None

    def apply(self, told: TreeChanges) -> None:
        self.told = told
        if told.begins:
            self.nodes.clear()
        for number in (*told.removed, *told.left_out):
            del self.nodes[number]
        self.nodes.update({row.id: row for row in told.nodes})

    def shape(self) -> list[tuple[Any, ...]]:
        """Of each node the lengths on its path, and what is known of it."""
        return sorted((self._path(row), row.used, row.locks) for row in self.nodes.values())

    def _path(self, row: NodeRow) -> tuple[int, ...]:
        above = (row.namespace,) if row.parent == 0 else self._path(self.nodes[row.parent])
        return (*above, row.tokens)


class WatchedTree(RuleBasedStateMachine):
    max_nodes = 1000

    def __init__(self) -> None:
        super().__init__()
        self.tree, self.slot = RadixTree(1), 0
        self.locked: list[Node] = []
        self.watch: TreeWatch | None = None
        self.seen = Seen()

    @rule(tokens=TOKENS, namespace=NAMESPACES)
    def insert(self, tokens: list[int], namespace: tuple[str, ...]) -> None:
        slots = np.arange(self.slot, self.slot + len(tokens), dtype=np.int32)
        self.slot += len(tokens)
        self.tree.insert(np.array(tokens, dtype=np.int32), slots, namespace)

    @rule(tokens=TOKENS, namespace=NAMESPACES)
    def lease(self, tokens: list[int], namespace: tuple[str, ...]) -> None:
        node, _ = self.tree.match(np.array(tokens, dtype=np.int32), namespace)
        self.tree.lock(node)
        self.locked.append(node)

    @precondition(lambda self: self.locked)
    @rule(at=st.integers(0, 100))
    def release(self, at: int) -> None:
        self.tree.unlock(self.locked.pop(at % len(self.locked)))

    @rule(num=st.integers(1, 30))
    def evict(self, num: int) -> None:
        self.tree.evict(num)

    @rule()
    def drop(self) -> None:
        self.tree.drop_unlocked()
        while self.tree.dropped:
            self.tree.take_dropped(2)

    @rule()
    def begin(self) -> None:
        self.watch = TreeWatch(self.tree, self.max_nodes)

    @precondition(lambda self: self.watch is not None)
    @rule()
    def look(self) -> None:
        assert self.watch is not None
        if not self.watch.is_on:  # more has changed than it notes
            self.begin()
        self.seen.apply(self.watch.take())
        self.check()

    def check(self) -> None:
        assert self.seen.told is not None and self.seen.told.is_whole
        assert len(self.seen.nodes) == self.seen.told.num_nodes
        assert self.seen.shape() == self.expected()

    def expected(self) -> list[tuple[Any, ...]]:
        assert self.watch is not None
        numbers = self.watch._namespaces

        def path(node: Node) -> tuple[int, ...]:
            assert node.parent is not None
            above = (numbers.get(node.namespace, 0),) if node.parent.parent is None else path(node.parent)
            return (*above, len(node.run))

        return sorted((path(node), node.used, node.locks) for node in self.tree.nodes())

    @invariant()
    def nothing_is_noted_of_a_node_that_is_gone(self) -> None:
        if self.watch is not None:
            assert not any(node.removed for node in (*self.watch._changed, *self.watch._ids))


class SmallView(WatchedTree):
    """Fewer nodes are shown than there are."""

    max_nodes = 6

    def check(self) -> None:
        assert len(self.seen.nodes) <= self.max_nodes + self.max_nodes // 8
        shown, whole = self.seen.shape(), self.expected()
        assert all(row in whole for row in shown)  # as they are, with all that is above them
        assert self.seen.told is not None and self.seen.told.num_nodes == len(whole)

    @precondition(lambda self: self.watch is not None and self.watch.is_on)
    @rule(tokens=TOKENS)
    def use(self, tokens: list[int]) -> None:
        """What was used last is shown, whatever was left out before."""
        assert self.watch is not None
        self.seen.apply(self.watch.take())
        node, _ = self.tree.match(np.array(tokens, dtype=np.int32))
        self.seen.apply(self.watch.take())
        depth, at = 0, node
        while at.parent is not None:
            depth, at = depth + 1, at.parent
        if depth <= self.max_nodes:
            assert (self.watch.number_of(node) in self.seen.nodes) == (depth > 0)


TestWatchedTree = WatchedTree.TestCase
TestWatchedTree.settings = examples(40, 1500, stateful_step_count=40)
TestSmallView = SmallView.TestCase
TestSmallView.settings = examples(40, 1500, stateful_step_count=40)
