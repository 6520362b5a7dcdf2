"""The encoded bytes of media: out of the request, from hosts, and from files, as far as the operator allows it.

For the server's process and for `LLM`. What nobody has allowed is refused before anything is opened. What is written in
the request is decoded in slices, so that the event loop goes on with other requests.
"""

import asyncio
import re
from binascii import a2b_base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from ramet.ipc.params import shown
from ramet.runtime.access.shares import SharedPlaces
from ramet.runtime.errors import ClientError
from ramet.runtime.media.downloads import Downloads, Network
from ramet.runtime.media.local_files import Outside, read_below
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.options.media_options import MediaArgs

SLICE = 1 << 17  # bytes that are decoded at once
MAX_HEADER = 1024  # characters of a data URI before its comma
MAX_PATH = 4096
AT_ONCE = 4  # for each worker, of hosts and of others: fetched, or fetched and not yet decoded
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_MEDIA_IN_BASE64 = ("/9j/", "//", "/0//", "/wr")  # JPEG, MPEG audio, JPEG 2000 and JPEG XL begin so; they are no paths
_PLAIN = bytes.maketrans(b"-_", b"+/")  # of the alphabet for URLs
_SPACES = b" \t\r\n\f"


class Fetcher:
    """`fetched` where a piece is decoded next, so that those which wait for a worker are few."""

    def __init__(self, args: MediaArgs, network: Network | None = None, share: float = 1.0) -> None:
        """`share`: the part of the places, in which pieces wait for a worker, that one key may have."""
        self._args = args
        self._most = int(args.max_media_mb * (1 << 20))
        self._downloads = Downloads(args, network or Network())
        self._places, self._places_of_hosts = (SharedPlaces(AT_ONCE * args.media_workers, share) for _ in range(2))

    @asynccontextmanager
    async def fetched(self, source: GivenMedia, owner: str = "") -> AsyncIterator[bytes | list[bytes]]:
        """The bytes for as long as they are needed; others wait meanwhile, if there are many, those of hosts, which may
        be slow, apart from what is here. `owner`: see Places. Raises ClientError.
        """
        is_of_host = isinstance(source.written, str) and _form(source.written) in ("http", "https")
        async with (self._places_of_hosts if is_of_host else self._places).one(owner):
            yield await self.fetch(source)

    async def fetch(self, source: GivenMedia) -> bytes | list[bytes]:
        """A list: the pictures of a film that a program has as an array. Raises ClientError with the source's place."""
        written, place = source.written, source.place
        if source.arrays is not None:
            return b""
        if not isinstance(written, str | bytes):
            return await asyncio.to_thread(_of_program, source)
        data = written if isinstance(written, bytes) else await self._read(written, place)
        if not data:
            raise ClientError(place, "is empty")
        if len(data) > self._most:
            raise ClientError(place, f"is larger than {self._args.max_media_mb} MB (--max-media-mb)", status=413)
        return data

    async def _read(self, written: str, place: str) -> bytes:
        """No more than a slice beyond the bound."""
        match _form(written):
            case "base64":
                return await self._from_base64(_ascii(written, place), place)
            case "data":
                return await self._of_data_uri(written, place)
            case "http" | "https":
                return await self._downloads.download(written, place)
            case "path":
                return await self._of_file(written, written, place)
            case "file":
                return await self._of_file(_path_of(written, place), written, place)
        raise ClientError(place, f"is {shown(written)}, must be base64, a path, or a URL of data, http, https or file")

    async def _of_file(self, path: str, written: str, place: str) -> bytes:
        folder = self._args.allowed_local_media_path
        if not folder:
            fact = f"is {shown(written)}, but no file of this machine is read (--allowed-local-media-path)"
            raise ClientError(place, fact, "send the media as a data: URI or as base64; in LLM give the bytes")
        try:
            if len(path) <= MAX_PATH:
                async with asyncio.timeout(self._args.media_fetch_timeout_s):
                    return await asyncio.to_thread(read_below, folder, path, self._most)
        except (Outside, TimeoutError):
            pass
        raise ClientError(place, f"is {shown(written)}, which is no file in {folder} that can be read")

    async def _of_data_uri(self, written: str, place: str) -> bytes:
        header, comma, _ = written[:MAX_HEADER].partition(",")
        if not comma:
            raise ClientError(place, f"is {shown(written)}, must have a comma between its media type and its data")
        data = _ascii(written, place)[len(header) + 1 :]
        is_base64 = header.lower().rstrip().endswith(";base64")
        if b"%" in data or not is_base64:
            data = await self._unquoted(data)
        return await self._from_base64(data, place) if is_base64 else data

    async def _unquoted(self, data: bytes) -> bytes:
        parts, at = [], 0
        while at < len(data):
            end = at + SLICE
            cut = data.rfind(b"%", end - 2, end)
            end = cut if cut >= 0 and end < len(data) else end
            parts.append(unquote_to_bytes(data[at:end]))
            at = end
            await asyncio.sleep(0)
        return b"".join(parts)

    async def _from_base64(self, data: bytes, place: str) -> bytes:
        """Spaces, the alphabet for URLs and missing padding do no harm."""
        parts, size, rest = [], 0, b""
        try:
            for at in range(0, len(data), SLICE):
                piece = rest + data[at : at + SLICE].translate(_PLAIN, _SPACES)
                whole = max(0, len(piece) - 1) // 4 * 4  # the last four, which may be padded, are kept for the end
                parts.append(_decoded(piece[:whole], is_last=False))
                size, rest = size + len(parts[-1]), piece[whole:]
                if size > self._most:
                    break
                await asyncio.sleep(0)
            else:
                parts.append(_decoded(rest + b"=" * (-len(rest) % 4), is_last=True))
        except ValueError as error:
            fact = f"is {shown(data[:MAX_HEADER].decode())}, which is not base64: {error}"
            hint = "a path has a dot or begins with a slash, an address with http:// or https://"
            if data.startswith(b"data:"):
                hint = "of a data URI what stands behind the comma belongs here"
            raise ClientError(place, fact, hint) from None
        return b"".join(parts)


def _of_program(source: GivenMedia) -> bytes | list[bytes]:
    from ramet.runtime.media.objects import encoded  # Pillow and numpy, in the program's own process

    try:
        return encoded(source.kind, source.written)
    except ClientError as error:
        raise error.at(source.place) from None


def _decoded(text: bytes, *, is_last: bool) -> bytes:
    if not is_last and b"=" in text:
        raise ValueError("there is more after its padding")
    return a2b_base64(text, strict_mode=True)


def _ascii(written: str, place: str) -> bytes:
    try:
        return written.encode("ascii")
    except UnicodeEncodeError as error:
        fact = f"is {shown(written)}, which is neither base64 nor a URL: character {error.start} is not of ASCII"
        raise ClientError(place, fact) from None


def _form(written: str) -> str:
    """The scheme, or path or base64: the alphabet of the latter has a slash, and no dot."""
    if found := _SCHEME.match(written):
        scheme = found[1].lower()
        return scheme if scheme in ("data", "http", "https", "file") else "unknown"
    is_path = written.startswith("/") and not written.startswith(_MEDIA_IN_BASE64)
    return "path" if is_path or "." in written[: MAX_PATH + 1] else "base64"


def _path_of(written: str, place: str) -> str:
    """Of a URL of `file:`."""
    try:
        url = urlsplit(written)
    except ValueError:
        url = None
    if url is None or url.netloc.lower() not in ("", "localhost"):
        raise ClientError(place, f"is {shown(written)}, must name a file of this machine, as file:///folder/file.png")
    return unquote(url.path, errors="surrogateescape")
