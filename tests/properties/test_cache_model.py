"""The tree and the pages against a ten-line model: a set of known prefixes and a count of slots.

The model knows which token prefixes were ever published and which slot each position of a live request must read. It
does not know nodes, splits or leaves. Every check is against what a client of PrefixCache can observe.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from samples import examples

from ramet.runtime.cache.node import Node
from ramet.runtime.cache.prefix import Lease, PageAllocator, PrefixCache
from ramet.runtime.cache.prefix_list import make_cache

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=40)
NAMESPACES = st.sampled_from([(), ("a",), ("b",)])


class Held:
    """A request as the cache sees it: tokens, slots, a lease."""

    def __init__(self, tokens: list[int], namespace: tuple[str, ...], lease: Lease, slots: np.ndarray) -> None:
        self.tokens, self.namespace, self.lease, self.slots = tokens, namespace, lease, slots


class CacheMachine(RuleBasedStateMachine):
    page_size = 1
    num_pages = 60
    kind = "tree"
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.cache: PrefixCache = make_cache(self.kind, PageAllocator(self.num_pages, self.page_size), True)
        self.live: list[Held] = []
        self.client_leases: list[tuple[Lease, list[int]]] = []
        self.waiting: list[Node] = []  # where prefixes end that somebody waits for
        # the model: what each slot of the pool was last written for: (namespace, tokens up to and including it)
        self.written: dict[int, tuple[tuple[str, ...], tuple[int, ...]]] = {}

    def _write(self, h: Held, start: int) -> None:
        for i in range(start, len(h.tokens)):
            self.written[int(h.slots[i])] = (h.namespace, tuple(h.tokens[: i + 1]))

    @rule(target=held, tokens=TOKENS, namespace=NAMESPACES)
    def admit(self, tokens: list[int], namespace: tuple[str, ...]) -> Held | None:
        array = np.array(tokens, dtype=np.int32)
        peeked = self.cache.peek(array, namespace)
        lease, prefix = self.cache.acquire(array, namespace)
        assert lease.length == len(prefix) <= peeked <= len(tokens) - 1
        assert lease.length == peeked or self.no_memory_for_a_copy(array[:-1], namespace, peeked)
        missing = -(-len(tokens) // self.page_size) - lease.length // self.page_size
        own = self.cache.allocate(missing)
        if own is None:
            assert missing * self.page_size > self.cache.available_tokens
            self.cache.release(lease)
            assert not self.cache.take_copies(), "a copy is made for nobody"
            return None
        for source, target in self.cache.take_copies():
            self.written.update(zip(target.tolist(), [self.written[slot] for slot in source.tolist()], strict=True))
        h = Held(tokens, namespace, lease, np.concatenate([prefix, own]))
        for i in range(lease.length):  # a cached slot holds exactly this prefix, computed in this namespace
            assert self.written[int(h.slots[i])] == (namespace, tuple(tokens[: i + 1]))
        self._write(h, lease.length)
        self.live.append(h)
        return h

    @rule(tokens=TOKENS, namespace=NAMESPACES)
    def want(self, tokens: list[int], namespace: tuple[str, ...]) -> None:
        self.waiting.append(self.cache.want(np.array(tokens, dtype=np.int32), namespace))

    @precondition(lambda self: self.waiting)
    @rule()
    def unwant(self) -> None:
        self.cache.unwant(self.waiting.pop(0))

    @invariant()
    def every_wait_is_counted_once(self) -> None:
        wanted: Counter[Node] = Counter()
        for waited in self.waiting:
            node: Node | None = waited
            while node is not None:
                wanted[node] += 1
                node = node.parent
        assert all(node.wanted == wanted[node] for node in self.cache.tree.nodes())

    def no_memory_for_a_copy(self, tokens: np.ndarray, namespace: tuple[str, ...], length: int) -> bool:
        """Beside the entry that is copied, which may be longer than what is copied of it."""
        [(source, _)] = self.cache.tree.walk(tokens, namespace)
        kept = 0 if source.locks else len(source.run)
        return self.kind == "list" and length > self.cache.available_tokens - kept

    @rule(h=held, extra=TOKENS)
    def grow(self, h: Held | None, extra: list[int]) -> None:
        if h is None or h not in self.live:
            return
        more = -(-(len(h.tokens) + len(extra)) // self.page_size) - len(h.slots) // self.page_size
        own = self.cache.allocate(more) if more > 0 else np.empty(0, dtype=np.int32)
        if own is not None:
            start = len(h.tokens)
            h.tokens = h.tokens + extra
            h.slots = np.concatenate([h.slots, own])
            self._write(h, start)

    @rule(h=held)
    def publish(self, h: Held | None) -> None:
        if h is None or h not in self.live:
            return
        n = len(h.tokens)
        h.lease, duplicates = self.cache.publish(h.lease, np.array(h.tokens, dtype=np.int32), h.slots[:n])
        self.cache.free(duplicates)
        assert h.lease.length == n - n % self.page_size
        assert self.cache.peek(np.array([*h.tokens, 9], dtype=np.int32), h.namespace) >= h.lease.length

    @rule(h=held)
    def hold(self, h: Held | None) -> None:
        """A client holds what a request has published."""
        if h is not None and h in self.live and h.lease.length and self.cache.can_hold:
            lease = self.cache.hold(np.array(h.tokens[: h.lease.length], dtype=np.int32), h.namespace)
            self.client_leases.append((lease, h.tokens[: h.lease.length]))

    @precondition(lambda self: self.client_leases)
    @rule(data=st.data())
    def end_a_hold(self, data: st.DataObject) -> None:
        lease, _ = self.client_leases.pop(data.draw(st.integers(0, len(self.client_leases) - 1)))
        others = [each for each, _ in self.client_leases]
        leases = [*others, *(h.lease for h in self.live)]
        before, gives = self.cache.available_tokens, self.cache.is_sole(lease)
        freed = self.cache.tokens_of([*leases, lease]) - self.cache.tokens_of(leases)
        self.cache.release(lease)
        assert self.cache.available_tokens == before + freed
        assert freed > 0 or not gives

    @rule(h=consumes(held), publish=st.booleans())
    def leave(self, h: Held | None, publish: bool) -> None:
        if h is None or h not in self.live:
            return
        if publish:
            self.publish(h)
        self.cache.free(h.slots[h.lease.length :])
        self.cache.release(h.lease)
        self.live.remove(h)

    @rule(pages=st.integers(1, 30))
    def squeeze(self, pages: int) -> None:
        """Somebody else needs memory for a moment: cached prefixes go, leased ones stay."""
        slots = self.cache.allocate(pages)
        if slots is not None:
            self.cache.free(slots)

    @rule(tokens=TOKENS, namespace=NAMESPACES)
    def drop(self, tokens: list[int], namespace: tuple[str, ...]) -> None:
        """Nothing is found from here on but what is leased."""
        available = self.cache.available_tokens
        self.cache.drop_unleased()
        leases = [*(h.lease for h in self.live), *(lease for lease, _ in self.client_leases)]
        assert self.cache.available_tokens == available
        found, _ = self.cache.find(np.array(tokens, dtype=np.int32))
        assert all(node.locks for node, _ in found)
        if not any(lease.namespace == namespace for lease in leases):
            assert not self.cache.peek(np.array([*tokens, 9], dtype=np.int32), namespace)

    @precondition(lambda self: self.cache.has_dropped)
    @rule(num=st.integers(1, 3))
    def free_some_of_what_was_dropped(self, num: int) -> None:
        free = self.cache.free_tokens
        self.cache.free_dropped(num)
        assert self.cache.free_tokens >= free

    @precondition(lambda self: not self.live and not self.client_leases)
    @rule()
    def free_all(self) -> None:
        self.cache.drop_unleased()
        while self.cache.has_dropped:
            self.cache.free_dropped(2)
        assert self.cache.free_tokens == self.cache.total_tokens

    @invariant()
    def no_slot_is_lost_and_none_used_twice(self) -> None:
        owned = Counter(int(s) for h in self.live for s in h.slots[h.lease.length :])
        tree = Counter(int(s) for node in self.cache.tree.nodes() for s in node.slots)
        assert max((owned + tree).values(), default=1) == 1
        assert len(owned) + len(tree) + self.cache.free_tokens == self.cache.total_tokens
        assert len(tree) == self.cache.tree_tokens
        leased = {int(s) for h in self.live for s in h.slots[: h.lease.length]}
        assert leased <= set(tree) and len(leased) <= self.cache.tree.locked_tokens
        assert min([*owned, *tree], default=self.page_size) >= self.page_size, "page 0 was handed out"

    @invariant()
    def every_live_request_reads_what_was_computed_for_it(self) -> None:
        for h in self.live:
            for i in range(len(h.tokens)):
                assert self.written[int(h.slots[i])] == (h.namespace, tuple(h.tokens[: i + 1]))

    @invariant()
    def exactly_the_leases_are_locked(self) -> None:
        leases = [h.lease for h in self.live] + [lease for lease, _ in self.client_leases]
        assert self.cache.tree.locked_tokens == self.cache.tokens_of(leases)

    @invariant()
    def what_clients_hold_stays_cached(self) -> None:
        for lease, tokens in self.client_leases:
            assert self.cache.peek(np.array([*tokens, 9], dtype=np.int32), lease.namespace) >= len(tokens)


class CacheMachine16(CacheMachine):
    page_size = 16
    num_pages = 8


class CacheMachine64(CacheMachine):
    page_size = 64
    num_pages = 4


class ListMachine(CacheMachine):
    kind = "list"


class ListMachine16(CacheMachine16):
    kind = "list"


BUDGET = examples(20, 1500, stateful_step_count=150)  # in `make test` 2 x 3,000 operations at most
TestCachePage1 = pytest.mark.timeout(1800)(CacheMachine.TestCase)
TestCachePage1.settings = BUDGET
TestCachePage16 = pytest.mark.timeout(1800)(CacheMachine16.TestCase)
TestCachePage16.settings = BUDGET
TestCachePage64 = pytest.mark.timeout(1800)(CacheMachine64.TestCase)
TestCachePage64.settings = BUDGET
TestListPage1 = pytest.mark.timeout(1800)(ListMachine.TestCase)
TestListPage1.settings = BUDGET
TestListPage16 = pytest.mark.timeout(1800)(ListMachine16.TestCase)
TestListPage16.settings = BUDGET
