"""What somebody who looks at a radix tree is told: a bounded part of it, and then what changes.

Decides which nodes are shown: the most recently used ones, with all that is above them. `take` is called a few times a
second; in between the tree notes here what changes, and nothing is looked through. The nodes that are there when the
looking begins are shown bit by bit, the newest first.

If more changes than anybody could look at, or if nobody takes any more, the tree forgets this watch: whoever goes on
looking begins anew with another one.
"""

from collections import Counter
from heapq import heapify, heappop, heappush
from itertools import count, islice

from ramet.ipc.live import NodeRow, TreeChanges
from ramet.runtime.cache.node import Namespace, Node
from ramet.runtime.cache.radix import RadixTree

MAX_NODES = 4096  # that are shown
MAX_NEW = 512  # of those that were there before that are shown at once: about a millisecond
SPARE = 8  # one in so many more may be shown before the least recently used ones are left out


class TreeWatch:
    """`max_nodes`: that are shown, and an eighth more for some time."""

    def __init__(self, tree: RadixTree, max_nodes: int = MAX_NODES) -> None:
        self._tree, self._max = tree, max_nodes
        self._numbers = count(1)
        self._ids: dict[Node, int] = {}  # shown
        self._namespaces: dict[Namespace, int] = {}
        self._changed: dict[Node, None] = {}
        self._removed: list[int] = []
        self._begins = True
        self._there = tree.newest_roots(max_nodes)[::-1]  # that were there before; roots stand for their children
        tree.watch = self

    @property
    def is_on(self) -> bool:
        return self._tree.watch is self

    def stop(self) -> None:
        if self.is_on:
            self._tree.watch = None

    # -- what the tree calls ----------------------------------------------------------------------------------------

    def note(self, node: Node) -> None:
        self._changed[node] = None
        if len(self._changed) > 4 * self._max:
            self.stop()

    def note_path(self, node: Node) -> None:
        at: Node | None = node
        while at is not None and at.parent is not None:
            self.note(at)
            at = at.parent

    def note_removed(self, node: Node) -> None:
        self._changed.pop(node, None)
        shown = self._ids.pop(node, None)
        if shown is not None:
            self._removed.append(shown)

    # -- what is told -----------------------------------------------------------------------------------------------

    def take(self) -> TreeChanges:
        """What has changed since the last call. The watch must be on."""
        self._show_more()
        told = next(self._numbers)  # nodes with smaller numbers were told of before
        for node in list(self._changed):
            self._show(node)
        left_out = [number for number in self._leave_out() if number < told]
        rows = [self._row(node) for node in self._changed if node in self._ids]
        tree, removed, begins = self._tree, self._removed, self._begins
        self._changed, self._removed, self._begins = {}, [], False
        if len(self._namespaces) > 4 * self._max:
            self.stop()
        return TreeChanges(
            begins, rows, removed, left_out, not self._there, tree.num_nodes,
            tree.evictable_tokens + tree.locked_tokens, tree.locked_tokens, tree.clock,
        )  # fmt: skip

    def number_of(self, node: Node | None) -> int:
        """The number of the nearest node at or above this one that is shown; 0: there is none."""
        while node is not None and node not in self._ids:
            node = node.parent
        return 0 if node is None else self._ids[node]

    def node(self, number: int) -> Node | None:
        return next((node for node, shown in self._ids.items() if shown == number), None)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _show_more(self) -> None:
        """Show the newest of the nodes that were there when the watch began, and what is below them."""
        room = min(MAX_NEW, self._max - len(self._ids))
        while self._there and room > 0:
            node = self._there.pop()
            if node.parent is not None and not node.removed:
                self._changed[node] = None
                room -= 1
            self._there += list(islice(reversed(node.children.values()), self._max))[::-1]
            del self._there[: -self._max]
        if len(self._ids) >= self._max:
            self._there.clear()

    def _show(self, node: Node) -> None:
        at: Node | None = node
        while at is not None and at.parent is not None and at not in self._ids:
            self._ids[at] = next(self._numbers)
            self._changed[at] = None
            at = at.parent

    def _leave_out(self) -> list[int]:
        """The least recently used ones, if too many are shown, and none before those below it."""
        if len(self._ids) <= self._max + self._max // SPARE:
            return []
        left_out, below = [], Counter(node.parent for node in self._ids)
        leaves = [(node.used, number, node) for node, number in self._ids.items() if not below[node]]
        heapify(leaves)
        while len(self._ids) > self._max:
            _, number, node = heappop(leaves)
            left_out.append(number)
            del self._ids[node]
            above = node.parent
            below[above] -= 1
            if above in self._ids and not below[above]:
                heappush(leaves, (above.used, self._ids[above], above))
        return left_out

    def _row(self, node: Node) -> NodeRow:
        namespace = self._namespaces.setdefault(node.namespace, len(self._namespaces) + 1)
        assert node.parent is not None
        parent = self._ids.get(node.parent, 0)
        return NodeRow(self._ids[node], parent, namespace, len(node.run), node.used, node.locks)
