"""JSON that stays text on its way to the process that looks into it, so that its numbers are not read on the way.

Decides which parts of a value stay JSON: in the objects at some paths, the members that have long numbers. They become
msgspec.Raw, which `exact_json.read` reads. All else that has long numbers is read exactly.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from ramet.runtime.exact_json import loads, may_round

Path = tuple[str, ...]  # names of fields; ITEMS leads to each entry of a list
ITEMS = "*"
MAX_LOOKS = 1024  # values that are looked at one by one; where there are more, reading all at once costs less

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _ManyValues(Exception):
    """More than MAX_LOOKS."""


def with_unread(value: Any, data: bytes, paths: Collection[Path]) -> Any:
    """The value of the JSON `data` with exact numbers. `value`: as a parser read it that rounds them. WRITES `value`.

    Of the objects at `paths`, members with long numbers stay JSON.
    """
    if not may_round(data):
        return value
    if () in paths and isinstance(value, dict):
        return _with_unread_members(value, data)
    try:
        return _Parts().exact(value, data, paths)
    except _ManyValues:
        return loads(data)


class _Parts:
    """The parts of one value."""

    def __init__(self) -> None:
        self._left = MAX_LOOKS

    def exact(self, value: Any, data: bytes, paths: Collection[Path]) -> Any:
        if not may_round(data):
            return value
        behind = [path for path in paths if path]
        if isinstance(value, dict) and paths:
            self._look(len(value))
            if len(behind) < len(paths):  # one of the paths ends here
                return _with_unread_members(value, data)
            for name, each in _members(data).items():
                value[name] = self.exact(value[name], bytes(each), _behind(name, behind))
            return value
        if isinstance(value, list) and (inside := _behind(ITEMS, behind)):
            self._look(len(value))
            return [self.exact(one, bytes(each), inside) for one, each in zip(value, _items(data), strict=True)]
        return loads(data)

    def _look(self, num: int) -> None:
        self._left -= num
        if self._left < 0:
            raise _ManyValues


def _behind(step: str, paths: Collection[Path]) -> list[Path]:
    return [path[1:] for path in paths if path[0] == step]


def _with_unread_members(value: dict[str, Any], data: bytes) -> dict[str, Any]:
    return value | {name: each for name, each in _members(data).items() if may_round(bytes(each))}
