"""Requests whose prompts have pictures, films or sound: what the tree knows these by, and when their towers run.

Decides what a turn computes of towers: for the requests that are next, at most so many tokens, between two steps, and
where these have a bound no more pieces than fit beside the next one (pace.py), but one in any case. A request
runs when it has the features of all that is not cached. In all that the tree sees, the tokens of one piece are
its number, below zero: the text before it is shared with everybody, the piece with those who sent the same one, and
what follows with those who sent all of it. Numbers are given out by key, so two pieces never have the same one.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from ramet.ipc.media import MediaKind, MediaTokens, PlacedMedia, Prepared
from ramet.ipc.messages import Finish
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import MediaSource
from ramet.runtime.engine.extras import Command, FeatureRows, Features
from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.features.position_offsets import shift_row
from ramet.runtime.scheduler.features.turns import Turns, turns_of
from ramet.runtime.scheduler.request import FeatureState, Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest

KINDS = tuple(MediaKind)
MAX_NUMBERS = ((1 << 31) - 1) // len(KINDS)
MAX_TIMES = 8  # that are remembered of each kind


class MediaNumbers:
    """A number for each different piece, which also says its kind. Keys of `most` pieces are remembered.

    When `last` numbers are given out, the first one follows, in another era: prefixes are shared inside one alone.
    """

    def __init__(self, of_kinds: MediaTokens, most: int = 1 << 17, last: int = MAX_NUMBERS) -> None:
        self._most, self._last = most, last
        self.era = 0
        self._numbers: dict[bytes, int] = {}  # the one that was met longest ago first
        self._next = 1
        self._ids = np.array([of_kinds[kind].id if kind in of_kinds else 0 for kind in KINDS], dtype=np.int32)

    def begin(self, num_pieces: int) -> None:
        """A prompt has so many, which are all of one era."""
        if self._next + num_pieces > self._last:
            self._numbers.clear()
            self._next, self.era = 1, self.era + 1

    def of(self, key: bytes, kind: MediaKind) -> int:
        """Below zero."""
        number = self._numbers.pop(key, None)
        if number is None:
            assert self._next < self._last, "more different pieces of media than there are numbers"
            number, self._next = self._next * len(KINDS) + KINDS.index(kind), self._next + 1
            if len(self._numbers) >= self._most:  # what is cached of it is found no more
                del self._numbers[next(iter(self._numbers))]
        self._numbers[key] = number
        return -number

    def ids(self, tokens: Ints) -> Ints:
        """Tokens as the vocabulary has them: a copy."""
        return np.where(tokens < 0, self._ids[-tokens % len(KINDS)], tokens)


@dataclass(slots=True)
class RequestMedia(FeatureState):
    """Of one prompt, as long as its request lives. Its samples share it."""

    placed: Sequence[PlacedMedia]
    towers: "Towers"
    turns: Turns | None  # None: its tokens are at their indices to the model
    era: int  # of its numbers
    features: dict[bytes, Features] = field(default_factory=dict)  # by key; what is here stays, whoever is evicted
    awaited: set[bytes] = field(default_factory=set)  # keys that had no features when they were looked for first

    def prompt(self, ids: Ints) -> Ints:
        return self.numbers.ids(ids)

    def begin_anew(self) -> None:
        self.features.clear()

    @property
    def numbers(self) -> MediaNumbers:
        return self.towers.numbers

    @property
    def is_whole(self) -> bool:
        """Tokens of one piece see each other."""
        return self.towers.source.is_whole

    def mark(self, prompt: Ints) -> Ints:
        """The prompt as the tree sees it: a copy."""
        marked = prompt.copy()
        for media in self.placed:
            number = self.numbers.of(media.item.key, media.item.kind)
            for first, num in media.spans:
                marked[first : first + num] = number
        return marked

    def lacks(self, cached: int) -> str:
        """Why its request cannot run yet, with so many tokens cached; empty: it can."""
        missing = 0
        for item in {m.item.key: m.item for m in self.placed if sum(m.spans[-1]) > cached}.values():
            if item.key not in self.features:
                found = self.towers.find(item)
                if found is None:
                    missing += item.num_tokens
                    self.awaited.add(item.key)
                else:
                    self.features[item.key] = found
                    self.towers.num_found += item.key not in self.awaited
        return f"waits for {missing} tokens of its media to be computed" if missing else ""

    @property
    def failure(self) -> Finish | None:
        """Why there are no features of a piece: the client's fault where it computed what a tower was to read."""
        failed = self.towers.failed
        item = next((m.item for m in self.placed if m.item.file in failed), None)
        if item is None:
            return None
        return Finish.abort(item.place, failed[item.file], status=400 if item.is_given else 500)

    def rows(self, start: int, stop: int, first: int) -> Iterable[FeatureRows]:
        """Of tokens [start, stop), the first of which is `first` of a step's."""
        for media in self.placed:
            at = 0  # of its features
            for begin, num in media.spans:
                low, high = max(begin, start), min(begin + num, stop)
                if low < high:
                    features = self.features[media.item.key]
                    yield FeatureRows(first + low - start, high - low, features, at + low - begin, self.is_whole)
                at += num

    def whole(self, start: int, stop: int) -> tuple[int, int]:
        """Where a step from `start` may end at `stop` at the latest, if no span is cut; and at the earliest."""
        for media in self.placed:
            for begin, num in media.spans:
                if begin < stop < begin + num:
                    return max(begin, start), begin + num
        return stop, stop


