"""What was prepared lately is prepared once, and its file stays as long as somebody needs it or there is room."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import pytest

from ramet.ipc.media import MediaKind, Prepared
from ramet.runtime.access.owner import Owner
from ramet.runtime.media.kept import SMALL, KeptMedia
from ramet.runtime.media.source import Arrays, GivenMedia


class CountingPool:
    """Every file has as many bytes as its piece."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.files: dict[str, int] = {}

    async def prepare(self, source: GivenMedia, data: bytes | list[bytes], request: Hashable, owner: str) -> Prepared:
        await asyncio.sleep(0)
        file = str(len(self.made))
        self.made.append(file)
        self.files[file] = len(data)
        return Prepared(source.kind, b"", (1,), (), file, source.place)

    def size_of(self, prepared: Prepared) -> int:
        return self.files[prepared.file]

    def release(self, prepared: Prepared) -> None:
        del self.files[prepared.file]


def run(body: Callable[[CountingPool, KeptMedia], Awaitable[None]], max_bytes: int = 100) -> None:
    pool = CountingPool()
    asyncio.run(body(pool, KeptMedia(pool, max_bytes)))  # type: ignore[arg-type]


def image(place: str = "a", **options: Any) -> GivenMedia:
    return GivenMedia(MediaKind.IMAGE, place, "x", options)


def test_the_same_bytes_are_prepared_once_and_named_by_their_own_places() -> None:
    async def body(pool: CountingPool, kept: KeptMedia) -> None:
        one = await kept.prepare(image("a"), b"1" * (SMALL + 1), 0)
        other = await kept.prepare(image("b"), b"1" * (SMALL + 1), 1)
        assert (one.place, other.place) == ("a", "b") and one.file == other.file and pool.made == ["0"]
        kept.release(one)
        assert pool.files  # another request needs it
        kept.release(other)
        assert not pool.files  # there is no room for it

    run(body)


def test_each_scope_prepares_its_own_and_what_a_tower_makes_of_it_is_its_own_too() -> None:
    async def body(pool: CountingPool, kept: KeptMedia) -> None:
        made = [
            await kept.prepare(image(), b"1", 0, Owner(name, False, bool(name))) for name in ("", "a", "b", "a", "")
        ]
        assert [each.file for each in made] == ["0", "1", "2", "1", "0"]
        assert [made[i].key == made[j].key for i, j in ((0, 1), (1, 2), (1, 3), (0, 4))] == [False, False, True, True]
        given = GivenMedia(MediaKind.IMAGE, "a", arrays=Arrays({}, False))
        keys = {
            (await kept.prepare(given, b"", 0, Owner(name, False, bool(name)))).key for name in ("", "a", "b", "a", "")
        }
        assert len(keys) == 3

    run(body)


@pytest.mark.parametrize(
    ("source", "data"),
    [
        (image(), b"12"),
        (image(), [b"1"]),
        (image(max_pixels=3), b"1"),
        (GivenMedia(MediaKind.VIDEO, "a", "x"), b"1"),
        (GivenMedia(MediaKind.IMAGE, "a", arrays=Arrays({}, False)), b"1"),
    ],
)
def test_what_differs_in_anything_is_prepared_anew(source: GivenMedia, data: Any) -> None:
    async def body(pool: CountingPool, kept: KeptMedia) -> None:
        await kept.prepare(image(), b"1", 0)
        await kept.prepare(source, data, 0)
        assert len(pool.made) == 2

    run(body)


def test_the_piece_that_was_needed_longest_ago_goes_first() -> None:
    async def body(pool: CountingPool, kept: KeptMedia) -> None:
        for data in (b"a" * 40, b"b" * 40, b"a" * 40, b"c" * 40):
            kept.release(await kept.prepare(image(), data, 0))
        assert pool.made == ["0", "1", "2"] and sorted(pool.files) == ["0", "2"]

    run(body)


def test_two_requests_at_once_may_prepare_both_and_leave_one() -> None:
    async def body(pool: CountingPool, kept: KeptMedia) -> None:
        both = await asyncio.gather(*(kept.prepare(image(), b"1", request) for request in range(2)))
        for each in both:
            kept.release(each)
        assert len(pool.made) == 2 and len(pool.files) == 1

    run(body)


def test_arrays_of_a_client_go_with_their_request() -> None:
    async def body(pool: CountingPool, kept: KeptMedia) -> None:
        kept.release(await kept.prepare(GivenMedia(MediaKind.IMAGE, "a", arrays=Arrays({}, False)), b"", 0))
        assert pool.made and not pool.files

    run(body)
