"""The edges of a radix tree: how a token sequence is followed along them, and how they are split, grown and removed.

An edge carries a run of tokens, its node the slots of that run. With page size p every run is a multiple of p long and
children differ in their first p tokens. Each namespace has its own root, so prefixes never cross namespaces.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import DroppedNodes, EvictionOrder, Namespace, Node

Path = list[tuple[Node, int]]  # what `walk` yields
EMPTY: Ints = np.empty(0, dtype=np.int32)


class TreeObserver(Protocol):
    """What the tree calls while somebody looks at it (watched.py)."""

    def note(self, node: Node) -> None:
        """`node` is new, or has another run or another parent."""

    def note_path(self, node: Node) -> None:
        """`node` and its ancestors were used, or their lock counts changed."""

    def note_removed(self, node: Node) -> None: ...


class TreeEdges:
    """The nodes of a tree, and their counts. All lengths are in tokens and multiples of the page size."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.watch: TreeObserver | None = None  # None: nobody looks
        self.clear()

    def clear(self) -> None:
        """Forget everything. Nobody may hold a lock."""
        self._roots: dict[Namespace, Node] = {}
        self._order = EvictionOrder()
        self.dropped = DroppedNodes()  # whose slots are not all given back
        self.clock = 0  # the number of matches so far: what `Node.used` is compared with
        self.num_nodes = 0  # without roots
        self._lost_states: list[tuple[Node, int]] = []  # of ends that were evicted
        self.evictable_tokens = 0  # those that are dropped count until their slots are given back
        self.locked_tokens = 0
        self.version = 0  # changes whenever a match could
        self.dropped_version = 0  # that of the last `drop_unlocked`: a match of an earlier version says nothing

    def newest_roots(self, num: int) -> list[Node]:
        """The roots of at most `num` namespaces, the newest one first."""
        return list(islice(reversed(self._roots.values()), num))

    def walk(self, tokens: Ints, namespace: Namespace) -> Iterator[tuple[Node, int]]:
        """(child, tokens it shares with the rest of `tokens`) along the longest match; only the last may be partial."""
        root = self._roots.get(namespace)
        return iter(()) if root is None else self._walk_from(root, tokens)

    def match_length(self, tokens: Ints, namespace: Namespace = ()) -> int:
        """Length of the longest cached prefix of `tokens`. Changes nothing, not even the time of last use."""
        length = 0
        for _, common in self.walk(tokens, namespace):
            length += common
        return length

    def walk_each(self, before: Ints, afters: Sequence[Ints], namespace: Namespace) -> tuple[Path, list[Path]]:
        """The walks of `before` (whole pages) with each of `afters`: what all share, and what each has after that."""
        root = self._roots.get(namespace)
        return ([], [[] for _ in afters]) if root is None else self._walk_each_from(root, before, afters)

    def match_lengths(self, before: Ints, afters: Sequence[Ints], namespace: Namespace) -> list[int]:
        """The match lengths of `before` (whole pages) with each of `afters`."""
        shared, each = self.walk_each(before, afters, namespace)
        length = sum(common for _, common in shared)
        return [length + sum(common for _, common in path) for path in each]

    def has_root_with(self, page: bytes, namespace: Namespace = ()) -> bool:
        """Whether a cached prefix begins with this page."""
        root = self._roots.get(namespace)
        return root is not None and page in root.children

    def path(self, tokens: Ints, namespace: Namespace = ()) -> list[Node]:
        """The nodes along the longest cached prefix, from the top; the last may match in part. Changes nothing."""
        return [node for node, _ in self.walk(tokens, namespace)]

    def nodes(self) -> Iterator[Node]:
        """Every node but the roots, parents first, in order of insertion; behind them those that are dropped."""
        dropped = self.dropped.tops
        stack = [child for root in self._roots.values() for child in root.children.values()]
        stack += [top for top in dropped if top.parent is not None and not top.removed]
        stack += [child for top in dropped if top.parent is None for child in top.children.values()]
        stack.reverse()
        while stack:
            node = stack.pop()
            yield node
            stack.extend(list(node.children.values())[::-1])

    def set_state(self, node: Node, state: int) -> None:
        """Note the place of `node`'s state; 0: it has none any more."""
        node.state = state
        self.version += 1

    def take_lost_states(self) -> list[tuple[Node, int]]:
        """(node, state) of what was evicted since the last call."""
        lost, self._lost_states = self._lost_states, []
        return lost

    # -- inside -----------------------------------------------------------------------------------------------------

    def _walk_from(self, root: Node, tokens: Ints) -> Iterator[tuple[Node, int]]:
        node, page, start = root, self.page_size, 0
        while start + page <= len(tokens):
            child = node.children.get(tokens[start : start + page].tobytes())
            if child is None:
                return
            whole = len(child.run)
            common = page if whole == page else self._common(child.run, tokens[start:])  # the key is the first page
            yield child, common
            if common < whole:
                return
            start += common
            node = child

    def _walk_each_from(self, root: Node, before: Ints, afters: Sequence[Ints]) -> tuple[Path, list[Path]]:
        shared = list(self._walk_from(root, before))
        node, used = shared[-1] if shared else (root, 0)
        if sum(common for _, common in shared) < len(before):
            return shared, [[] for _ in afters]
        if used == len(node.run):
            return shared, [list(self._walk_from(node, after)) for after in afters]
        return shared[:-1], [list(self._walk_inside(node, used, after)) for after in afters]

    def _walk_inside(self, node: Node, at: int, tokens: Ints) -> Iterator[tuple[Node, int]]:
        """The walk of tokens that follow the first `at` tokens of `node`."""
        common = self._common(node.run[at:], tokens) if len(tokens) else 0
        yield node, at + common
        if at + common == len(node.run):
            yield from self._walk_from(node, tokens[common:])

    def _common(self, a: Ints, b: Ints) -> int:
        """Length of the common prefix, rounded down to pages."""
        n = min(len(a), len(b))
        differs = a[:n] != b[:n]
        first = int(differs.argmax())
        common = first if differs[first] else n
        return common - common % self.page_size

    def _part(self, node: Node, at: int) -> tuple[Node, Ints]:
        """What of `node` ends after its first `at` tokens, which are not all: the node there, and its slots."""
        upper = self._split(node, at)
        return upper, upper.slots

    def _split(self, node: Node, at: int) -> Node:
        """Cut `node`'s edge after `at` tokens. `node` keeps the lower part (leases point to it); returns the upper."""
        parent = node.parent
        assert parent is not None and 0 < at < len(node.run)
        upper = Node(node.namespace, parent, node.run[:at], node.slots[:at], node.used)
        upper.locks, upper.wanted = node.locks, node.wanted
        parent.children[self._key(upper)] = upper
        node.parent, node.run, node.slots = upper, node.run[at:], node.slots[at:]
        upper.children[self._key(node)] = node
        self.num_nodes += 1
        if self.watch is not None:
            self.watch.note(node)
        return upper

    def _grow(self, parent: Node, run: Ints, slots: Ints) -> Node:
        leaf = Node(parent.namespace, parent, run, slots, self.clock)
        parent.children[self._key(leaf)] = leaf
        self.evictable_tokens += len(run)
        self.version += 1
        self.num_nodes += 1
        self._order.offer(leaf, self.num_nodes)
        if self.watch is not None:
            self.watch.note(leaf)
        return leaf

    def _shorten(self, leaf: Node, keep: int) -> None:
        self.evictable_tokens -= len(leaf.run) - keep
        self.version += 1
        leaf.run, leaf.slots = leaf.run[:keep], leaf.slots[:keep]
        self._lose_end(leaf)
        self._order.offer(leaf, self.num_nodes)
        if self.watch is not None:
            self.watch.note(leaf)

    def _lose_end(self, leaf: Node) -> None:
        leaf.num_losses += 1
        if leaf.state:
            self._lost_states.append((leaf, leaf.state))
            leaf.state = 0

    def _remove(self, leaf: Node) -> None:
        parent = leaf.parent
        assert parent is not None
        self._take_out(leaf)
        self.version += 1
        self._order.offer(parent, self.num_nodes)
        self._drop_empty_root(parent)

    def _take_out(self, leaf: Node) -> None:
        siblings, key = leaf.parent.children if leaf.parent is not None else {}, self._key(leaf)
        if siblings.get(key) is leaf:  # else it was dropped
            del siblings[key]
        self.evictable_tokens -= len(leaf.run)
        self.num_nodes -= 1
        leaf.removed = True
        if self.watch is not None:
            self.watch.note_removed(leaf)
        self._lose_end(leaf)

    def _drop_empty_root(self, node: Node) -> None:
        if node.parent is None and not node.children and not node.locks and self._roots.get(node.namespace) is node:
            del self._roots[node.namespace]

    def _key(self, node: Node) -> bytes:
        if node.withdrawn:
            return id(node).to_bytes(9)  # as long as no page is
        return node.run[: self.page_size].tobytes()
