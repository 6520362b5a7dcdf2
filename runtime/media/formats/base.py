"""What is particular of a model family about media before its tower: placeholders, and what its processor makes.

A family's file holds one class. `read` is cheap: a tokenizer process has a format, too, and no numpy. Only `prepare`,
which workers call, loads transformers' processor.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ramet.ipc.media import Grid, MediaKind, MediaTokens


class Processed(NamedTuple):
    """Arrays for the tower by the names of its inputs, and what the placeholder becomes (see Prepared)."""

    arrays: Mapping[str, Any]  # of numpy
    expansion: tuple[str | int, ...]
    grids: tuple[Grid, ...] = ()
    is_expanded: bool = False


class Frames(NamedTuple):
    """Of a film: pictures of Pillow, and when each is shown, in seconds."""

    images: list[Any]
    times: list[float]


class Sound(NamedTuple):
    """Samples [n] float32 in [-1, 1] of one channel."""

    samples: Any
    rate: int  # per second


Decoded = Any  # a picture of Pillow in RGB, Frames or Sound, by the kind


class MediaFormat(ABC):
    folder: Path
    tokens: MediaTokens
    is_whole = False  # the tokens of one span see each other: no step ends inside it
    needs_torch = False  # to prepare what it takes
    # Options that change what `prepare` makes: `detail`, where it does by being "low", and `num_pictures`, where it
    # depends on how many the prompt has.
    picture_options: tuple[str, ...] = ()
    film_options: tuple[str, ...] = ()
    fps: float | None = 2.0  # frames that are taken of each second of a film, where none are asked for; None: as below
    max_frames = 768  # that are taken of a film, where nothing else is asked for: spread over it
    sample_rate = 16_000  # of sound, per second

    @abstractmethod
    def prepare(self, kind: MediaKind, decoded: Decoded, options: Mapping[str, Any]) -> Processed:
        """In a worker. Raises ClientError without a place for what the model's processor cannot take."""

    def frames_of(self, total: int, rate: float, fps: float | None, most: int) -> list[int]:
        """Indices of those that are taken of a film of so many, `rate` each second: `fps` of a second, or `most`."""
        wanted = total if fps is None else math.floor(total / rate * min(fps, rate))
        num = max(1, min(most, wanted, total))
        return [0] if num == 1 else [i * (total - 1) // (num - 1) for i in range(num)]

    @abstractmethod
    def received(self, kind: MediaKind, arrays: Mapping[str, Any], are_features: bool) -> Processed:
        """In a worker: of numbers that a client computed, what this model's processor in transformers makes of one
        piece or, `are_features`, what its tower would make: [tokens, size] as `feature`. Raises ClientError without a
        place.
        """

    @property
    @abstractmethod
    def settings(self) -> bytes:
        """What features depend on besides what was decoded: of the processor."""
