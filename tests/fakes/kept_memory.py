"""Memory that malloc keeps when it is freed, because blocks between are in use."""

import psutil

BLOCKS, SIZE = 40_000, 2000


class KeptMemory:
    def __init__(self) -> None:
        self._blocks = [bytes(SIZE) for _ in range(BLOCKS)]
        self._in_use = self._blocks[::400]

    def free(self) -> None:
        self._blocks.clear()

    @staticmethod
    def resident() -> int:
        return int(psutil.Process().memory_info().rss)

    def is_back(self, before: int) -> bool:
        """Whether it has been given back to the system since `before` was resident."""
        return bool(self._in_use) and before - self.resident() > BLOCKS * SIZE / 2
