"""How a figure beside a client compares with those beside its controls, and how sure that ratio is.

A round has one window beside the client and two beside its control, one on each side. The ratio is the median over
rounds of the window's figure over the mean of its controls; if these are further apart than the bound, something else
disturbed one of them (such as work that the client left behind), and the lower one counts alone.

The interval is a bootstrap's: rounds are drawn with replacement, and for each of them two of its controls, so that a
window, and not a time between two tokens, is what repeats. It holds 95 % of the ratios that are drawn so. Few rounds
make it too narrow: a figure near its bound needs five. One round has none.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

DRAWS = 4000
OUTSIDE = 2.5, 97.5  # percentiles between which the interval lies


class RatioRound(NamedTuple):
    before: float  # beside the control
    beside: float
    after: float

    def controls(self, most: float) -> tuple[float, float]:
        low, high = sorted((self.before, self.after))
        return (low, low) if high > most * low else (low, high)


def compared(rounds: Sequence[RatioRound], most: float) -> tuple[float, list[float] | None]:
    """The ratio and its interval. `most`: the bound of the ratio."""
    beside = np.array([one.beside for one in rounds])  # [R]
    controls = np.array([one.controls(most) for one in rounds])  # [R, 2]
    ratio = round(float(np.median(beside / controls.mean(axis=1))), 3)
    return ratio, None if len(rounds) == 1 else _interval(beside, controls)


def _interval(beside: np.ndarray, controls: np.ndarray) -> list[float]:
    drawn = np.random.default_rng(0).integers
    rounds = drawn(len(beside), size=(DRAWS, len(beside)))  # [D, R]
    sides = drawn(2, size=(DRAWS, len(beside), 2))  # [D, R, 2]
    ratios = beside[rounds] / controls[rounds[..., None], sides].mean(axis=-1)  # [D, R]
    return [round(float(end), 3) for end in np.percentile(np.median(ratios, axis=1), OUTSIDE)]


def words(ratio: float, interval: Sequence[Any] | None) -> str:
    return (
        f"{ratio:g} (one round, no interval)" if interval is None else f"{ratio:g} [{interval[0]:g}, {interval[1]:g}]"
    )
