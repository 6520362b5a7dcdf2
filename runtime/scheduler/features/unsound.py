"""Cached keys that may not be finite: they are withdrawn, and whoever has read them is computed once more.

Some tokens overflow in some models, and an attention kernel may multiply the value of a masked token by zero: then the
keys of earlier tokens, which others share, are not finite either. A long prompt has published its first chunks by the
time its logits are known, and one that draws nothing is never known to be broken. So two rules:

    not finite, and all that it read it has computed   ends; what it has published is withdrawn
    not finite, and others have computed some of that  computed once more, in a namespace of its own:
        finite now                                     what it had read of others is withdrawn
        not finite again                               ends; what others have computed stays

Requests that read something of what is withdrawn are retracted, and clients' leases on it end; a request that is not
finite gets no lease. Withdrawing waits until no step is in flight, and nothing is admitted before. Knows the cache, the
running set and the leases, not the policy.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from ramet.ipc.message import Uid
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Namespace, Node
from ramet.runtime.cache.prefix import Lease
from ramet.runtime.log import LOGGER
from ramet.runtime.scheduler.feature import MemoryShort, TurnFeature
from ramet.runtime.scheduler.features.assembly import request_of_part
from ramet.runtime.scheduler.features.contexts import Part
from ramet.runtime.scheduler.features.long_rope import prompt_namespace
from ramet.runtime.scheduler.features.parts import Parts
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet


class _Prefix(NamedTuple):
    tokens: Ints
    namespace: Namespace
    found: int  # the first of them, which others have computed

    @property
    def whole(self) -> "_Prefix":
        return self._replace(found=0)


class UnsoundPrefixes(TurnFeature):
    """`again`: requests that are to be computed once more, `work`: prefixes that are to be withdrawn."""

    def __init__(self, running: RunningSet, parts: Parts, leases: PrefixLeases) -> None:
        self._running, self._parts, self._leases = running, parts, leases
        self.again: list[RunningRequest] = []
        self.work: list[_Prefix] = []  # whoever is computed once more has some here as well
        self.apart: dict[Uid, list[_Prefix]] = {}  # what those that are computed once more have read before

    def may_end(self, computed: RunningRequest) -> bool:
        """What came of this request, or of a part of one, is not finite. False: the request is computed once more, and
        results of steps that are planned with it are dropped.
        """
        running = self._owner_of(computed)
        if running in self.again:
            return False
        prefixes = list(self._prefixes_of(running))
        self.work += prefixes
        if running.uid in self._leases.open:
            self._leases.withdraw(running.uid)
        request = running.request
        if request.flags & RowFlag.APART or not request.flags & RowFlag.READS_OTHERS:
            self.apart.pop(request.uid, None)  # what it had read of others stays
            return True
        LOGGER.warning(
            "request %d has results that are not finite: it is computed once more, from nothing", running.uid
        )
        self.again.append(running)
        self.apart[running.uid] = prefixes
        running.drop_results()
        return False

    def are_finite(self, uids: Iterable[int]) -> None:
        """So are their logits."""
        for uid in self.apart.keys() & set(uids):
            self.work += [prefix.whole for prefix in self.apart.pop(Uid(uid))]

    def forget(self, request: Request) -> None:
        """It has ended. For requests that are apart, and for all while any is."""
        self.apart.pop(request.uid, None)
        if request.flags & RowFlag.APART:  # nobody will look for what it has computed
            self.work.append(_Prefix(request.tokens, prompt_namespace(request), 0))

    def take_back(self) -> list[Request]:
        if self._running.memory.deferred.in_flight:
            raise MemoryShort
        retracted = []
        for running in self.again:
            if self._running.get(running.uid) is running:
                retracted.append(self._running.retract(running))
                _begin_apart(running.request)
        for prefix in self.work:
            retracted += self._withdraw(prefix)
        self.again.clear()
        self.work.clear()
        return retracted

    def _withdraw(self, prefix: _Prefix) -> list[Request]:
        """What is retracted publishes what it has computed, below what is withdrawn."""
        cache = self._running.memory.cache
        ends = set(cache.beyond(*prefix))
        if not ends:
            return []
        self._leases.end_those(partial(_is_below, ends))
        readers = [each for each in self._running if any(_is_below(ends, lease) for lease in self._leases_of(each))]
        retracted = [self._running.retract(each) for each in readers]
        cache.withdraw(cache.beyond(*prefix))
        return retracted

    def _owner_of(self, computed: RunningRequest) -> RunningRequest:
        part = computed.request.own.get(Part)
        if part is None:
            return computed
        return next(each.owner for each in self._parts.assemblies.values() if part in each.parts)

    def _leases_of(self, running: RunningRequest) -> Iterator[Lease]:
        yield running.lease
        assembly = self._parts.assemblies.get(running.uid)
        for part in [] if assembly is None else dict.fromkeys(assembly.parts):
            computing = self._parts.running.get(part.uid)
            lease = part.lease if computing is None else computing.lease
            if lease is not None:
                yield lease

    def _prefixes_of(self, running: RunningRequest) -> Iterator[_Prefix]:
        """All that it has computed, and what of that others had."""
        request, tokens, assembly = running.request, running.tokens, self._parts.assemblies.get(running.uid)
        if assembly is None:
            yield _Prefix(tokens.copy(), running.lease.namespace, request.cached_tokens or 0)
            return
        yield _Prefix(tokens[running.base_length :].copy(), running.lease.namespace, 0)
        for part in dict.fromkeys(assembly.parts):
            base = part.base.length
            own = request_of_part(request, part).tokens[base:]
            yield _Prefix(own, part.base.namespace, max(part.own - base, 0) + part.num_cached)


def _begin_apart(request: Request) -> None:
    """It waits, and nothing that was computed so far is of use to it."""
    request.flags |= RowFlag.APART | RowFlag.WATCHED
    request.cache_apart("apart", request.uid)
    request.match.version = -1


def _is_below(ends: set[Node], lease: Lease) -> bool:
    """Whether a lease is on one of these nodes, or on anything below."""
    node = lease.node
    while node is not None:
        if node in ends:
            return True
        node = node.parent
    return False
