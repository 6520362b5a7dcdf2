"""Who may leave the waiting queue now: Admitted to run, or Refused with the reason.

Decides how much memory running requests are promised (reservation by ratio) and who waits for a prefix that is being
computed. Knows the cache and the running set, not the policy and not the device. Algorithm 1 of the SGLang paper, with
what it leaves open: outputs not yet generated need memory too.
"""

from dataclasses import dataclass

import numpy as np

from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.request import Request
from ramet.runtime.scheduler.policy import Policy, UnpublishedPrefixes
from ramet.runtime.scheduler.running import RunningRequest, RunningSet

CLIP_NEW_TOKENS = 4096  # of one output that are reserved for at most: nobody is kept out by a huge max_new_tokens
START_SHARE = 0.7  # of its remaining output that a request has reserved at first: many end before their limit
FLOOR_SHARE = 0.1  # what is left of it when long nothing was retracted
DECAY_STEPS = 600
HEADROOM = 20  # tokens that every request is granted beyond what a retraction has shown to be needed


@dataclass(frozen=True, slots=True)
class Admitted:
    running: RunningRequest


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str
    full: bool  # nobody behind it can be admitted either


class ReserveRatio:
    """The share of its remaining output that each running request has reserved, in [0, 1].

    Falls linearly from `start` to `floor` over DECAY_STEPS steps; a retraction sets it to what would have been right.
    """

    def __init__(self, conservativeness: float) -> None:
        self._start = min(START_SHARE * conservativeness, 1.0)
        self._floor = min(FLOOR_SHARE * conservativeness, 1.0)
        self.value = self._start

    def step(self) -> None:
        self.value = max(self._floor, self.value - (self._start - self._floor) / DECAY_STEPS)

    def reset(self) -> None:
        self.value = self._start

    def retracted(self, running: RunningSet) -> None:
        """After a retraction: what the remaining ones have used of their outputs so far, and some more."""
        done = sum(each.num_output + HEADROOM for each in running)
        asked = sum(each.request.params.max_new_tokens for each in running)
        self.value = max(self.value, min(1.0, done / (asked + 1)))


class Admission:
    """`begin` once per turn, then `try_add` for each waiting request in the policy's order."""

    def __init__(self, cache: PrefixCache, running: RunningSet, policy: Policy, conservativeness: float) -> None:
        self._cache, self._running, self._policy = cache, running, policy
        self.ratio = ReserveRatio(conservativeness)

    def begin(self) -> None:
        table, rows = self._running.table, self._running.rows
        remaining = np.minimum(table.limits[rows] - table.planned_totals[rows], CLIP_NEW_TOKENS)
        self._reserved = int((remaining * self.ratio.value).astype(np.int64).sum())
        self._unpublished = UnpublishedPrefixes(self._cache.page_size)
        for running in self._running:
            if running.applied < running.target:
                self._announce(running.request)

    def try_add(self, request: Request) -> Admitted | Refused:
        if not self._running.num_free_rows:
            return Refused(f"finds all {len(self._running)} rows of --max-running-requests taken", full=True)
        if request.params.penalised and not self._running.num_free_penalty_slots:
            return Refused("finds all places of --max-penalised-requests taken", full=False)
        gain = self._unpublished.worth_waiting(request, self._policy.matched(request))
        if gain:
            return Refused(f"waits for {gain} tokens of prefix that another request is computing", full=False)
        return self._run(request)

    def _run(self, request: Request) -> Admitted | Refused:
        # the prefix is locked before memory is counted: otherwise making room could evict it
        lease, prefix = self._cache.acquire(request.reusable, request.spec.namespace)
        needed = len(request.tokens) - lease.length + self._cache.page_size + self._reserve(request)
        spare = self._cache.available_tokens - self._reserved
        running = self._running.take(request, lease, prefix) if needed <= spare or not len(self._running) else None
        if running is None:
            self._cache.release(lease)
            return Refused(f"needs {needed} tokens of memory, {max(spare, 0)} are not promised to others", full=True)
        self._reserved += self._reserve(request)
        self._announce(request)
        return Admitted(running)

    def _announce(self, request: Request) -> None:
        """Others may wait for this prompt's prefix; pointless if nothing is going to be kept."""
        if self._cache.enabled:
            self._unpublished.add(request)

    def _reserve(self, request: Request) -> int:
        return int(min(request.remaining, CLIP_NEW_TOKENS) * self.ratio.value)
