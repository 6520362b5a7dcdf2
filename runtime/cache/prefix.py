"""Where pages are allocated, and evicted when none is free: the tree, its pages, and leases on cached prefixes.

Decides when pages are evicted, in the tree's order (radix.py, node.py), and which one owner a page has. Knows no
request: callers hand in tokens and slots and get a Lease, never a node. Section 5 of the SGLang paper.

A page is `page_size` consecutive slots; page 0 is the runner's padding page and is never handed out. A slot is the
place of one token's keys and values in every layer.

    tokens of a request   [0, lease)  the tree's, shared    [lease, end)  the request's own
    publish(kept)         [lease, present)  someone published these first: the tree's are used, ours are duplicates
                          [present, kept)   now the tree's     [kept, end)  a partial page, still our own
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Namespace, Node
from ramet.runtime.cache.radix import RadixTree


class PageAllocator:
    """A stack of free pages. Every page is either here or with exactly one owner; a double free is an assertion.

    What is freed at once is given out again from its lowest page on: memory is read faster in order.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self._stack = np.arange(num_pages, 0, -1, dtype=np.int32)  # top of the stack is its end: page 1 goes first
        self.num_free = num_pages
        self._taken = np.zeros(num_pages + 1, dtype=np.bool_)

    def allocate(self, num_pages: int) -> Ints | None:
        """`num_pages` page numbers, or None (and nothing taken) when there are fewer."""
        if num_pages > self.num_free:
            return None
        pages = self._stack[self.num_free - num_pages : self.num_free][::-1].copy()
        self.num_free -= num_pages
        self._taken[pages] = True
        return pages

    def free(self, pages: Ints) -> None:
        assert self._taken[pages].all(), f"pages freed twice: {pages[~self._taken[pages]].tolist()}"
        self._taken[pages] = False
        self._stack[self.num_free : self.num_free + len(pages)] = np.sort(pages)[::-1]
        self.num_free += len(pages)

    def slots_of(self, pages: Ints) -> Ints:
        """The slots of whole pages, in order. [len(pages) * page_size]"""
        if self.page_size == 1:
            return pages
        offsets = np.arange(self.page_size, dtype=np.int32)
        return (pages[:, None] * np.int32(self.page_size) + offsets).reshape(-1)

    def pages_of(self, slots: Ints) -> Ints:
        """The pages of a run of whole pages, given slot by slot."""
        return slots[:: self.page_size] // np.int32(self.page_size)


