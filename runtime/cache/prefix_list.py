"""The cache without a tree: a list of whole sequences, each with slots of its own. What the tree is measured against.

A request gets the longest prefix that any entry has, found by looking at all of them, as a copy: it leases an entry
that it alone extends, so equal prefixes are in memory as often as requests had them. "No Radix Tree" in section 6.4.2
of the SGLang paper, which names the price: memory, and copies. Outputs are those of the tree. Clients hold no prefixes
here (`can_hold`): an entry grows with its request, and a client's lease may not.

    entry a   [0 .................. 900)     another request wants its first 600 tokens
    entry b   [0 ........ 600)               new, 600 slots; the next batch copies keys and values into them first
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.cache.edges import Path
from ramet.runtime.cache.node import Namespace, Node
from ramet.runtime.cache.prefix import NO_SLOTS, Lease, PageAllocator, PrefixCache
from ramet.runtime.cache.radix import RadixTree


def make_cache(kind: str, pages: PageAllocator, enabled: bool) -> PrefixCache:
    """`kind` is tree or list, of models without states."""
    return ListCache(pages) if enabled and kind == "list" else PrefixCache(pages, enabled)


class SequenceList(RadixTree):
    """Sequences side by side below the root of their namespace; none is ever split."""

    def add(self, root: Node, tokens: Ints, slots: Ints) -> Node:
        return self._grow(root, tokens.copy(), slots.copy())

    def extend(self, entry: Node, tokens: Ints, slots: Ints) -> None:
        """`entry`, which is locked, goes on: `tokens` and `slots` begin with its own."""
        assert entry.locks and len(tokens) > len(entry.run), (entry.locks, len(tokens), len(entry.run))
        self.locked_tokens += len(tokens) - len(entry.run)
        entry.run, entry.slots = tokens.copy(), slots.copy()
        self.clock += 1
        self._touch(entry)
        self.version += 1
        if self.watch is not None:
            self.watch.note(entry)

    def drop(self, entry: Node) -> Ints:
        """Forget an entry that nobody leases; its slots are the caller's."""
        self._remove(entry)
        return entry.slots

    def beyond(self, tokens: Ints, start: int, namespace: Namespace) -> list[Node]:
        found = self._roots.get(namespace)
        entries = [] if found is None or start >= len(tokens) else list(found.children.values())
        return [each for each in entries if not each.withdrawn and self._common(each.run, tokens) > start]

    def _walk_each_from(self, root: Node, before: Ints, afters: Sequence[Ints]) -> tuple[Path, list[Path]]:
        return [], [list(self._walk_from(root, np.concatenate([before, after]))) for after in afters]

    def _walk_from(self, root: Node, tokens: Ints) -> Iterator[tuple[Node, int]]:
        """The entry with the longest prefix of `tokens`, which may go on beyond it."""
        best: tuple[Node, int] | None = None
        for entry in root.children.values() if len(tokens) else ():
            if entry.run[0] == tokens[0] and not entry.withdrawn:
                common = self._common(entry.run, tokens)
                if common and (best is None or common > best[1]):
                    best = entry, common
        if best is not None:
            yield best

    def _part(self, node: Node, at: int) -> tuple[Node, Ints]:
        return node, node.slots[:at]

    def _key(self, node: Node) -> bytes:
        return id(node).to_bytes(8)


class ListCache(PrefixCache):
    """A lease is on an entry of its own, which nobody else writes; others copy from it."""

    def __init__(self, pages: PageAllocator) -> None:
        super().__init__(pages)
        self.tree = self._list = SequenceList(pages.page_size)
        self._copies: dict[Node, tuple[Ints, Ints]] = {}  # entry -> (from, to) that no batch has taken, in this order

    @property
    def can_hold(self) -> bool:
        return False

    @property
    def copies(self) -> bool:
        return True

    def acquire_all(self, tokens: Ints, namespace: Namespace) -> tuple[Lease, Ints]:
        """A lease on a copy of what is found; without memory for a copy, on nothing."""
        lease, slots = super().acquire_all(tokens, namespace)
        source = lease.node
        if source is None or source.parent is None:
            return lease, slots
        root, own = source.parent, self.allocate(len(slots) // self.page_size)
        entry = root if own is None else self._list.add(root, source.run[: len(own)], own)
        self._list.lock(entry)
        self._list.unlock(source)  # its slots may be taken from here on: the copy is made before anything is written
        if own is None:
            return replace(lease, length=0, node=root), NO_SLOTS
        self._copies[entry] = slots.copy(), own
        return replace(lease, node=entry), own

    def is_longest(self, end: Node | None, num_losses: int, page: bytes, _: Namespace) -> bool:
        return False  # any entry may be longer now

    def release(self, lease: Lease) -> None:
        """A copy that was never made goes with its lease."""
        super().release(lease)
        if lease.node in self._copies:
            del self._copies[lease.node]
            self.free(self._list.drop(lease.node))

    def publish(self, lease: Lease, tokens: Ints, slots: Ints) -> tuple[Lease, Ints]:
        """Publish as the tree does; there are no duplicates. A lease that was shortened publishes nothing more."""
        kept, entry = len(tokens) - len(tokens) % self.page_size, lease.node
        if entry is None or kept <= lease.length or len(entry.run) != lease.length:
            return lease, NO_SLOTS
        if entry.parent is not None:
            self._list.extend(entry, tokens[:kept], slots[:kept])
        else:
            root, entry = entry, self._list.add(entry, tokens[:kept], slots[:kept])
            self._list.lock(entry)
            self._list.unlock(root)
        return replace(lease, length=kept, node=entry), NO_SLOTS

    def shorten(self, lease: Lease, tokens: Ints) -> Lease:
        kept = len(tokens) - len(tokens) % self.page_size
        assert kept <= lease.length and lease.node is not None, f"{kept} tokens of a lease on {lease.length}"
        self._list.lock(lease.node)
        return replace(lease, length=kept)

    def take_copies(self) -> list[tuple[Ints, Ints]]:
        copies, self._copies = self._copies, {}
        return list(copies.values())
