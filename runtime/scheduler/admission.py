"""Which waiting request may run now: Admitted, or Refused with the reason.

Decides how much memory running requests are promised (reservation by ratio) and which request waits for a prefix
that is being computed. Section 5.2 and Algorithm 1 of the SGLang paper, with what it leaves open: outputs not yet
generated need memory too. Knows the cache and the running set, not the device.
"""

from dataclasses import dataclass

import numpy as np

from ramet.ipc.stats import WaitKind
from ramet.runtime.cache.node import Namespace
from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.scheduler.features.contexts import FirstGroup, memory_of_parts
from ramet.runtime.scheduler.features.follow_ups import FollowUps, kind_of
from ramet.runtime.scheduler.policy import Policy
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.reserve_ratio import START_SHARE, ReserveRatio
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.unpublished import UnpublishedPrefixes
from ramet.runtime.scheduler.wait_reasons import WaitReason

CLIP_NEW_TOKENS = 4096  # of one output that are reserved for at most: a huge max_new_tokens keeps no other request out
GROWTH_SHARE = 0.75  # of the pool that is kept at most for what programs that have begun may still add
MAX_KEPT_OUT = 16  # programs that are asked in a step, each of which is looked up, whether they fit beside that
MAX_LOOKED_UP = 4096  # contexts of waiting prompts in a step: some 40 ms


@dataclass(frozen=True, slots=True)
class Admitted:
    running: RunningRequest


@dataclass(frozen=True, slots=True)
class Refused:
    reason: WaitReason
    full: bool  # no request behind it can be admitted either


def _refused(kind: WaitKind, text: str, *, full: bool = False) -> Refused:
    return Refused(WaitReason(kind, text), full)


@dataclass(frozen=True, slots=True)
class _Contexts:
    """What a step knows of the contexts of waiting prompts."""

    gain: int  # tokens of one of them that it is worth to wait for
    num_leased: int  # tokens of all that take no memory


