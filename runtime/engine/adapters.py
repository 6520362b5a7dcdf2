"""The adapters that a runner has: all that are loaded on the host, and those of them that are in slots for its steps.

Decides what is read, what is kept and what is dropped. Which of them is in a slot the scheduler says, with the first
step that has it there. On a CPU a slot is an address; on a GPU it is a copy. An adapter is named by its generation,
which no two loads share.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import torch

from ramet.runtime.config import AdapterArgs
from ramet.runtime.engine.extras import AdapterPlacement
from ramet.runtime.engine.forward import ForwardPass
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.ops import Ops
from ramet.runtime.lora.layers import AdaptedModel, base_rows
from ramet.runtime.lora.reading import FILE, Adapter, check_model_rows, read_adapter
from ramet.runtime.lora.targets import Targets, targets_of
from ramet.runtime.machine import available_memory
from ramet.runtime.models.causal import CausalModel
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.shape import ModelShape

log = logging.getLogger("ramet")
ROOM = 1.2  # of an adapter's file that must be free: it is copied beside the mapped file


class AdapterStore:
    """`wait` returns when no step runs."""

    def __init__(
        self, args: AdapterArgs, shape: ModelShape, forward: ForwardPass, dtype: torch.dtype, ops: Ops,
        wait: Callable[[], None],
    ) -> None:  # fmt: skip
        self._args, self._shape, self._dtype, self._ops = args, shape, dtype, ops
        self._model = forward.model if isinstance(forward.model, Decoder) else None
        self._wait = wait
        self._loaded: dict[int, Adapter] = {}
        self._placed: dict[int, int] = {}  # slot -> generation
        self._targets: Targets | None = None  # made with the first that is loaded, as its layers are
        self._adapted: AdaptedModel | None = None
        self._adapts = False  # from the first that is loaded on, whatever model there is

    @property
    def num_bytes(self) -> int:
        return sum(adapter.num_bytes for adapter in self._loaded.values())

    def read(self, path: str) -> Adapter:
        """On any thread, while steps run. Raises ConfigError."""
        if self._targets is None:
            self._targets = targets_of(self._shape)
        size = self._size(Path(path))
        if size * ROOM > (free := available_memory()):
            raise ConfigError(f"{path} needs {size} bytes, {free} are free: unload other adapters")
        adapter = read_adapter(Path(path), self._targets, self._dtype, self._args.max_lora_rank)
        log.info(
            "adapter of %s: %d layers, rank %d, %d bytes", path, len(adapter.changes), adapter.rank, adapter.num_bytes
        )
        return adapter

    def add(self, generation: int, adapter: Adapter) -> None:
        """What `read` has returned. Raises ConfigError; then nothing has changed."""
        assert generation not in self._loaded, f"generation {generation} is loaded twice"
        model, targets = self._model, self._targets
        if model is None:
            raise ConfigError("the model's weights are released: no adapter is loaded until they are resumed")
        assert targets is not None, "only a model of ours has targets, which reading finds"
        if adapter.model_rows or self._adapted is None:
            self._wait()
        adapter = check_model_rows(adapter, lambda target, at: base_rows(model, target, at))
        if self._adapted is None:
            self._adapted, self._adapts = self._adapted_model(model, targets), True
        self._loaded[generation] = adapter

    def let_go(self) -> None:
        """Of the model, until another of its shape takes its place. No step runs. Adapters stay as they are."""
        self._model = self._adapted = None

    def move_to(self, model: CausalModel) -> None:
        """The model's place is taken by another of the same shape. No step runs."""
        self._model = model if isinstance(model, Decoder) else None
        if not self._adapts:
            return
        assert self._targets is not None and self._model is not None, "adapters are loaded for a model of ours"
        self._adapted = self._adapted_model(self._model, self._targets)
        for slot, generation in self._placed.items():
            self._adapted.place(slot, self._loaded[generation].changes)

    def _adapted_model(self, model: Decoder, targets: Targets) -> AdaptedModel:
        return AdaptedModel(model, targets.by_name, self._ops, self._args.max_loras_per_batch)

    def _size(self, folder: Path) -> int:
        return (folder / FILE).stat().st_size if (folder / FILE).is_file() else 0

    def drop(self, generation: int) -> None:
        """No step that is planned has it."""
        self._wait()
        for slot in [slot for slot, each in self._placed.items() if each == generation]:
            self._put(slot, None)
        self._loaded.pop(generation, None)

    def place(self, placement: AdapterPlacement) -> None:
        """No step runs that was begun before on a CPU."""
        self._put(placement.slot, placement.generation)

    def _put(self, slot: int, generation: int | None) -> None:
        self._placed.pop(slot, None)
        if generation is not None:
            self._placed[slot] = generation
        if self._adapted is not None:  # with the weights released, when they are back
            self._adapted.place(slot, {} if generation is None else self._loaded[generation].changes)
