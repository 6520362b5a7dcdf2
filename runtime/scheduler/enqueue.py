"""From `Generate` messages to requests in the queue, one for each sample, or to why one cannot be served."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from ramet.ipc.content import Content
from ramet.ipc.messages import Finish, Generate, unpack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.request import Request, seed_of_sample
from ramet.runtime.scheduler.request_feature import RequestFeature
from ramet.runtime.scheduler.stage_times import StageTimes

PLAIN = Generate([], RequestSpec(SamplingParams()), Content())


class Enqueuer:
    """`features` are asked in their order whether they serve a request; `seed` draws those of requests without one.

    `marks`: bits of RowFlag by the path of a field of `Generate`, for requests that differ from a plain one in it and
    whose features have something to do only while they run.
    """

    def __init__(
        self,
        core: Core,
        features: Sequence[RequestFeature],
        marks: Mapping[str, int],
        seed: int,
        clock: Callable[[], float],
    ) -> None:
        self._core, self._clock, self._seeds = core, clock, np.random.default_rng(seed)
        asked = ((attrgetter(feature.asked_by), feature) for feature in features)
        self._features = [(asks, asks(PLAIN), feature) for asks, feature in asked]
        marked = ((attrgetter(path), flag) for path, flag in marks.items())
        self._marks = [(asks, asks(PLAIN), flag) for asks, flag in marked]

    def enqueue(self, message: Generate) -> None:
        spec, now_s = message.spec, self._clock()
        assert message.content.ids is not None, f"{message.uids} came without ids"
        prompt = np.array(unpack_ids(message.content.ids), dtype=np.int32)
        asked, shared, flags = list[RequestFeature](), list[Any](), 0
        for asks, plain, feature in self._features:
            if asks(message) != plain:
                asked.append(feature)
                shared.append(feature.receive(message, prompt))
                flags |= feature.flag
        for asks, plain, flag in self._marks:
            if asks(message) != plain:
                flags |= flag
        given = spec.params.sampling_seed
        seed = given if given is not None else int(self._seeds.integers(1 << 63))
        for sample, uid in enumerate(message.uids):
            times = StageTimes(now_s, message.tokenized, message.traced)
            request = Request(uid, prompt, spec, seed_of_sample(seed, sample), message.arrival_s, times)
            request.asked = tuple(asked)
            request.flags |= flags
            outcome: Finish | bool | None = None
            for each, own in zip(asked, shared, strict=True):
                outcome = outcome or each.refuse(request, own)
            outcome = outcome or self._too_large(request)
            for each, own in zip(asked, shared, strict=True):
                outcome = outcome or each.arrive(request, own)
            if outcome is not True:
                self.wait_or_close(request, outcome or None)

    def wait_or_close(self, request: Request, finish: Finish | None) -> None:
        """It waits in the queue, or ends before it has run."""
        if finish is None:
            self._core.waiting.add(request)
        else:
            self._core.results.close_waiting(request, finish)

    def _too_large(self, request: Request) -> Finish | None:
        """Why it may need more memory than there is."""
        total = self._core.cache.total_tokens
        if request.limit <= total:
            return None
        asked = f"{request.prompt_len} prompt and {request.remaining} new tokens"
        return Finish.abort("", f"{asked} do not fit the {total} tokens of the KV pool")
