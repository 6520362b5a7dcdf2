"""Compressed bodies: which are accepted, how much a bomb costs, and that other requests are served meanwhile."""

import asyncio
import gzip
import random
import zlib
from collections.abc import Callable

import orjson
import pytest

from ramet.ipc.messages import Generate
from ramet.runtime.errors import ClientError
from ramet.runtime.server.http.inflating import AT_ONCE, FED_AT_ONCE, FREE_BYTES, MAX_RATIO, Inflater
from tests.fakes.server import Served, served

BODY = orjson.dumps({"text": "abc"})
BOMB_BYTES = 32 << 20
RANDOM = random.Random(7)
REAL = orjson.dumps({"text": " ".join(f"{RANDOM.random()}" for _ in range(20_000))})  # 0.4 MB


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def two_members(data: bytes) -> bytes:
    return gzip.compress(data[:5]) + gzip.compress(data[5:])


WAYS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    (" GZip ", gzip.compress),
    ("X-Gzip", gzip.compress),
    ("identity, gzip", gzip.compress),
    ("gzip", two_members),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
]


@pytest.mark.parametrize(("coding", "compress"), WAYS)
def test_each_coding_is_read(coding: str, compress: Callable[[bytes], bytes]) -> None:
    async def check(server: Served) -> None:
        for body in (BODY, REAL):
            status, reply = await server.post("/generate", compress(body), headers={"Content-Encoding": coding})
            assert status == 200, reply
        assert [each.content.text for each in server.engine.of_type(Generate)] == ["abc", orjson.loads(REAL)["text"]]

    served(check)


@pytest.mark.parametrize("coding", ["identity", "Identity,", "UTF-8", ""])
def test_what_is_no_coding_changes_nothing(coding: str) -> None:
    async def check(server: Served) -> None:
        assert (await server.post("/generate", BODY, headers={"Content-Encoding": coding}))[0] == 200

    served(check)


@pytest.mark.parametrize("coding", ["gzip, gzip", "deflate,gzip", "br, zstd", "compress, x-gzip"])
def test_codings_on_codings_are_refused(coding: str) -> None:
    async def check(server: Served) -> None:
        data = gzip.compress(gzip.compress(BODY))
        status, reply = await server.post("/generate", data, headers={"Content-Encoding": coding})
        message = reply["error"]["message"]
        assert status == 415 and message.startswith("Content-Encoding names 2 codings, must be one of deflate, gzip")

    served(check)


