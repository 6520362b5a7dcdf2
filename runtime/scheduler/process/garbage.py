"""When the scheduler collects garbage: rarely while it works, and before it waits for messages while nothing runs.

With Python's own thresholds it looked through everything that waits while thousands of prompts arrived, which took up
to 118 ms between two steps. What is still in use when nothing runs, as the nodes of the cache, is looked through once:
a collection took 0.4 s beside 33 million tokens, whoever came meanwhile. No request refers to itself, so whatever
was looked through is freed as soon as nobody uses it. Parts of a model do: see `collect_all`.
"""

import gc
import time
from collections.abc import Callable

COLLECT_EVERY_S = 1.0


def collecting(beat: Callable[[bool], None], clock: Callable[[], float] = time.monotonic) -> Callable[[bool], None]:
    """`beat`, which also collects garbage before a wait."""
    collected_s = clock()

    def beat_and_collect(idle: bool) -> None:
        nonlocal collected_s
        beat(idle)
        if idle and clock() - collected_s >= COLLECT_EVERY_S:
            gc.collect()
            gc.freeze()
            collected_s = clock()

    return beat_and_collect