class RowAllocator:
    """Free rows of a table of running requests. Row 0 is padding."""

    def __init__(self, num_rows: int, first: int = 1) -> None:
        self.num_rows = num_rows
        self._free = list(range(first + num_rows - 1, first - 1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_taken(self) -> int:
        return self.num_rows - len(self._free)

    def allocate(self) -> int:
        return self._free.pop()

    def free(self, row: int) -> None:
        assert row not in self._free, f"row {row} freed twice"
        self._free.append(row)


MAX_FREED = 1024  # nodes of the tree in one turn: 4 ms
MAX_LOOKED_THROUGH = 4096  # namespaces that a prompt is looked for in
NO_SLOTS: Ints = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Lease:
    """`length` tokens of a prefix that stay in the pool until the lease is released."""

    length: int
    namespace: Namespace
    node: Node | None  # None: a lease on nothing (the cache is off)
    matched: int = 0  # tokens whose keys were found, where more of them were than states (stateful.py)
    pinned: Node | None = None  # whose state is kept as long as the lease


class Peeked(NamedTuple):
    lengths: list[int]  # cached tokens of each
    num_leased: int  # tokens of all that take no memory, because others lease them; what several share counts once


class PrefixCache:
    """The KV pool's book-keeping. free + tree (locked or not) + what requests own = total, always."""

    def __init__(self, pages: PageAllocator, enabled: bool = True) -> None:
        self._pages = pages
        self.tree = RadixTree(pages.page_size)
        self.enabled = enabled
        self.page_size = pages.page_size
        self.total_tokens = pages.num_pages * pages.page_size
        self.evicted_tokens = 0

    @property
    def can_hold(self) -> bool:
        """Whether clients may hold prefixes."""
        return self.enabled

    @property
    def copies(self) -> bool:
        """Whether what a request finds is copied to slots of its own."""
        return False

    @property
    def free_tokens(self) -> int:
        return self._pages.num_free * self.page_size

    @property
    def available_tokens(self) -> int:
        """What could be allocated now: free, or cached and not locked."""
        return self.free_tokens + self.tree.evictable_tokens

    @property
    def tree_tokens(self) -> int:
        return self.tree.evictable_tokens + self.tree.locked_tokens

    def peek(self, tokens: Ints, namespace: Namespace) -> int:
        """Cached tokens of a prompt, of which at least the last token must still be computed."""
        return self.tree.match_length(tokens[:-1], namespace) if self.enabled else 0

    def find(self, tokens: Ints) -> tuple[list[tuple[Node, int]], int]:
        """Where a prompt without adapter and salt is cached, as `RadixTree.walk`, and what a request would be given.
        Of namespaces of keys, the one that has most of it counts. Changes nothing.
        """
        roots = self.tree.newest_roots(MAX_LOOKED_THROUGH)
        plain = [root.namespace for root in roots if not any(root.namespace[:3])] or [()]
        namespace = max(plain, key=lambda each: self.tree.match_length(tokens, each))
        return list(self.tree.walk(tokens, namespace)), self.peek(tokens, namespace)

    def peek_keys(self, tokens: Ints, namespace: Namespace) -> int:
        """The tokens that `peek` counts, whether or not all that a model needs is there with the keys (stateful.py)."""
        return self.tree.match_length(tokens[:-1], namespace) if self.enabled else 0

    def acquire(self, tokens: Ints, namespace: Namespace) -> tuple[Lease, Ints]:
        """Lease the longest cached prefix of tokens[:-1]; also its slots. [lease.length]"""
        return self.acquire_all(tokens[:-1], namespace)

    def acquire_all(self, tokens: Ints, namespace: Namespace) -> tuple[Lease, Ints]:
        """Lease as `acquire` does, of tokens after which nothing is drawn: all of them may be cached."""
        if not self.enabled:
            return Lease(0, namespace, None), NO_SLOTS
        node, slots = self.tree.match(tokens, namespace)
        self.tree.lock(node)
        return Lease(len(slots), namespace, node), slots

    def share(self, lease: Lease) -> Lease:
        """Another lease on the same prefix."""
        if lease.node is not None:
            self.tree.lock(lease.node)
        return replace(lease)

    def want(self, tokens: Ints, namespace: Namespace) -> Node:
        """Find a prompt as `peek` does: until `unwant`, what is cached of it is evicted after what nobody waits for."""
        return self.tree.want(tokens[:-1], namespace)

    def is_longest(self, end: Node | None, num_losses: int, page: bytes, namespace: Namespace) -> bool:
        """Whether a match is the longest one still: it ended at `end` (None: nothing was cached), which had lost its
        end so often, and `page` follows. False: it may be.
        """
        if end is None:
            return not self.tree.has_root_with(page, namespace)
        return end.num_losses == num_losses and page not in end.children

    def unwant(self, node: Node) -> None:
        self.tree.unwant(node)

    def hold(self, tokens: Ints, namespace: Namespace) -> Lease:
        """Lease a prefix that is published, whole pages, whatever requests go on with it."""
        return self._lease_on(tokens, namespace)

    def shorten(self, lease: Lease, tokens: Ints) -> Lease:
        """A lease on the whole pages among `tokens`, which `lease` begins with; that one is the caller's to release."""
        kept = len(tokens) - len(tokens) % self.page_size
        assert kept <= lease.length, f"{kept} tokens of a lease on {lease.length}"
        return self._lease_on(tokens[:kept], lease.namespace) if lease.node is not None else lease

    def is_sole(self, lease: Lease) -> bool:
        """Whether its release lets something be evicted: no other lease is on its end, or on anything beyond."""
        return lease.node is not None and lease.node.locks == 1

    def tokens_of(self, leases: Iterable[Lease]) -> int:
        """What they hold together; a prefix of several counts once."""
        seen, num = set[Node](), 0
        for lease in leases:
            node = lease.node
            while node is not None and node not in seen:
                seen.add(node)
                num += len(node.run)
                node = node.parent
        return num

    def peek_each(self, before: Ints, afters: Sequence[Ints], namespace: Namespace) -> Peeked:
        """Peek at `before` (whole pages) with each of `afters`, after which nothing is drawn."""
        if not self.enabled:
            return Peeked([0] * len(afters), 0)
        shared, each = self.tree.walk_each(before, afters, namespace)
        length = sum(common for _, common in shared)
        leased: dict[Node, int] = {}
        for node, common in chain(shared, *each):
            if node.locks and not self.copies:
                leased[node] = max(common, leased.get(node, 0))
        return Peeked([length + sum(common for _, common in path) for path in each], sum(leased.values()))

    def release(self, lease: Lease) -> None:
        if lease.node is not None:
            self.tree.unlock(lease.node)

    def publish(self, lease: Lease, tokens: Ints, slots: Ints) -> tuple[Lease, Ints]:
        """Give the computed `tokens` to the tree, as far as they fill pages. Returns the longer lease, and duplicates.

        tokens and slots are [n], n >= lease.length. WRITES slots where the tree had the same tokens already: there they
        are now the tree's, and the caller's own are returned, to be freed when nothing reads them any more.
        """
        kept = len(tokens) - len(tokens) % self.page_size
        if lease.node is None or kept <= lease.length:
            return lease, NO_SLOTS
        node, present = self.tree.insert(tokens[:kept], slots[:kept], lease.namespace)
        self.tree.lock(node)
        self.tree.unlock(lease.node)
        duplicates = NO_SLOTS
        if present > lease.length:
            duplicates = slots[lease.length : present].copy()
            slots[lease.length : present] = self._prefix_slots(node, kept)[lease.length : present]
        return Lease(kept, lease.namespace, node), duplicates

    def take_copies(self) -> list[tuple[Ints, Ints]]:
        """(from, to) of slots whose keys and values the next batch copies, in this order, before it writes any."""
        return []

    def allocate(self, num_pages: int) -> Ints | None:
        """Slots of `num_pages` fresh pages, evicting cached prefixes if need be; None if even that is not enough."""
        missing = num_pages * self.page_size - self.free_tokens
        if missing > 0:
            if missing > self.tree.evictable_tokens:
                return None
            self._evict(missing)
        pages = self._pages.allocate(num_pages)
        assert pages is not None, f"{num_pages} pages promised, {self._pages.num_free} free"
        return self._pages.slots_of(pages)

    def free(self, slots: Ints) -> None:
        """Give back whole pages that the caller owns."""
        if len(slots):
            self._pages.free(self._pages.pages_of(slots))

    def drop_unleased(self) -> None:
        """Let nobody find what is not leased. It takes memory until `free_dropped` has freed it, or others need it."""
        self.tree.drop_unlocked()

    @property
    def has_dropped(self) -> bool:
        """Some of what was dropped takes memory still."""
        return bool(self.tree.dropped)

    def free_dropped(self, max_nodes: int = MAX_FREED) -> None:
        """Free the memory of some nodes."""
        self._take_evicted(self.tree.take_dropped(max_nodes))

    def beyond(self, tokens: Ints, namespace: Namespace, start: int) -> list[Node]:
        """Nodes that are for `withdraw`: what begins with more than the first `start` of `tokens`, to whole pages."""
        return self.tree.beyond(tokens, start - start % self.page_size, namespace) if self.enabled else []

    def withdraw(self, nodes: Iterable[Node]) -> None:
        """Nobody finds these, or what is below them, from now on. What is leased stays until it is evicted."""
        for node in nodes:
            self._take_evicted(self.tree.withdraw(node))

    def _lease_on(self, tokens: Ints, namespace: Namespace) -> Lease:
        node, slots = self.tree.match(tokens, namespace)
        assert len(slots) == len(tokens), f"{len(slots)} of {len(tokens)} tokens are cached"
        self.tree.lock(node)
        return Lease(len(slots), namespace, node)

    def _evict(self, num_tokens: int) -> None:
        self._take_evicted(self.tree.evict(num_tokens))

    def _take_evicted(self, freed: Sequence[Ints]) -> None:
        if freed:
            slots = np.concatenate(freed)
            self.evicted_tokens += len(slots)
            self._pages.free(self._pages.pages_of(slots))

    @staticmethod
    def _prefix_slots(node: Node, length: int) -> Ints:
        """The tree's slots of the whole prefix that ends at `node`. [length]"""
        pieces = []
        at: Node | None = node
        while at is not None:
            pieces.append(at.slots)
            at = at.parent
        slots = np.concatenate(pieces[::-1])
        assert len(slots) == length, (len(slots), length)
        return slots
