"""What a thread reads beside the scheduler: results come back between two steps, and what fails is an answer.

One thread reads adapters and weights, one after the other, so the files of a machine are read once at a time.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.scheduler.feature import TurnFeature

log = logging.getLogger("ramet")


@dataclass(frozen=True, slots=True)
class ReadFailure:
    why: str


Taken = Callable[[Any], None]  # is given what was read, or ReadFailure


class Background(TurnFeature):
    """`wake` sends `Wake` to the scheduler, from the thread that reads."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._thread = ThreadPoolExecutor(1, "read-files")
        self._read: SimpleQueue[tuple[Taken, Any]] = SimpleQueue()

    def read(self, what: str, act: Callable[[], Any], taken: Taken) -> None:
        """Have the thread call `act`; `taken` gets what it returns, or ReadFailure, in a later turn."""

        def run() -> None:
            self._read.put((taken, tried(what, act)))
            self._wake()

        self._thread.submit(run)

    def wake(self) -> None:
        while not self._read.empty():
            taken, value = self._read.get()
            taken(value)


def tried(what: str, act: Callable[[], Any]) -> Any:
    """What `act` returns, or ReadFailure. `what` says what failed then, as in "X cannot be loaded"."""
    try:
        return act()
    except ConfigError as error:
        return ReadFailure(str(error))
    except Exception as error:  # a folder is a client's: nothing in it may end the scheduler
        log.exception("%s", what)
        return ReadFailure(f"{what}: {describe(error)}")
