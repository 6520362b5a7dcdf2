"""Which accesses to memory come before which, of a host and of streams that run beside it, by vector clocks.

Each agent has a clock (Lamport 1978, Mattern 1989) of what it has seen of the others. Knows no device.
"""

from dataclasses import dataclass, field

from torch import Tensor

Clock = dict[str, int]


class Race(AssertionError):
    """Two accesses to the same bytes in no order, of which one writes."""


@dataclass(frozen=True)
class Access:
    agent: str
    time: int
    what: str


@dataclass
class Bytes:
    """Accesses to a range of a storage."""

    start: int
    end: int
    write: Access | None = None
    reads: dict[str, Access] = field(default_factory=dict)


class Clocks:
    """Who has seen what of whom, and which bytes were touched by whom when."""

    def __init__(self, *agents: str) -> None:
        self.of: dict[str, Clock] = {agent: {agent: 0} for agent in agents}
        self._touched: dict[int, list[Bytes]] = {}  # by the address of a storage

    def take_in(self, agent: str, seen: Clock) -> None:
        mine = self.of.setdefault(agent, {agent: 0})
        for other, time in seen.items():
            mine[other] = max(mine.get(other, 0), time)

    def new(self, storage: int) -> None:
        """Memory that nobody has touched: an allocator gives it out when its uses before are done."""
        self._touched[storage] = []

    def access(self, agent: str, tensor: Tensor, *, writes: bool, what: str) -> None:
        if not tensor.numel():
            return
        mine = self.of[agent]
        mine[agent] += 1
        now = Access(agent, mine[agent], what)
        start, end = extent(tensor)
        found = self._touched.setdefault(tensor.untyped_storage().data_ptr(), [])
        own = next((each for each in found if (each.start, each.end) == (start, end)), None)
        if own is None:
            found.append(own := Bytes(start, end))
        for each in found:
            if each.start < end and start < each.end:
                self._check(mine, each, now, writes)
        if writes:
            own.write, own.reads = now, {}
        else:
            own.reads[agent] = now

    @staticmethod
    def _check(mine: Clock, touched: Bytes, now: Access, writes: bool) -> None:
        before = [touched.write] if touched.write is not None else []
        before += touched.reads.values() if writes else []
        for each in before:
            if mine.get(each.agent, 0) < each.time:
                does = "writes" if writes else "reads"
                did = "wrote" if each is touched.write else "read"
                raise Race(f"{now.agent} {does} in {now.what} what {each.agent} {did} in {each.what}, in no order")


def extent(tensor: Tensor) -> tuple[int, int]:
    """[start, end) of the bytes that a tensor's numbers lie in."""
    start = tensor.storage_offset() * tensor.itemsize
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.itemsize
