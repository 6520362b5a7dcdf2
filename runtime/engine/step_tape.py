"""Records a forward pass on a CPU: the native calls it makes, with their addresses.

A torch op that computes would not be run again by a replay, so recording refuses it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ramet.kernels.cpu.native import Replay
from ramet.kernels.cpu.ops import CpuOps
from ramet.runtime.engine.inputs import NotReplayable, StepDraws
from ramet.runtime.sampling.epilogue import RowBuffer

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
    """A `RecordedStep` of native calls."""

    logits: Tensor
    tokens: Tensor
    finite: Tensor
    forward: Replay
    whole: Replay


class Recorder:
    """Of native calls, which run on the threads of `ops`."""

    def __init__(self, ops: CpuOps) -> None:
        self._ops = ops

    def __call__(self, forward: Callable[[], Tensor], draw: Callable[[Tensor], tuple[Tensor, Tensor]]) -> TapedStep:
        """Run both once. Raises NotReplayable."""
        ops = self._ops
        with torch.inference_mode(), _ViewsOnly():
            with ops.recorded() as first:
                logits = forward()
            with ops.recorded() as then:
                tokens, finite = draw(logits)
        alone, whole = (Replay(ops.library, tapes, ops.threads) for tapes in ([first], [first, then]))
        return TapedStep(logits, tokens, finite, alone, whole)


def draw_next(ops: CpuOps, row_buffer: RowBuffer, logits: Tensor, draws: StepDraws) -> tuple[Tensor, Tensor]:
    """Tokens and which are finite, as `ops.draw`; the tokens are what the rows read next."""
    tokens, finite = ops.draw(logits, *draws.columns)
    ops.advance(draws.rows, tokens, row_buffer.next_ids, row_buffer.lengths)
    return tokens, finite
