"""The running requests and the memory each holds: row, slots, lease. Decides who gives way when memory runs out.

Knows the cache and the rows, not the policy and not the device. A Seat is what a running request has and a waiting one
has not; taking a seat, growing it, publishing from it and leaving it are the only ways memory changes hands.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ramet.ipc.messages import Uid
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import Lease, PrefixCache
from ramet.runtime.cache.slots import RowAllocator
from ramet.runtime.engine.batch import PenaltyReset, SlotUpdate
from ramet.runtime.request import Request

NO_TOKENS = np.empty(0, dtype=np.int32)


@dataclass(slots=True, eq=False)
class Seat:
    """slots[:allocated] are the places of the request's tokens; [:computed] hold their keys and values.

    [0, lease.length) belongs to the tree, [lease.length, allocated) to this seat. The runner's slot table lacks
    [unfilled, lease.length) when `unfilled` is set.
    """

    request: Request
    row: int
    slots: Ints  # [prompt + max_new_tokens, rounded up to pages]
    lease: Lease
    target: int  # tokens known when it was seated: until these are computed it extends, after that it decodes
    computed: int
    allocated: int
    unfilled: int | None = field(default=None)
    penalty_slot: int | None = None  # leased while it runs, if its request uses penalties
    counted: bool = False  # the runner knows what it has drawn

    @property
    def uncomputed(self) -> int:
        return self.request.total - self.computed

    @property
    def decoding(self) -> bool:
        return self.computed >= self.target


class RunningSet:
    """Every seated request, in the order they were seated."""

    def __init__(
        self, cache: PrefixCache, rows: RowAllocator, penalty_slots: RowAllocator, prompt_is_seen: bool = False
    ) -> None:
        """`prompt_is_seen`: repetition penalties count the prompt's tokens as drawn."""
        self._cache = cache
        self._rows = rows
        self._penalty_slots = penalty_slots
        self._prompt_is_seen = prompt_is_seen
        self._seats: dict[Uid, Seat] = {}
        self.num_retractions = 0

    def __len__(self) -> int:
        return len(self._seats)

    def __iter__(self) -> Iterator[Seat]:
        return iter(list(self._seats.values()))

    def get(self, uid: Uid) -> Seat | None:
        return self._seats.get(uid)

    @property
    def num_free_rows(self) -> int:
        return self._rows.num_free

    @property
    def num_free_penalty_slots(self) -> int:
        return self._penalty_slots.num_free

    @property
    def num_penalty_slots(self) -> int:
        """Those that are taken."""
        return self._penalty_slots.num_taken

    @property
    def owned_tokens(self) -> int:
        """Slots that belong to seats and not to the tree."""
        return sum(seat.allocated - seat.lease.length for seat in self._seats.values())

    def take(self, request: Request, lease: Lease, prefix: Ints) -> Seat | None:
        """Seat a request whose cached prefix is leased, with slots for every known token; None if memory is short."""
        capacity = self._in_pages(len(request.tokens)) * self._cache.page_size
        seat = Seat(
            request=request,
            row=0,
            slots=np.empty(capacity, dtype=np.int32),
            lease=lease,
            target=request.total,
            computed=lease.length,
            allocated=lease.length,
            unfilled=0 if lease.length else None,
        )
        seat.slots[: lease.length] = prefix
        if not self._grow(seat, request.total):
            return None
        seat.row = self._rows.allocate()
        if request.params.penalised:
            seat.penalty_slot = self._penalty_slots.allocate()
        if request.cached_tokens is None:
            request.cached_tokens = lease.length
        self._seats[request.uid] = seat
        return seat

    def make_room(self) -> list[Request]:
        """Give every decoding seat a slot for its next token, retracting others if need be. Returns the retracted."""
        retracted = []
        for seat in self:
            while seat.request.uid in self._seats and not self._grow(seat, seat.request.total):
                victim = self._victim()
                assert len(self._seats) > 1, f"request {victim.request.uid} alone does not fit the pool"
                retracted.append(self._retract(victim))
        return retracted

    def publish(self, seat: Seat) -> None:
        """Share what is computed: whole pages go to the tree."""
        before = seat.lease.length
        seat.lease = self._cache.publish(seat.lease, seat.request.tokens[: seat.computed], seat.slots[: seat.computed])
        if seat.lease.length > before:  # the tree may have put its own slots in the place of ours
            seat.unfilled = before if seat.unfilled is None else min(seat.unfilled, before)

    def leave(self, seat: Seat, *, publish: bool = True) -> None:
        """Give everything back. `publish` False: what it computed must not be shared (it is not sound)."""
        if publish:
            self.publish(seat)
        self._cache.free(seat.slots[seat.lease.length : seat.allocated])
        self._cache.release(seat.lease)
        self._rows.free(seat.row)
        if seat.penalty_slot is not None:
            self._penalty_slots.free(seat.penalty_slot)
        del self._seats[seat.request.uid]

    def take_fill(self, seat: Seat) -> SlotUpdate | None:
        """What the runner's table must learn before the next step of this seat."""
        start, seat.unfilled = seat.unfilled, None
        if start is None or start >= seat.lease.length:
            return None
        return SlotUpdate(seat.row, start, seat.slots[start : seat.lease.length].copy())

    def take_recount(self, seat: Seat) -> PenaltyReset | None:
        """What the runner must learn of the tokens drawn so far before the next draw of this seat."""
        if seat.penalty_slot is None or seat.counted:
            return None
        seat.counted = True
        prompt = seat.request.prompt if self._prompt_is_seen else NO_TOKENS
        return PenaltyReset(seat.penalty_slot, seat.request.output.copy(), prompt)

    def _grow(self, seat: Seat, num_tokens: int) -> bool:
        """Slots for the first `num_tokens` tokens; False (and nothing taken) if even eviction does not give them."""
        missing = self._in_pages(num_tokens) - seat.allocated // self._cache.page_size
        if missing <= 0:
            return True
        slots = self._cache.allocate(missing)
        if slots is None:
            return False
        seat.slots[seat.allocated : seat.allocated + len(slots)] = slots
        seat.allocated += len(slots)
        return True

    def _victim(self) -> Seat:
        """The seat of the lowest priority, with the fewest output tokens, the latest arrival: in this order."""
        return min(self._seats.values(), key=_standing)

    def _retract(self, seat: Seat) -> Request:
        """Back to waiting, with every token it has. What it computed stays cached for as long as memory lets it."""
        self.leave(seat)
        seat.request.num_retractions += 1
        self.num_retractions += 1
        return seat.request

    def _in_pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self._cache.page_size)


def _standing(seat: Seat) -> tuple[int, int, float, int]:
    request = seat.request
    priority, arrival_s, uid = request.rank
    return -priority, request.num_output, -arrival_s, -uid
