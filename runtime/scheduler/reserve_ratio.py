"""How much of its remaining output each running request has reserved: a ratio that a retraction raises."""

from ramet.runtime.scheduler.running import RunningSet

START_SHARE = 0.7  # of its remaining output that a request has reserved at first: many end before their limit


FLOOR_SHARE = 0.1  # what is left of it when long nothing was retracted


DECAY_STEPS = 600


HEADROOM = 20  # tokens that every request is granted beyond what a retraction has shown to be needed


class ReserveRatio:
    """The share of its remaining output that each running request has reserved, in [0, 1].

    Falls linearly from `start` to `floor` over DECAY_STEPS steps; a retraction sets it to what would have been right.
    """

    def __init__(self, conservativeness: float) -> None:
        self._start = min(START_SHARE * conservativeness, 1.0)
        self._floor = min(FLOOR_SHARE * conservativeness, 1.0)
        self.value = self._start

    def step(self) -> None:
        self.value = max(self._floor, self.value - (self._start - self._floor) / DECAY_STEPS)

    def reset(self) -> None:
        self.value = self._start

    def retracted(self, running: RunningSet) -> None:
        """After a retraction: what the remaining ones have used of their outputs so far, and some more."""
        done = sum(each.num_output + HEADROOM for each in running)
        asked = sum(each.request.params.max_new_tokens for each in running)
        self.value = max(self.value, min(1.0, done / (asked + 1)))
