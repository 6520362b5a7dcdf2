"""What operators ask of the engine: its state, its cache, adapters, weights, memory and pauses.

A change goes on when the client that asked for it goes away, once the engine was asked (caller.py).
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

import msgspec

from ramet.ipc.control import ControlReply, DropAdapter, FlushCache, GetState, LoadAdapter, LocateSequences, MemoryTag
from ramet.ipc.message import Uid
from ramet.ipc.params import shown
from ramet.runtime.config import Args
from ramet.runtime.engine_client.adapters import AdapterNames, has_generation, in_use
from ramet.runtime.engine_client.caller import BackgroundTasks, Caller, for_caller
from ramet.runtime.engine_client.calls import Calls
from ramet.runtime.engine_client.occupation import Occupation
from ramet.runtime.engine_client.open_requests import OpenRequests
from ramet.runtime.engine_client.pauses import Pauses
from ramet.runtime.engine_client.sequences import SequenceTable
from ramet.runtime.engine_client.weights import ServedWeights
from ramet.runtime.errors import ClientError

T = TypeVar("T")
MAX_FLUSH_WAIT_S = 3600.0


class Admin:
    """`control` asks the scheduler a question (see Calls)."""

    def __init__(
        self,
        args: Args,
        calls: Calls,
        sequences: SequenceTable,
        requests: OpenRequests,
        background: BackgroundTasks,
        abort_all: Callable[[str], object],
    ) -> None:
        self.control = calls.control
        self._sequences, self._requests, self._background = sequences, requests, background
        self.adapters = AdapterNames(args)
        self._changes_adapters = asyncio.Lock()
        self.pauses = Pauses(self.control, sequences, abort_all)
        self.weights = ServedWeights(args, self.control, sequences, requests, self.pauses, abort_all)
        self._occupation = Occupation(self.control, self.pauses, self.weights.changing)

    async def state(self) -> ControlReply:
        return await self.control(GetState)

    async def locate(self, uids: list[Uid]) -> ControlReply:
        """`uids`: MAX_LOCATED at most."""
        return await self.control(lambda call: LocateSequences(call, uids))

    async def flush_cache(self, timeout_s: float) -> ControlReply:
        """`timeout_s`: how long it may wait until nothing runs or waits."""
        return await self.control(lambda call: FlushCache(call, timeout_s))

    def uids_of(self, rid: str) -> list[Uid]:
        """Sequences of this name that the one who asks may use."""
        return [sequence.uid for sequence in self._sequences.named(rid)]

    def is_making(self, rid: str) -> bool:
        """Whether the prompts of a request with this id are being made: media are prepared, and texts rendered."""
        return bool(self._requests.unsent_of(rid))

    def id_of(self, uid: Uid) -> str:
        """The id of a sequence as clients know it; empty: it has ended."""
        sequence = self._sequences.by_uid.get(uid)
        return "" if sequence is None else sequence.id

    def next_step(self) -> asyncio.Future[None]:
        """Becomes done when a step's tokens arrive, of any request: the scheduler and the detokenizer work."""
        return self._sequences.next_step()

    def adapters_in_use(self) -> tuple[frozenset[str], frozenset[str]]:
        """The adapters of sequences that run, and of sequences that wait."""
        return in_use(self._sequences.by_uid.values())

    async def load_adapter(self, name: str, path: str, *, pinned: bool = False, replaces: bool = False) -> None:
        """From its end on, requests get it by this name. `replaces`: what has the name is dropped, once its sequences
        have ended. See Caller for one that goes away. Raises ClientError.
        """
        await self._changed(lambda caller: self._load_adapter(caller, name, path, pinned, replaces))

    async def unload_adapter(self, name: str) -> None:
        """Refused to new requests at once; returns when those that have it are done. Raises ClientError."""
        generation = self.adapters.take_away(name)
        await self._changed(lambda _: self._drop_adapter(generation))

    async def update_weights(self, path: str, version: str | None, *, abort_all: bool = False) -> int:
        """See ServedWeights.update."""
        return await self._changed(lambda caller: self.weights.update(caller, path, version, abort_all=abort_all))

    async def release_memory(self, tags: Collection[MemoryTag]) -> None:
        """See Occupation.release."""
        await self._changed(lambda caller: self._occupation.release(caller, tags))

    async def resume_memory(self, tags: Collection[MemoryTag]) -> None:
        """See Occupation.resume."""
        await self._changed(lambda caller: self._occupation.resume(caller, tags))

    async def _changed(self, change: Callable[[Caller], Coroutine[Any, Any, T]]) -> T:
        return await for_caller(change, self._background.begin)

    async def _load_adapter(self, caller: Caller, name: str, path: str, pinned: bool, replaces: bool) -> None:
        async with caller.turn(self._changes_adapters):
            generation = self.adapters.check_new(name, path, replaces=replaces)
            reply = await self.control(lambda call: LoadAdapter(call, generation, path, pinned))
            if not reply.ok:
                raise ClientError("lora_path", f"is {shown(path)}: {msgspec.json.decode(reply.body)['error']}")
            before = self.adapters.give(name, path, pinned, generation)
        if before is not None:
            await self._drop_adapter(before)

    async def _drop_adapter(self, generation: int) -> None:
        await self._sequences.none_left(lambda sequence: has_generation(sequence.prompt.spec, generation))
        await self.control(lambda call: DropAdapter(call, generation))
