"""Memory that a runner gives back to the system while it computes nothing, and takes again. For a CPU.

Decides what can be released. Pools keep their addresses and lose their pages; weights are dropped, and read again from
where they came from.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ramet.ipc.control import MemoryTag
from ramet.runtime.cache.pool import KVPool
from ramet.runtime.config import Args
from ramet.runtime.engine.devices.base import Device
from ramet.runtime.engine.reloading import ROOM, ReadWeights, WeightReader
from ramet.runtime.errors import ConfigError
from ramet.runtime.machine import available_memory, collect_all, trim_heap


@dataclass(frozen=True, slots=True)
class ReleaseHooks:
    """How a runner gives back each of what it has."""

    release_weights: Callable[[], None]
    release_pools: Callable[[], None]
    drop_recorded_steps: Callable[[], None]


class RunnerMemory:
    """Releases and resumes memory while no step is in flight. `num_bytes` are those of the weights."""

    def __init__(
        self, args: Args, device: Device, pool: KVPool, weights: WeightReader, num_bytes: int, hooks: ReleaseHooks
    ) -> None:
        self._device, self._pool, self._weights, self._num_bytes = device, pool, weights, num_bytes
        self._fills_pool = args.schedule.max_itl_ms is not None
        self._hooks = hooks

    def check(self, tags: Collection[MemoryTag]) -> None:
        """Raises ConfigError where it cannot be released."""
        if self._device.keeps_addresses:
            raise ConfigError("on a GPU memory cannot be released: graphs have its addresses")
        if MemoryTag.WEIGHTS in tags:
            self._weights.check_kind()

    def release(self, tags: Collection[MemoryTag]) -> None:
        """To the system, after `check`. No slot of the KV pool is in use if it is among them."""
        if MemoryTag.CUDA_GRAPH in tags:
            self._hooks.drop_recorded_steps()
        if MemoryTag.KV_CACHE in tags:
            self._hooks.release_pools()
        if MemoryTag.WEIGHTS in tags:
            self._hooks.release_weights()
        collect_all()  # parts of a model refer to one another
        trim_heap()

    def check_room(self, tags: Collection[MemoryTag]) -> None:
        """Raises ConfigError where others have taken the memory since."""
        needed = self._pool.num_bytes if MemoryTag.KV_CACHE in tags else 0
        needed += int(self._num_bytes * ROOM) if MemoryTag.WEIGHTS in tags else 0
        if needed > (free := available_memory()):
            raise ConfigError(f"{needed} bytes were released, and {free} are free: others have taken them")

    def read(self) -> ReadWeights:
        """The weights that were released, on any thread. Raises ConfigError."""
        return self._weights.read_again()

    def resume(self, tags: Collection[MemoryTag], read: ReadWeights | None) -> None:
        """`read`: what it has returned, if weights are among them. Raises ConfigError; then nothing has changed."""
        if MemoryTag.WEIGHTS in tags:
            assert read is not None, "weights are read before they are resumed"
            self._weights.place(read)
        if MemoryTag.KV_CACHE in tags and self._fills_pool:
            self._pool.take_memory()
