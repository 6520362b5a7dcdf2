"""An output as items, one of them open at a time: a thought, a text or a call. Surfaces write their shapes.

A reply that is not streamed is read the same way, without events.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from msgspec import Struct

from ramet.ipc.messages import Finish
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.parsers.json_text import is_whole
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Part, Thought
from ramet.runtime.intake.reading import MAX_AT_ONCE, OutputReader
from ramet.runtime.server.http import sse

I = TypeVar("I", bound=Struct)  # noqa: E741


class Items(ABC, Generic[I]):
    """Reads one sequence, by `events` for a stream or by `read_whole`. Then `closed` has all items."""

    def __init__(self, sequence: GeneratedSequence, reader: OutputReader, silent: bool = False) -> None:
        """`silent`: without thoughts."""
        self._sequence, self._reader, self._silent = sequence, reader, silent
        self.closed: list[I] = []
        self._open: I | None = None
        self._kind: type[Part] | None = None  # of the part that began the open item
        self._texts: list[str] = []  # of the open item
        self._events: list[bytes] | None = []  # not written yet; None: the reply is not streamed
        self._begun = False

    @abstractmethod
    def _start(self) -> None:
        """Before the first token."""

    @abstractmethod
    def _item(self, first: Part) -> I:
        """An empty one, for this part and those that follow it; its first events."""

    @abstractmethod
    def _grew(self, item: I, text: str) -> None:
        """The events of more text of the open item."""

    @abstractmethod
    def _ended(self, item: I, text: str, complete: bool) -> I:
        """Its last events, and the item with all its text."""

    @abstractmethod
    def _end(self, finish: Finish) -> None:
        """After the last item."""

    def events(self) -> bytes:
        """The events of what is new."""
        sequence, first = self._sequence, self._sequence.num_taken
        if not self._begun:
            self._begun = True
            self._start()
        self._read(sequence.take()[0], first)
        if sequence.finish is not None:
            self._close_all(sequence.finish)
        return self._taken()

    async def read_whole(self) -> None:
        """All of a sequence that has ended, without events. Other requests are served in between."""
        self._events = None
        texts, _ = self._sequence.take()
        for start in range(0, len(texts), MAX_AT_ONCE):
            self._read(texts[start : start + MAX_AT_ONCE], start)
            await asyncio.sleep(0)
        assert self._sequence.finish is not None
        self._close_all(self._sequence.finish)

    def _emit(self, event: Struct) -> None:
        if self._events is not None:
            self._events.append(sse.named(event))

    def _taken(self) -> bytes:
        events, self._events = b"".join(self._events or ()), []
        return events

    def _read(self, texts: list[str], first: int) -> None:
        """`first`: the place of the first of these tokens."""
        for place, text in enumerate(texts, first):
            for part in self._push(text, place):
                self._add(part)

    def _push(self, text: str, place: int) -> list[Part]:
        """What a token made certain."""
        return self._reader.push(text)

    def _add(self, part: Part) -> None:
        kind = type(part)
        if kind is Thought and self._silent:
            return
        if kind is CallStart or (kind is not CallArguments and kind is not self._kind):
            self._begin(part)
        assert self._open is not None, "arguments came before their call"
        if not isinstance(part, CallStart):
            text = part if isinstance(part, str) else part.text
            self._texts.append(text)
            self._grew(self._open, text)

    def _begin(self, first: Part) -> None:
        self._close(complete=self._kind is not CallStart or is_whole("".join(self._texts), "{"))
        self._open, self._kind = self._item(first), type(first)

    def _close(self, complete: bool = True) -> None:
        if self._open is not None:
            self.closed.append(self._ended(self._open, "".join(self._texts), complete))
            self._open, self._kind, self._texts = None, None, []

    def _close_all(self, finish: Finish) -> None:
        for part in self._reader.close(self._sequence.tail):
            self._add(part)
        if finish.aborted:  # such replies have no word for it
            raise ClientError("", f"The request was ended before it was done: {finish.error}", code="aborted")
        if self._open is None and not self.closed:
            self._begin("")
        self._close(complete=not self._reader.cut(finish))
        self._end(finish)
