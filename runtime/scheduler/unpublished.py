"""Prefixes that running requests compute and that are not in the tree yet: a request that shares one waits for it.

Each request is announced once, until it is computed or has left. A feature may announce other prefixes in the place of
the request's tokens, once for all requests with the same key: there may be a thousand. Knows no memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ramet.ipc.message import Uid
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Namespace, Node
from ramet.runtime.cache.radix import RadixTree
from ramet.runtime.scheduler.request import Request

MIN_SHARED = 32  # tokens: a shared prefix shorter than this is not worth waiting for, nor is a shorter prompt announced
Key = Uid | Namespace
Announcement = tuple[Namespace, Iterable[Ints]]  # the key of requests that are announced as one, and their prefixes


@dataclass(slots=True)
class _Announced:
    ends: list[Node]  # locked
    uids: set[Uid] = field(default_factory=set)


class UnpublishedPrefixes:
    def __init__(self, page_size: int) -> None:
        self._tree = RadixTree(page_size)  # its slots do not matter
        self._announced: dict[Key, _Announced] = {}
        self._keys: dict[Uid, Key] = {}

    def keep_only(self, computing: Sequence[tuple[Request, Namespace]]) -> None:
        """These are being computed, each to be cached in its namespace, and no others."""
        for uid in self._keys.keys() - {request.uid for request, _ in computing}:
            self._forget(uid)
        self._tree.evict(self._tree.evictable_tokens)
        self.add(computing)

    def add(self, computing: Iterable[tuple[Request, Namespace]]) -> None:
        """These are being computed as well."""
        for request, namespace in computing:
            if request.uid not in self._keys:
                self._announce(request, namespace)

    def has(self, key: Namespace) -> bool:
        """A request is announced under this key, which begins with its namespace."""
        return key in self._announced

    def worth_waiting(self, tokens: Ints, namespace: Namespace, matched: int) -> int:
        """Tokens that a prompt would find cached if it waited, beyond those that are; 0 when it is not worth it."""
        if len(tokens) <= MIN_SHARED:
            return 0
        gain = self._tree.match_length(tokens[:-1], namespace) - matched
        return gain if gain >= MIN_SHARED else 0

    def match_lengths(self, before: Ints, each: Sequence[Ints], namespace: Namespace) -> Sequence[int]:
        """Tokens that are announced of each of these sequences, which all begin with `before`."""
        return self._tree.match_lengths(before, each, namespace)

    def _announce(self, request: Request, namespace: Namespace) -> None:
        made = [each.announces(request) for each in request.asked]
        own = next((each for each in made if each is not None), None)
        if own is None and len(request.tokens) < MIN_SHARED:
            return
        key = self._keys[request.uid] = request.uid if own is None else namespace + own[0]
        if key not in self._announced:
            prefixes = [request.tokens] if own is None else own[1]
            self._announced[key] = _Announced([self._insert(each, namespace) for each in prefixes])
        self._announced[key].uids.add(request.uid)

    def _insert(self, tokens: Ints, namespace: Namespace) -> Node:
        whole = tokens[: len(tokens) - len(tokens) % self._tree.page_size]
        end, _ = self._tree.insert(whole, whole, namespace)
        self._tree.lock(end)
        return end

    def _forget(self, uid: Uid) -> None:
        key = self._keys.pop(uid)
        announced = self._announced[key]
        announced.uids.remove(uid)
        if not announced.uids:
            del self._announced[key]
            for end in announced.ends:
                self._tree.unlock(end)
