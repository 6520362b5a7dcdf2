"""The layers of a model while adapters are in slots: which layer each adapter changes (layers/adapted.py applies it).

Knows no file and no scheduler.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ramet.kernels.stacked_adapters import Changes, LayerChanges
from ramet.runtime.layers.adapted import AdaptedLayer
from ramet.runtime.layers.modules import Embedding, Linear
from ramet.runtime.layers.ops import Ops
from ramet.runtime.lora.reading import moved
from ramet.runtime.lora.targets import EMBEDDING, HEAD, Target, is_left_out
from ramet.runtime.models.decoder import Decoder


class AdaptedModel:
    """Every layer of `model` that a Target names."""

    def __init__(self, model: Decoder, targets: Mapping[str, Target], ops: Ops, num_slots: int) -> None:
        self._device = next(model.parameters()).device
        widths: dict[str, int] = {}
        for target in targets.values():
            width = target.num_in if target.by_rows else target.first + target.num_out
            widths[target.module] = max(width, widths.get(target.module, 0))
        self._changes: dict[str, LayerChanges] = {
            name: ops.layer_changes(width, num_slots, name == EMBEDDING) for name, width in widths.items()
        }
        modules = dict(model.named_modules())
        for name, changes in self._changes.items():
            layer, own = AdaptedLayer(model.token_adapters, changes), modules.get(name)
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
