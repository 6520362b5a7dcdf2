"""Compressed bodies, inflated piece by piece.

Decides which content codings a body may have, and which body is a bomb: a few kilobytes that would become gigabytes.
Knows no connection and no limit on a body's size.
"""

from collections.abc import Iterator

from aiohttp import web
from aiohttp.compression_utils import HAS_BROTLI, HAS_ZSTD, BrotliDecompressor, ZLibDecompressor, ZSTDDecompressor

from ramet.runtime.errors import ClientError

KNOWN = frozenset({"gzip", "deflate", *(["br"] if HAS_BROTLI else []), *(["zstd"] if HAS_ZSTD else [])})
CODINGS = KNOWN | {"br", "zstd"}
FREE_BYTES = 1 << 20  # inflated bytes up to which any ratio is allowed
MAX_RATIO = 200  # inflated bytes for each compressed byte; JSON of real requests reaches 20
AT_ONCE = 1 << 16  # bytes that are inflated before other requests are served
FED_AT_ONCE = 1 << 12  # compressed bytes for one call; the ratio counts them as soon as they are fed
ZLIB_METHOD = 8  # lower half of a deflated body's first byte, if it has zlib's header, as it should
FIELD = "Content-Encoding"


def coding_of(request: web.Request) -> str | None:
    """The body's coding; None: not compressed. Unknown names are ignored. Raises ClientError for other codings."""
    given = ",".join(request.headers.getall(FIELD, []))
    names = [name for each in given.lower().split(",") if (name := each.strip()) in CODINGS]
    if not names:
        return None
    takes = f"must be one of {', '.join(sorted(KNOWN))}"
    if len(names) > 1:
        raise ClientError(FIELD, f"names {len(names)} codings, {takes}", "compress the body once", status=415)
    if names[0] not in KNOWN:
        raise ClientError(FIELD, f"is {names[0]}, {takes}", status=415)
    return names[0]


class Inflater:
    """One body. `coding`: one of KNOWN."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inner: ZLibDecompressor | BrotliDecompressor | ZSTDDecompressor | None = None
        self._num_fed = self._num_made = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The next compressed bytes, inflated. Other requests may be served between pieces. Raises ClientError."""
        for start in range(0, len(data), FED_AT_ONCE):
            fed = data[start : start + FED_AT_ONCE]
            self._num_fed += len(fed)
            if self._inner is None:
                self._inner = _decompressor(self._coding, fed)
            while (made := self._inflate(self._inner, fed)) or self._inner.data_available:
                self._num_made += len(made)
                if self._num_made > max(FREE_BYTES, self._num_fed * MAX_RATIO):
                    fact = f"inflates to more than {MAX_RATIO} times its {self._num_fed} bytes"
                    raise ClientError("body", f"{fact}, and to more than {FREE_BYTES}", "send it as it is", 413)
                yield made
                fed = b""

    def end(self) -> None:
        """Called at the end of the body. Raises ClientError if a part of it is missing."""
        if self._coding == "deflate" and isinstance(self._inner, ZLibDecompressor) and not self._inner.eof:
            raise self._unreadable()

    def _inflate(self, inner: ZLibDecompressor | BrotliDecompressor | ZSTDDecompressor, fed: bytes) -> bytes:
        try:
            return inner.decompress_sync(fed, AT_ONCE)
        except Exception:  # noqa: BLE001  each library has errors of its own
            raise self._unreadable() from None

    def _unreadable(self) -> ClientError:
        return ClientError("body", f"cannot be read: it is not {self._coding}, as its {FIELD} says")


def _decompressor(coding: str, first: bytes) -> ZLibDecompressor | BrotliDecompressor | ZSTDDecompressor:
    if coding == "br":
        return BrotliDecompressor()
    if coding == "zstd":
        return ZSTDDecompressor()
    has_no_header = coding == "deflate" and first[0] & 0xF != ZLIB_METHOD
    return ZLibDecompressor(encoding=coding, suppress_deflate_header=has_no_header)
