"""Packed weights that are kept for the next start: which file belongs to which model, and how much is kept in all.

Decides the key: the checkpoint's files by path, size and time of change, what was asked of them, and the kernels.
Random weights are not kept, nor are small models, which load as fast. What cannot be kept is a line in the log, never
an error.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from ramet.ipc.folders import OwnedFolder
from ramet.kernels.cpu.build import NoCache, is_private, sources_hash
from ramet.kernels.cpu.memory import HUGE_PAGE
from ramet.kernels.cpu.weight_file import Damaged, Facts, read, write
from ramet.kernels.cpu.weights import KINDS, parts_of
from ramet.kernels.packers import WeightLayout
from ramet.runtime.config import ModelArgs
from ramet.runtime.layers.modules import Embedding, Linear
from ramet.runtime.layers.ops import Ops
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.weights.ahead import SUFFIX, folder_of, remember
from ramet.runtime.weights.containers import opened

log = logging.getLogger("ramet")

MIN_BYTES = 64 << 20  # of weights that are kept: loading fewer takes as long as mapping them
GIB = 1 << 30
Packed = Linear | Embedding


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """The file of one model, which may not be there yet."""

    path: Path
    folder: Path  # of the model
    layout: WeightLayout
    max_bytes: int  # of all files of the folder

    @classmethod
    def of(cls, model: ModelArgs, folder: Path, dtype: torch.dtype, ops: Ops) -> "KeptWeights | None":
        """None where weights are not kept."""
        layout = ops.packers.layout
        if layout is None or model.load_format == "dummy" or not model.weights_cache_gb:
            return None
        try:
            place = folder_of(model)
        except NoCache as why:
            log.warning("packed weights are not kept: %s", why)
            return None
        path = place / f"{key_of(model, folder, dtype, layout)}{SUFFIX}"
        return cls(path, folder, layout, int(model.weights_cache_gb * GIB))

    def fill(self, model: Decoder) -> bool:
        """Give a model, on the meta device or whole, the weights that are kept. False: there are none."""
        if not self.path.is_file():
            return False
        try:
            if not is_private(self.path):
                raise Damaged("others may write to it")
            place_all(model, self.layout, *read(self.path))
            os.utime(self.path)
            remember(self.path, self.folder)
        except (Damaged, OSError) as why:
            log.warning("weights are packed again, for %s cannot be used: %s", self.path, why)
            return False
        return True

    def writing(self, model: Decoder) -> Callable[[], None] | None:
        """What keeps the weights as they are now, whole or not at all: two processes may do this at the same moment.

        None: they are not kept.
        """
        odd = {type(module.packed).__name__ for _, module in packed_modules(model)} - KINDS.keys()
        if odd:
            log.info("packed weights are not kept: a file has no form for %s", ", ".join(odd))
            return None
        tensors, facts = taken_apart(model)
        size = sum(tensor.nbytes for tensor in tensors.values())
        return partial(self._write, tensors, facts) if size >= MIN_BYTES and self._fits(size + HUGE_PAGE) else None

    def _write(self, tensors: dict[str, Tensor], facts: Facts) -> None:
        try:
            with OwnedFolder.make(self.path.parent, "write-") as work:
                whole = work.path / self.path.name
                write(whole, tensors, facts)
                whole.chmod(0o600)
                os.replace(whole, self.path)
        except OSError as error:
            log.warning("packed weights are not kept, the next start takes as long: %s", error)
            return
        remember(self.path, self.folder)
        log.info("packed weights are kept for the next start: %s", self.path)

    def _fits(self, size: int) -> bool:
        """Files that were used longest ago are removed until it does."""
        if size > self.max_bytes:
            log.info("packed weights are not kept: %.1f GB are more than --weights-cache-gb", size / GIB)
            return False
        files = []
        for path in self.path.parent.glob(f"*{SUFFIX}"):
            with suppress(OSError):  # another process has removed it
                files.append((path.stat().st_mtime_ns, path.stat().st_size, path))
        used = sum(size for _, size, _ in files)
        for _, freed, path in sorted(files):
            if used + size <= self.max_bytes:
                break
            log.info("%s is removed: --weights-cache-gb", path)
            path.unlink(missing_ok=True)
            used -= freed
        return True


def key_of(model: ModelArgs, folder: Path, dtype: torch.dtype, layout: WeightLayout) -> str:
    parts = [
        layout.name,
        sources_hash(),
        str(dtype),
        str(model.quantization),
        model.json_model_override_args,
    ]
    for path in sorted({*opened(folder).files, *folder.glob("*.json")}):
        found = path.stat()
        parts.append(f"{path.resolve()} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def packed_modules(model: nn.Module) -> Iterator[tuple[str, Packed]]:
    for name, module in model.named_modules():
        if isinstance(module, Linear | Embedding) and module.packed is not None:
            yield name, module


def taken_apart(model: nn.Module) -> tuple[dict[str, Tensor], Facts]:
    """Every tensor of the model, and what else its packed weights are made of."""
    tensors: dict[str, Tensor] = {}
    facts: Facts = {}
    for name, module in packed_modules(model):
        kind, parts, facts_of_it = parts_of(module.packed)
        tensors |= {f"{name}/{part}": tensor for part, tensor in parts.items()}
        facts[name] = [kind, list(parts), facts_of_it]
    return tensors | {name: parameter.data for name, parameter in model.named_parameters()}, facts


def place_all(model: nn.Module, layout: WeightLayout, tensors: dict[str, Tensor], facts: Facts) -> None:
    """What `taken_apart` has made of a model of the same shape."""
    for name, (kind, parts, facts_of_it) in facts.items():
        module = model.get_submodule(name)
        assert isinstance(module, Linear | Embedding), name
        module.take(layout.restored(kind, {part: tensors[f"{name}/{part}"] for part in parts}, facts_of_it))
    for name, _ in list(model.named_parameters()):
        owner, _, own = name.rpartition(".")
        setattr(model.get_submodule(owner), own, nn.Parameter(tensors[name], requires_grad=False))
