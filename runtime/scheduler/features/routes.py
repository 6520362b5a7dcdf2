"""The experts of a request's tokens as they are returned, read when it ends.

Decides which tokens have some and the forms that clients know. Routes lie by slot, so those of a cached prefix, of
chunks and of tokens that were computed again after a retraction are read alike. Knows no experts and no device.
"""

import io

import numpy as np

from ramet.ipc.messages import RouteLayout
from ramet.ipc.spec import ExpertRoutes
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import RouteSource
from ramet.runtime.scheduler.rows import RunningRequest


class ReturnedRoutes:
    """`source` None: nothing is kept, and no request that asks for it gets here."""

    def __init__(self, source: RouteSource | None) -> None:
        self._source = source

    def of(self, running: RunningRequest) -> bytes:
        """From the first token that is asked for on; the last one, which nobody has read, has no experts."""
        asked = running.request.spec.expert_routes
        assert asked is not None and self._source is not None, f"{running.uid} asks for experts, which are not kept"
        slots = running.slots[asked.start : min(running.applied, running.total - 1)]
        return packed(self._source.read(slots), self._source.layout, asked)


def packed(experts: Ints, layout: RouteLayout, asked: ExpertRoutes) -> bytes:
    """experts [n, layers with experts, per token]. SGLang's form: int32 [n, layers, per token], zeros where there are
    none. The compact one is vLLM's: a .npy file of the smallest type, [n, layers with experts, per token].
    """
    if asked.compact:
        file = io.BytesIO()
        np.save(file, experts.astype(np.uint8 if layout.experts <= 1 << 8 else np.uint16))
        return file.getvalue()
    whole = np.zeros((len(experts), layout.layers, layout.per_token), np.int32)
    whole[:, list(layout.sparse)] = experts
    return whole.tobytes()
