"""The radix tree: which token prefixes have their keys and values in the pool, and in which slots.

Decides matching, splitting, locking and what to evict: the least recently used leaf first, and what somebody waits for
after all else. Knows slots, not tensors; token runs, not requests; frees nothing itself: evicted slots go back to the
caller. Section 5.1 of the SGLang paper.

How edges are followed, split and removed is in edges.py; the order of eviction is in node.py.

What is dropped is found by nobody from then on. Its slots are given back some nodes at a time, and before any leaf is
evicted.
"""

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.cache.edges import EMPTY, TreeEdges
from ramet.runtime.cache.node import Namespace, Node


class RadixTree(TreeEdges):
    """Prefixes of token sequences. All lengths are in tokens and multiples of the page size."""

    def match(self, tokens: Ints, namespace: Namespace = ()) -> tuple[Node, Ints]:
        """The node that ends the longest cached prefix, and the prefix's slots. Splits an edge that matches in part."""
        self.clock += 1
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Node(namespace, None, EMPTY, EMPTY, 0)
        node, pieces = root, list[Ints]()
        for child, common in self._walk_from(root, tokens):
            node, slots = (child, child.slots) if common == len(child.run) else self._part(child, common)
            self._touch(node)
            pieces.append(slots)
        if self.watch is not None:
            self.watch.note_path(node)
        return node, np.concatenate(pieces) if pieces else EMPTY

    def insert(self, tokens: Ints, slots: Ints, namespace: Namespace = ()) -> tuple[Node, int]:
        """Add `tokens` (whole pages). Returns the node at their end and how many were there before.

        The tree now owns slots[present:]; slots[:present] stay the caller's, the tree has its own for them.
        """
        assert len(tokens) % self.page_size == 0 and len(tokens) == len(slots), (
            len(tokens),
            len(slots),
            self.page_size,
        )
        node, held = self.match(tokens, namespace)
        present = len(held)
        if present < len(tokens):
            node = self._grow(node, tokens[present:].copy(), slots[present:].copy())
        return node, present

    def lock(self, node: Node) -> None:
        """Keep `node` and everything above it."""
        if self.watch is not None:
            self.watch.note_path(node)
        while node.parent is not None:
            if node.locks == 0:
                self.evictable_tokens -= len(node.run)
                self.locked_tokens += len(node.run)
            node.locks += 1
            node = node.parent
        node.locks += 1

    def unlock(self, node: Node) -> None:
        if self.watch is not None:
            self.watch.note_path(node)
        while node.parent is not None:
            assert node.locks > 0, "unlock without lock"
            node.locks -= 1
            if node.locks == 0:
                self.evictable_tokens += len(node.run)
                self.locked_tokens -= len(node.run)
                self._order.offer(node, self.num_nodes)
            node = node.parent
        node.locks -= 1
        self._drop_empty_root(node)

    def want(self, tokens: Ints, namespace: Namespace = ()) -> Node:
        """Somebody waits for the longest cached prefix of `tokens`, until `unwant` of the node that ends it."""
        node, _ = self.match(tokens, namespace)
        self._count_wanted(node, 1)
        return node

    def unwant(self, node: Node) -> None:
        self._count_wanted(node, -1)

    def evict(self, num_tokens: int) -> list[Ints]:
        """Free at least `num_tokens` (in pages) of unlocked leaves from their ends: see EvictionOrder.

        The last leaf that is needed keeps what is not: a retracted request finds most of its tokens again. What was
        dropped goes first.
        """
        freed: list[Ints] = []
        missing = num_tokens
        while missing > 0 and self.dropped:
            dropped = self.take_dropped(1)
            freed += dropped
            missing -= sum(map(len, dropped))
        while missing > 0 and (leaf := self._order.pop()) is not None:
            keep = len(leaf.run) - self._in_pages(missing)
            freed.append(leaf.slots[max(keep, 0) :])
            missing -= len(freed[-1])
            if keep > 0:
                self._shorten(leaf, keep)
            else:
                self._remove(leaf)
        return freed

    def beyond(self, tokens: Ints, start: int, namespace: Namespace) -> list[Node]:
        """The nodes that hold, with all below them, what begins with more than the first `start` (whole pages) of
        `tokens`. Splits an edge there.
        """
        node, slots = self.match(tokens, namespace)
        above = len(slots) - len(node.run)
        if len(slots) <= start:
            return []
        while above > start:
            assert node.parent is not None
            node = node.parent
            above -= len(node.run)
        if above < start:
            self._split(node, start - above)
        return [node]

    def withdraw(self, top: Node) -> list[Ints]:
        """Let no match reach `top` or what is below. Returns the slots of what nobody has locked, which is removed."""
        parent = top.parent
        assert parent is not None, "a root is never withdrawn"
        del parent.children[self._key(top)]
        top.withdrawn = True
        parent.children[self._key(top)] = top
        self.version += 1
        below = [top]
        for node in below:
            below.extend(node.children.values())
            node.num_losses += 1
        freed = []
        for node in below[::-1]:
            if node.is_evictable_leaf:
                freed.append(node.slots)
                self._remove(node)
        return freed

    def drop_unlocked(self) -> None:
        """Let no match reach what is not locked. `take_dropped` gives its slots back."""
        tops = list(self._roots.values())
        while tops:
            top = tops.pop()
            if top.locks:
                tops += top.children.values()
            elif top.parent is None:
                del self._roots[top.namespace]
                self.dropped.add(top)
            else:
                del top.parent.children[self._key(top)]
                self.dropped.add(top)
        self._order.clear()  # each of them is below what is dropped, or locked
        self.version += 1
        self.dropped_version = self.version

    def take_dropped(self, max_nodes: int) -> list[Ints]:
        """The slots of some nodes that are dropped, which are removed."""
        freed: list[Ints] = []
        for _ in range(max_nodes):
            if not self.dropped:
                break
            if (node := self.dropped.take()) is not None:
                freed.append(node.slots)
                self._take_out(node)
        return freed

    # -- inside -----------------------------------------------------------------------------------------------------

    def _in_pages(self, num_tokens: int) -> int:
        """Rounded up to whole pages."""
        return -(-num_tokens // self.page_size) * self.page_size

    def _count_wanted(self, node: Node, by: int) -> None:
        at: Node | None = node
        while at is not None and at.parent is not None:
            at.wanted += by
            if at.wanted == max(by, 0):  # its turn has changed
                self._order.offer(at, self.num_nodes)
            at = at.parent

    def _touch(self, node: Node) -> None:
        node.used = self.clock
        self._order.offer(node, self.num_nodes)
