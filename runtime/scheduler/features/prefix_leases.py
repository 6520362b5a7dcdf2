"""The leases of clients (`prefix_lease_s`): prefixes that stay in the pool while no request needs them.

Decides how much clients may hold, until when, and which lease ends first when memory is short. Knows requests and the
cache, not the running set.

    arrival    the prompt's whole pages are claimed, or the request is refused: what was accepted is granted later
    computed   the lease begins, or is renewed: one for each prefix of a namespace and owner, and the later deadline
               counts
    end        the deadline passes; a request with `prefix_lease_s` 0 and the same prompt arrives; the cache is
               flushed; memory is short (`give_way`); or the only request that asked for it is aborted before its end

The tokens of a prompt that is healed end before its text, and where depends on how long the output may be. So a prompt
is the same if its tokens begin with the prefix, and behind it there is the text of a prompt that asked for it.

A claimed prefix is entered in the ledger, a tree of its own without slots: what prompts share is counted once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from ramet.ipc.errors import ErrorRecord
from ramet.ipc.message import Uid
from ramet.ipc.spec import Namespace
from ramet.runtime import log
from ramet.runtime.access.shares import part
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Node
from ramet.runtime.cache.prefix import Lease, PrefixCache
from ramet.runtime.cache.radix import RadixTree
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.features.long_rope import LONG, LongRope, prompt_namespace
from ramet.runtime.scheduler.features.tail_search import Healing
from ramet.runtime.scheduler.request import Request

MAX_SHARE = 0.5  # of the pool that clients may hold: running requests always have the other half
MAX_LEASES = 1024
MAX_ENDS = 16  # texts behind a prefix, the last ones that asked for it


@dataclass(slots=True)
class _Claimed:
    """One prefix of one namespace, and the request that asked for it."""

    entry: Node  # in the ledger
    ends: dict[bytes, None] = field(default_factory=dict)  # texts of the prompts that asked for it, behind it
    lease: Lease | None = None  # None: it is not computed yet, or the lease has ended
    until_s: float = -inf  # as requests asked that have ended
    promised: set[Uid] = field(default_factory=set)  # requests whose prompt is not computed
    granted: dict[Uid, float] = field(default_factory=dict)  # requests that run on -> the deadline they asked for

    @property
    def deadline_s(self) -> float:
        return max(self.until_s, *self.granted.values(), -inf)


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
        self._cache, self._clock, self._longest_s, self._spell = cache, clock, longest_s, spell
        # others read these three, so that nothing here is called while no request asks for a lease
        self.ledger = RadixTree(cache.page_size)
        self.claimed: dict[Node, _Claimed] = {}  # by entry
        self.work = self.claimed
        self.open: dict[Uid, _Claimed] = {}  # of requests that asked for a lease and have not ended
        self._look_s = inf  # no lease ends before; may be early
        self.max_tokens, self._share = int(cache.total_tokens * MAX_SHARE), share
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

    @property
    def claimed_tokens(self) -> int:
        """The same with prefixes that are to be held once they are computed."""
        return self.ledger.locked_tokens + self.ledger.evictable_tokens

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
            return _refused(f"is {seconds:g}, but this server keeps no prefixes for clients ({why})")
        if seconds > self._longest_s:
            fact = f"is {seconds:g}, must be in [0, {self._longest_s:g}]: at most --max-prefix-lease-s seconds"
            return _refused(fact)
        prefix = self._prefix(request)
        return self._enter(request, prefix) if len(prefix) else None

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
            claimed.lease = self._cache.hold(self._prefix(request), prompt_namespace(request))

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

    def _prefix(self, request: Request) -> Ints:
        """The prompt's whole pages."""
        return request.tokens[: request.prompt_len - request.prompt_len % self._cache.page_size]

    def _enter(self, request: Request, prefix: Ints) -> ErrorRecord | None:
        """Claim a prefix, if the bounds allow it."""
        namespace = _claimed_in(request)
        new, taken = len(prefix) - self.ledger.match_length(prefix, namespace), self.claimed_tokens
        asks = f"asks to hold {len(prefix)} tokens"
        if len(prefix) > self.max_tokens:
            return _refused(f"{asks}, must be at most {self.max_tokens}: half of the KV pool")
        if request.spec.key_name:
            most, own = part(self.max_tokens, self._share), self._claimed_by(namespace[-1])
            if own + new > most:
                fact = f"{asks}, {new} of them new, but this key holds {own} of the {most} that one key may"
                return _refused(f"{fact} (--max-share-per-key)", status=429)
        if taken + new > self.max_tokens:
            fact = f"{asks}, {new} of them new, but {taken} of the {self.max_tokens} that clients may hold are taken"
            return _refused(fact, status=503)
        entry, _ = self.ledger.insert(prefix, prefix, namespace)  # the slots do not matter here
        claimed = self.claimed.get(entry)
        if claimed is None:
            if len(self.claimed) >= MAX_LEASES:
                self._sweep()
                return _refused(f"{asks}, but clients hold {MAX_LEASES} prefixes already", status=503)
            self.ledger.lock(entry)
            claimed = self.claimed[entry] = _Claimed(entry)
        claimed.promised.add(request.uid)
        self.open[request.uid] = claimed
        end = self._text(_prompt(request)[len(prefix) :]) + _tail(request)
        claimed.ends.pop(end, None)
        claimed.ends[end] = None
        if len(claimed.ends) > MAX_ENDS:
            del claimed.ends[next(iter(claimed.ends))]
        return None

    def _claimed_by(self, owner: str) -> int:
        """Tokens, in all namespaces that end with this owner's part (_claimed_in)."""
        return sum(len(node.run) for node in self.ledger.nodes() if node.namespace[-1:] == (owner,))

    def _release(self, request: Request) -> None:
        """A client gives the leases on this prompt back, whichever requests asked for them."""
        for claimed in [*self._claimed_before(request), *self._claimed_beyond(request)]:
            for uid in claimed.promised:
                del self.open[uid]
            claimed.promised.clear()
            self._end(claimed)
            self._forget_if_unused(claimed)

    def _claimed_before(self, request: Request) -> Iterator[_Claimed]:
        """What the same prompt has claimed that is not longer than this request's: its whole pages, or fewer."""
        prompt, whole, at = _prompt(request), len(self._prefix(request)), 0
        for entry, common in self.ledger.walk(prompt, _claimed_in(request)):
            at += common
            claimed = self.claimed.get(entry)
            if claimed is None or common < len(entry.run):
                continue
            longest = max(map(len, claimed.ends))  # a token has a byte at least
            if at == whole or (
                len(prompt) - at <= longest and self._text(prompt[at:]) + _tail(request) in claimed.ends
            ):
                yield claimed

    def _claimed_beyond(self, request: Request) -> Iterator[_Claimed]:
        """What the same prompt has claimed where it was not healed, or less of it."""
        prompt, tail = _prompt(request), _tail(request)
        for claimed in self.claimed.values() if tail else ():
            tokens = _tokens(claimed.entry)
            is_beyond = len(prompt) < len(tokens) <= len(prompt) + len(tail)  # a token has a byte at least
            if (
                is_beyond
                and claimed.entry.namespace == _claimed_in(request)
                and (tokens[: len(prompt)] == prompt).all()
                and tail in (self._text(tokens[len(prompt) :]) + end for end in claimed.ends)
            ):
                yield claimed

    def _text(self, tokens: Ints) -> bytes:
        """A token without a text of its own is spelled by its id."""
        return b"".join(self._spell(token) or b"\xff%d\xff" % token for token in tokens.tolist())

    def _end(self, claimed: _Claimed) -> None:
        """The lease ends. Requests whose prompt is not computed may still begin another."""
        if claimed.lease is not None:
            self._cache.release(claimed.lease)
        claimed.lease, claimed.until_s = None, -inf
        for uid in claimed.granted:
            del self.open[uid]
        claimed.granted.clear()

    def _forget_if_unused(self, claimed: _Claimed) -> None:
        if claimed.lease is None and not claimed.promised and self.claimed.pop(claimed.entry, None) is not None:
            self.ledger.unlock(claimed.entry)
            self._sweep()

    def _sweep(self) -> None:
        """The ledger keeps nothing but what is claimed."""
        self.ledger.evict(self.ledger.evictable_tokens)


def _prompt(request: Request) -> Ints:
    return request.tokens[: request.prompt_len]


def _claimed_in(request: Request) -> Namespace:
    """Where its leases are kept, for any weights. It includes the owner, so that no other may end its leases."""
    own, namespace, owner = request.own.get(LongRope), request.spec.namespace, request.spec.key_name
    if own is not None and request.prompt_len > own.limit:
        namespace = (*namespace, LONG)
    return (*namespace, f"owner {owner}") if owner else namespace


def _tail(request: Request) -> bytes:
    """The text of the prompt behind its tokens."""
    healing = request.own.get(Healing)
    return b"" if healing is None else healing.tail.text


def _tokens(entry: Node) -> Ints:
    """Those of the prefix that ends there."""
    runs, node = [entry.run], entry.parent
    while node is not None:
        runs.append(node.run)
        node = node.parent
    return np.concatenate(runs[::-1])


def _refused(fact: str, status: int = 400) -> ErrorRecord:
    return ErrorRecord("prefix_lease_s", fact, status=status)
