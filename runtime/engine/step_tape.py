"""Records a forward pass on a CPU: the native calls it makes, with their addresses.

A torch op that computes would not be run again by a replay, so recording refuses it.
"""

import contextlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ramet.kernels.cpu.arena import borrowed
from ramet.kernels.cpu.native import Replay
from ramet.kernels.cpu.ops import CpuOps
from ramet.runtime.engine.prepared import Draws, NotReplayable, StepInputs
from ramet.runtime.sampling.epilogue import RowBuffer

States = tuple[Tensor, Tensor]  # x and the residual, as of Decoder.hidden_states

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
            raise NotReplayable(f"the model's forward pass calls {name}, which is not one of our kernels")
        return func(*args, **(kwargs or {}))


class _ViewsOnly(_Refusing, TorchDispatchMode):
    """Inherits its method: torch wraps one that a mode has itself, and the first call then imports torch's compiler,
    which takes more than a second and 60 MB.
    """


class DeferredSteps:
    """Runs a forward pass in one call out of Python: first all of it is listed, then it runs (`CpuOps.deferred`)."""

    def __init__(self, ops: CpuOps) -> None:
        self._ops = ops
        self._seen: set[Hashable] = set()

    def run(self, kind: Hashable, compute: Callable[[], States]) -> States:
        """What `compute` returns. All of a `kind` make the same calls; a first one is looked at, which takes longer.

        Raises NotReplayable, and then nothing has run.
        """
        with self._ops.deferred(), contextlib.nullcontext() if kind in self._seen else _ViewsOnly():
            states = compute()
        self._seen.add(kind)
        return states


@dataclass(frozen=True, slots=True)
class TapedStep:
    """A `RecordedStep` of native calls."""

    logits: Tensor
    drawn: tuple[Draws, ...]
    forward: tuple[Replay, ...]
    whole: tuple[Replay, ...]
    in_order: bool = False


class Recorder:
    """Of native calls, which run on the threads of `ops`; what rows read next is in the row buffer."""

    def __init__(self, ops: CpuOps, row_buffer: RowBuffer) -> None:
        self._ops, self._row_buffer = ops, row_buffer

    def __call__(
        self, inputs: StepInputs, forward: Callable[[], Tensor], draw: Callable[[Tensor], tuple[Tensor, Tensor]]
    ) -> TapedStep:
        """List both: neither runs. Raises NotReplayable."""
        ops, takes, gives, drawn = self._ops, [], [], []
        with torch.inference_mode(), _ViewsOnly():
            for staged in inputs.staged:
                with ops.recorded() as tape:
                    ops.copy(inputs.read.memory, staged.memory)
                    self._relay(inputs)
                takes.append(tape)
            with ops.recorded() as forward_tape:
                logits = forward()
            with ops.recorded() as draw_tape:
                tokens, finite = draw(logits)
            for _ in inputs.staged:
                kept = Draws(
                    torch.empty(tokens.shape, dtype=tokens.dtype), torch.empty(finite.shape, dtype=finite.dtype)
                )
                with ops.recorded() as tape:
                    ops.copy(kept.tokens, tokens)
                    ops.copy(kept.finite, finite)
                gives.append(tape)
                drawn.append(kept)
        alone = [Replay(ops.library, (take, forward_tape), ops.threads) for take in takes]
        whole = [
            Replay(ops.library, (take, forward_tape, draw_tape, give), ops.threads)
            for take, give in zip(takes, gives, strict=True)
        ]
        return TapedStep(borrowed(logits), tuple(drawn), tuple(alone), tuple(whole))

    def _relay(self, inputs: StepInputs) -> None:
        of, buffer, forward = inputs.read.of, self._row_buffer, inputs.forward
        assert forward.rope_positions is not None
        state = buffer.next_ids, buffer.lengths, forward.token_ids, forward.positions, forward.rope_positions
        self._ops.relay(of["rows"], of["relayed"], of["seq_lens"], of["shifts"], *state)


def draw_next(ops: CpuOps, row_buffer: RowBuffer, logits: Tensor, inputs: StepInputs) -> tuple[Tensor, Tensor]:
    """Tokens and which are finite, as `ops.draw`; the tokens are what the rows read next."""
    tokens, finite = ops.draw(logits, inputs.draw_params, inputs.drawn_positions)
    ops.advance(inputs.rows, tokens, row_buffer.next_ids, row_buffer.lengths)
    return tokens, finite
