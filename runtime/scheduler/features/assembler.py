"""Brings prompts with parallel contexts to run: gives their parts rows and memory, stage by stage, then the rest.

Decides when a part begins: as soon as its stage may be computed, a row of PART_ROWS is free and memory is there. Parts
are computed as rows of the same steps as everything else, in chunks, and none of them is retracted by itself: their
request is, whole. If nothing can run because several such requests hold the memory that the others need, they are
retracted one by one. A turn begins MAX_BEGUN parts at most: those that are cached need no step to wait for, and others
wait for the turn. Knows the cache and the running set, not the policy and not the device.
"""

from collections.abc import Callable

import numpy as np

from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.features.assembly import Assembly, request_of_part
from ramet.runtime.scheduler.features.contexts import Part, RequestContexts
from ramet.runtime.scheduler.features.parts import Parts
from ramet.runtime.scheduler.features.returned import (
    ReturnedLogprobs,
    ReturnedStates,
    next_hidden,
    next_logprob,
    returns_early_states,
    unknown_logprob,
)
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.retraction import Retraction
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet

MAX_BEGUN = 256  # parts in one turn: some 10 ms


class Assembler(TurnFeature):
    def __init__(
        self, parts: Parts, running: RunningSet, retraction: Retraction, opened: Callable[[RunningRequest], bool]
    ) -> None:
        """`opened` is told of each request whose contexts are computed: its own tokens come next."""
        self._parts, self._running, self._retraction, self._opened = parts, running, retraction, opened
        self._cache = running.memory.cache
        self.work = parts.assemblies
        self._num_left = 0  # parts that this turn may still begin

    def proceed(self) -> list[Request]:
        """Begin what can begin in this turn. Returns the requests that had to be retracted."""
        retracted: list[Request] = []
        self._num_left = MAX_BEGUN
        self._proceed()
        while self._is_stuck and not self.goes_on:
            retracted += self._retraction.free_some()
            self._proceed()
        return retracted

    @property
    def promised_tokens(self) -> int:
        return self._parts.promised_tokens(self._cache.page_size)

    @property
    def goes_on(self) -> bool:
        return not self._num_left and bool(self._parts.open)

    @property
    def _is_stuck(self) -> bool:
        running = self._running
        if running.memory.deferred.in_flight or running.prefilling or len(running.decoding):
            return False
        return bool(self._parts.open)

    def _proceed(self) -> None:
        for assembly in self._parts.open:
            if not self._num_left:
                return
            self._proceed_with(assembly)

    def _proceed_with(self, assembly: Assembly) -> None:
        while True:
            while (part := assembly.next_part) is not None:
                if not self._num_left or not self._begin(assembly, part):
                    return
            if not assembly.is_computed:
                return
            if not assembly.advance():
                return self._open(assembly)

    def _begin(self, assembly: Assembly, part: Part) -> bool:
        """Compute a part, if it is not cached whole; False: there is no row or no memory."""
        if not self._parts.rows.num_free:
            return False
        request, base = request_of_part(assembly.owner.request, part), part.base
        if next_logprob(request) is None and not returns_early_states(request):
            lease, prefix = self._cache.acquire_all(request.tokens[base.length :], base.namespace)
        else:
            lease, prefix = self._cache.acquire(request.reusable[base.length :], base.namespace)
        slots = np.concatenate([base.slots, prefix])
        if len(slots) == len(request.tokens):
            part.lease, part.slots = lease, slots[part.own :]
        elif not self._parts.take(request, lease, slots):
            self._cache.release(lease)
            return False
        part.num_cached = max(len(slots) - max(part.own, base.length), 0)
        assembly.begun(part)
        self._num_left -= 1
        return True

    def _open(self, assembly: Assembly) -> None:
        """Every context is computed: what follows them begins, if there is memory for it."""
        owner, base = assembly.owner, assembly.base
        request = owner.request
        contexts, asked, told = request.own[RequestContexts], next_logprob(request), next_hidden(request)
        contexts.base = base
        if asked is not None and asked <= base.length:
            after = base.length + 1
            request.own[ReturnedLogprobs].next = after if after < request.prompt_len else None
        if returns_early_states(request):
            request.own[ReturnedStates].next = max(told, base.length)
        lease, prefix = self._cache.acquire(request.reusable[base.length :], base.namespace)
        if not self._parts.take_rest(owner, lease, np.concatenate([base.slots, prefix])):
            self._cache.release(lease)
            contexts.base = None
            if asked is not None:
                request.own[ReturnedLogprobs].next = asked
            if returns_early_states(request):
                request.own[ReturnedStates].next = told
            return
        assembly.is_open = False
        if asked is not None and asked <= base.length:
            assembly.after_contexts = [unknown_logprob(request, int(request.tokens[base.length]))]
        if request.cached_tokens is None:
            request.cached_tokens = min(assembly.num_cached + lease.length, request.prompt_len)
        self._opened(owner)
