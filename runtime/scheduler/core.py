"""The scheduler's own parts as one value: what waits, what runs, what is cached, and who says what comes of it."""

from dataclasses import dataclass

from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.scheduler.pausing import Pausing
from ramet.runtime.scheduler.queue import WaitingQueue
from ramet.runtime.scheduler.results import Results
from ramet.runtime.scheduler.retraction import Retraction
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.wait_reasons import WaitReasons


@dataclass(frozen=True, slots=True)
class Core:
    cache: PrefixCache
    waiting: WaitingQueue
    running: RunningSet
    retraction: Retraction
    results: Results
    pausing: Pausing
    why: WaitReasons
