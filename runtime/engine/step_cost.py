"""What a step costs: seconds as a function of what it computes and reads. Knows no model, no clock and no request.

    seconds = layers(T) + draw_s Q + read_s reads + pair_s pairs

T new tokens go through the layers: a curve through measured points, since few tokens cost as much as one (the weights
are read once) and many cost in proportion. Q rows draw a token, which takes the head and the sampler. A row with one
new token reads the keys and values of all that it sees; with several, the arithmetic of each pair of a new token and
one that it sees counts. engine/startup.py measures a `StepCost`, scheduler/pace.py corrects it by the steps that ran.
"""

from bisect import bisect_left
from dataclasses import dataclass

from ramet.runtime.arrays import Ints

MIN_CHUNK, MAX_CHUNK = 256, 2048  # tokens of a chunk that is chosen here
CHUNK_S = 0.5  # that a step of prompts should take at most: others wait for it


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step computes and reads."""

    tokens: int = 0  # new ones
    draws: int = 0  # rows that draw
    reads: int = 0  # tokens that rows with one new token see, their own included
    pairs: int = 0  # of a new token and one that it sees, in rows with several new ones

    @classmethod
    def of(cls, num_new: Ints, seq_lens: Ints, num_decode: int, num_draws: int) -> "StepLoad":
        """num_new, seq_lens [R]: as those of a `Batch`."""
        new, seen = num_new[num_decode:].astype(int), seq_lens[num_decode:]
        pairs = int((new * (seen - new)).sum() + (new * (new + 1) // 2).sum())
        return cls(int(num_new.sum()), num_draws, int(seq_lens[:num_decode].sum()), pairs)

    @classmethod
    def of_extend(cls, start: int, num: int) -> "StepLoad":
        """A row's tokens [start, start + num), after which it draws."""
        if num <= 1:
            return cls(num, num, num * (start + 1), 0)
        return cls(num, 1, 0, num * start + num * (num + 1) // 2)

    def __add__(self, other: "StepLoad") -> "StepLoad":
        return StepLoad(
            self.tokens + other.tokens,
            self.draws + other.draws,
            self.reads + other.reads,
            self.pairs + other.pairs,
        )


@dataclass(frozen=True, slots=True)
class StepCost:
    points: tuple[tuple[int, float], ...]  # (new tokens, seconds in the layers), ascending in both
    draw_s: float
    read_s: float
    pair_s: float

    def layers_s(self, tokens: int) -> float:
        """On the curve; beyond its last point at that point's seconds a token."""
        points = self.points
        last, last_s = points[-1]
        if tokens >= last:
            return last_s / last * tokens
        at = bisect_left(points, (tokens, 0.0))
        if at == 0:
            return points[0][1] if tokens else 0.0
        (low, low_s), (high, high_s) = points[at - 1], points[at]
        return low_s + (high_s - low_s) * (tokens - low) / (high - low)

    def terms(self, load: StepLoad) -> tuple[float, float, float, float]:
        """Seconds in the layers, of draws, of reads and of pairs."""
        return (
            self.layers_s(load.tokens),
            self.draw_s * load.draws,
            self.read_s * load.reads,
            self.pair_s * load.pairs,
        )

    def seconds(self, load: StepLoad) -> float:
        return sum(self.terms(load))

    def __str__(self) -> str:
        curve = ", ".join(f"{num}: {seconds * 1e3:.3g}" for num, seconds in self.points)
        draw, read, pairs = self.draw_s * 1e6, self.read_s * 1e9, self.pair_s * 1e12
        return (
            f"a step takes (ms, by its tokens) {curve}; and {draw:.3g} us for each row that draws, {read:.3g} us for "
            f"1,000 cached tokens that a row reads, {pairs:.3g} us for a million pairs of a new token and one it sees"
        )

    @property
    def chunk(self) -> int:
        """Prompt tokens of a step: the largest power of two that takes CHUNK_S at most, MIN_CHUNK in any case.

        Larger chunks make a burst of prompts some percent faster, smaller ones keep others waiting for less time.
        """
        chunk = MAX_CHUNK
        while chunk > MIN_CHUNK and self.layers_s(chunk) > CHUNK_S:
            chunk //= 2
        return chunk
