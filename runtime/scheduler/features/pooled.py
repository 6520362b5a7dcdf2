"""The one hidden state that a request asks for: which one that is, and what the model's heads make of it.

A mean is a sum beside its request, in float64, to which every step adds the tokens that it has computed; so it is right
over chunks and retractions. Of what a cached prefix has no states are known: requests that need them compute it anew
(ReturnedStates.reusable). The alternative, sums kept beside every page, would cost memory for all to make few requests
faster.
Knows no batch and no device. n states, N hidden size, M numbers of a head.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ramet.ipc.spec import HiddenMode, PoolingTask
from ramet.runtime.arrays import Floats
from ramet.runtime.scheduler.features.returned import ReturnedStates
from ramet.runtime.scheduler.request import Request

if TYPE_CHECKING:
    from ramet.runtime.engine.pooler import HostPooler

Pooled = tuple[Request, Floats]  # and its state or states [n, N]


def add_states(request: Request, states: Floats) -> Floats | None:
    """states [n, N]: the next ones of a request, or [1, N], their sum. What is returned of them; None: nothing yet."""
    own = request.own[ReturnedStates]
    if own.mode is not HiddenMode.MEAN:
        return states
    summed = states.sum(axis=0, dtype=np.float64)
    own.summed = summed if own.summed is None else own.summed + summed
    if own.next < request.prompt_len:
        return None
    mean = (own.summed / request.prompt_len).astype(np.float32)[None]
    own.summed = None
    return mean


def through_heads(pooler: "HostPooler | None", pooled: Sequence[Pooled]) -> list[Pooled]:
    """Each [1, N] of a request that asks for a head becomes [1, M]; others stay."""
    made = {id(request): states for request, states in pooled}
    for task in PoolingTask:
        asked = [request for request, _ in pooled if request.spec.pooling_task is task]
        if asked:
            assert pooler is not None, f"nothing here does {task.value}"
            rows = pooler.apply(task, np.concatenate([made[id(request)] for request in asked]))
            made.update((id(request), row[None]) for request, row in zip(asked, rows, strict=True))
    return [(request, made[id(request)]) for request, _ in pooled]