class Admission:
    """`begin` once per turn, then `try_add` for each waiting request in the policy's order."""

    def __init__(
        self, cache: PrefixCache, running: RunningSet, policy: Policy, follow_ups: FollowUps, conservativeness: float
    ) -> None:
        self._cache, self._running, self._policy, self._follow_ups = cache, running, policy, follow_ups
        self.ratio = ReserveRatio(conservativeness)
        self._unpublished = UnpublishedPrefixes(cache.page_size)
        self._computing: list[tuple[Request, Namespace]] = []  # running requests whose prompts are not computed
        self._num_announced = 0  # the first of them, which others may wait for
        self._contexts: dict[Namespace, _Contexts] = {}  # of this step, by key
        self._num_looked_up = 0
        self._drains = False  # in this step: who waited longest needs a slot of an adapter
        self._now_s = 0.0

    def begin(self, now_s: float) -> "Admission":
        self._now_s = now_s
        table, rows = self._running.table, self._running.rows
        remaining = np.minimum(table.limits[rows] - table.planned_totals[rows], CLIP_NEW_TOKENS)
        self._reserved = int((remaining * self.ratio.value).astype(np.int64).sum())
        if self._running.parts.assemblies:
            self._reserved += self._running.parts.promised_tokens(self._cache.page_size)
        # for what follows later on memory is kept from programs that have not begun, and from nobody else
        self._growing = self._follow_ups.growth if self._follow_ups.kept else 0
        self._num_kept_out = 0  # programs that have not begun and were refused because of it
        self._contexts, self._num_looked_up = {}, 0
        for running in self._running:
            self._growing += self._growth(running.request, running.request.cached_tokens or 0)
        computing = (each.request for each in self._running if each.applied < len(each.request.tokens))
        self._computing = [(request, request.namespace) for request in computing]
        self._num_announced, self._drains = 0, False
        return self

    def try_add(self, request: Request) -> Admitted | Refused:
        if not self._running.num_free_rows:
            return _refused(
                WaitKind.ROWS, f"finds all {len(self._running)} rows of --max-running-requests taken", full=True
            )
        if request.params.penalised and not self._running.features.penalties.slots.num_free:
            return _refused(WaitKind.PENALTIES, "finds all places of --max-penalised-requests taken")
        if self._num_kept_out >= MAX_KEPT_OUT and self._is_new_program(request):
            return _refused(WaitKind.PROGRAMS, f"is behind {self._num_kept_out} programs that wait for memory as well")
        first, namespace = request.first_group, request.namespace
        if first is not None and self._num_looked_up >= MAX_LOOKED_UP and namespace + first.key not in self._contexts:
            return _refused(WaitKind.CONTEXTS, f"waits for a step that looks up its {len(first.contexts)} contexts")
        if request.spec.lora is not None and not self._place_adapter(request):
            num = self._running.features.adapters.num_slots
            return _refused(WaitKind.ADAPTERS, f"waits for one of the {num} adapters of --max-loras-per-batch to end")
        gain = self._worth_waiting(request)
        if gain:
            return _refused(WaitKind.PREFIX, f"waits for {gain} tokens of prefix that another request is computing")
        return self._run(request)

    def _place_adapter(self, request: Request) -> bool:
        """False: it waits. Adapters that are there could keep one out for ever, so none of their requests begins while
        the oldest request waits for a slot.
        """
        is_placed = self._running.features.adapters.place(request, self._drains, self._running.table)
        self._drains = self._drains or (not is_placed and self._policy.is_aged(request))
        return is_placed

    def _worth_waiting(self, request: Request) -> int:
        self._announce()
        if request.first_group is not None:
            return self._look_up(request.first_group, request.namespace).gain
        matched, states = self._policy.matched(request), self._running.memory.states
        if not self._num_announced:
            return 0
        tokens, namespace = request.reusable, request.namespace
        if states is None:
            return self._unpublished.worth_waiting(tokens, namespace, matched)
        matched = self._cache.peek_keys(tokens, namespace)
        gain = self._unpublished.worth_waiting(tokens, namespace, matched)
        if gain:
            states.want_shared(self._running.prefilling, tokens[: matched + gain], namespace)
        return gain

    def _announce(self) -> None:
        """Those that were admitted in this step are added to what was announced at its first request."""
        if self._num_announced == len(self._computing) or not self._cache.enabled:  # else nothing is going to be kept
            return
        if self._num_announced:
            self._unpublished.add(self._computing[self._num_announced :])
        else:
            self._unpublished.keep_only(self._computing)
        self._num_announced = len(self._computing)

    def _look_up(self, first: FirstGroup, namespace: Namespace) -> _Contexts:
        """Once in a step for all prompts that begin with the same contexts, until one of them begins."""
        key = namespace + first.key
        known = self._contexts.get(key)
        if known is None:
            self._num_looked_up += len(first.contexts)
            lengths, num_leased = self._cache.peek_each(first.before, first.contexts, namespace)
            unpublished = self._unpublished
            gain = unpublished.worth_waiting_for_contexts(first, namespace, lengths) if self._num_announced else 0
            known = self._contexts[key] = _Contexts(gain, num_leased)
        return known

    def _run(self, request: Request) -> Admitted | Refused:
        if request.first_group is not None:
            return self._run_apart(request, request.first_group)
        # the prefix is locked before memory is counted: otherwise making room could evict it
        lease, prefix = self._cache.acquire(request.reusable, request.namespace)
        if request.media is not None and (lacking := request.media.lacks(lease.length)):
            self._cache.release(lease)
            return _refused(WaitKind.MEDIA, lacking)
        reserve, growth = self._reserve(request), self._growth(request, lease.length)
        promised = len(request.tokens) - lease.length + self._cache.page_size + reserve
        refused = self._refusal(request, promised, growth)
        running = self._running.take(request, lease, prefix) if refused is None else None
        if running is None:
            self._cache.release(lease)
            return refused or self._is_full(promised)
        self._reserved += reserve
        self._growing += growth
        self._begins(request)
        return Admitted(running)

    def _run_apart(self, request: Request, first: FirstGroup) -> Admitted | Refused:
        """One whose prompt has contexts. What others have leased takes no memory; what is cached besides is counted."""
        asked = len(request.tokens) + memory_of_parts(request.groups, self._cache.page_size, self._cache.copies)
        namespace = request.namespace
        leased = self._look_up(first, namespace).num_leased
        promised = asked - leased + self._cache.page_size + self._reserve(request)
        growth = self._growth(request, leased)
        refused = self._refusal(request, promised, growth)
        if refused is not None:
            return refused
        self._reserved += promised
        self._growing += growth
        self._begins(request)
        if not self._unpublished.has(first, namespace):
            del self._contexts[namespace + first.key]  # who shares them may wait from here on
        return Admitted(self._running.take_apart(request, namespace))

    def _refusal(self, request: Request, needed: int, growth: int) -> Refused | None:
        """Why it cannot have the tokens that it needs, if its follow-ups are expected to add `growth`; None: it can."""
        if not len(self._running) and not self._follow_ups.kept:
            return None  # no memory will be free later that is not free now
        if needed > self._spare:
            return self._is_full(needed)
        kept = min(self._growing + growth, int(self._cache.total_tokens * GROWTH_SHARE))
        if needed <= self._spare - kept or not self._is_new_program(request):
            return None
        self._num_kept_out += 1
        why = f"needs {needed} tokens of memory, {max(self._spare - kept, 0)} are left beside what programs may add"
        return _refused(WaitKind.PROGRAMS, why)

    def _is_full(self, needed: int) -> Refused:
        return _refused(
            WaitKind.MEMORY,
            f"needs {needed} tokens of memory, {max(self._spare, 0)} are not promised to others",
            full=True,
        )

    @property
    def _spare(self) -> int:
        return self._cache.available_tokens - self._reserved

    def _is_new_program(self, request: Request) -> bool:
        """Who makes its first call waits for those that have begun, though not for longer than others wait."""
        return request.spec.follow_up is not None and not request.num_calls and not self._policy.is_aged(request)

    def _growth(self, request: Request, num_cached: int) -> int:
        """Tokens that its follow-ups are expected to add, if each adds as many as it does itself."""
        if request.spec.follow_up is None:
            return 0
        added = request.prompt_len - num_cached + min(request.remaining, CLIP_NEW_TOKENS) * START_SHARE
        return self._follow_ups.expected(kind_of(request.spec.follow_up), int(added), request.num_calls + 1)

    def _begins(self, request: Request) -> None:
        request.times.admitted_s = request.times.admitted_s or self._now_s
        self._policy.admitted(request)
        self._computing.append((request, request.namespace))

    def _reserve(self, request: Request) -> int:
        return int(min(request.remaining, CLIP_NEW_TOKENS) * self.ratio.value)
