"""The ledger of what clients claim of the pool: prefixes in a tree of its own without slots.

Decides how much all clients and one of them may claim, and which claims a prompt has made before. What prompts share is
counted once. Knows requests and namespaces, no lease and no time.

The tokens of a prompt that is healed end before its text, and where depends on how long the output may be. So a prompt
is the same if its tokens begin with the prefix, and behind it there is the text of a prompt that asked for it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

import numpy as np

from ramet.ipc.errors import ErrorRecord
from ramet.ipc.message import Uid
from ramet.ipc.spec import Namespace
from ramet.runtime.access.shares import part
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Node
from ramet.runtime.cache.prefix import Lease
from ramet.runtime.cache.radix import RadixTree
from ramet.runtime.scheduler.features.long_rope import LONG, LongRope
from ramet.runtime.scheduler.features.tail_search import Healing
from ramet.runtime.scheduler.request import Request

MAX_SHARE = 0.5  # of the pool that clients may hold: running requests always have the other half
MAX_LEASES = 1024
MAX_ENDS = 16  # texts behind a prefix, the last ones that asked for it


@dataclass(slots=True)
class Claim:
    """One prefix of one namespace, and the requests that asked for it."""

    entry: Node  # in the ledger
    ends: dict[bytes, None] = field(default_factory=dict)  # texts of the prompts that asked for it, behind it
    lease: Lease | None = None  # None: it is not computed yet, or the lease has ended
    until_s: float = -inf  # as requests asked that have ended
    promised: set[Uid] = field(default_factory=set)  # requests whose prompt is not computed
    granted: dict[Uid, float] = field(default_factory=dict)  # requests that run on -> the deadline they asked for

    @property
    def deadline_s(self) -> float:
        return max(self.until_s, *self.granted.values(), -inf)


class LeaseLedger:
    """`total_tokens`: of the pool. `spell` says what a token adds to a text. One key may claim a `share` of it all."""

    def __init__(
        self, total_tokens: int, page_size: int, spell: Callable[[int], bytes | None], share: float = 1.0
    ) -> None:
        self.tree = RadixTree(page_size)  # its slots do not matter
        self.claims: dict[Node, Claim] = {}  # by the end of their prefix in the tree
        self.max_tokens, self._share, self._spell = int(total_tokens * MAX_SHARE), share, spell

    @property
    def claimed_tokens(self) -> int:
        return self.tree.locked_tokens + self.tree.evictable_tokens

    def prefix(self, request: Request) -> Ints:
        """The prompt's whole pages."""
        return request.tokens[: request.prompt_len - request.prompt_len % self.tree.page_size]

    def enter(self, request: Request, prefix: Ints) -> Claim | ErrorRecord:
        """Claim the whole pages of a prompt, `prefix`, if the bounds allow it; or why not."""
        namespace = _claimed_in(request)
        new, taken = len(prefix) - self.tree.match_length(prefix, namespace), self.claimed_tokens
        asks = f"asks to hold {len(prefix)} tokens"
        if len(prefix) > self.max_tokens:
            return refused(f"{asks}, must be at most {self.max_tokens}: half of the KV pool")
        if request.spec.key_name:
            most, own = part(self.max_tokens, self._share), self._claimed_by(namespace[-1])
            if own + new > most:
                fact = f"{asks}, {new} of them new, but this key holds {own} of the {most} that one key may"
                return refused(f"{fact} (--max-share-per-key)", status=429)
        if taken + new > self.max_tokens:
            fact = f"{asks}, {new} of them new, but {taken} of the {self.max_tokens} that clients may hold are taken"
            return refused(fact, status=503)
        entry, _ = self.tree.insert(prefix, prefix, namespace)  # the slots do not matter here
        claimed = self.claims.get(entry)
        if claimed is None:
            if len(self.claims) >= MAX_LEASES:
                self._sweep()
                return refused(f"{asks}, but clients hold {MAX_LEASES} prefixes already", status=503)
            self.tree.lock(entry)
            claimed = self.claims[entry] = Claim(entry)
        claimed.promised.add(request.uid)
        end = self._text(_prompt(request)[len(prefix) :]) + _tail(request)
        claimed.ends.pop(end, None)
        claimed.ends[end] = None
        if len(claimed.ends) > MAX_ENDS:
            del claimed.ends[next(iter(claimed.ends))]
        return claimed

    def _claimed_by(self, owner: str) -> int:
        """Tokens, in all namespaces that end with this owner's part (_claimed_in)."""
        return sum(len(node.run) for node in self.tree.nodes() if node.namespace[-1:] == (owner,))

    def of_same_prompt(self, request: Request) -> Iterator[Claim]:
        """What the prompt of this request has claimed, whichever requests asked for it."""
        yield from self._claimed_before(request)
        yield from self._claimed_beyond(request)

    def drop(self, claim: Claim) -> None:
        """Nobody claims it any more."""
        if self.claims.pop(claim.entry, None) is not None:
            self.tree.unlock(claim.entry)
            self._sweep()

    def _claimed_before(self, request: Request) -> Iterator[Claim]:
        """What the same prompt has claimed that is not longer than this request's: its whole pages, or fewer."""
        prompt, whole, at = _prompt(request), len(self.prefix(request)), 0
        for entry, common in self.tree.walk(prompt, _claimed_in(request)):
            at += common
            claimed = self.claims.get(entry)
            if claimed is None or common < len(entry.run):
                continue
            longest = max(map(len, claimed.ends))  # a token has a byte at least
            if at == whole or (
                len(prompt) - at <= longest and self._text(prompt[at:]) + _tail(request) in claimed.ends
            ):
                yield claimed

    def _claimed_beyond(self, request: Request) -> Iterator[Claim]:
        """What the same prompt has claimed where it was not healed, or less of it."""
        prompt, tail = _prompt(request), _tail(request)
        for claimed in self.claims.values() if tail else ():
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

    def _sweep(self) -> None:
        """The ledger keeps nothing but what is claimed."""
        self.tree.evict(self.tree.evictable_tokens)


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


def refused(fact: str, status: int = 400) -> ErrorRecord:
    return ErrorRecord("prefix_lease_s", fact, status=status)
