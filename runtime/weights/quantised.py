"""Linear layers whose weights stay in the bits that a checkpoint has: their tensors are collected, then packed.

Decides which layers these are, by the headers of the tensors: those that a kernel here multiplies as they are, with
the checkpoint's own whole numbers. Any other is widened. A layer of ours may be several weights of the checkpoint, one
below the other. N in, M out, G groups of inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ramet.kernels.int4_words import Int4Words, group_of
from ramet.kernels.packers import WordsPacker
from ramet.kernels.reference_weights import Int8Weight
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.modules import Linear
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.weight_map import WeightMap
from ramet.runtime.weights.bundle import Bundle, Bytes, Facts, FourBits
from ramet.runtime.weights.names import checkpoint_parts

ROUNDED = 2.0**-10  # of a scale, at most, when it becomes float16


@dataclass(frozen=True, slots=True)
class QuantisedLayer:
    linear: Linear
    dtype: torch.dtype
    device: torch.device
    bundles: Sequence[Bundle]  # from the first output down

    @property
    def is_whole(self) -> bool:
        return all(bundle.is_whole for bundle in self.bundles)


class QuantisedLayers:
    """Of all bundles of a checkpoint, those of layers that stay as they are. The layers lose their weights at once."""

    def __init__(self, model: Decoder, bundles: Sequence[Bundle], facts: Facts, weights: WeightMap) -> None:
        self._facts, self._weight_only = facts, True
        self._layers: dict[str, tuple[QuantisedLayer, Bundle, str]] = {}  # tensor that has not come -> where it belongs
        self._modules: set[str] = set()
        self.claimed: set[str] = set()  # names of weights
        quantization = model.shape.quantization
        if quantization is None or quantization.kept is None:
            return
        self._weight_only = quantization.weight_only
        by_weight = {bundle.weight: bundle for bundle in bundles if bundle.kept is not None}
        for name, module in model.named_modules():
            if isinstance(module, Linear):
                self._claim(name, module, by_weight, weights)

    def _claim(self, name: str, linear: Linear, bundles: dict[str, Bundle], weights: WeightMap) -> None:
        assert linear.weight is not None, "weights are loaded once"
        num_out, num_in = linear.weight.shape
        parts = checkpoint_parts([(f"{name}.weight", num_out)], weights)
        found = [bundles[part] for part in parts if part in bundles]
        is_one_form = len(found) == len(parts) and len({bundle.kept for bundle in found}) == 1
        if not is_one_form or any(part.pairs is not None for part in parts.values()):
            return
        for bundle, part in zip(found, parts.values(), strict=True):
            if bundle.shape != (part.rows, num_in):
                named = self._facts[next(iter(bundle.names.values()))].named
                raise ConfigError(
                    f"{named} is of a weight {list(bundle.shape)}, config.json asks for {[part.rows, num_in]}"
                )
        layer = QuantisedLayer(linear, linear.weight.dtype, linear.weight.device, found)
        for bundle in found:
            self._layers |= {name: (layer, bundle, kind) for kind, name in bundle.names.items()}
        self.claimed |= parts.keys()
        self._modules |= {part.removesuffix(".weight") for part in parts}
        linear.weight = None

    def waits_for(self, name: str) -> bool:
        return name in self._layers

    def may_be_bias_of_none(self, name: str) -> bool:
        """AutoGPTQ writes one of zeros for layers that have none."""
        return name.endswith(".bias") and name.removesuffix(".bias") in self._modules

    def take(self, name: str, tensor: Tensor, packer: WordsPacker) -> bool:
        """Whether the tensor is one of such a layer. Raises ConfigError for numbers that mean nothing."""
        if name not in self._layers:
            return False
        layer, bundle, kind = self._layers.pop(name)
        bundle.parts[kind] = tensor
        if layer.is_whole:
            self._fill(layer, packer)
        return True

    def _fill(self, layer: QuantisedLayer, packer: WordsPacker) -> None:
        sources = [bundle.as_kept(bundle.parts) for bundle in layer.bundles if bundle.as_kept is not None]
        fours = [source for source in sources if isinstance(source, FourBits)]
        bytes_ = [source for source in sources if isinstance(source, Bytes)]
        if len(bytes_) == len(layer.bundles):
            wholes = torch.cat([source.wholes.to(layer.device) for source in bytes_])
            scales = torch.cat([source.scales.to(layer.device) for source in bytes_])
            layer.linear.take(packer(Int8Weight(wholes, scales, layer.dtype, self._weight_only)))
        elif len(fours) == len(layer.bundles) and self._fit(layer, fours):
            layer.linear.take(packer(self._words(layer, fours)))
        else:
            wide = torch.cat([bundle.widened(layer.dtype) for bundle in layer.bundles]).to(layer.device)
            if not wide.isfinite().all():
                raise ConfigError(f"{self._named(layer)} has numbers that {layer.dtype} cannot hold")
            layer.linear.weight = nn.Parameter(wide, requires_grad=False)
        for bundle in layer.bundles:
            bundle.parts.clear()

    def _named(self, layer: QuantisedLayer) -> str:
        return self._facts[next(iter(layer.bundles[0].names.values()))].named

    def _fit(self, layer: QuantisedLayer, fours: Sequence[FourBits]) -> bool:
        """Whether float16 holds the scales."""
        for four in fours:
            scales = four.scales.float()
            if not scales.isfinite().all():
                raise ConfigError(f"{self._named(layer)} has scales that are not finite")
            if not bool(((scales.half().float() - scales).abs() <= ROUNDED * scales.abs()).all()):
                return False
        return all(four.size == fours[0].size for four in fours)

    def _words(self, layer: QuantisedLayer, fours: Sequence[FourBits]) -> Int4Words:
        size, num_in = fours[0].size, layer.bundles[0].shape[1]
        group = group_of(num_in, size & -size)  # groups of a kernel's size, several of which may share a scale
        assert group is not None, "only such weights are claimed"
        of_group = torch.arange(0, num_in, group, device=layer.device) // size

        def joined(tensors: list[Tensor]) -> Tensor:
            return torch.cat([tensor.to(layer.device) for tensor in tensors], 1)

        return Int4Words(
            fours[0].layout,
            joined([four.words for four in fours]).contiguous(),
            joined([four.scales.half() for four in fours])[of_group].contiguous(),
            joined([four.zeros for four in fours])[of_group].contiguous(),
            self._order(layer, fours),
            layer.dtype,
        )

    def _order(self, layer: QuantisedLayer, fours: Sequence[FourBits]) -> Tensor | None:
        """The inputs in the order of their groups, [N] int32; None where they lie in it."""
        first = fours[0].group_of_input
        weights = [bundle.weight.removesuffix(".weight") for bundle in layer.bundles]
        if any(not _same(first, four.group_of_input) for four in fours):
            raise ConfigError(
                f"{self._named(layer)}: g_idx of {', '.join(weights)} must be the same: they are one layer"
            )
        if first is None:
            return None
        order, along = torch.argsort(first, stable=True), torch.arange(len(first))
        if not torch.equal(first[order].long(), along // fours[0].size):
            raise ConfigError(
                f"{self._named(layer)}: g_idx of {weights[0]} must name each of its groups {fours[0].size} times"
            )
        return None if torch.equal(order, along) else order.int().to(layer.device)


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))
