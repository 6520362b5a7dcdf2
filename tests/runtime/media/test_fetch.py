"""Media are fetched from where the operator allows it, as far as the bounds, and from nowhere else.

The servers here are real and count what they are asked for. In their network 127.0.0.1 is the public address.
"""

import asyncio
import base64
import gzip
import os
import ssl
import threading
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.ipc.media import MediaKind
from ramet.runtime.errors import ClientError
from ramet.runtime.media.addresses import address_of, is_public
from ramet.runtime.media.downloads import MAX_INTERIM, MAX_REDIRECTS, Network
from ramet.runtime.media.fetch import SLICE, Fetcher
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.options.media_options import MediaArgs
from tests.fakes.tls_files import Files

PIECE = bytes(range(256)) * 5
PUBLIC = ip_address("127.0.0.1")
PRIVATE = "127.0.0.2"

Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


def source(written: Any) -> GivenMedia:
    return GivenMedia(MediaKind.IMAGE, "image_data[0]", written)


def fetch(written: str | bytes, network: Network | None = None, **options: Any) -> bytes:
    return asyncio.run(Fetcher(MediaArgs(**options), network).fetch(source(written)))


def refusal(written: str | bytes, **options: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        fetch(written, **options)
    assert caught.value.place == "image_data[0]" and 400 <= caught.value.status < 500
    assert len(str(caught.value)) < 1200
    return caught.value


def reply(body: bytes, status: str = "200 OK", **headers: object) -> Handler:
    async def write(writer: asyncio.StreamWriter) -> None:
        lines = {"Content-Length": len(body), **{name.replace("_", "-"): value for name, value in headers.items()}}
        head = f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(head.encode() + b"\r\n" + body)
        await writer.drain()

    return write


def redirect(to: str, status: str = "302 Found") -> Handler:
    return reply(b"elsewhere", status, Location=to)


class Served:
    """A server on 127.0.0.1, or on `host`: handlers by path, and what was asked for. `tls`: by https."""

    def __init__(
        self, handlers: dict[str, Handler], host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.handlers, self.host, self._tls = handlers, host, tls
        self.asked: list[str] = []
        self.heads: list[str] = []
        self.num_connections = 0

    async def __aenter__(self) -> "Served":
        self._server = await asyncio.start_server(self._answer, self.host, 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"http{'s' if self._tls else ''}://{host or self.host}:{self.port}{path}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1]
            self.asked.append(path)
            self.heads.append(head)
            await self.handlers[path](writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class Names:
    """A name server that gives its answers one after the other, and then the last one again."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def look_up(self, name: str, port: int) -> Sequence[str]:
        self.asked.append(name)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def network(self) -> Network:
        return Network(self.look_up, lambda address: address == PUBLIC)


def fetched_from(
    handlers: dict[str, Handler], path: str = "/", *, by_name: bool = False, **options: Any
) -> tuple[bytes | ClientError, Served]:
    """What is fetched from a server whose address, or whose name, is listed."""

    async def run() -> tuple[bytes | ClientError, Served]:
        async with Served(handlers) as served:
            host = "a.example" if by_name else "127.0.0.1"
            args = MediaArgs(allowed_media_domains=(f"{host}:{served.port}",), **options)
            try:
                fetcher = Fetcher(args, Names(["127.0.0.1"]).network)
                return await fetcher.fetch(source(served.url(path, host))), served
            except ClientError as error:
                return error, served

    return asyncio.run(run())


def refused_from(handlers: dict[str, Handler], path: str = "/", **options: Any) -> str:
    error, _ = fetched_from(handlers, path, **options)
    assert isinstance(error, ClientError) and error.place == "image_data[0]"
    assert error.status == (413 if "larger than" in error.fact else 400)
    return error.fact


# -- what is written in the request --------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=400), st.sampled_from(["plain", "lines", "urlsafe", "unpadded", "uri", "quoted"]))
def test_base64_is_read_in_every_form(data: bytes, form: str) -> None:
    text = base64.b64encode(data).decode()
    match form:
        case "lines":
            text = "\r\n".join(text[i : i + 5] for i in range(0, len(text), 5))
        case "urlsafe":
            text = base64.urlsafe_b64encode(data).decode()
        case "unpadded":
            text = text.rstrip("=")
        case "uri":
            text = f"data:image/png;base64,{text}"
        case "quoted":
            text = "DATA:;base64," + text.replace("+", "%2B").replace("=", "%3d")
    if text.startswith("/") and not text.startswith(("/9j/", "//", "/0//", "/wr")):
        return  # a path
    assert fetch(text) == data


@given(st.binary(min_size=1, max_size=400))
def test_a_data_uri_may_be_quoted(data: bytes) -> None:
    assert fetch("data:image/svg+xml," + "".join(f"%{byte:02x}" for byte in data)) == data


@pytest.mark.parametrize("shift", range(4))
def test_data_of_many_slices_is_whole(shift: int) -> None:
    data = b"\x00" + os.urandom(SLICE * 2 + shift)  # a text that begins with a slash would be a path
    text = base64.b64encode(data).decode()
    assert fetch(text) == fetch("data:;base64,\n" + text) == data
    assert fetch("data:," + "a" * shift + "%41" * SLICE) == b"a" * shift + b"A" * SLICE


@pytest.mark.parametrize(
    "written",
    ["", "data:", "data:image/png;base64", "data:;base64,", "data:,", "a", "QQ==QQ==", "Q=Q=", "QUJD*", "é", "\ud800",
     "QUJDé", "data:;base64,\ud800", "data:" + "x" * 5000 + ",a", "ftp://a.example/x", "javascript:1", "s3://bucket/x",
     "base64:QUJD", "path:x"],
)  # fmt: skip
def test_what_is_no_data_is_refused(written: str) -> None:
    refusal(written)


def test_padding_inside_is_refused_at_the_end_of_a_slice_too() -> None:
    first = base64.b64encode(b"x" * (SLICE // 4 * 3 - 1)).decode()
    assert len(first) == SLICE and first.endswith("=")
    assert fetch(first) == b"x" * (SLICE // 4 * 3 - 1)
    assert "there is more after its padding" in refusal(first + "QUJD").fact


def test_data_larger_than_the_bound_is_refused_and_not_decoded_whole() -> None:
    most = 1 << 20
    for make in (base64.b64encode, lambda data: b"data:;base64," + base64.b64encode(data)):
        assert len(fetch(make(bytes(most)).decode(), max_media_mb=1)) == most
        assert "is larger than 1 MB (--max-media-mb)" in refusal(make(bytes(most + 1)).decode(), max_media_mb=1).fact
    assert "is larger than 1 MB" in refusal(bytes(most + 1), max_media_mb=1).fact
    assert "is larger than 1 MB" in refusal("data:," + "a" * (most + 1), max_media_mb=1).fact


# -- hosts ---------------------------------------------------------------------------------------------------------


def test_a_piece_is_fetched_from_a_listed_address_and_from_a_listed_name() -> None:
    for by_name in (False, True):
        data, served = fetched_from({"/a%20b?c=%2F": reply(PIECE)}, "/a%20b?c=%2F", by_name=by_name)
        assert data == PIECE and served.asked == ["/a%20b?c=%2F"]
        assert f"Host: {'a.example' if by_name else '127.0.0.1'}:{served.port}" in served.heads[0]
        assert "Cookie" not in served.heads[0] and "Authorization" not in served.heads[0]


def test_nothing_is_asked_of_hosts_that_are_not_listed() -> None:
    async def run() -> None:
        names = Names(["127.0.0.1"])
        async with Served({"/": reply(PIECE)}) as served:
            port = served.port
            for domains in ((), ("a.example",), (f"b.example:{port}",), (f"127.0.0.2:{port}",), ("127.0.0.1",)):
                fetcher = Fetcher(MediaArgs(allowed_media_domains=domains), names.network)
                for host in ("127.0.0.1", "localhost", "c.example", "a.example", "a.example.b.example", "[::1]"):
                    with pytest.raises(ClientError, match=r"media are not fetched from there.*--allowed-media-domains"):
                        await fetcher.fetch(source(served.url(host=host)))
            assert served.num_connections == 0 and names.asked == []

    asyncio.run(run())


SPELLINGS = (
    "2130706433", "0x7f000001", "017700000001", "127.1", "127.0.1", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.1.",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
    "１２７.０.０.１", "127。0。0。1",
)  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_address_is_the_same_in_every_spelling(spelling: str) -> None:
    """Refused where it is not listed, though a name is that a resolver would make of it; else the listed one."""

    async def run() -> None:
        names = Names(["127.0.0.1"])
        async with Served({"/": reply(PIECE)}) as served:
            other = Fetcher(MediaArgs(allowed_media_domains=(f"a.example:{served.port}",)), names.network)
            with pytest.raises(ClientError, match="media are not fetched from there"):
                await other.fetch(source(served.url(host=spelling)))
            assert served.num_connections == 0
            own = Fetcher(MediaArgs(allowed_media_domains=(f"127.0.0.1:{served.port}",)), names.network)
            assert await own.fetch(source(served.url(host=spelling))) == PIECE
            assert names.asked == []

    asyncio.run(run())


@pytest.mark.parametrize(
    "text",
    ["0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
     "169.254.169.254", "172.16.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
     "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:10.0.0.1",
     "::ffff:169.254.169.254", "64:ff9b::a00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:a00:1::",
     "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1"],
)  # fmt: skip
def test_an_address_of_no_public_host_is_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", ["1.1.1.1", "8.8.8.8", "100.128.0.1", "2606:4700:4700::1111", "64:ff9b::808:808"])
def test_an_address_of_a_public_host_is_public(text: str) -> None:
    assert is_public(ip_address(text))


@given(st.ip_addresses(v=4))
def test_an_address_has_the_same_value_in_numbers(address: Any) -> None:
    number = int(address)
    for text in (str(number), hex(number), f"0{number:o}", str(address), f"::ffff:{address}"):
        assert address_of(text) == address


@pytest.mark.parametrize("answer", [["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], [PRIVATE], ["::1"], ["fe80::1%2"], []])
def test_a_listed_name_with_an_address_that_is_not_public_is_refused(answer: list[str]) -> None:
    async def run() -> None:
        async with Served({"/": reply(PIECE)}, PRIVATE) as inside, Served({"/": reply(PIECE)}) as outside:
            ports = (f"a.example:{inside.port}", f"a.example:{outside.port}")
            fetcher = Fetcher(MediaArgs(allowed_media_domains=ports), Names(answer).network)
            for served in (inside, outside):
                with pytest.raises(ClientError, match="an address that is not of the public network"):
                    await fetcher.fetch(source(served.url(host="a.example")))
            assert inside.num_connections == outside.num_connections == 0

    asyncio.run(run())


def test_localhost_by_name_is_refused_as_the_system_resolves_it() -> None:
    async def run() -> None:
        async with Served({"/": reply(PIECE)}) as served:
            fetcher = Fetcher(MediaArgs(allowed_media_domains=(f"localhost:{served.port}",)))
            with pytest.raises(ClientError, match=r"not of the public network \(where that is meant, .* the address"):
                await fetcher.fetch(source(served.url(host="localhost")))
            assert served.num_connections == 0

    asyncio.run(run())


def test_a_name_server_that_changes_its_answer_moves_nothing() -> None:
    """It is asked once for each address, and its second answer is checked like the first."""

    async def run() -> None:
        async with Served({}) as outside:
            inside = Served({"/": reply(b"secret"), "/next": reply(b"secret")}, PRIVATE)
            inside._server = await asyncio.start_server(inside._answer, PRIVATE, outside.port)
            outside.handlers |= {"/": reply(PIECE), "/on": redirect("/next"), "/next": reply(PIECE)}
            args = MediaArgs(allowed_media_domains=(f"a.example:{outside.port}",))
            names = Names(["127.0.0.1"], [PRIVATE])
            assert await Fetcher(args, names.network).fetch(source(outside.url(host="a.example"))) == PIECE
            assert len(names.asked) == 1
            names = Names(["127.0.0.1"], [PRIVATE])
            with pytest.raises(ClientError, match="not of the public network"):
                await Fetcher(args, names.network).fetch(source(outside.url("/on", "a.example")))
            assert names.asked == ["a.example"] * 2 and outside.asked == ["/", "/on"]
            assert inside.num_connections == 0
            inside._server.close()

    asyncio.run(run())


def test_redirects_are_followed_by_every_status_and_relative_address() -> None:
    statuses = ["301 A", "302 B", "303 C", "307 D", "308 E"]
    handlers = {f"/a/{i}": redirect(f"../a/{i + 1}", status) for i, status in enumerate(statuses)}
    data, served = fetched_from({**handlers, "/a/5": reply(PIECE)}, "/a/0")
    assert served.asked == [f"/a/{i}" for i in range(MAX_REDIRECTS + 1)]
    assert data == PIECE


def test_a_loop_of_redirects_ends() -> None:
    error, served = fetched_from({"/": redirect("/"), "/a": redirect("/b"), "/b": redirect("/a")}, "/a")
    assert isinstance(error, ClientError) and f"after {MAX_REDIRECTS} redirects, which are the most" in error.fact
    assert len(served.asked) == MAX_REDIRECTS + 1


@pytest.mark.parametrize(
    "to",
    ["http://169.254.169.254/latest/meta-data/", "http://127.0.0.2:{port}/", "http://localhost:{port}/", "http://[::1]/",
     "http://10.0.0.1/", "//127.0.0.2:{port}/", "file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1:{port}/",
     "data:image/png;base64,QUJD", "http://user:word@127.0.0.1:{port}/", "http://127.0.0.1:{port}\\@127.0.0.2/",
     "https://127.0.0.1/", "http://127.0.0.1/", "http://[", "\x01", "http://127.0.0.1:99999/"],
)  # fmt: skip
def test_a_redirect_elsewhere_is_refused_before_anything_is_asked(to: str) -> None:
    async def run() -> None:
        async with Served({}) as served:
            inside = Served({"/": reply(b"secret")}, PRIVATE)
            inside._server = await asyncio.start_server(inside._answer, PRIVATE, served.port)
            served.handlers["/"] = redirect(to.format(port=served.port))
            args = MediaArgs(allowed_media_domains=(f"127.0.0.1:{served.port}",))
            with pytest.raises(ClientError) as caught:
                await Fetcher(args).fetch(source(served.url()))
            assert caught.value.place == "image_data[0]" and "word" not in caught.value.fact
            assert served.asked == ["/"] and inside.num_connections == 0
            inside._server.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "url",
    ["http://user:word@127.0.0.1:{port}/", "http://user@127.0.0.1:{port}/", "http://@127.0.0.1:{port}/",
     "http://127.0.0.1:{port} /", "http://127.0.0.1:{port}/\r\nX: y", "http:127.0.0.1:{port}", "http://", "http:///",
     "http://%31%32%37.0.0.1:{port}/", "http://[127.0.0.1]:{port}/", "http://127.0.0.1:{port}\\@a/", "http://[::1",
     "http:", "http://127.0.0.1:x/", "http://\ud800/", "http://a\x00/", "http://" + "a" * 300,
     "http://a/" + "a" * 20000, "http://[fe80::1%25lo]:{port}/"],
)  # fmt: skip
def test_a_strange_url_is_refused_before_anything_is_asked(url: str) -> None:
    async def run() -> None:
        async with Served({"/": reply(PIECE)}) as served:
            args = MediaArgs(allowed_media_domains=(f"127.0.0.1:{served.port}",))
            with pytest.raises(ClientError) as caught:
                await Fetcher(args).fetch(source(url.format(port=served.port)))
            assert len(str(caught.value)) < 1200 and served.num_connections == 0

    asyncio.run(run())


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def run() -> None:
        async with Served({"/": reply(PIECE)}) as served, Served({}) as proxy:
            for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url())
            (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password word\n")
            monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
            args = MediaArgs(allowed_media_domains=(f"127.0.0.1:{served.port}",))
            assert await Fetcher(args).fetch(source(served.url())) == PIECE
            assert proxy.num_connections == 0 and "Authorization" not in served.heads[0]

    asyncio.run(run())


# -- bodies --------------------------------------------------------------------------------------------------------


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(bytes(1 << 16))
        await writer.drain()


async def endless_chunks(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
        await writer.drain()


async def endless_header(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-Y: z\r\n" * 1000)
        await writer.drain()


async def endless_line(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        writer.write(b"x" * (1 << 16))
        await writer.drain()


async def dripping(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def cut_off(writer: asyncio.StreamWriter) -> None:
    await reply(PIECE, Content_Length=len(PIECE) + 1)(writer)


async def garbage(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\xff garbage\r\n\r\n" * 10)


@pytest.mark.parametrize("handler", [endless, endless_chunks, reply(b"", Content_Length=(1 << 20) + 1)])
def test_a_body_larger_than_the_bound_is_not_read(handler: Handler) -> None:
    tracemalloc.start()
    assert "is larger than 1 MB (--max-media-mb)" in refused_from({"/": handler}, max_media_mb=1)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("handler", [endless_header, endless_line])
def test_a_header_without_end_is_not_kept(handler: Handler) -> None:
    tracemalloc.start()
    refused_from({"/": handler}, media_fetch_timeout_s=2)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("handler", [dripping, silent])
def test_a_body_that_comes_slowly_ends_at_the_deadline(handler: Handler) -> None:
    fact = refused_from({"/": handler}, media_fetch_timeout_s=0.2)
    assert "did not come within 0.2 s (--media-fetch-timeout-s)" in fact


def test_few_replies_are_read_before_the_one_that_counts() -> None:
    async def hints(writer: asyncio.StreamWriter, num: int) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n" * num)
        await writer.drain()

    async def few(writer: asyncio.StreamWriter) -> None:
        await hints(writer, MAX_INTERIM)
        await reply(PIECE)(writer)

    async def endless(writer: asyncio.StreamWriter) -> None:
        while True:
            await hints(writer, 1000)

    assert fetched_from({"/": few})[0] == PIECE
    assert "sends no whole reply" in refused_from({"/": endless}, media_fetch_timeout_s=5)


def test_redirects_have_one_deadline_together() -> None:
    async def slowly(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.15)
        await redirect("/")(writer)

    assert "did not come within 0.4 s" in refused_from({"/": slowly}, media_fetch_timeout_s=0.4)


@pytest.mark.parametrize(
    "handler",
    [cut_off, garbage, reply(b"secret", Content_Length=3), reply(PIECE, "404 Not Found"), reply(b"", "206 A")],
)
def test_a_reply_that_is_no_whole_body_is_refused_and_not_repeated(handler: Handler) -> None:
    fact = refused_from({"/": handler})
    assert "no whole reply of HTTP" in fact or "answers with status" in fact
    assert "ret" not in fact and "garbage" not in fact


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with Served({"/": reply(PIECE)}, tls=Files(tmp_path).server) as served:
            args = MediaArgs(allowed_media_domains=(f"localhost:{served.port}",))
            with pytest.raises(ClientError, match="the certificate of its host is not valid"):
                await Fetcher(args, Names(["127.0.0.1"]).network).fetch(source(served.url(host="localhost")))
            assert served.asked == []

    asyncio.run(run())


def test_a_certificate_must_be_of_the_name_though_the_connection_goes_to_an_address(tmp_path: Path) -> None:
    """By https, with redirects to another path, to another name, and to http."""
    files = Files(tmp_path)
    files.issue("a.example", "127.0.0.1")

    async def run() -> None:
        plain = Served({"/": reply(PIECE)})
        async with Served({"/": reply(PIECE), "/on": redirect("/")}, tls=files.server) as served, plain:
            served.handlers["/other"] = redirect(served.url(host="b.example"))
            served.handlers["/plain"] = redirect(plain.url(host="a.example"))
            network = replace(Names(["127.0.0.1"]).network, tls=files.client())
            hosts = [f"{host}:{served.port}" for host in ("a.example", "b.example", "127.0.0.1")]
            args = MediaArgs(allowed_media_domains=(*hosts, f"a.example:{plain.port}"))
            fetcher = Fetcher(args, network)
            for host, path in (("a.example", "/"), ("a.example", "/on"), ("127.0.0.1", "/"), ("a.example", "/plain")):
                assert await fetcher.fetch(source(served.url(path, host))) == PIECE
            assert plain.asked == ["/"] and served.asked == ["/", "/on", "/", "/", "/plain"]
            for host, path in (("b.example", "/"), ("a.example", "/other")):
                with pytest.raises(ClientError, match="the certificate of its host is not valid"):
                    await fetcher.fetch(source(served.url(path, host)))
            assert served.asked[5:] == ["/other"]

    asyncio.run(run())


def test_a_host_that_is_not_there_is_named() -> None:
    async def run() -> None:
        async with Served({}) as served:
            pass
        domains = (f"127.0.0.1:{served.port}", f"no-such-host.invalid:{served.port}")
        fetcher = Fetcher(MediaArgs(allowed_media_domains=domains))
        with pytest.raises(ClientError, match="its host cannot be reached"):
            await fetcher.fetch(source(served.url()))
        with pytest.raises(ClientError, match="its host cannot be reached"):
            await fetcher.fetch(source(served.url().replace("http:", "https:")))

        async def fails(name: str, port: int) -> list[str]:
            raise OSError(-2, "Name or service not known")

        with pytest.raises(ClientError, match="its host has no address"):
            fetcher = Fetcher(MediaArgs(allowed_media_domains=domains), Network(fails))
            await fetcher.fetch(source(served.url(host="no-such-host.invalid")))

    asyncio.run(run())


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, identity"])
def test_a_compressed_body_is_refused_and_never_expanded(coding: str) -> None:
    """20 MB of zeros."""
    bomb = gzip.compress(bytes(20 << 20))
    tracemalloc.start()
    assert "in the encoding" in refused_from({"/": reply(bomb, Content_Encoding=coding)})
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_only_few_pieces_are_held_at_a_time() -> None:
    async def run() -> None:
        held = most = 0
        fetcher = Fetcher(MediaArgs(media_workers=1))

        async def hold() -> None:
            nonlocal held, most
            async with fetcher.fetched(source(PIECE)):
                held += 1
                most = max(most, held)
                await asyncio.sleep(0)
                held -= 1

        await asyncio.gather(*(hold() for _ in range(20)))
        assert most == 4

    asyncio.run(run())


def test_what_is_in_a_request_does_not_wait_for_hosts_that_are_slow() -> None:
    async def run() -> None:
        async with Served({"/": silent}) as served:
            fetcher = Fetcher(MediaArgs(media_workers=1, allowed_media_domains=(f"127.0.0.1:{served.port}",)))

            async def hold() -> None:
                async with fetcher.fetched(source(served.url())):
                    raise AssertionError("nothing was sent")

            slow = [asyncio.create_task(hold()) for _ in range(8)]
            while len(served.asked) < 4:
                await asyncio.sleep(0)
            async with asyncio.timeout(5), fetcher.fetched(source(base64.b64encode(PIECE).decode())) as data:
                assert data == PIECE and len(served.asked) == 4
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    asyncio.run(run())


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "media"
    (inside / "sub").mkdir(parents=True)
    (inside / "a b.png").write_bytes(PIECE)
    (inside / "sub" / "deep").write_bytes(PIECE)
    (tmp_path / "secret.png").write_bytes(b"secret")
    return inside


def test_files_are_closed_without_a_folder(folder: Path) -> None:
    for written in (f"file://{folder}/a%20b.png", f"{folder}/a b.png", "a.png", "/etc/passwd", "file:///etc/passwd"):
        assert "no file of this machine is read (--allowed-local-media-path)" in refusal(written).fact
        assert "in LLM give the bytes" in refusal(written).hint


def test_files_below_the_folder_are_read_by_url_and_path(folder: Path) -> None:
    (folder / "link.png").symlink_to("sub/deep")
    (folder / "up.png").symlink_to(folder / "sub" / ".." / "a b.png")
    for written in (
        f"file://{folder}/a%20b.png", f"FILE://localhost{folder}/sub/deep", f"file:{folder}/sub/deep",
        f"{folder}/a b.png", "a b.png", f"{folder}/sub/../a b.png", f"{folder}/sub/deep", f"{folder}/link.png",
        "up.png",
    ):  # fmt: skip
        assert fetch(written, allowed_local_media_path=str(folder)) == PIECE
    link = folder.parent / "linked"
    link.symlink_to(folder)
    assert fetch(f"{folder}/a b.png", allowed_local_media_path=str(link)) == PIECE


@pytest.mark.parametrize(
    "written",
    ["/etc/passwd", "file:///etc/passwd", "{0}/../secret.png", "../secret.png", "file://{0}/../secret.png",
     "file://{0}/%2e%2e/secret.png", "file://{0}/..%2fsecret.png", "{0}/out.png", "{0}/outside/secret.png",
     "{0}/loop.png", "{0}/nothing.png", "{0}", "{0}/sub", "{0}/", "{0}/pipe", "{0}/proc.png", "{0}/device.png",
     "file://{0}/a%00.png", "{0}/a\0.png", "file://other.example{0}/a%20b.png", "file://[::1", "file:", "file://",
     "{0}-other/x.png", "/proc/self/mem", "/proc/self/environ", "/dev/zero", "/" + "a" * 300 + ".png",
     "/" + "a/" * 3000, "{0}/a b.png/x", "/\ud800.png", "."],
)  # fmt: skip
def test_nothing_else_is_read(folder: Path, written: str) -> None:
    (folder / "out.png").symlink_to("../secret.png")
    (folder / "outside").symlink_to("..")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "proc.png").symlink_to("/proc/self/environ")
    (folder / "device.png").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    other = folder.parent / "media-other"
    other.mkdir()
    (other / "x.png").write_bytes(b"secret")
    error = refusal(written.replace("{0}", str(folder)), allowed_local_media_path=str(folder))
    assert "secret" not in error.fact.replace("secret.png", "")


def test_a_pipe_and_an_empty_file_of_proc_end_at_once(folder: Path) -> None:
    os.mkfifo(folder / "pipe.png")
    assert "no file in" in refusal("pipe.png", allowed_local_media_path=str(folder)).fact
    assert fetch("/proc/self/stat", allowed_local_media_path="/proc/self").startswith(str(os.getpid()).encode())
    assert refusal("/proc/self/mem", allowed_local_media_path="/proc/self")


def test_a_large_file_is_not_read_whole(folder: Path) -> None:
    with (folder / "large.png").open("wb") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    fact = refusal("large.png", allowed_local_media_path=str(folder), max_media_mb=1).fact
    assert "is larger than 1 MB" in fact and tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_link_that_is_swapped_meanwhile_opens_nothing_outside(folder: Path) -> None:
    """A file and a folder become links out of the folder and files again, as fast as another thread can."""
    (folder / "moving").mkdir()
    (folder / "moving" / "secret.png").write_bytes(PIECE)
    stop = threading.Event()

    def swap() -> None:
        at, aside = folder / "moving", folder / "aside"
        while not stop.is_set():
            at.rename(aside)
            at.symlink_to(folder.parent)
            at.unlink()
            aside.rename(at)

    thread = threading.Thread(target=swap)
    thread.start()
    found = set()
    try:
        for _ in range(300):
            try:
                found.add(fetch("moving/secret.png", allowed_local_media_path=str(folder)))
            except ClientError:
                found.add(None)
    finally:
        stop.set()
        thread.join()
    assert found <= {PIECE, None}