@pytest.mark.parametrize("coding", ["compress", "x-compress", "aws-chunked", "gzip9", "x" * 3000])
def test_an_unknown_coding_is_refused(coding: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/generate", BODY, headers={"Content-Encoding": coding})
        message = reply["error"]["message"]
        assert status == 415 and "must be one of deflate, gzip" in message and len(message) < 500

    served(check)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("data", [b"no such thing", gzip.compress(BODY, mtime=0)[:-12] + b"x" * 12, b"\x78\x9c"])
def test_what_cannot_be_inflated_is_a_400(coding: str, data: bytes) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/generate", data, headers={"Content-Encoding": coding})
        assert status == 400 and reply["error"]["message"].startswith("body ")
        assert (await server.post("/generate", BODY))[0] == 200

    served(check)


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_bomb_is_refused_for_its_ratio(coding: str, compress: Callable[[bytes], bytes]) -> None:
    bomb = compress(b" " * BOMB_BYTES)

    async def check(server: Served) -> None:
        status, reply = await server.post("/generate", bomb, headers={"Content-Encoding": coding})
        message = reply["error"]["message"]
        assert status == 413 and f"more than {MAX_RATIO} times its {FED_AT_ONCE} bytes" in message
        assert (await server.post("/generate", BODY))[0] == 200

    served(check)


def test_little_of_a_bomb_is_inflated_before_it_is_refused() -> None:
    made = 0
    with pytest.raises(ClientError) as caught:
        for piece in Inflater("gzip").pieces(gzip.compress(b" " * BOMB_BYTES)):
            made += len(piece)
            assert len(piece) <= AT_ONCE
    assert caught.value.status == 413 and made <= max(FREE_BYTES, FED_AT_ONCE * MAX_RATIO) < BOMB_BYTES // 25


def test_what_a_body_becomes_comes_in_pieces() -> None:
    sizes = [len(piece) for piece in Inflater("gzip").pieces(gzip.compress(b" " * FREE_BYTES))]
    assert sum(sizes) == FREE_BYTES and max(sizes) <= AT_ONCE


@pytest.mark.parametrize(("coding", "compress"), WAYS)
def test_a_body_without_its_end_is_refused(coding: str, compress: Callable[[bytes], bytes]) -> None:
    """gzip ends with eight bytes of checksum and length, which are no part of what is inflated."""
    data = compress(BODY)

    async def check(server: Served) -> None:
        for length in (len(data) - 1, len(data) - 4, len(data) - 8, 5):
            status, reply = await server.post("/generate", data[:length], headers={"Content-Encoding": coding})
            message = reply["error"]["message"]
            assert status == 400 and "as its Content-Encoding says" in message, (length, message)

    served(check)


def test_a_cut_body_is_no_empty_command() -> None:
    async def check(server: Served) -> None:
        headers = {"Content-Encoding": "gzip"}
        status, reply = await server.post("/flush_cache", gzip.compress(b"{}")[:10], headers=headers)
        assert status == 400 and "is not gzip" in reply["error"]["message"]
        assert (await server.post("/flush_cache", b"", headers=headers))[0] == 200

    served(check)


@pytest.mark.parametrize("size", [1, 7, 64, FED_AT_ONCE])
@pytest.mark.parametrize(("coding", "compress"), WAYS)
def test_pieces_of_any_size_become_the_same_body(coding: str, compress: Callable[[bytes], bytes], size: int) -> None:
    plain = RANDOM.randbytes(3000) + b"x" * (2 * AT_ONCE)
    data, inflater, made = compress(plain), Inflater("deflate" if coding == "deflate" else "gzip"), b""
    for start in range(0, len(data), size):
        made += b"".join(inflater.pieces(data[start : start + size]))
    inflater.end()
    assert made == plain


def test_the_bounds_on_a_body_are_those_on_what_it_becomes() -> None:
    long, many = {"text": "x " * 60_000}, {"input_ids": [1] * (1 << 13)}

    async def check(server: Served) -> None:
        for body, expected, option in ((long, 413, "--max-body-mb"), (many, 400, "--max-body-items")):
            data = gzip.compress(orjson.dumps(body))
            status, reply = await server.post("/generate", data, headers={"Content-Encoding": "gzip"})
            assert status == expected and option in reply["error"]["message"]

    served(check, max_body_mb=0.1, max_body_items=1 << 12)


def test_a_small_body_may_have_any_ratio() -> None:
    async def check(server: Served) -> None:
        data = gzip.compress(orjson.dumps({"text": "x" * (FREE_BYTES - 100)}))
        assert len(data) * MAX_RATIO < FREE_BYTES
        assert (await server.post("/generate", data, headers={"Content-Encoding": "gzip"}))[0] == 200

    served(check)


def test_others_are_served_after_each_piece_of_a_body() -> None:
    """Few compressed bytes, which arrive together, become so many pieces."""
    num_pieces = 100
    word = b"".join(RANDOM.randbytes(8).hex().encode() + b" " * 1000 for _ in range(num_pieces * AT_ONCE // 1016))
    data = gzip.compress(b'{"text": "' + word + b'", "sampling_params": 5}')
    assert len(data) < 3 * AT_ONCE

    async def check(server: Served) -> None:
        inflating = asyncio.ensure_future(server.post("/generate", data, headers={"Content-Encoding": "gzip"}))
        num_turns = 0
        while not inflating.done():
            await asyncio.sleep(0)
            num_turns += 1
        assert (await inflating)[0] == 400 and num_turns > num_pieces

    served(check)
