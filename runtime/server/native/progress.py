"""What a stream of /generate sends of one sequence: its output so far, whose lists are encoded as they grow."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from msgspec import UnsetType

from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.intake.reading import ThoughtCount
from ramet.runtime.intake.reply import GrowingReply
from ramet.runtime.replies.long_list import Listed, parts_of
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import MAX_TURN, LongJson, encode, written


class GrowingList:
    """The JSON of a list that only grows: its old entries are not encoded again."""

    def __init__(self) -> None:
        self._json, self._num = bytearray(b"["), 0

    def json(self, items: list[Any]) -> Any:
        """The whole list, encoded."""
        if new := items[self._num :]:
            self._json += b"," * bool(self._num) + encode(new)[1:-1]
            self._num = len(items)
        return written(bytes(self._json) + b"]")


class GrowingLongList:
    """The same of a list that is long: its JSON is kept, and returned, in pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytearray] = []

    def json(self, new: Listed) -> Iterator[bytes]:
        """The whole list, of which `new` was not encoded before."""
        yield b"["
        for piece in self._pieces:
            yield bytes(piece)
        for part in parts_of(new):
            made = b"," * bool(self._pieces) + encode(part)[1:-1]
            self._keep(made)
            yield made
        yield b"]"

    def _keep(self, made: bytes) -> None:
        if self._pieces and len(self._pieces[-1]) < MAX_TURN:
            self._pieces[-1] += made
        else:
            self._pieces.append(bytearray(made))


class Progress(GrowingReply):
    """For a stream: the lists of whole replies are encoded as they grow."""

    def __init__(
        self, sequence: GeneratedSequence, index: int | UnsetType, thought: ThoughtCount | None, deltas: bool
    ) -> None:
        super().__init__(sequence, index, thought)
        self._deltas = deltas
        self._json_ids = GrowingList()
        self._lists: dict[str, GrowingLongList] = defaultdict(GrowingLongList)  # by the fields of meta_info

    def events(self) -> sse.Events:
        """All that is new of a sequence is one event, however many tokens that is."""
        reply = self._reply(*self._advance()) if self._deltas else self.whole()
        return sse.long_event(reply) if self._sequence.returns_numbers else sse.event(reply)

    def _listed_ids(self, ids: list[int]) -> Any:
        return self._json_ids.json(ids)

    def _grown(self, name: str, new: Listed) -> LongJson:
        return LongJson(self._lists[name].json(new))
