"""Pieces of a reply that took long to make and are few bytes: others are served between them as well."""

import asyncio
from collections.abc import Iterator

from aiohttp import web

from ramet.runtime.server.http.exchange import MAX_PIECES, write_in_turn

NUM = 10 * MAX_PIECES


class Kept(web.StreamResponse):
    """What was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data


def test_others_are_served_after_some_pieces_however_small() -> None:
    turns = list[int]()

    async def main() -> bytes:
        turn = 0

        async def tick() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        def pieces() -> Iterator[bytes]:
            for _ in range(NUM):
                turns.append(turn)
                yield b"a"

        ticking, response = asyncio.ensure_future(tick()), Kept()
        await write_in_turn(response, pieces())
        ticking.cancel()
        return bytes(response.written)

    assert asyncio.run(main()) == b"a" * NUM
    assert max(turns.count(turn) for turn in turns) <= MAX_PIECES
