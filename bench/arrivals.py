"""When each request is due, in seconds after the start. Knows no request and no clock.

Due times are absolute: a client that is late for one request is not late for all that follow, which gaps slept one
after another would make it.
"""

import math
import random


def due_times(num: int, rate: float, seed: int) -> list[float]:
    """Poisson arrivals at `rate` requests a second, the first at 0; all at once if the rate is infinite."""
    if math.isinf(rate):
        return [0.0] * num
    draw = random.Random(seed)
    times, now = [], 0.0
    for _ in range(num):
        times.append(now)
        now += draw.expovariate(rate)
    return times
