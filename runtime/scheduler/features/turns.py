"""Where each token of a prompt with pictures is to a model that turns by time, height and width (Qwen2-VL and later).

A text's token is at one place in all three, the next one after it. A picture begins behind what precedes it, and its
tokens lie in a grid from there on; what follows it begins behind its longer edge. A film's times count for nothing
there: transformers' `generate` goes on so, and what is drawn is where it would be in a longer prompt, so it can be
cached for one. n tokens of the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramet.ipc.media import Grid, PlacedMedia
from ramet.runtime.arrays import Ints


@dataclass(frozen=True, slots=True)
class Turns:
    places: Ints  # [3, n]
    shift: int  # of each token behind the last piece, the output included: its index less its place
    end: int  # index of the first of those


def turns_of(num_tokens: int, media: Sequence[PlacedMedia]) -> Turns | None:
    """Of a prompt; None: all three are the index of each of its tokens, and of those that follow."""
    spans = sorted(
        (first, num, grid)
        for placed in media
        for (first, num), grid in zip(placed.spans, placed.item.grids, strict=bool(placed.item.grids))
    )
    if not spans:
        return None
    places = np.empty((3, num_tokens), np.int32)
    at = place = 0
    for first, num, grid in spans:
        assert num == grid.num_tokens and first >= at, (first, num, grid, at)
        places[:, at:first] = np.arange(place, place + first - at)
        place += first - at
        places[:, first : first + num] = place + _inside(grid)
        place += max(grid.height, grid.width)
        at = first + num
    places[:, at:] = np.arange(place, place + num_tokens - at)
    return Turns(places, at - place, at)


def _inside(grid: Grid) -> Ints:
    """[3, tokens]: frame by frame, row by row."""
    times = np.array(grid.times, np.int32)
    axes = np.meshgrid(times, np.arange(grid.height), np.arange(grid.width), indexing="ij")
    return np.stack(axes).reshape(3, -1).astype(np.int32)
