"""The leases of clients (`prefix_lease_s`): prefixes that stay in the pool while no request needs them.

Decides until when clients hold what they claim, and which lease ends first when memory is short. Knows requests and the
cache, not the running set.

    arrival    the prompt's whole pages are claimed, or the request is refused: what was accepted is granted later
    computed   the lease begins, or is renewed: one for each prefix of a namespace and owner, and the later deadline
               counts
    end        the deadline passes; a request with `prefix_lease_s` 0 and the same prompt arrives; the cache is
               flushed; memory is short (`give_way`); or the only request that asked for it is aborted before its end

What is claimed is entered in a ledger (lease_ledger.py), which also says when two prompts are the same.
"""

from collections import defaultdict
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from ramet.ipc.errors import ErrorRecord
from ramet.ipc.message import Uid
from ramet.ipc.spec import Namespace
from ramet.runtime import log
from ramet.runtime.cache.prefix import Lease, PrefixCache
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.features.lease_ledger import Claim, LeaseLedger, refused
from ramet.runtime.scheduler.features.long_rope import prompt_namespace
from ramet.runtime.scheduler.request import Request


class Held(NamedTuple):
    """How many leases, the tokens they hold together, and seconds until the first of them ends; None: there is none."""

    num: int
    num_tokens: int
    next_end_s: float | None


NOTHING_HELD = Held(0, 0, None)