def ids_of(request: Request, start: int, stop: int) -> Ints:
    """Known tokens as the vocabulary has them."""
    tokens, media = request.tokens[start:stop], request.own.get(RequestMedia)
    return tokens if media is None else media.numbers.ids(tokens)


class TurnedRows(RowFeature):
    """Rows whose tokens behind media are at other positions than their indices."""

    flag = RowFlag.MEDIA

    def begin(self, running: RunningRequest) -> Sequence[Command]:
        if (turns := running.request.own[RequestMedia].turns) is not None:
            shift_row(running, turns.shift)
        return ()


def cost_kind(item: Prepared) -> tuple[MediaKind, bool]:
    """Pieces that take about as long for each token: features that were given are only read."""
    return item.kind, item.are_features


class TowerCost:
    """Seconds of a piece, by what the last pieces of its kind took: the most that a token of them did.

    Nothing is known of a kind before the first one, nor of a piece that is larger than those: in a tower each token
    sees others, so the time of one grows with the piece.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[MediaKind, bool], deque[tuple[int, float]]] = {}  # (tokens of a piece, s for each)

    def seconds(self, item: Prepared) -> float:
        """Infinite where it is not known."""
        times = self._times.get(cost_kind(item), ())
        if item.num_tokens > max((tokens for tokens, _ in times), default=0):
            return math.inf
        return item.num_tokens * max(each_s for _, each_s in times)

    def learn(self, items: Sequence[Prepared], seconds: float) -> None:
        """So many of one kind took so long together."""
        largest, total = max(item.num_tokens for item in items), sum(item.num_tokens for item in items)
        times = self._times.setdefault(cost_kind(items[0]), deque(maxlen=MAX_TIMES))
        times.append((largest, seconds / total))


class Towers:
    """What waiting requests lack, turn by turn. `max_tokens` of a turn."""

    def __init__(self, source: MediaSource, max_tokens: int, clock: Callable[[], float]) -> None:
        self.source, self._most, self._clock = source, max_tokens, clock
        self.numbers = MediaNumbers(source.tokens)
        self._cost = TowerCost()
        self._wanted: dict[bytes, Prepared] = {}
        self._num_wanted = 0  # tokens
        self._made: dict[bytes, Features] = {}  # in the last turn that made some, however little room is kept for them
        self.failed: dict[str, str] = {}  # in that turn: why, by file: the same piece of another request has its own
        self.num_tokens = 0  # that were computed or given
        self.num_found = 0  # pieces that were there when a request came for them

    def of_request(self, placed: Sequence[PlacedMedia], prompt_len: int) -> RequestMedia:
        self.numbers.begin(len(placed))
        return RequestMedia(placed, self, turns_of(prompt_len, placed), self.numbers.era)

    @property
    def has_work(self) -> bool:
        return bool(self._wanted)

    def find(self, item: Prepared) -> Features | None:
        """What is there of it. What is not a later turn computes, if this one has room for it."""
        found = self._made.get(item.key) or self.source.find(item.key)
        has_room = not self._wanted or self._num_wanted + item.num_tokens <= self._most
        if found is None and item.key not in self._wanted and has_room:
            self._wanted[item.key] = item
            self._num_wanted += item.num_tokens
        return found

    def forget(self) -> None:
        """What was made is of other weights."""
        self._made.clear()

    def compute(self, room_s: float = math.inf) -> float:
        """What the last turn asked for: one piece, and others while that is predicted to take `room_s` at most. Those
        that are left are asked for again. Returns the seconds it took. No step runs.
        """
        began_s = self._clock()
        taken = self._within(room_s)
        self._wanted, self._num_wanted = {}, 0
        self._made, self.failed = {}, {}
        for _, alike in groupby(taken, cost_kind):
            self._compute(list(alike))
        return self._clock() - began_s

    def _within(self, room_s: float) -> list[Prepared]:
        taken: list[Prepared] = []
        for item in self._wanted.values():
            room_s -= self._cost.seconds(item) if room_s < math.inf else 0
            if taken and room_s < 0:
                break
            taken.append(item)
        return taken

    def _compute(self, items: Sequence[Prepared]) -> None:
        began_s = self._clock()
        made = self.source.compute(items)
        if not any(isinstance(each, str) for each in made):  # pieces were tried together, then one by one
            self._cost.learn(items, self._clock() - began_s)
        for item, each in zip(items, made, strict=True):
            if isinstance(each, str):
                self.failed[item.file] = each
            else:
                self._made[item.key] = each
                self.num_tokens += item.num_tokens
