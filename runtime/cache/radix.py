"""The radix tree: which token prefixes have their keys and values in the pool, and in which slots.

Decides matching, splitting, locking and what to evict: the least recently used leaf first, and what somebody waits for
after all else. Knows slots, not tensors; token runs, not requests; frees nothing itself: evicted slots go back to the
caller. Section 5.1 of the SGLang paper.

An edge carries a run of tokens, its node the slots of that run. With page size p every run is a multiple of p long and
children differ in their first p tokens. Each namespace has its own root, so prefixes never cross namespaces.

What is dropped is found by nobody from then on. Its slots are given back some nodes at a time, and before any leaf is
evicted.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Protocol

import numpy as np

from ramet.runtime.arrays import Ints

Namespace = tuple[str, ...]
_EMPTY = np.empty(0, dtype=np.int32)


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
        """Leaves are evicted in this order."""
        return self.wanted > 0, self.used


Path = list[tuple[Node, int]]  # what `walk` yields


class Watch(Protocol):
    """Is told of changes while somebody looks at the tree (watched.py)."""

    def note(self, node: Node) -> None:
        """It is new, or its run or its parent is another."""

    def note_path(self, node: Node) -> None:
        """It and all above it were used, or their locks have changed."""

    def note_removed(self, node: Node) -> None: ...


class RadixTree:
    """Prefixes of token sequences. All lengths are in tokens and multiples of the page size."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.watch: Watch | None = None  # nobody looks
        self.clear()

    def clear(self) -> None:
        """Forget everything. Nobody may hold a lock."""
        self._roots: dict[Namespace, Node] = {}
        self._leaves: list[tuple[tuple[bool, int], int, Node]] = []  # heap of (turn, tie, leaf); stale where it changed
        self._ties = count()
        self._clock = 0
        self._num_nodes = 0
        self._lost_states: list[tuple[Node, int]] = []  # of ends that were evicted
        self._dropped: list[Node] = []  # with all below them
        self._dropping: list[Node] = []  # the one that is taken apart, and the way down from it
        self.evictable_tokens = 0  # those that are dropped count until their slots are given back
        self.locked_tokens = 0
        self.version = 0  # changes whenever a match could
        self.dropped_version = 0  # that of the last `drop_unlocked`: a match of an earlier version says nothing

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        """Roots do not count."""
        return self._num_nodes

    @property
    def clock(self) -> int:
        """Matches so far: what `Node.used` is compared with."""
        return self._clock

    def newest_roots(self, num: int) -> list[Node]:
        """At most so many, one for each namespace; that which came last is first."""
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
        """As `walk`, of `before` (whole pages) and each of `afters`: what all share, and what each has behind that."""
        root = self._roots.get(namespace)
        return ([], [[] for _ in afters]) if root is None else self._walk_each_from(root, before, afters)

    def match_lengths(self, before: Ints, afters: Sequence[Ints], namespace: Namespace) -> list[int]:
        """As `match_length`, of `before` (whole pages) with each of `afters`."""
        shared, each = self.walk_each(before, afters, namespace)
        length = sum(common for _, common in shared)
        return [length + sum(common for _, common in path) for path in each]

    def has_root_with(self, page: bytes, namespace: Namespace = ()) -> bool:
        """Whether something begins with it."""
        root = self._roots.get(namespace)
        return root is not None and page in root.children

    def path(self, tokens: Ints, namespace: Namespace = ()) -> list[Node]:
        """The nodes along the longest cached prefix, from the top; the last may match in part. Changes nothing."""
        return [node for node, _ in self.walk(tokens, namespace)]

    def match(self, tokens: Ints, namespace: Namespace = ()) -> tuple[Node, Ints]:
        """The node that ends the longest cached prefix, and the prefix's slots. Splits an edge that matches in part."""
        self._clock += 1
        node = self._root(namespace)
        pieces = []
        for child, common in self.walk(tokens, namespace):
            node, slots = self._ending(child, common)
            self._touch(node)
            pieces.append(slots)
        if self.watch is not None:
            self.watch.note_path(node)
        return node, np.concatenate(pieces) if pieces else _EMPTY

    def nodes(self) -> Iterator[Node]:
        """Every node but the roots, parents first, in order of insertion; behind them those that are dropped."""
        dropped = [*self._dropping[:1], *self._dropped]
        stack = [child for root in self._roots.values() for child in root.children.values()]
        stack += [top for top in dropped if top.parent is not None and not top.removed]
        stack += [child for top in dropped if top.parent is None for child in top.children.values()]
        stack.reverse()
        while stack:
            node = stack.pop()
            yield node
            stack.extend(list(node.children.values())[::-1])

    # -- writing ----------------------------------------------------------------------------------------------------

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
                self._offer(node)
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
        """Free at least `num_tokens` (in pages) of unlocked leaves from their ends: see Node.turn.

        The last leaf that is needed keeps what is not: a retracted request finds most of its tokens again. What was
        dropped goes first.
        """
        freed: list[Ints] = []
        missing = num_tokens
        while missing > 0 and self.has_dropped:
            dropped = self.take_dropped(1)
            freed += dropped
            missing -= sum(map(len, dropped))
        while missing > 0 and self._leaves:
            turn, _, leaf = heapq.heappop(self._leaves)
            if turn != leaf.turn or not leaf.is_evictable_leaf:
                continue
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
                self._dropped.append(top)
            else:
                del top.parent.children[self._key(top)]
                self._dropped.append(top)
        self._leaves.clear()  # each of them is below what is dropped, or locked
        self.version += 1
        self.dropped_version = self.version

    @property
    def has_dropped(self) -> bool:
        """Something is dropped, and not all of its slots are given back."""
        return bool(self._dropping or self._dropped)

    def take_dropped(self, max_nodes: int) -> list[Ints]:
        """The slots of some nodes that are dropped, which are removed."""
        freed: list[Ints] = []
        way = self._dropping
        for _ in range(max_nodes):
            if not way:
                if not self._dropped:
                    break
                way.append(self._dropped.pop())
            while children := way[-1].children:
                way.append(next(reversed(children.values())))
            leaf = way.pop()
            if leaf.parent is None or leaf.removed:  # a root, or evicted meanwhile
                continue
            if way:
                way[-1].children.popitem()  # which lets the next one be found at once, as `del` does not
            freed.append(leaf.slots)
            self._take_out(leaf)
        return freed

    def set_state(self, node: Node, state: int) -> None:
        """0: it has none any more."""
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
        """As `_walk_from`, of tokens that follow the first `at` tokens of `node`."""
        common = self._common(node.run[at:], tokens) if len(tokens) else 0
        yield node, at + common
        if at + common == len(node.run):
            yield from self._walk_from(node, tokens[common:])

    def _ending(self, node: Node, at: int) -> tuple[Node, Ints]:
        """A node that ends after the first `at` tokens of `node`, and its slots."""
        upper = node if at == len(node.run) else self._split(node, at)
        return upper, upper.slots

    def _common(self, a: Ints, b: Ints) -> int:
        """Length of the common prefix, rounded down to pages."""
        n = min(len(a), len(b))
        differs = a[:n] != b[:n]
        first = int(differs.argmax())
        common = first if differs[first] else n
        return common - common % self.page_size

    def _split(self, node: Node, at: int) -> Node:
        """Cut `node`'s edge after `at` tokens. `node` keeps the lower part (leases point to it); returns the upper."""
        parent = node.parent
        assert parent is not None and 0 < at < len(node.run)
        upper = Node(node.namespace, parent, node.run[:at], node.slots[:at], node.used)
        upper.locks, upper.wanted = node.locks, node.wanted
        parent.children[self._key(upper)] = upper
        node.parent, node.run, node.slots = upper, node.run[at:], node.slots[at:]
        upper.children[self._key(node)] = node
        self._num_nodes += 1
        if self.watch is not None:
            self.watch.note(node)
        return upper

    def _grow(self, parent: Node, run: Ints, slots: Ints) -> Node:
        leaf = Node(parent.namespace, parent, run, slots, self._clock)
        parent.children[self._key(leaf)] = leaf
        self.evictable_tokens += len(run)
        self.version += 1
        self._num_nodes += 1
        self._offer(leaf)
        if self.watch is not None:
            self.watch.note(leaf)
        return leaf

    def _shorten(self, leaf: Node, keep: int) -> None:
        self.evictable_tokens -= len(leaf.run) - keep
        self.version += 1
        leaf.run, leaf.slots = leaf.run[:keep], leaf.slots[:keep]
        self._lose_end(leaf)
        self._offer(leaf)
        if self.watch is not None:
            self.watch.note(leaf)

    def _lose_end(self, leaf: Node) -> None:
        leaf.num_losses += 1
        if leaf.state:
            self._lost_states.append((leaf, leaf.state))
            leaf.state = 0

    def _in_pages(self, num_tokens: int) -> int:
        """Rounded up to whole pages."""
        return -(-num_tokens // self.page_size) * self.page_size

    def _remove(self, leaf: Node) -> None:
        parent = leaf.parent
        assert parent is not None
        self._take_out(leaf)
        self.version += 1
        self._offer(parent)
        self._drop_empty_root(parent)

    def _take_out(self, leaf: Node) -> None:
        siblings, key = leaf.parent.children if leaf.parent is not None else {}, self._key(leaf)
        if siblings.get(key) is leaf:  # else it was dropped
            del siblings[key]
        self.evictable_tokens -= len(leaf.run)
        self._num_nodes -= 1
        leaf.removed = True
        if self.watch is not None:
            self.watch.note_removed(leaf)
        self._lose_end(leaf)

    def _count_wanted(self, node: Node, by: int) -> None:
        at: Node | None = node
        while at is not None and at.parent is not None:
            at.wanted += by
            if at.wanted == max(by, 0):  # its turn has changed
                self._offer(at)
            at = at.parent

    def _touch(self, node: Node) -> None:
        node.used = self._clock
        self._offer(node)

    def _offer(self, node: Node) -> None:
        if node.is_evictable_leaf:
            heapq.heappush(self._leaves, (node.turn, next(self._ties), node))
            if len(self._leaves) > 2 * self._num_nodes + 64:  # mostly stale: a server that never evicts must not grow
                live = {n: (turn, tie, n) for turn, tie, n in self._leaves if turn == n.turn and n.is_evictable_leaf}
                self._leaves = sorted(live.values())

    def _root(self, namespace: Namespace) -> Node:
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Node(namespace, None, _EMPTY, _EMPTY, 0)
        return root

    def _drop_empty_root(self, node: Node) -> None:
        if node.parent is None and not node.children and not node.locks and self._roots.get(node.namespace) is node:
            del self._roots[node.namespace]

    def _key(self, node: Node) -> bytes:
        if node.withdrawn:
            return id(node).to_bytes(9)  # as long as no page is
        return node.run[: self.page_size].tobytes()
