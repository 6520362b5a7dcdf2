"""Which adapter is in which slot: as many different ones run at once as there are slots, and the others wait.

Decides whose slot is given to another: of those that no running request has and that are not pinned, the one whose
slot was asked for longest ago. Knows generations and slots, no file and no tensor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ramet.ipc.control import DropAdapter, LoadAdapter
from ramet.runtime.config import Args
from ramet.runtime.engine.batch import AdapterSource
from ramet.runtime.engine.extras import AdapterPlacement, Command, RowAdapters
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.features.background import Background, ReadFailure, tried
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RowTable, RunningRequest
from ramet.runtime.scheduler.step import StepBuilder

Generation = int


@dataclass(slots=True)
class _Loaded:
    is_pinned: bool
    slot: int | None = None
    asked: int = 0  # when its slot was last asked for, as a number of admissions


class RowSlots:
    def __init__(self, num_rows: int) -> None:
        self.by_row = np.zeros(num_rows, np.int32)  # [M] slot of its adapter; 0: it has none


class AdapterSlots(RowFeature):
    """Slots are 1 to `num_slots`; 0 is the model without an adapter."""

    flag = RowFlag.ADAPTER

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._loaded: dict[Generation, _Loaded] = {}
        self.taken: dict[int, Generation] = {}  # by slot
        self.placements: list[AdapterPlacement] = []  # that the runner has not heard of
        self._num_asked = 0

    def __contains__(self, generation: Generation) -> bool:
        return generation in self._loaded

    def begin(self, running: RunningRequest) -> Sequence[Command]:
        """Admission has placed its adapter."""
        adapter = running.request.spec.lora
        assert adapter is not None, running.uid
        slot = self._loaded[adapter.generation].slot
        assert slot is not None, f"request {running.uid} runs without its adapter {adapter.generation}"
        running.table.own(RowSlots).by_row[running.row] = slot
        return ()

    def free(self, table: RowTable, row: int) -> None:
        table.own(RowSlots).by_row[row] = 0

    @property
    def num_loaded(self) -> int:
        return len(self._loaded)

    @property
    def num_pinned(self) -> int:
        return sum(loaded.is_pinned for loaded in self._loaded.values())

    def add(self, generation: Generation, is_pinned: bool) -> None:
        """The runner has loaded it. One that is pinned takes its slot with the first request and keeps it."""
        self._loaded[generation] = _Loaded(is_pinned)

    def remove(self, generation: Generation) -> None:
        """No request has it."""
        slot = self._loaded.pop(generation).slot
        if slot is not None:
            del self.taken[slot]
            self.placements = [each for each in self.placements if each.generation != generation]

    def has_slot(self, generation: Generation) -> bool:
        return self._loaded[generation].slot is not None

    def place(self, request: Request, drains: bool, table: RowTable) -> bool:
        """Find a slot for the adapter of a request that is to run; False: others need all that it could have, or it
        has one and `drains` keeps such requests out.
        """
        adapter = request.spec.lora
        assert adapter is not None, request.uid
        if drains:
            return False
        running = table.own(RowSlots).by_row[table.uids != 0]
        used = set[int]() if self.has_slot(adapter.generation) else set(running.tolist())
        return self.take(adapter.generation, used) is not None

    def take(self, generation: Generation, used: set[int]) -> int | None:
        """Its slot, for a request that is to run; None: all others are `used` by running ones, or pinned."""
        loaded = self._loaded[generation]
        if loaded.slot is None:
            loaded.slot = self._free_slot(used)
            if loaded.slot is None:
                return None
            self.taken[loaded.slot] = generation
            self.placements.append(AdapterPlacement(loaded.slot, generation))
        self._num_asked += 1
        loaded.asked = self._num_asked
        return loaded.slot

    def _free_slot(self, used: set[int]) -> int | None:
        for slot in range(1, self.num_slots + 1):
            if slot not in self.taken:
                return slot
        idle = [slot for slot, own in self.taken.items() if slot not in used and not self._loaded[own].is_pinned]
        if not idle:
            return None
        slot = min(idle, key=lambda slot: self._loaded[self.taken[slot]].asked)
        self._loaded[self.taken.pop(slot)].slot = None
        return slot

    def take_placements(self) -> tuple[AdapterPlacement, ...]:
        placements, self.placements = tuple(self.placements), []
        return placements

    def check(self) -> None:
        """Every slot that is taken is that of a loaded adapter, and the other way round."""
        by_slot = {loaded.slot: own for own, loaded in self._loaded.items() if loaded.slot is not None}
        assert by_slot == self.taken, (by_slot, self.taken)


def plan(step: StepBuilder) -> None:
    step.inputs.append(RowAdapters(step.table.own(RowSlots).by_row[step.rows]))


class Adapters:
    """Loads and drops, for the server. `source`: of the runner; None: it has no model."""

    _background: Background

    def __init__(self, args: Args, slots: AdapterSlots, source: AdapterSource | None) -> None:
        """Those of the start are loaded by now."""
        self._most, self._slots, self._source = args.adapters.max_loaded_loras, slots, source
        self._reading: dict[Generation, bool] = {}  # what the thread reads, and whether it will be pinned
        for generation, adapter in enumerate(args.named_adapters, 1):
            slots.add(generation, adapter.pinned)

    def register(self, control: ControlHandler, background: Background) -> None:
        """For the messages that load and drop."""
        self._background = background

        def load(message: LoadAdapter) -> None:
            def answer(refusal: str) -> None:
                control.reply(message.call, {"error": refusal} if refusal else {}, ok=not refusal)

            self.load(message.generation, message.path, message.pinned, answer)

        def drop(message: DropAdapter) -> None:
            self.drop(message.generation)
            control.reply(message.call, {})

        control.on(LoadAdapter, load)
        control.on(DropAdapter, drop)

    def load(self, generation: Generation, path: str, pinned: bool, answer: Callable[[str], None]) -> None:
        """Reads it on another thread, while requests run. `answer` gets why it cannot be loaded; empty: it is."""
        if refusal := self._refusal(pinned):
            return answer(refusal)
        source = self._source
        assert source is not None
        self._reading[generation] = pinned

        def take(read: Any) -> None:
            del self._reading[generation]
            if not isinstance(read, ReadFailure):
                read = tried(f"{path} cannot be loaded", partial(source.add, generation, read))
            if isinstance(read, ReadFailure):
                return answer(read.why)
            self._slots.add(generation, pinned)
            answer("")

        self._background.read(f"{path} cannot be loaded", partial(source.read, path), take)

    def _refusal(self, pinned: bool) -> str:
        if self._source is None:
            return "--runner is scripted: there is no model that it could change"
        num = self._slots.num_loaded + len(self._reading)
        if num >= self._most:
            return f"{num} adapters are loaded, at most {self._most} may be (--max-loaded-loras): unload one first"
        num_pinned = self._slots.num_pinned + sum(self._reading.values())
        if pinned and num_pinned + 1 >= self._slots.num_slots:
            return (
                f"pinned is true, but {num_pinned} of the {self._slots.num_slots} slots are pinned "
                "(--max-loras-per-batch), and one must be left for others"
            )
        return ""

    def drop(self, generation: Generation) -> None:
        if self._source is not None and generation in self._slots:
            self._slots.remove(generation)
            self._source.drop(generation)
