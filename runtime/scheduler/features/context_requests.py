"""Requests whose prompts have parallel contexts: whether they can be served, and when they run.

Decides that the contexts of a prompt's first group are looked up once in a turn for all prompts that begin with them,
and how many contexts a turn looks up. What running requests have leased of them takes no memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ramet.ipc.messages import Finish, Generate
from ramet.ipc.stats import WaitKind
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Namespace
from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.engine.batch import LoadedRunner
from ramet.runtime.scheduler.admission import AdmissionRound, Refused, refused, waits_for_prefix
from ramet.runtime.scheduler.features.contexts import (
    FirstGroup,
    Group,
    RequestContexts,
    groups_of,
    memory_of_parts,
    no_contexts,
)
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.request_feature import RequestFeature
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.unpublished import MIN_SHARED, Announcement, UnpublishedPrefixes

_Shared = tuple[tuple[Group, ...], FirstGroup]
MAX_LOOKED_UP = 4096  # contexts of waiting prompts in a step: some 40 ms


@dataclass(frozen=True, slots=True)
class _LookUp:
    """What a step knows of the contexts of waiting prompts."""

    gain: int  # tokens of one of them that it is worth to wait for
    num_leased: int  # tokens of all that take no memory


@dataclass(slots=True)
class _LookUps:
    known: dict[Namespace, _LookUp] = field(default_factory=dict)  # by key
    num_contexts: int = 0  # that were looked up


class ParallelContexts(RequestFeature):
    """Groups of the prompt's tokens that are computed apart."""

    asked_by = "content.contexts"
    flag = RowFlag.WATCHED

    def __init__(self, runner: LoadedRunner, cache: PrefixCache) -> None:
        self._why_not, self._cache = no_contexts(runner.facts), cache

    def receive(self, message: Generate, prompt: Ints) -> _Shared | None:
        groups = groups_of(message.content.contexts)
        return (groups, FirstGroup.of(prompt, groups, self._cache.page_size)) if groups else None

    def refuse(self, request: Request, shared: _Shared | None) -> Finish | None:
        if shared is None:  # a single context is text
            return None
        groups, first = shared
        request.own[RequestContexts] = RequestContexts(groups, first)
        if self._why_not:
            return Finish.abort("contexts", self._why_not)
        total = self._cache.total_tokens
        parts = memory_of_parts(groups, self._cache.page_size, self._cache.copies)
        if request.limit + parts <= total:
            return None
        asked = f"{request.prompt_len} prompt and {request.remaining} new tokens"
        return Finish.abort("", f"{asked}, and {parts} for its contexts, do not fit the {total} tokens of the KV pool")

    def waits(self, request: Request, round: AdmissionRound) -> Refused | None:
        contexts, looked_up = request.own.get(RequestContexts), round.own(_LookUps)
        if contexts is None:
            return None
        first = contexts.first
        if looked_up.num_contexts < MAX_LOOKED_UP or request.namespace + first.key in looked_up.known:
            return None
        return refused(WaitKind.CONTEXTS, f"waits for a step that looks up its {len(first.contexts)} contexts")

    def announces(self, request: Request) -> Announcement | None:
        """Its first contexts, as one with all prompts that begin with them."""
        contexts = request.own.get(RequestContexts)
        return None if contexts is None else (contexts.first.key, contexts.first.prefixes)

    def admit(self, request: Request, round: AdmissionRound) -> RunningRequest | Refused | None:
        contexts, namespace = request.own.get(RequestContexts), request.namespace
        if contexts is None:
            return None
        first = contexts.first
        found = _look_up(first, namespace, round, is_announced=round.announce())
        if found.gain:
            return waits_for_prefix(found.gain)
        asked = len(request.tokens) + memory_of_parts(contexts.groups, self._cache.page_size, self._cache.copies)
        promised = asked - found.num_leased + self._cache.page_size + round.reserve(request)
        if (why := round.refusal(request, promised, found.num_leased)) is not None:
            return why
        round.begins(request, promised, found.num_leased)
        if not round.unpublished.has(namespace + first.key):
            del round.own(_LookUps).known[namespace + first.key]  # who shares them may wait from here on
        return round.running.take_without_slots(request, namespace, RowFlag.CONTEXTS)


def worth_waiting(
    unpublished: UnpublishedPrefixes, first: FirstGroup, namespace: Namespace, matched: Sequence[int]
) -> int:
    """Tokens of all contexts together that a prompt would find cached if it waited; 0 when it is not worth it.

    `matched`: of each, with what all begin with.
    """
    found, shared = unpublished.match_lengths(first.before, first.contexts, namespace), len(first.before)
    each = zip(found, matched, strict=True)
    gain = sum(max(0, max(length, shared) - max(known, shared)) for length, known in each)
    gain += max(0, min(found[0], shared) - min(matched[0], shared))
    return gain if gain >= MIN_SHARED else 0


def _look_up(first: FirstGroup, namespace: Namespace, round: AdmissionRound, *, is_announced: bool) -> _LookUp:
    """Look up contexts once in a step for all prompts that begin with them, until one of these begins."""
    key, looked_up = namespace + first.key, round.own(_LookUps)
    if key not in looked_up.known:
        looked_up.num_contexts += len(first.contexts)
        lengths, num_leased = round.cache.peek_each(first.before, first.contexts, namespace)
        gain = worth_waiting(round.unpublished, first, namespace, lengths) if is_announced else 0
        looked_up.known[key] = _LookUp(gain, num_leased)
    return looked_up.known[key]
