"""Media by http and https, from the hosts of --allowed-media-domains.

A name is resolved once, all its addresses must be public, and the connection goes to these, so a name server that
changes its answer moves nothing. A listed address is the operator's own word and may be a private one. Each redirect
is checked as the first address was. No cookie, no credential and no proxy takes part.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from yarl import URL

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError, describe
from ramet.runtime.media.addresses import Address, address_of, is_public
from ramet.runtime.options.media_options import MediaArgs, MediaHost, read_media_hosts

MAX_REDIRECTS = 5
MAX_INTERIM = 8  # replies before the one that counts: 100, 103
MAX_URL = 16384  # characters
REDIRECTS = frozenset({301, 302, 303, 307, 308})
CHUNK = 1 << 16  # bytes
PORTS = {"http": 80, "https": 443}


async def look_up(name: str, port: int) -> list[str]:
    """As the system resolves it."""
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True, slots=True)
class Network:
    look_up: Callable[[str, int], Awaitable[Sequence[str]]] = look_up  # a name and a port: its addresses
    is_public: Callable[[Address], bool] = is_public
    tls: ssl.SSLContext | bool = True  # whom it trusts; True: the system's authorities


class Downloads:
    def __init__(self, args: MediaArgs, network: Network) -> None:
        self._words = args.allowed_media_domains
        self._hosts = read_media_hosts(args.allowed_media_domains)
        self._max_mb = args.max_media_mb
        self._timeout_s = args.media_fetch_timeout_s
        self._network = network

    async def download(self, written: str, place: str) -> bytes:
        """The body of one address, or of what it redirects to. Raises ClientError."""
        url = _read_url(written, place)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._followed(url, place)
        except TimeoutError:
            fact = f"is {shown(written)}, which did not come within {self._timeout_s} s (--media-fetch-timeout-s)"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            fact = f"is {shown(written)}, which cannot be fetched: {_why(error)}"
        raise ClientError(place, fact)

    async def _followed(self, url: URL, place: str) -> bytes:
        for _ in range(MAX_REDIRECTS + 1):
            target = self._checked(url, place)
            addresses = await self._addresses(target, place)
            async with self._session(addresses) as session, session.get(target, allow_redirects=False) as reply:
                if reply.status not in REDIRECTS:
                    return await self._body(reply, target, place)
                url = target.join(_read_url(reply.headers.get("Location", ""), place, "redirects to"))
        raise ClientError(place, f"redirects to {shown(str(url))} after {MAX_REDIRECTS} redirects, which are the most")

    def _checked(self, url: URL, place: str) -> URL:
        """With its host in the usual spelling, which is one of the list. Raises ClientError."""
        if url.scheme not in PORTS or not url.raw_host:
            raise ClientError(place, f"leads to {shown(str(url))}, must be a URL of http or https with a host")
        if "@" in url.raw_authority:
            raise ClientError(place, f"leads to {shown(str(url.with_user(None)))} with credentials, must have none")
        host = url.raw_host.lower().removesuffix(".")
        name, port = str(address_of(host) or host), url.port
        own_port = None if port == PORTS[url.scheme] else port
        if "%" not in name and self._hosts & {MediaHost(name, port), MediaHost(name, own_port)}:
            return url.with_host(name)
        allowed = f"but only from {shown(', '.join(self._words))}" if self._words else "nor from any other"
        fact = f"leads to {shown(str(url))}, and media are not fetched from there, {allowed} (--allowed-media-domains)"
        raise ClientError(place, fact, "send the media as a data: URI or as base64")

    async def _addresses(self, url: URL, place: str) -> list[str]:
        """Where to connect to. Raises ClientError unless all of them are public, or the operator has named it."""
        host, port = url.raw_host, url.port
        assert host is not None and port is not None, url
        if address_of(host):
            return [host]
        found = [ipaddress.ip_address(each.partition("%")[0]) for each in await self._network.look_up(host, port)]
        if found and all(map(self._network.is_public, found)):
            return [str(each) for each in found]
        fact = f"leads to {shown(str(url))}, whose name has an address that is not of the public network"
        raise ClientError(place, fact, "where that is meant, --allowed-media-domains names the address itself")

    def _session(self, addresses: Sequence[str]) -> aiohttp.ClientSession:
        """For one request to these addresses, whose certificate must be of the name."""
        pinned, tls = _Pinned(addresses), self._network.tls
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=pinned, use_dns_cache=False, force_close=True, ssl=tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "ramet", "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(),  # the whole has a deadline
            trust_env=False,
            response_class=_Reply,
            auto_decompress=False,
            read_bufsize=CHUNK,
        )

    async def _body(self, reply: aiohttp.ClientResponse, url: URL, place: str) -> bytes:
        if reply.status != 200:
            raise ClientError(place, f"leads to {shown(str(url))}, which answers with status {reply.status}")
        coding = reply.headers.get("Content-Encoding", "identity").lower()
        if coding != "identity":
            raise ClientError(place, f"leads to {shown(str(url))}, which is sent in the encoding {shown(coding)}")
        left = int(self._max_mb * (1 << 20))
        parts = []
        if (reply.content_length or 0) <= left:
            async for part in reply.content.iter_chunked(CHUNK):
                parts.append(part)
                left -= len(part)
                if left < 0:
                    break
            else:
                return b"".join(parts)
        fact = f"leads to {shown(str(url))}, which is larger than {self._max_mb} MB (--max-media-mb)"
        raise ClientError(place, fact, status=413)


def _why(error: Exception) -> str:
    """In words of our own: those of the error may repeat what a host that is not the client's has sent."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return "the certificate of its host is not valid"
        case aiohttp.ClientSSLError():
            return "its host speaks no TLS that is understood here"
        case aiohttp.ClientConnectorError():
            return "its host cannot be reached"
        case aiohttp.ClientError():
            return "its host sends no whole reply of HTTP"
    return "its host has no address"


class _Reply(aiohttp.ClientResponse):
    """Waited for behind a few others alone: those of a host that sends them without end would be read at once, and the
    event loop would do nothing else.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        assert connection.protocol is not None
        read, left = connection.protocol.read, iter(range(MAX_INTERIM + 1))

        async def next_reply() -> Any:
            if next(left, None) is None:
                raise aiohttp.ClientPayloadError
            return await read()

        connection.protocol.read = next_reply  # type: ignore[method-assign]
        return await super().start(connection)


class _Pinned(AbstractResolver):
    """Answers with the addresses that were checked, whatever it is asked."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[ResolveResult]:
        return [self._answer(address, host, port) for address in self._addresses]

    async def close(self) -> None: ...

    def _answer(self, address: str, host: str, port: int) -> ResolveResult:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=flags)


def _read_url(written: str, place: str, verb: str = "is") -> URL:
    if len(written) > MAX_URL or not written.isprintable() or " " in written or "\\" in written:
        fact = f"{verb} {shown(written)}, must have at most {MAX_URL} characters, all of which may stand in a URL"
        raise ClientError(place, fact)
    try:
        return URL(written, encoded=written.isascii())  # signatures hold for what was written
    except ValueError as error:
        raise ClientError(place, f"{verb} {shown(written)}, which is not a URL: {describe(error)}") from None
