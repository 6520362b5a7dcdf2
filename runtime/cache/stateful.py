"""The cache of a model whose layers have states: a prefix ends at a snapshot of them, which are evicted by themselves.

Decides which prefix is handed out (the longest that ends at a snapshot), and which snapshot goes where a new one needs
its place: the least recently used that no client holds, and what somebody waits for after all others. A snapshot goes
with its node as well, never after it. Knows no request, and no tensor: a snapshot is a place of the state pool.

    prompt of a request   [0, lease)  found, with a snapshot at its end
                          [lease, matched)  keys are cached, a state is not: they are computed again
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Namespace, Node
from ramet.runtime.cache.prefix import NO_SLOTS, Lease, PageAllocator, PrefixCache


class StatefulCache(PrefixCache):
    """free + on nodes + taken = num_snapshots, always; `places` are numbered from `first_place` on."""

    def __init__(self, pages: PageAllocator, enabled: bool, num_snapshots: int, first_place: int) -> None:
        super().__init__(pages, enabled and num_snapshots > 0)
        self.num_snapshots = num_snapshots
        self._free = list(range(first_place + num_snapshots - 1, first_place - 1, -1))
        self._taken: set[int] = set()  # of those who write them
        self._kept: OrderedDict[Node, None] = OrderedDict()  # nodes with a snapshot, the least recently used first
        self._pins: Counter[Node] = Counter()
        self.evicted_snapshots = 0

    # -- prefixes ---------------------------------------------------------------------------------------------------

    def peek(self, tokens: Ints, namespace: Namespace) -> int:
        return self.longest(tokens[:-1], namespace)[1] if self.enabled else 0

    def longest(self, tokens: Ints, namespace: Namespace) -> tuple[Node | None, int]:
        """The deepest node with a snapshot that `tokens` reach the end of, and its length."""
        length = 0
        best: tuple[Node | None, int] = None, 0
        for node, common in self.tree.walk(tokens, namespace):
            length += common
            if node.state and common == len(node.run):
                best = node, length
        return best

    def acquire_all(self, tokens: Ints, namespace: Namespace) -> tuple[Lease, Ints]:
        if not self.enabled:
            return Lease(0, namespace, None), NO_SLOTS
        found, length = self.longest(tokens, namespace)
        matched = self.tree.match_length(tokens, namespace)
        node, slots = self.tree.match(tokens[:length], namespace)
        self.tree.lock(node)
        if found is not None:
            self._kept.move_to_end(found)
        return Lease(length, namespace, node, matched=matched), slots

    def want(self, tokens: Ints, namespace: Namespace) -> Node:
        return self.tree.want(tokens[: self.peek(tokens, namespace)], namespace)

    def is_longest(self, end: Node | None, num_losses: int, page: bytes, namespace: Namespace) -> bool:
        return False  # there may be a snapshot by now that was not there

    def hold(self, tokens: Ints, namespace: Namespace) -> Lease:
        return self._pinned(super().hold(tokens, namespace))

    def share(self, lease: Lease) -> Lease:
        return self._pinned(super().share(replace(lease, pinned=None)))

    def release(self, lease: Lease) -> None:
        if lease.pinned is not None:
            self._pins[lease.pinned] -= 1
            if not self._pins[lease.pinned]:
                del self._pins[lease.pinned]
        super().release(lease)

    def _pinned(self, lease: Lease) -> Lease:
        """The last snapshot of what is leased stays as long as the lease."""
        node = lease.node
        while node is not None and not node.state:
            node = node.parent
        if node is None:
            return lease
        self._pins[node] += 1
        return replace(lease, pinned=node)

    # -- snapshots --------------------------------------------------------------------------------------------------

    @property
    def num_kept(self) -> int:
        """Snapshots on nodes."""
        return len(self._kept)

    @property
    def num_taken(self) -> int:
        return len(self._taken)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def nodes_with_snapshots(self) -> list[Node]:
        return list(self._kept)

    def take_place(self) -> int | None:
        """For a new snapshot, in the place of another if need be; None: each is held or being written."""
        if not self.enabled:
            return None
        if not self._free:
            self._evict_snapshot()
        if not self._free:
            return None
        place = self._free.pop()
        self._taken.add(place)
        return place

    def give_back(self, place: int) -> None:
        """Free a place that was taken; nobody needs what is there."""
        self._taken.remove(place)
        self._free.append(place)

    def attach(self, tokens: Ints, namespace: Namespace, place: int) -> None:
        """What was taken has the state after `tokens`, whole pages that are published."""
        node, slots = self.tree.match(tokens, namespace)
        assert len(slots) == len(tokens), f"{len(slots)} of {len(tokens)} tokens are cached"
        if node.state:
            self.give_back(place)
        else:
            self._taken.remove(place)
            self.tree.set_state(node, place)
            self._kept[node] = None
        self._kept.move_to_end(node)

    def _evict_snapshot(self) -> None:
        free = [node for node in self._kept if not self._pins[node]]
        if free:
            node = next((each for each in free if not each.wanted), free[0])
            self._free.append(node.state)
            self.tree.set_state(node, 0)
            del self._kept[node]
            self.evicted_snapshots += 1

    def _take_evicted(self, freed: Sequence[Ints]) -> None:
        super()._take_evicted(freed)
        for node, place in self.tree.take_lost_states():
            del self._kept[node]
            self._free.append(place)
