"""The layers of a model while adapters are in slots: what each changes, for the tokens of the step that is computed.

Decides that a step says once which slot each of its tokens has. Knows no file and no scheduler. T tokens, Q of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.kernels.cpu.adapters import NativeChanges
from ramet.kernels.cpu.ops import CpuOps
from ramet.kernels.reference_adapters import Changes, LayerChanges, StackedChanges
from ramet.runtime.layers.modules import Embedding, Linear
from ramet.runtime.layers.ops import Ops
from ramet.runtime.lora.reading import moved
from ramet.runtime.lora.targets import EMBEDDING, HEAD, Target, is_left_out
from ramet.runtime.models.decoder import Decoder


class StepSlots:
    """Of the step that is being computed: the slot of each token's adapter, 0 for none."""

    def __init__(self) -> None:
        self._columns: dict[int, Tensor] = {}

    def place(self, *columns: Tensor | None) -> None:
        """[T] int32, and [Q] of those tokens that the last layers go on with: a layer takes the one of its inputs'
        number. None: no token has an adapter.
        """
        self._columns = {len(column): column for column in columns if column is not None}

    def of(self, num_tokens: int) -> Tensor | None:
        return self._columns[num_tokens] if self._columns else None


@dataclass(frozen=True, slots=True)
class AdaptedLayer:
    """Fits Adapted and AdaptedRows of the layers."""

    step: StepSlots
    changes: LayerChanges

    def add(self, x: Tensor, out: Tensor) -> Tensor:
        slots = self.step.of(len(x))
        return out if slots is None else self.changes.add(x, out, slots)

    def add_rows(self, ids: Tensor, out: Tensor, scale: float) -> Tensor:
        slots = self.step.of(len(ids))
        return out if slots is None else self.changes.add_rows(ids, out, slots, scale)


class AdaptedModel:
    """Every layer of `model` that a Target names."""

    def __init__(
        self, model: Decoder, step: StepSlots, targets: Mapping[str, Target], ops: Ops, num_slots: int
    ) -> None:
        self._device = next(model.parameters()).device
        widths: dict[str, int] = {}
        for target in targets.values():
            width = target.num_in if target.by_rows else target.first + target.num_out
            widths[target.module] = max(width, widths.get(target.module, 0))
        self._changes: dict[str, LayerChanges] = {
            name: NativeChanges(ops, num_slots, name == EMBEDDING)
            if isinstance(ops, CpuOps)
            else StackedChanges(width, name == EMBEDDING)
            for name, width in widths.items()
        }
        modules = dict(model.named_modules())
        for name, changes in self._changes.items():
            layer, own = AdaptedLayer(step, changes), modules.get(name)
            match own:
                case Embedding():
                    own.adapted_rows = layer
                case Linear():
                    own.adapted = layer
                case _:
                    assert name == HEAD and not is_left_out(name), name
                    model.embed.adapted = layer

    def place(self, slot: int, changes: Mapping[str, Changes]) -> None:
        """An adapter's into a slot, 1 or more; {} for nothing. No step runs."""
        for name, layer in self._changes.items():
            layer.place(slot, tuple(moved(change, self._device) for change in changes.get(name, ())))


def base_rows(model: Decoder, target: Target, at: Tensor) -> Tensor:
    """Rows [n] int64 of the model's own weight of a target, as the checkpoint counts them: [n, N], on the host."""
    own = dict(model.named_modules()).get(target.module)
    layer = own if isinstance(own, Linear | Embedding) else model.embed
    if target.pairs is not None:
        at = target.pairs.apart(torch.arange(target.num_out)[:, None]).flatten().argsort()[at]
    rows = at + (0 if target.by_rows else target.first)
    if layer.packed is not None:
        return layer.packed.rows(rows).cpu()
    assert layer.weight is not None, "a layer has its weight in one form or the other"
    return layer.weight[rows.to(layer.weight.device)].cpu()
