"""Records a forward pass on a CPU: the native calls it makes, with their addresses.

A torch op that computes would not be run again by a replay, so recording refuses it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ramet.kernels.cpu.native import Tape
from ramet.kernels.cpu.ops import CpuOps
from ramet.runtime.engine.inputs import NotReplayable

VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "alias", "as_strided", "detach", "empty", "expand", "permute", "reshape", "select", "slice", "split", "squeeze",
        "t", "transpose", "unbind", "unsqueeze", "view", "_reshape_alias", "_unsafe_view",
    )
)  # fmt: skip


class _Refusing:
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name not in VIEWS:
            raise NotReplayable(f"the model's forward pass calls {name}, which is none of our kernels")
        return func(*args, **(kwargs or {}))


class _ViewsOnly(_Refusing, TorchDispatchMode):
    """Inherits its method: torch wraps one that a mode has itself, and the first call then imports torch's compiler,
    which takes more than a second and 60 MB.
    """


@dataclass(frozen=True, slots=True)
class TapedStep:
    """What a replay writes, and the replay, one call of the library."""

    logits: Tensor
    replay: Callable[[], None]
    tape: Tape  # whose memory it uses


def record(ops: CpuOps, forward: Callable[[], Tensor]) -> TapedStep:
    """Run `forward` once. Raises NotReplayable."""
    with ops.recorded() as tape, torch.inference_mode(), _ViewsOnly():
        logits = forward()
    return TapedStep(logits, tape.replay, tape)
