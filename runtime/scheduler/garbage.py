"""When the scheduler collects garbage: rarely while it works, and now and then while nothing runs.

With Python's own thresholds it looked through everything that waits while thousands of prompts arrived, which took up
to 118 ms between two steps.
"""

import gc
import time
from collections.abc import Callable

COLLECT_EVERY_S = 60.0


def collecting(beat: Callable[[bool], None], clock: Callable[[], float] = time.monotonic) -> Callable[[bool], None]:
    """`beat`, which also collects garbage before a wait."""
    collected_s = clock()

    def beat_and_collect(idle: bool) -> None:
        nonlocal collected_s
        beat(idle)
        if idle and clock() - collected_s >= COLLECT_EVERY_S:
            gc.collect()
            collected_s = clock()

    return beat_and_collect
