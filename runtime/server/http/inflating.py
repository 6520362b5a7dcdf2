"""Compressed bodies, inflated piece by piece.

Decides which content codings a body may have, and which body is a bomb: a few kilobytes that would become gigabytes.
Knows no connection and no limit on a body's size.
"""

import importlib
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from aiohttp import web
from aiohttp.compression_utils import HAS_BROTLI, HAS_ZSTD, BrotliDecompressor

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError

KNOWN = frozenset({"gzip", "deflate", *(["br"] if HAS_BROTLI else []), *(["zstd"] if HAS_ZSTD else [])})
SYNONYMS = {"x-gzip": "gzip"}
NO_CODINGS = frozenset({"", "identity", "utf-8"})  # utf-8 is none, but clients send it with plain bodies
FREE_BYTES = 1 << 20  # inflated bytes up to which any ratio is allowed
MAX_RATIO = 200  # inflated bytes for each compressed byte; JSON of real requests reaches 20
AT_ONCE = 1 << 16  # bytes that are inflated before other requests are served
FED_AT_ONCE = 1 << 12  # compressed bytes for one call; the ratio counts them as soon as they are fed
ZLIB_METHOD = 8  # lower half of a deflated body's first byte, if it has zlib's header, as it should
FIELD = "Content-Encoding"


def coding_of(request: web.Request) -> str | None:
    """The body's coding; None: it is not compressed. Raises ClientError for other codings, and for several."""
    given = ",".join(request.headers.getall(FIELD, [])).lower().split(",")
    names = [SYNONYMS.get(name, name) for each in given if (name := each.strip()) not in NO_CODINGS]
    if not names:
        return None
    takes = f"must be one of {', '.join(sorted(KNOWN))}"
    if len(names) > 1:
        raise ClientError(FIELD, f"names {len(names)} codings, {takes}", "compress the body once", status=415)
    if names[0] not in KNOWN:
        raise ClientError(FIELD, f"is {shown(names[0])}, {takes}", "or send the body as it is", status=415)
    return names[0]


class Inflater:
    """One body. `coding`: one of KNOWN."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inner: _Inner | None = None
        self._num_fed = self._num_made = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The next compressed bytes, inflated. Other requests may be served between pieces. Raises ClientError."""
        for start in range(0, len(data), FED_AT_ONCE):
            fed = data[start : start + FED_AT_ONCE]
            self._num_fed += len(fed)
            if self._inner is None:
                self._inner = _inner(self._coding, fed)
            while made := self._inflate(self._inner, fed):
                self._num_made += len(made)
                if self._num_made > max(FREE_BYTES, self._num_fed * MAX_RATIO):
                    fact = f"inflates to more than {MAX_RATIO} times its {self._num_fed} bytes"
                    raise ClientError("body", f"{fact}, and to more than {FREE_BYTES}", "send it as it is", 413)
                yield made
                fed = b""

    def end(self) -> None:
        """Called at the end of the body. Raises ClientError if a part of it is missing."""
        if self._inner is not None and not self._inner.is_whole:
            raise self._unreadable()

    def _inflate(self, inner: "_Inner", fed: bytes) -> bytes:
        try:
            return inner.inflate(fed)
        except Exception:  # noqa: BLE001  each library has errors of its own
            raise self._unreadable() from None

    def _unreadable(self) -> ClientError:
        return ClientError("body", f"cannot be read: it is not {self._coding}, as its {FIELD} says")


class _Inner(Protocol):
    def inflate(self, data: bytes) -> bytes:
        """At most AT_ONCE bytes of what `data` and all before it become; b"": nothing more without more data."""

    @property
    def is_whole(self) -> bool:
        """Whether the body may end here, its checksum and length among what was read."""


class _Members:
    """gzip, deflate or zstd: one member, or several one behind another. `new`: makes what reads a member."""

    def __init__(self, new: Callable[[], Any], has_tail: bool) -> None:
        """`has_tail`: what reads a member gives back the bytes that it has not looked at."""
        self._new, self._has_tail = new, has_tail
        self._member = new()
        self._left = b""  # fed, but not read yet

    @property
    def is_whole(self) -> bool:
        return bool(self._member.eof) and not self._left

    def inflate(self, data: bytes) -> bytes:
        data = self._left + data
        while True:
            if self._member.eof:
                if not data:
                    return b""
                self._member = self._new()
            made: bytes = self._member.decompress(data, AT_ONCE)
            data = self._left = self._member.unused_data or (self._member.unconsumed_tail if self._has_tail else b"")
            if made or not self._member.eof:
                return made


class _Brotli:
    def __init__(self) -> None:
        self._inner = BrotliDecompressor()

    @property
    def is_whole(self) -> bool:
        return bool(self._inner._obj.is_finished())  # aiohttp does not say it

    def inflate(self, data: bytes) -> bytes:
        return self._inner.decompress_sync(data, AT_ONCE)


def _inner(coding: str, first: bytes) -> _Inner:
    if coding == "br":
        return _Brotli()
    if coding == "zstd":
        zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
        return _Members(zstd.ZstdDecompressor, has_tail=False)
    if coding == "gzip":
        bits = zlib.MAX_WBITS + 16
    else:
        bits = zlib.MAX_WBITS if first[0] & 0xF == ZLIB_METHOD else -zlib.MAX_WBITS
    return _Members(lambda: zlib.decompressobj(bits), has_tail=True)
