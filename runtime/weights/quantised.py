"""Linear layers whose weights a checkpoint has in 4 bits: their tensors are collected, and packed when all are there.

Decides which layers these are, by the tensors that there are, and what is an error in them. The weights are never
widened: words of eight go into the layout of the device as they are. N in, M out, G groups of inputs.

    AWQ   qweight [N, M/8]   qzeros [G, M/8]   scales [G, M]              weight = (q - zero) * scale
    GPTQ  qweight [N/8, M]   qzeros [G, M/8]   scales [G, M]   g_idx [N]  the same; before v2, zeros are stored less one
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from ramet.kernels.int4_words import Int4Words, Words, awq_columns, columns, group_of
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.modules import Linear, WordsPacker
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.shape import CheckpointQuantization
from ramet.runtime.models.weight_map import WeightMap
from ramet.runtime.weights.names import checkpoint_parts
from ramet.runtime.weights.sound import check_dtype

WORDS, ZEROS, SCALES, GROUP_OF_INPUT = "qweight", "qzeros", "scales", "g_idx"
IN_A_WORD = 8
SYMMETRIC_ZERO = 8


@dataclass(slots=True)
class Layer:
    """A linear layer of ours and the modules of the checkpoint that it is made of, one below the other."""

    linear: Linear
    num_in: int
    dtype: torch.dtype
    device: torch.device
    rows: dict[str, int]  # module -> its outputs
    kinds: tuple[str, ...]  # of tensors that each module has
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return len(self.tensors) == len(self.rows) * len(self.kinds)

    def all(self, kind: str) -> list[Tensor]:
        return [self.tensors[f"{module}.{kind}"].to(self.device) for module in self.rows]


class QuantisedLayers:
    """`names` are those of all tensors, as the family's map has them. The layers lose their plain weights at once."""

    def __init__(
        self, model: Decoder, names: Iterable[str], weights: WeightMap, packer: WordsPacker, folder: Path
    ) -> None:
        self._packer, self._folder = packer, folder
        self._layers: dict[str, Layer] = {}  # tensor that has not come yet -> where it belongs
        self._modules: set[str] = set()
        quantization = model.shape.quantization
        if quantization is not None and quantization.kept == "int4":
            self._quantization: CheckpointQuantization = quantization
            present = frozenset(names)
            for name, module in model.named_modules():
                if isinstance(module, Linear):
                    self._expect(name, module, present, weights)

    def _expect(self, name: str, linear: Linear, present: frozenset[str], weights: WeightMap) -> None:
        assert linear.weight is not None, "weights are loaded once"
        num_out, num_in = linear.weight.shape
        parts = checkpoint_parts([(f"{name}.{WORDS}", num_out)], weights)
        found = [part for part in parts if part in present]
        if not found:
            return
        if any(part.pairs is not None for part in parts.values()):
            raise ConfigError(
                f"{self._folder}: tensor {found[0]} is of a layer whose outputs are reordered when they are loaded, "
                "which is not done to 4-bit weights: take the plain checkpoint and --quantization int4"
            )
        if absent := [part for part in parts if part not in present]:
            raise ConfigError(
                f"{self._folder}: tensor {found[0]} is there and {absent[0]} is not: "
                "what becomes one layer must be quantised in all its parts or in none"
            )
        rows = {part.removesuffix(f".{WORDS}"): at.rows for part, at in parts.items()}
        has_order = f"{next(iter(rows))}.{GROUP_OF_INPUT}" in present
        kinds = (WORDS, ZEROS, SCALES, *((GROUP_OF_INPUT,) if has_order else ()))
        layer = Layer(linear, num_in, linear.weight.dtype, linear.weight.device, rows, kinds)
        self._layers |= {f"{module}.{kind}": layer for module in rows for kind in kinds}
        self._modules |= rows.keys()
        linear.weight = None

    @property
    def missing(self) -> list[str]:
        return list(self._layers)

    def take(self, name: str, tensor: Tensor, named: str) -> bool:
        """Whether the tensor is one of a quantised layer. Raises ConfigError if it is not as it should be."""
        module, _, kind = name.rpartition(".")
        if kind == "bias" and module in self._modules and not tensor.any():
            return True  # AutoGPTQ writes one for layers that have none
        layer = self._layers.pop(name, None)
        if layer is None:
            return False
        self._check(kind, tensor, layer, layer.rows[module], named)
        layer.tensors[name] = tensor
        if layer.is_whole:
            layer.linear.take(self._packer(self._words(layer)))
            layer.tensors.clear()
        return True

    def _check(self, kind: str, tensor: Tensor, layer: Layer, rows: int, named: str) -> None:
        num_in, groups = layer.num_in, -(-layer.num_in // (self._quantization.group_size or layer.num_in))
        if group_of(num_in) is None or rows % IN_A_WORD:
            raise ConfigError(f"{named} belongs to a weight [{rows}, {num_in}], must be of multiples of 8 and of 32")
        shape = {
            WORDS: [num_in, rows // IN_A_WORD] if self._quantization.method == "awq" else [num_in // IN_A_WORD, rows],
            ZEROS: [groups, rows // IN_A_WORD],
            SCALES: [groups, rows],
            GROUP_OF_INPUT: [num_in],
        }[kind]
        if list(tensor.shape) != shape:
            raise ConfigError(f"{named} is {list(tensor.shape)}, config.json asks for {shape}")
        if kind == SCALES:
            check_dtype(tensor, named)
            if not tensor.half().isfinite().all():
                raise ConfigError(f"{named} has scales that are not finite in float16")
        elif tensor.dtype != torch.int32:
            raise ConfigError(f"{named} is {str(tensor.dtype).removeprefix('torch.')}, must be int32")

    def _words(self, layer: Layer) -> Int4Words:
        size = self._quantization.group_size or layer.num_in
        group = group_of(layer.num_in, size & -size)  # groups of a kernel's size, several of which may share a scale
        assert group is not None, "inputs come in multiples of 32"
        of_group = torch.arange(0, layer.num_in, group, device=layer.device) // size
        scales, zeros = torch.cat(layer.all(SCALES), 1).half(), self._zeros(torch.cat(layer.all(ZEROS), 1))
        return Int4Words(
            Words.AWQ if self._quantization.method == "awq" else Words.GPTQ,
            torch.cat(layer.all(WORDS), 1).contiguous(),
            scales[of_group].contiguous(),
            zeros[of_group].contiguous(),
            self._order(layer, size),
            layer.dtype,
        )

    def _zeros(self, words: Tensor) -> Tensor:
        """[G, M] float16"""
        if self._quantization.method == "awq":
            return awq_columns(words).half()
        stored = columns(words)
        # some say the older format and store what the newer one does; with the zero of symmetric weights it shows
        meant = self._quantization.is_symmetric and bool((stored == SYMMETRIC_ZERO).all())
        return stored.half() + (1 if self._quantization.zeros_less_one and not meant else 0)

    def _order(self, layer: Layer, size: int) -> Tensor | None:
        """The inputs in the order of their groups, [N] int32; None where they lie in it."""
        if GROUP_OF_INPUT not in layer.kinds:
            return None
        first, *others = layer.all(GROUP_OF_INPUT)
        modules = list(layer.rows)
        if any(not torch.equal(first, other) for other in others):
            raise ConfigError(
                f"{self._folder}: {GROUP_OF_INPUT} of {', '.join(modules)} must be the same: they are one layer"
            )
        order, along = torch.argsort(first, stable=True), torch.arange(layer.num_in, device=layer.device)
        if not torch.equal(first[order].long(), along // size):
            raise ConfigError(
                f"{self._folder}: {modules[0]}.{GROUP_OF_INPUT} must name each of its groups {size} times"
            )
        return None if torch.equal(order, along) else order.int()
