"""Responses that clients may ask for again, or continue: the least recently used are forgotten first.

Decides what is kept, by bytes. Knows no endpoint. In the memory of this process alone: they end with it.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

import orjson


class Stored(NamedTuple):
    response: bytes  # JSON object, as it was sent
    items: bytes  # JSON list of the input's items
    messages: bytes  # JSON list: the chat up to the response's end, without instructions

    @property
    def size(self) -> int:
        return len(self.response) + len(self.items) + len(self.messages)


class ResponseStore:
    def __init__(self, most_bytes: int) -> None:
        self._most, self._held = most_bytes, 0
        self._kept: OrderedDict[str, Stored] = OrderedDict()

    @property
    def is_on(self) -> bool:
        return self._most > 0

    def put(self, key: str, response: dict[str, Any], items: list[Any], messages: list[Any]) -> bool:
        """Whether it is kept: what is larger than the whole store is not."""
        stored = Stored(orjson.dumps(response), orjson.dumps(items), orjson.dumps(messages))
        self.drop(key)
        if stored.size > self._most:
            return False
        self._kept[key] = stored
        self._held += stored.size
        while self._held > self._most:
            _, oldest = self._kept.popitem(last=False)
            self._held -= oldest.size
        return True

    def get(self, key: str) -> Stored | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def drop(self, key: str) -> bool:
        """Whether it was there."""
        stored = self._kept.pop(key, None)
        self._held -= stored.size if stored is not None else 0
        return stored is not None
