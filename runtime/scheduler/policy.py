"""The order of the waiting queue. Knows the tree, not the pools. Section 5.2 and Algorithm 1 of the SGLang paper.

lpm (longest prefix match), dfs-weight (depth first through the tree, heaviest subtree first), fcfs (arrival), lof
(longest output first), random. Ties go by arrival. A higher priority goes before any policy, and a request that has
waited longer than `max_wait_s` before both, so nobody starves. The policy chooses among the WINDOW highest priorities
and earliest arrivals, so that a long queue does not cost a look-up in the tree for everybody at every step.
"""

import random
from collections import Counter

from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.cache.radix import Node, RadixTree
from ramet.runtime.request import Request
from ramet.runtime.scheduler.waiting import WaitingQueue

WINDOW = 512  # requests
MIN_SHARED = 32  # tokens: a shared prefix shorter than this is not worth waiting for


class Policy:
    """Orders requests by `name`; `max_wait_s` bounds how long an order may pass somebody over."""

    def __init__(self, name: str, cache: PrefixCache, max_wait_s: float, seed: int) -> None:
        self._order = {
            "lpm": self._longest_prefix,
            "dfs-weight": self._depth_first,
            "fcfs": self._arrival,
            "lof": self._longest_output,
            "random": self._random,
        }[name]
        self._cache = cache
        self._max_wait_s = max_wait_s
        self._rng = random.Random(seed)

    def order(self, waiting: WaitingQueue, now_s: float) -> list[Request]:
        late = [r for r in waiting.first(WINDOW) if now_s - r.arrival_s > self._max_wait_s]
        passed = {r.uid for r in late}
        rest = self._order([r for r in waiting.highest(WINDOW) if r.uid not in passed])
        return late + sorted(rest, key=lambda r: r.rank[0])  # keeps the policy's order among equals

    def matched(self, request: Request) -> int:
        """Cached tokens of a waiting request, looked up again only when the tree has changed."""
        if request.match_version != self._cache.version:
            request.match_length = self._cache.peek(request.reusable, request.spec.namespace)
            request.match_version = self._cache.version
        return request.match_length

    def _arrival(self, requests: list[Request]) -> list[Request]:
        return requests

    def _longest_prefix(self, requests: list[Request]) -> list[Request]:
        return sorted(requests, key=lambda r: -self.matched(r))

    def _longest_output(self, requests: list[Request]) -> list[Request]:
        return sorted(requests, key=lambda r: -r.remaining)

    def _random(self, requests: list[Request]) -> list[Request]:
        shuffled = list(requests)
        self._rng.shuffle(shuffled)
        return shuffled

    def _depth_first(self, requests: list[Request]) -> list[Request]:
        """A node weighs as many requests as wait below it. Deeper requests of a subtree go before shallower ones."""
        tree = self._cache.tree
        paths = {r.uid: tree.path(r.reusable[:-1], r.spec.namespace) for r in requests}
        weight = Counter(node for path in paths.values() for node in path)
        rank: dict[Node, int] = {}
        for request in requests:
            for node in paths[request.uid]:
                rank.setdefault(node, len(rank))  # the subtree of the earliest request goes first among equals
        return sorted(requests, key=lambda r: [*((-weight[n], rank[n]) for n in paths[r.uid]), (1, 0)])


class UnpublishedPrefixes:
    """Prefixes that are being computed and are not in the tree yet: requests that share one wait for it."""

    def __init__(self, page_size: int) -> None:
        self._tree = RadixTree(page_size)

    def add(self, request: Request) -> None:
        known = request.tokens
        whole = known[: len(known) - len(known) % self._tree.page_size]
        self._tree.insert(whole, whole, request.spec.namespace)  # the slots do not matter here

    def worth_waiting(self, request: Request, matched: int) -> int:
        """Tokens that `request` would find cached if it waited, beyond those that are; 0 when it is not worth it."""
        gain = self._tree.match_length(request.reusable[:-1], request.spec.namespace) - matched
        return gain if gain >= MIN_SHARED else 0
