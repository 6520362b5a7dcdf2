"""Requests from their arrival until they run: the waiting queue, its order, and which of them may run now.

`Policy` decides the order: lpm (longest prefix match), dfs-weight (depth first through the tree, heaviest subtree
first), fcfs (arrival), lof (longest output first), random. Ties go by arrival. A higher priority goes before any
policy, and now and then the oldest request before both. The policy chooses among the WINDOW highest
priorities and earliest arrivals, so that a long queue does not cost a look-up in the tree for everybody at every step.
Of one client's request with many prompts the first ones of its turn come among them (by_turns.py).

`Admission` decides how much memory running requests are promised (reservation by ratio) and which request waits for a
prefix that is being computed: each is Admitted to run, or Refused with the reason. Section 5.2 and Algorithm 1 of the
SGLang paper, with what it leaves open: outputs not yet generated need memory too. Knows the cache and the running set,
not the device.
"""

import random
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ramet.ipc.message import Uid
from ramet.ipc.stats import WaitKind
from ramet.runtime.cache.node import Namespace, Node
from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.scheduler.by_turns import ByTurns, take_out
from ramet.runtime.scheduler.features.contexts import FirstGroup, memory_of_parts
from ramet.runtime.scheduler.features.follow_ups import FollowUps, kind_of
from ramet.runtime.scheduler.request import Request, RunningRequest
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.unpublished import UnpublishedPrefixes

BULK = 64  # requests from which on they leave the queue together


class WaitingQueue:
    """By uid, by arrival and by priority. A retracted request comes back to the place of its first arrival.

    While weights are about to change, those that arrived later are held apart, and no policy sees them.
    """

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._requests: dict[Uid, Request] = {}
        self._held: dict[Uid, Request] = {}
        self._held_after_s: float | None = None
        self._weights = 0  # the number of those that will compute what waits
        self.num_tokens = 0  # of all of them
        self._by_arrival: list[tuple[float, Uid]] = []  # (arrival_s, uid), sorted
        self._by_turns = ByTurns()

    def __len__(self) -> int:
        return len(self._requests) + len(self._held)

    @property
    def num_ready(self) -> int:
        """Those that are not held."""
        return len(self._requests)

    @property
    def num_held(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.first(len(self)))

    def first(self, num: int) -> list[Request]:
        """The `num` earliest arrivals, earliest first."""
        return [self._requests[uid] for _, uid in self._by_arrival[:num]]

    def highest(self, num: int) -> list[Request]:
        """The `num` highest priorities, highest first, and among equals the earliest arrival first, or turn."""
        return [self._requests[uid] for uid in self._by_turns.first(num)]

    def add(self, request: Request) -> None:
        if not self._take_in(request):
            return
        self._requests[request.uid] = request
        insort(self._by_arrival, (request.arrival_s, request.uid))
        self._by_turns.add(request.rank)

    def _take_in(self, request: Request) -> bool:
        """False: it is held."""
        if request.weights != self._weights:
            request.take_weights(self._weights)
        self.num_tokens += len(request.tokens)
        is_held = self._held_after_s is not None and request.arrival_s > self._held_after_s
        if is_held:
            self._held[request.uid] = request
        return not is_held

    def remove(self, uid: Uid) -> Request | None:
        held = self._held.pop(uid, None)
        if held is not None:
            self._taken_out(held)
            return held
        request = self._requests.pop(uid, None)
        if request is not None:
            self._taken_out(request)
            del self._by_arrival[bisect_left(self._by_arrival, (request.arrival_s, uid))]
            self._by_turns.remove(request.rank)
        return request

    def begin(self, request: Request, now_s: float) -> None:
        """It runs, and waits no longer."""
        self._by_turns.begun(request.rank, now_s)
        self.remove(request.uid)

    def _taken_out(self, request: Request) -> None:
        self.num_tokens -= len(request.tokens)
        if request.wanted is not None:
            self._cache.unwant(request.wanted)
            request.wanted, request.match_version = None, -1

    def remove_all(self, uids: Collection[Uid]) -> dict[Uid, Request]:
        """Those of these that wait, by uid. Of thousands each costs less than by itself."""
        if len(uids) < BULK:
            return {uid: request for uid in uids if (request := self.remove(uid)) is not None}
        found = {uid: request for uid in uids if (request := self.get(uid)) is not None}
        ready = [request for uid, request in found.items() if self._held.pop(uid, None) is None]
        take_out(self._by_arrival, [(request.arrival_s, request.uid) for request in ready])
        self._by_turns.remove_all([request.rank for request in ready])
        for request in ready:
            del self._requests[request.uid]
        for request in found.values():
            self._taken_out(request)
        return found

    def get(self, uid: Uid) -> Request | None:
        return self._requests.get(uid) or self._held.get(uid)

    def held(self) -> Iterator[Request]:
        """Those that are held, in no order that matters."""
        return iter(self._held.values())

    def is_held(self, uid: Uid) -> bool:
        return uid in self._held

    def hold_after(self, arrival_s: float) -> None:
        """Those that arrived later, and will arrive, until `let_go`."""
        self._held_after_s = arrival_s
        self._add_again(self._requests)

    def let_go(self) -> None:
        self._held_after_s = None
        self._add_again(self._held)

    def take_weights(self, number: int) -> None:
        """Those of this number will compute what waits: nothing that was computed before is of use to it."""
        self._weights = number
        self._held_after_s = None
        self._add_again({**self._requests, **self._held})

    def _add_again(self, requests: dict[Uid, Request]) -> None:
        self._add_all(self.remove_all(list(requests)).values())

    def _add_all(self, requests: Collection[Request]) -> None:
        """As `add`. Of thousands each costs less than by itself."""
        if len(requests) < BULK:
            for request in requests:
                self.add(request)
            return
        ready = []
        for request in requests:
            if self._take_in(request):
                ready.append(request)
        self._requests.update({request.uid: request for request in ready})
        self._by_arrival = sorted([*self._by_arrival, *((each.arrival_s, each.uid) for each in ready)])
        self._by_turns.add_all(each.rank for each in ready)


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
        version = self._cache.version
        if request.match_version != version:
            end, namespace = request.wanted, request.namespace
            known = request.match_version >= self._cache.dropped_version
            if not (known and self._is_longest(end, request.match_losses, request.match_next, namespace)):
                self._look_up(request)
            request.match_version = version
        return request.match_length

    def _look_up(self, request: Request) -> None:
        tokens, namespace = request.reusable, request.namespace
        if request.wanted is not None:
            self._cache.unwant(request.wanted)
            request.wanted = None
        length = request.match_length = self._cache.peek(tokens, namespace)
        if length:
            request.wanted = self._cache.want(tokens, namespace)
            request.match_losses = request.wanted.num_losses
        request.match_next = tokens[:-1][length : length + self._cache.page_size].tobytes()

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


