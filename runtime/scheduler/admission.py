"""Which waiting request may run now: it has a row then, or is Refused with the reason.

Decides how much memory running requests are promised (reservation by ratio) and which request waits for a prefix
that is being computed. Section 5.2 and Algorithm 1 of the SGLang paper, with what it leaves open: outputs not yet
generated need memory too. Knows the cache and the running set, not the device.
"""

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from ramet.ipc.messages import Finish
from ramet.ipc.spec import Namespace
from ramet.ipc.stats import WaitKind
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.policy import Policy
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.reserve_ratio import ReserveRatio
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.unpublished import UnpublishedPrefixes
from ramet.runtime.scheduler.wait_reasons import WaitReason

CLIP_NEW_TOKENS = 4096  # of one output that are reserved for at most: a huge max_new_tokens keeps no other request out
Own = TypeVar("Own")


@dataclass(frozen=True, slots=True)
class Refused:
    reason: WaitReason
    full: bool  # no request behind it can be admitted either


def refused(kind: WaitKind, text: str, *, full: bool = False) -> Refused:
    return Refused(WaitReason(kind, text), full)


def clipped_output(request: Request) -> int:
    """Tokens that the output of a waiting request is counted as."""
    return min(request.remaining, CLIP_NEW_TOKENS)


class Admission:
    """What all rounds of admission share. `kept`: memory that may be free later although nothing runs."""

    def __init__(
        self, running: RunningSet, unpublished: UnpublishedPrefixes, policy: Policy, beside: Sequence[TurnFeature],
        kept: Sized, conservativeness: float,
    ) -> None:  # fmt: skip
        self.running, self.unpublished, self.policy, self.beside, self.kept = running, unpublished, policy, beside, kept
        self.ratio = ReserveRatio(conservativeness)


class AdmissionRound:
    """What is promised in one turn: `try_add` is called for each waiting request in the policy's order."""

    def __init__(self, shared: Admission, now_s: float) -> None:
        self.cache, self.running, self.unpublished = shared.running.memory.cache, shared.running, shared.unpublished
        self._policy, self._kept, self._ratio, self._now_s = shared.policy, shared.kept, shared.ratio.value, now_s
        table, rows = self.running.table, self.running.rows
        remaining = np.minimum(table.limits[rows] - table.planned_totals[rows], CLIP_NEW_TOKENS)
        self._reserved = int((remaining * self._ratio).astype(np.int64).sum())
        for each in shared.beside:
            if each.work:
                self._reserved += each.promised_tokens
        self._computing: list[tuple[Request, Namespace]] = []  # and where what they compute is cached
        for running in self.running:
            if running.applied < len(running.request.tokens):
                self._computing.append((running.request, running.request.namespace))
        self._num_announced = 0  # the first of them, which others may wait for
        self._own: dict[type, object] = {}  # what each feature keeps for this round, by its kind

    def own(self, kind: type[Own], make: Callable[[], Own] | None = None) -> Own:
        """What a feature keeps for this round: made when it is first asked for."""
        if kind not in self._own:
            self._own[kind] = (make or kind)()
        return cast(Own, self._own[kind])

    def failure(self, request: Request) -> Finish | None:
        """Why a waiting request can never run; None: it can."""
        return next((finish for each in request.asked if (finish := each.fails(request))), None)

    def try_add(self, request: Request) -> RunningRequest | Refused:
        if not self.running.free_rows.num_free:
            return refused(
                WaitKind.ROWS, f"finds all {len(self.running)} rows of --max-running-requests taken", full=True
            )
        for feature in request.asked:
            if (waits := feature.waits(request, self)) is not None:
                return waits
        for feature in request.asked:
            if (outcome := feature.admit(request, self)) is not None:
                return outcome
        is_announced, matched = self.announce(), self._policy.matched(request)
        if is_announced:
            gain = self.unpublished.worth_waiting(request.reusable, request.namespace, matched)
            if gain:
                return waits_for_prefix(gain)
        return self._run(request)

    def announce(self) -> bool:
        """Add the requests admitted in this round to those announced at its first one; False: none is announced."""
        if self._num_announced < len(self._computing) and self.cache.enabled:  # else nothing is going to be kept
            if self._num_announced:
                self.unpublished.add(self._computing[self._num_announced :])
            else:
                self.unpublished.keep_only(self._computing)
            self._num_announced = len(self._computing)
        return self._num_announced > 0

    def _run(self, request: Request) -> RunningRequest | Refused:
        # the prefix is locked before memory is counted: otherwise making room could evict it
        lease, prefix = self.cache.acquire(request.reusable, request.namespace)
        reserve = self.reserve(request)
        promised = len(request.tokens) - lease.length + self.cache.page_size + reserve
        why_not: Refused | None = None
        for feature in request.asked:
            why_not = why_not or feature.lacks(request, lease.length)
        why_not = why_not or self.refusal(request, promised, lease.length)
        running = self.running.take(request, lease, prefix) if why_not is None else None
        if running is None:
            self.cache.release(lease)
            return why_not or self._is_full(promised)
        self.begins(request, reserve, lease.length)
        return running

    def refusal(self, request: Request, needed: int, num_cached: int) -> Refused | None:
        """Why the request cannot have the tokens that it needs; None: it can."""
        if not len(self.running) and not self._kept:
            return None  # no memory will be free later that is not free now
        if needed > self.spare:
            return self._is_full(needed)
        return next((why for each in request.asked if (why := each.yields(request, self, needed, num_cached))), None)

    def _is_full(self, needed: int) -> Refused:
        return refused(
            WaitKind.MEMORY,
            f"needs {needed} tokens of memory, {max(self.spare, 0)} are not promised to others",
            full=True,
        )

    @property
    def spare(self) -> int:
        """Tokens of memory that are promised to nobody."""
        return self.cache.available_tokens - self._reserved

    def is_aged(self, request: Request) -> bool:
        """It is the oldest one, whose turn it is because of its age."""
        return self._policy.is_aged(request)

    def begins(self, request: Request, promised: int, num_cached: int) -> None:
        """The request runs, and may take `promised` tokens beyond those that it has now."""
        self._reserved += promised
        for feature in request.asked:
            feature.begins(request, self, num_cached)
        request.times.admitted_s = request.times.admitted_s or self._now_s
        self._policy.admitted(request)
        self._computing.append((request, request.namespace))

    def reserve(self, request: Request) -> int:
        """Tokens that are kept free for its output."""
        return int(clipped_output(request) * self._ratio)


def waits_for_prefix(gain: int) -> Refused:
    return refused(WaitKind.PREFIX, f"waits for {gain} tokens of prefix that another request is computing")