class PrefixLeases(TurnFeature):
    """`longest_s`: --max-prefix-lease-s; `clock` is monotonic seconds; `spell` says what a token adds to a text.

    One key may hold a `share` of what all clients may.
    """

    def __init__(
        self,
        cache: PrefixCache,
        clock: Callable[[], float],
        longest_s: float,
        spell: Callable[[int], bytes | None],
        share: float = 1.0,
    ) -> None:
        self._cache, self._clock, self._longest_s = cache, clock, longest_s
        self.ledger = LeaseLedger(cache.total_tokens, cache.page_size, spell, share)
        # others read these two, so that nothing here is called while no request asks for a lease
        self.claimed = self.work = self.ledger.claims
        self.open: dict[Uid, Claim] = {}  # of requests that asked for a lease and have not ended
        self._look_s = inf  # no lease ends before; may be early
        self.num_revoked = 0  # leases that ended early because memory was short

    @property
    def leases(self) -> list[Lease]:
        return [each.lease for each in self.claimed.values() if each.lease is not None]

    @property
    def kept(self) -> list[tuple[Lease, float]]:
        """Each with its deadline, by the clock."""
        return [(each.lease, each.deadline_s) for each in self.claimed.values() if each.lease is not None]

    @property
    def num_tokens(self) -> int:
        """Tokens that the leases hold; what they share counts once."""
        return self._cache.tokens_of(self.leases)

    @property
    def tokens_of_owners(self) -> int:
        """Tokens that the leases hold; what several owners share counts once for each of them, as in their claims."""
        leases: dict[Namespace, list[Lease]] = defaultdict(list)
        for each in self.claimed.values():
            if each.lease is not None:
                leases[each.entry.namespace].append(each.lease)
        return sum(map(self._cache.tokens_of, leases.values()))

    def wait_s(self, *, is_awaited: bool = False) -> float | None:
        """How long `expire` need not be called; None: until there is another lease."""
        return None if self._look_s == inf else max(0.0, self._look_s - self._clock())

    def held(self) -> Held:
        """What the live state and the metrics say of it."""
        ends = [each.deadline_s for each in self.claimed.values() if each.lease is not None]
        return Held(len(ends), self.num_tokens, max(0.0, min(ends) - self._clock()) if ends else None)

    # -- what requests ask ------------------------------------------------------------------------------------------

    def claim(self, request: Request) -> ErrorRecord | None:
        """When a request arrives. Returns why its lease cannot be granted."""
        seconds = request.spec.prefix_lease_s
        if seconds is None:
            return None
        if seconds == 0:
            self._release(request)
            return None
        if not self._cache.can_hold:
            why = "--prefix-cache list" if self._cache.enabled else "--disable-radix-cache"
            return refused(f"is {seconds:g}, but this server keeps no prefixes for clients ({why})")
        if seconds > self._longest_s:
            fact = f"is {seconds:g}, must be in [0, {self._longest_s:g}]: at most --max-prefix-lease-s seconds"
            return refused(fact)
        prefix = self.ledger.prefix(request)
        entered = self.ledger.enter(request, prefix) if len(prefix) else None
        if isinstance(entered, Claim):
            self.open[request.uid] = entered
            return None
        return entered

    def begin(self, request: Request) -> None:
        """Its prompt is computed and published. Called again after a retraction, which changes nothing."""
        claimed = self.open.get(request.uid)
        if claimed is None or request.uid not in claimed.promised:
            return
        seconds = request.spec.prefix_lease_s
        assert seconds is not None
        claimed.promised.remove(request.uid)
        claimed.granted[request.uid] = self._clock() + seconds
        self._look_s = min(self._look_s, claimed.granted[request.uid])
        if claimed.lease is None:
            claimed.lease = self._cache.hold(self.ledger.prefix(request), prompt_namespace(request))

    def keep(self, uid: Uid) -> None:
        """The request has ended by itself: what it asked for stands."""
        claimed = self.open.pop(uid, None)
        if claimed is not None:
            claimed.until_s = max(claimed.until_s, claimed.granted.pop(uid, -inf))
            self._forget_if_unused(claimed)

    def withdraw(self, uid: Uid) -> None:
        """The request was aborted, or its client went away: only what others asked for stands."""
        claimed = self.open.pop(uid, None)
        if claimed is not None:
            claimed.promised.discard(uid)
            claimed.granted.pop(uid, None)
            if claimed.deadline_s == -inf:
                self._end(claimed)
            elif claimed.lease is not None:
                self._look_s = min(self._look_s, claimed.deadline_s)
            self._forget_if_unused(claimed)

    # -- what ends leases -------------------------------------------------------------------------------------------

    def before_messages(self) -> None:
        """End the leases whose time is over."""
        now = self._clock()
        if now < self._look_s:
            return
        for claimed in list(self.claimed.values()):
            if claimed.lease is not None and claimed.deadline_s <= now:
                self._end(claimed)
                self._forget_if_unused(claimed)
        self._look_s = min((each.deadline_s for each in self.claimed.values() if each.lease is not None), default=inf)

    def give_way(self) -> bool:
        """End the earliest of the leases that alone keep memory from eviction; False: there is none."""
        sole = [each for each in self.claimed.values() if each.lease is not None and self._cache.is_sole(each.lease)]
        if not sole:
            return False
        first = min(sole, key=lambda each: each.deadline_s)
        assert first.lease is not None
        log.LOGGER.warning("memory is short: a client's lease on a prefix of %d tokens ends early", first.lease.length)
        self.num_revoked += 1
        self._end(first)
        self._forget_if_unused(first)
        return True

    def end_those(self, is_ended: Callable[[Lease], bool]) -> None:
        """End the leases of which `is_ended` is true."""
        for claimed in list(self.claimed.values()):
            if claimed.lease is not None and is_ended(claimed.lease):
                self._end(claimed)
                self._forget_if_unused(claimed)

    def flush(self) -> None:
        """Before the cache is flushed."""
        for claimed in list(self.claimed.values()):
            self._end(claimed)
            self._forget_if_unused(claimed)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _release(self, request: Request) -> None:
        """A client gives the leases on this prompt back, whichever requests asked for them."""
        for claimed in list(self.ledger.of_same_prompt(request)):
            for uid in claimed.promised:
                del self.open[uid]
            claimed.promised.clear()
            self._end(claimed)
            self._forget_if_unused(claimed)

    def _end(self, claimed: Claim) -> None:
        """The lease ends. Requests whose prompt is not computed may still begin another."""
        if claimed.lease is not None:
            self._cache.release(claimed.lease)
        claimed.lease, claimed.until_s = None, -inf
        for uid in claimed.granted:
            del self.open[uid]
        claimed.granted.clear()

    def _forget_if_unused(self, claimed: Claim) -> None:
        if claimed.lease is None and not claimed.promised:
            self.ledger.drop(claimed)