CLIP_NEW_TOKENS = 4096  # of one output that are reserved for at most: a huge max_new_tokens keeps no other request out
START_SHARE = 0.7  # of its remaining output that a request has reserved at first: many end before their limit
FLOOR_SHARE = 0.1  # what is left of it when long nothing was retracted
DECAY_STEPS = 600
GROWTH_SHARE = 0.75  # of the pool that is kept at most for what programs that have begun may still add
MAX_KEPT_OUT = 16  # programs that are asked in a step, each of which is looked up, whether they fit beside that
MAX_LOOKED_UP = 4096  # contexts of waiting prompts in a step: some 40 ms
HEADROOM = 20  # tokens that every request is granted beyond what a retraction has shown to be needed


@dataclass(frozen=True, slots=True)
class Admitted:
    running: RunningRequest


class WaitReason(NamedTuple):
    """Why a request waits, for metrics and for people."""

    kind: WaitKind
    text: str


JUST_ARRIVED = WaitReason(WaitKind.ARRIVAL, "has just arrived")


@dataclass(frozen=True, slots=True)
class Refused:
    reason: WaitReason
    full: bool  # no request behind it can be admitted either


class WaitReasons:
    """Why each request of the queue waits, as the last step found."""

    def __init__(self) -> None:
        self._refused: dict[Uid, WaitReason] = {}
        self._others = JUST_ARRIVED  # of those that were not asked

    def begin(self) -> None:
        """Of a new step."""
        self._refused.clear()
        self._others = JUST_ARRIVED

    def note(self, uid: Uid, reason: WaitReason) -> None:
        self._refused[uid] = reason

    def end(self, kind: WaitKind, text: str) -> None:
        """Nobody else is asked in this step."""
        self._others = WaitReason(kind, text)

    def of(self, uid: Uid) -> str:
        return self._refused.get(uid, self._others).text

    def counts(self, waiting: WaitingQueue) -> tuple[tuple[str, int], ...]:
        """How many wait for what; together they are all that wait."""
        found = Counter(reason.kind for uid, reason in self._refused.items() if waiting.get(uid) is not None)
        found[WaitKind.WEIGHTS] = waiting.num_held
        found[self._others.kind] += len(waiting) - found.total()
        return tuple((kind.value, num) for kind, num in found.items() if num)


def _refused(kind: WaitKind, text: str, *, full: bool = False) -> Refused:
    return Refused(WaitReason(kind, text), full)


@dataclass(frozen=True, slots=True)
class _Contexts:
    """What a step knows of the contexts of waiting prompts."""

    gain: int  # tokens of one of them that it is worth to wait for
    num_leased: int  # tokens of all that take no memory


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

    def begin(self, now_s: float) -> None:
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

    def try_add(self, request: Request) -> Admitted | Refused:
        if not self._running.num_free_rows:
            return _refused(
                WaitKind.ROWS, f"finds all {len(self._running)} rows of --max-running-requests taken", full=True
            )
        if request.params.penalised and not self._running.num_free_penalty_slots:
            return _refused(WaitKind.PENALTIES, "finds all places of --max-penalised-requests taken")
        if self._num_kept_out >= MAX_KEPT_OUT and self._is_new_program(request):
            return _refused(WaitKind.PROGRAMS, f"is behind {self._num_kept_out} programs that wait for memory as well")
        first, namespace = request.first_group, request.namespace
        if first is not None and self._num_looked_up >= MAX_LOOKED_UP and namespace + first.key not in self._contexts:
            return _refused(WaitKind.CONTEXTS, f"waits for a step that looks up its {len(first.contexts)} contexts")
        if not self._place_adapter(request):
            num = self._running.adapters.num_slots
            return _refused(WaitKind.ADAPTERS, f"waits for one of the {num} adapters of --max-loras-per-batch to end")
        gain = self._worth_waiting(request)
        if gain:
            return _refused(WaitKind.PREFIX, f"waits for {gain} tokens of prefix that another request is computing")
        return self._run(request)

    def _place_adapter(self, request: Request) -> bool:
        """False: it waits. Adapters that are there could keep one out for ever, so none of their requests begins while
        the oldest request waits for a slot.
        """
        is_placed = self._running.place_adapter(request, self._drains)
        self._drains = self._drains or (not is_placed and self._policy.is_aged(request))
        return is_placed

    def _worth_waiting(self, request: Request) -> int:
        self._announce()
        if request.first_group is not None:
            return self._look_up(request.first_group, request.namespace).gain
        matched, states = self._policy.matched(request), self._running.states
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
