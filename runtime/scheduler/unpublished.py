"""Prefixes that running requests compute and that are not in the tree yet: a request that shares one waits for it.

Each request is announced once, until it is computed or has left. Prompts that begin with the same contexts, of which
there may be a thousand, are announced as one. Knows no memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ramet.ipc.message import Uid
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Namespace, Node
from ramet.runtime.cache.radix import RadixTree
from ramet.runtime.scheduler.features.contexts import FirstGroup, RequestContexts
from ramet.runtime.scheduler.request import Request

MIN_SHARED = 32  # tokens: a shared prefix shorter than this is not worth waiting for, nor is a shorter prompt announced
Key = Uid | Namespace


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
            is_worth = len(request.tokens) >= MIN_SHARED or request.own.get(RequestContexts) is not None
            if is_worth and request.uid not in self._keys:
                self._announce(request, namespace)

    def has(self, first: FirstGroup, namespace: Namespace) -> bool:
        """A prompt that begins with it is announced."""
        return namespace + first.key in self._announced

    def worth_waiting(self, tokens: Ints, namespace: Namespace, matched: int) -> int:
        """Tokens that a prompt would find cached if it waited, beyond those that are; 0 when it is not worth it."""
        if len(tokens) <= MIN_SHARED:
            return 0
        gain = self._tree.match_length(tokens[:-1], namespace) - matched
        return gain if gain >= MIN_SHARED else 0

    def worth_waiting_for_contexts(self, first: FirstGroup, namespace: Namespace, matched: Sequence[int]) -> int:
        """As `worth_waiting`, of all contexts together. `matched`: of each, with what all begin with."""
        found, shared = self._tree.match_lengths(first.before, first.contexts, namespace), len(first.before)
        each = zip(found, matched, strict=True)
        gain = sum(max(0, max(length, shared) - max(known, shared)) for length, known in each)
        gain += max(0, min(found[0], shared) - min(matched[0], shared))
        return gain if gain >= MIN_SHARED else 0

    def _announce(self, request: Request, namespace: Namespace) -> None:
        contexts = request.own.get(RequestContexts)
        first = None if contexts is None else contexts.first
        key = self._keys[request.uid] = request.uid if first is None else namespace + first.key
        if key not in self._announced:
            prefixes = [request.tokens] if first is None else first.prefixes
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
