"""The nodes of a radix tree, the order in which prefix.py evicts its leaves, and those that nobody finds any more."""

import heapq
from itertools import count

from ramet.runtime.arrays import Ints

Namespace = tuple[str, ...]


class Node:
    """One edge and its end. `locks` counts leases on this node or below it; a locked node is never evicted.

    `wanted` counts in the same way who waits for it, which lets it be evicted after all others. A node that was removed
    still knows its parent: whoever waited for it has counted there as well. `num_losses`: evictions of its end.
    `state`: where the state after its last token is, of a model whose layers have one; 0: nowhere.
    `withdrawn`: no match reaches it; it stays for as long as it is locked.
    """

    __slots__ = (
        "children", "locks", "namespace", "num_losses", "parent", "removed", "run", "slots", "state", "used", "wanted",
        "withdrawn",
    )  # fmt: skip

    def __init__(self, namespace: Namespace, parent: "Node | None", run: Ints, slots: Ints, used: int) -> None:
        self.namespace, self.parent, self.run, self.slots, self.used = namespace, parent, run, slots, used
        self.children: dict[bytes, Node] = {}
        self.locks = self.wanted = self.num_losses = self.state = 0
        self.removed = self.withdrawn = False

    @property
    def is_evictable_leaf(self) -> bool:
        return not self.children and not self.locks and self.parent is not None and not self.removed

    @property
    def turn(self) -> tuple[bool, int]:
        """The order of eviction: leaves that nobody waits for come first, then the least recently used one."""
        return self.wanted > 0, self.used


class EvictionOrder:
    """A heap of leaves by `Node.turn`. A leaf is offered again whenever its turn has changed; stale entries stay."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[bool, int], int, Node]] = []  # (turn, tie, leaf)
        self._ties = count()

    def __len__(self) -> int:
        return len(self._heap)

    def offer(self, node: Node, num_nodes: int) -> None:
        """Add `node` if it may be evicted. `num_nodes` that the tree has bounds the heap."""
        if node.is_evictable_leaf:
            heapq.heappush(self._heap, (node.turn, next(self._ties), node))
            if len(self._heap) > 2 * num_nodes + 64:  # mostly stale: a server that never evicts must not grow
                live = {n: (turn, tie, n) for turn, tie, n in self._heap if turn == n.turn and n.is_evictable_leaf}
                self._heap = sorted(live.values())

    def pop(self) -> Node | None:
        """The next leaf to be evicted, or None."""
        while self._heap:
            turn, _, leaf = heapq.heappop(self._heap)
            if turn == leaf.turn and leaf.is_evictable_leaf:
                return leaf
        return None

    def clear(self) -> None:
        self._heap.clear()


class DroppedNodes:
    """Subtrees that no match reaches any more, whose slots are given back leaf by leaf."""

    def __init__(self) -> None:
        self._tops: list[Node] = []  # with all below them
        self._path: list[Node] = []  # the top that is taken apart, and the way down from it

    def __bool__(self) -> bool:
        return bool(self._path or self._tops)

    @property
    def tops(self) -> list[Node]:
        return [*self._path[:1], *self._tops]

    def add(self, top: Node) -> None:
        self._tops.append(top)

    def take(self) -> Node | None:
        """Take one node from its end; None: it is a root, or was evicted meanwhile. Something must be here."""
        path = self._path
        if not path:
            path.append(self._tops.pop())
        while children := path[-1].children:
            path.append(next(reversed(children.values())))
        leaf = path.pop()
        if leaf.parent is None or leaf.removed:
            return None
        if path:
            path[-1].children.popitem()  # which lets the next one be found at once, as `del` does not
        return leaf
