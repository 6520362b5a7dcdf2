"""What this machine was measured to do, kept beside the compiled kernels, and the arithmetic chosen by it.

Flags of a CPU say which operations it has, not which of them are fast: dot products of bfloat16 make twice the products
of float32 on one CPU and half of them on another. Knows no torch; limits.py measures.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ramet.ipc.folders import OwnedFolder
from ramet.kernels.cpu import build

ARITHMETICS = ("float32", "dots", "tiles")  # of layers over bfloat16, as linear.cpp numbers them
NAMES = {"float32": "float32", "dots": "bfloat16 dot products", "tiles": "tile registers"}
TOKENS = (1, 4, 16, 64)  # of the layers that are timed
GAIN = 1.1  # at least, before rounding more often than float32 does is worth it
NEAR = 1.05  # of the best time: as good


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """What the machine can do at most, on all threads."""

    threads: int
    read_bytes_per_s: float
    float32_flops: float  # a product and its sum are two
    dot_flops: float  # of pairs of bfloat16; 0 without such an operation
    tile_flops: float  # of bfloat16; 0 without tile registers

    @property
    def flops(self) -> float:
        return max(self.float32_flops, self.dot_flops, self.tile_flops)

    @property
    def dots_pay(self) -> bool:
        """Kernels whose products are not the whole of their work gain less than what the products do."""
        return self.dot_flops > GAIN * self.float32_flops

    @property
    def tiles_pay(self) -> bool:
        """In attention, where half of the work is around them."""
        return self.tile_flops > 2 * max(self.float32_flops, self.dot_flops)


@dataclass(frozen=True, slots=True)
class ArithmeticChoice:
    """Names of ARITHMETICS: `few` for fewer than `at` tokens, `many` from there on."""

    few: str
    many: str
    at: int

    def __str__(self) -> str:
        first = NAMES[self.few]
        return first if self.few == self.many else f"{first}, {NAMES[self.many]} from {self.at} tokens on"


@dataclass(frozen=True, slots=True)
class Measured:
    """`seconds` of one layer over bfloat16 with each arithmetic that works here, for each of TOKENS."""

    limits: MachineLimits
    seconds: Mapping[str, Sequence[float]]

    @property
    def choice(self) -> ArithmeticChoice:
        """The fastest for many tokens; for few as well where nothing is faster: then no token depends on its batch."""
        best = [min(each) for each in zip(*self.seconds.values(), strict=True)]
        fastest = min(self.seconds, key=lambda name: self.seconds[name][-1])
        plain = self.seconds["float32"]
        many = fastest if plain[-1] > GAIN * best[-1] else "float32"
        behind = [i for i, second in enumerate(self.seconds[many]) if second > NEAR * best[i]]
        if not behind:
            return ArithmeticChoice(many, many, 0)
        few = min(self.seconds, key=lambda name: self.seconds[name][0])
        if few == many or behind[-1] + 1 == len(TOKENS):
            return ArithmeticChoice(many, many, 0)
        return ArithmeticChoice(few, many, TOKENS[behind[-1] + 1])

    def __str__(self) -> str:
        limits = self.limits
        rates = [f"{limits.float32_flops / 1e9:.0f} Gflop/s in float32"]
        rates += [f"{limits.dot_flops / 1e9:.0f} by bfloat16 dot products"] if limits.dot_flops else []
        rates += [f"{limits.tile_flops / 1e9:.0f} by tile registers"] if limits.tile_flops else []
        threads = f"{limits.threads} thread{'s' * (limits.threads > 1)}"
        read = f"{limits.read_bytes_per_s / 1e9:.1f} GB/s read, {', '.join(rates)} on {threads}"
        return f"{read}; bfloat16 layers are computed in {self.choice}{self._why()}"

    def _why(self) -> str:
        """The times that the choice was made by."""
        if len(self.seconds) == 1:
            return ""
        few, many = self.choice.few, self.choice.many
        is_fastest = self.seconds[many][-1] <= min(each[-1] for each in self.seconds.values())
        times = [self._times(few, 0)] * (few != many) + [self._times(many, -1)]
        little = "" if is_fastest else ", too small a gain for rounding more often"
        return f": a large one takes {', and '.join(times)}{little}"

    def _times(self, chosen: str, place: int) -> str:
        """Of TOKENS[place], and what it takes otherwise."""
        num, took = TOKENS[place], {name: f"{each[place] * 1e3:.1f}" for name, each in self.seconds.items()}
        others = [f"{time} in {NAMES[name]}" for name, time in took.items() if name != chosen]
        return ", ".join([f"{took[chosen]} ms for {num} token{'s' * (num > 1)}", *others])


def read(threads: int) -> Measured | None:
    """What was measured here for so many threads with these kernels. None: nothing yet, or it is damaged."""
    try:
        path = _path(threads)
        if not build.is_private(path):
            return None
        found = json.loads(path.read_text())
        seconds = {name: [float(s) for s in found["seconds"][name]] for name in ARITHMETICS if name in found["seconds"]}
        limits = MachineLimits(threads, *(float(found["limits"][each.name]) for each in fields(MachineLimits)[1:]))
        assert "float32" in seconds and all(len(each) == len(TOKENS) for each in seconds.values())
        positive = [limits.read_bytes_per_s, limits.float32_flops, *(s for each in seconds.values() for s in each)]
        assert all(0 < number < math.inf for number in positive)
        assert all(0 <= number < math.inf for number in (limits.dot_flops, limits.tile_flops))
        return Measured(limits, seconds)
    except (build.NoCache, build.WrongKernels, OSError):
        return None
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, AssertionError):  # it is damaged
        return None


def write(measured: Measured) -> None:
    """Whole or not at all; nothing where there is no cache."""
    try:
        path = _path(measured.limits.threads)
        with OwnedFolder.make(path.parent, "measure-") as work:
            whole = work.path / path.name
            whole.write_text(json.dumps(asdict(measured)))
            whole.chmod(0o600)
            os.replace(whole, path)
    except (build.NoCache, OSError):
        return


def _path(threads: int) -> Path:
    """Of these sources, as they are compiled or built, on this CPU. Raises NoCache, WrongKernels."""
    form = build.built_library() or " ".join(build.chosen_flags())
    key = hashlib.sha256("\0".join([build.cpu_features(), build.sources_hash(), str(form)]).encode()).hexdigest()[:20]
    return build.cache_folder() / f"measured-{key}-{threads}.json"
