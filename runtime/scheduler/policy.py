"""The order of the waiting queue: lpm (longest prefix match), dfs-weight, fcfs, lof or random.

Section 3 of the SGLang paper. dfs-weight goes depth first through the tree, heaviest subtree first; fcfs is by arrival,
lof longest output first. Ties go by arrival. A higher priority goes before any policy, and now and then the oldest
request before both. The policy chooses among the WINDOW highest priorities and earliest arrivals, so that a long queue
does not cost a look-up in the tree for everybody at every step.
"""

import random
from collections import Counter

from ramet.ipc.message import Uid
from ramet.runtime.cache.node import Node
from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.scheduler.queue import WaitingQueue
from ramet.runtime.scheduler.request import Request

WINDOW = 512  # requests


AGED_EVERY = 64  # admissions; more often, a policy's groups drive each other out of the cache


class Policy:
    """Orders requests by `name`. The oldest goes first if it has waited longer than `max_wait_s`, whatever its
    priority, once in AGED_EVERY admissions: in a backlog everybody is old, and an order by arrival alone would compute
    shared prefixes again and again.
    """

    def __init__(self, name: str, cache: PrefixCache, max_wait_s: float, seed: int) -> None:
        self._order = {
            "lpm": self._longest_prefix,
            "dfs-weight": self._depth_first,
            "fcfs": self._arrival,
            "lof": self._longest_output,
            "random": self._random,
        }[name]
        self._cache, self._is_longest = cache, cache.is_longest
        self._max_wait_s = max_wait_s
        self._num_since_aged = AGED_EVERY  # admissions since the last one by age
        self._aged: Uid | None = None  # who goes first in the last order because of its age
        self._rng = random.Random(seed)

    def order(self, waiting: WaitingQueue, now_s: float) -> list[Request]:
        """Of a queue that is not empty."""
        highest = waiting.highest(WINDOW)
        ordered = self._order(highest)
        if highest[0].spec.priority != highest[-1].spec.priority:
            ordered = sorted(ordered, key=lambda r: -r.spec.priority)  # the policy's among equals
        self._aged = None
        oldest = waiting.first(1)[0]
        if self._num_since_aged < AGED_EVERY or now_s - oldest.arrival_s <= self._max_wait_s:
            return ordered
        self._aged = oldest.uid
        return [oldest, *(r for r in ordered if r is not oldest)]

    def is_aged(self, request: Request) -> bool:
        """It went first in the last order because of its age."""
        return request.uid == self._aged

    def admitted(self, request: Request) -> None:
        """A request of the last order runs."""
        self._num_since_aged = 0 if self.is_aged(request) else self._num_since_aged + 1

    def matched(self, request: Request) -> int:
        """Cached tokens of a waiting request, looked up again only where the tree has changed; it waits for them."""
        match, tree = request.match, self._cache.tree
        if match.version != tree.version:
            known = match.version >= tree.dropped_version
            if not (known and self._is_longest(match.end, match.losses, match.next_page, request.namespace)):
                self._look_up(request)
            match.version = tree.version
        return match.length

    def _look_up(self, request: Request) -> None:
        tokens, namespace, match = request.reusable, request.namespace, request.match
        if match.end is not None:
            self._cache.unwant(match.end)
            match.end = None
        match.length = self._cache.peek(tokens, namespace)
        if match.length:
            match.end = self._cache.want(tokens, namespace)
            match.losses = match.end.num_losses
        match.next_page = tokens[:-1][match.length : match.length + self._cache.page_size].tobytes()

    def _arrival(self, requests: list[Request]) -> list[Request]:
        return requests

    def _longest_prefix(self, requests: list[Request]) -> list[Request]:
        return sorted(requests, key=self.matched, reverse=True)  # which keeps the order of equals

    def _longest_output(self, requests: list[Request]) -> list[Request]:
        return sorted(requests, key=lambda r: -r.remaining)

    def _random(self, requests: list[Request]) -> list[Request]:
        shuffled = list(requests)
        self._rng.shuffle(shuffled)
        return shuffled

    def _depth_first(self, requests: list[Request]) -> list[Request]:
        """A node weighs as many requests as wait below it. Deeper requests of a subtree go before shallower ones."""
        tree = self._cache.tree
        paths = {r.uid: tree.path(r.reusable[:-1], r.namespace) for r in requests}
        weight = Counter(node for path in paths.values() for node in path)
        rank: dict[Node, int] = {}
        for request in requests:
            for node in paths[request.uid]:
                rank.setdefault(node, len(rank))  # the subtree of the earliest request goes first among equals
        return sorted(requests, key=lambda r: [*((-weight[n], rank[n]) for n in paths[r.uid]), (1, 0)])
