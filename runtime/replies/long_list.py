"""A list of a reply that may have a million entries, made part by part: whoever writes it serves others in between.

Decides how much is made at once. Knows neither what the entries are nor how they are written.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, Union

MAX_PART = 4096  # numbers that are made at once: about a millisecond, their JSON included
MAX_SHORT = 256  # numbers of a list that is made at once, as a list: most replies have no others

T = TypeVar("T")
R = TypeVar("R")
Part = Union[list[Any], "LongList"]


class LongList:
    """Can be read once. A part is entries, or one entry that is a long list itself."""

    __slots__ = ("parts",)

    def __init__(self, parts: Iterator[Part]) -> None:
        self.parts = parts

    def whole(self) -> list[Any]:
        """All of it at once."""
        found: list[Any] = []
        for part in self.parts:
            found += [part.whole()] if isinstance(part, LongList) else part
        return found

    async def in_turn(self) -> list[Any]:
        """All of it; other tasks of the event loop run after each part."""
        found: list[Any] = []
        for part in self.parts:
            found += [await part.in_turn()] if isinstance(part, LongList) else part
            await asyncio.sleep(0)
        return found


Listed = list[Any] | LongList


def listed(read: Callable[[int, int], list[Any]], start: int, stop: int, each: int = 1) -> Listed:
    """The entries read(start, stop), each of which has `each` numbers: at once where they are few."""
    if (stop - start) * each <= MAX_SHORT:
        return read(start, stop)
    return LongList(in_parts(read, start, stop, each))


def parts_of(entries: Listed) -> Iterator[Part]:
    return entries.parts if isinstance(entries, LongList) else iter([entries] if entries else [])


def in_parts(read: Callable[[int, int], list[Any]], start: int, stop: int, each: int = 1) -> Iterator[list[Any]]:
    """read(i, j) is the entries [i, j), each of which has `each` numbers."""
    step = max(1, MAX_PART // each)
    for i in range(start, stop, step):
        yield read(i, min(i + step, stop))


def long_list(make: Callable[[int], Any], num: int, each: int) -> Any:
    """The entries make(0) to make(num - 1), each of which has `each` numbers, as a field of a struct takes them."""
    return LongList(in_parts(lambda start, stop: [make(i) for i in range(start, stop)], 0, num, each))


async def in_pieces(act: Callable[[T], R], items: Iterable[T], at_once: int) -> list[R]:
    """What `act` returns for each item; other tasks of the event loop run after every `at_once` items."""
    made: list[R] = []
    for num, item in enumerate(items, 1):
        made.append(act(item))
        if num % at_once == 0:
            await asyncio.sleep(0)
    return made
