"""HTTPS: files that do not fit, files that change, clients that are not known, and clients that mean harm."""

import asyncio
import logging
import os
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import uvloop
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from ramet.runtime.config import make_args, resolve
from ramet.runtime.errors import ConfigError
from ramet.runtime.server.http import certificates
from ramet.runtime.server.http.certificates import certificates_of
from tests.fakes.clock_loop import ClockLoop, forward
from tests.fakes.peer import HEADER_S, HEALTH, Peer, half_body, is_open, on_clock, post, turn_loop
from tests.fakes.server import Served, served
from tests.fakes.tls_files import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def secure(server: Served, context: ssl.SSLContext, data: bytes = b"") -> Peer:
    peer = Peer(*await asyncio.open_connection("localhost", server.port, ssl=context, server_hostname="localhost"))
    peer.send(data)
    return peer


def serial(peer: Peer) -> str:
    """Of the certificate that the server showed."""
    return str(peer.reader._transport.get_extra_info("peercert")["serialNumber"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_requests_are_answered_one_after_the_other(files: Files, loop: Any) -> None:
    async def check(server: Served) -> None:
        peer = await secure(server, files.client())
        for _ in range(3):
            peer.send(post("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 4}}))
            status, _, reply = await peer.reply()
            assert status == 200 and reply["meta_info"]["completion_tokens"]
        peer.close()

    on_clock(check, loop, **files.options)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_long_reply_arrives_whole_where_the_client_reads_slowly(files: Files, loop: Any) -> None:
    async def check(server: Served) -> None:
        body = {"text": ["word"] * 200, "return_logprob": True}
        url = f"https://localhost:{server.port}/generate"
        async with (
            aiohttp.ClientSession(read_bufsize=1024) as http,
            http.post(url, json=body, ssl=files.client()) as answer,
        ):
            data = [piece async for piece in answer.content.iter_chunked(1000)]
        assert len(data) > 100 and len(orjson.loads(b"".join(data))) == 200

    on_clock(check, loop, **files.options)


def test_a_changed_certificate_is_for_new_connections(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.01)

    async def check(server: Served) -> None:
        old = await secure(server, files.client(), HEALTH)
        assert (await old.reply())[0] == 200
        files.issue()
        while serial(new := await secure(server, files.client(), HEALTH)) == serial(old):
            new.close()
        assert (await new.reply())[0] == 200
        old.send(HEALTH)
        assert (await old.reply())[0] == 200
        for peer in (old, new):
            peer.close()

    served(check, **files.options, enable_ssl_refresh=True)


def test_without_the_option_a_changed_certificate_changes_nothing(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[None] = []
    monkeypatch.setattr(certificates.Certificates, "refresh", lambda self: looked.append(None))
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)

    async def check(server: Served) -> None:
        await turn_loop()

    served(check, **files.options)
    assert not looked


def test_a_certificate_without_its_key_changes_nothing_until_the_key_is_there(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    watched = certificates_of(make_args(**files.options).serve)
    assert watched is not None
    first, key = watched.context, files.key.read_bytes()
    files.issue()
    new_key = files.key.read_bytes()
    files.key.write_bytes(key)
    for _ in range(3):
        watched.refresh()
        assert watched.context is first
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "KEY_VALUES_MISMATCH" in line
    files.key.write_bytes(new_key)
    watched.refresh()
    assert watched.context is not first


def test_a_fifo_in_the_place_of_a_file_changes_nothing(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    watched = certificates_of(make_args(**files.options).serve)
    assert watched is not None
    first = watched.context
    files.chain.unlink()
    os.mkfifo(files.chain)
    watched.refresh()
    assert watched.context is first and "chain.pem is not a regular file" in caplog.text
    with pytest.raises(ConfigError, match=r"--ssl-certfile .*chain\.pem is not a regular file"):
        certificates_of(make_args(**files.options).serve)
    files.chain.unlink()
    files.issue()
    watched.refresh()
    assert watched.context is not first


def test_a_file_system_that_hangs_keeps_back_new_certificates_alone(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.01)
    hangs, goes_on, stat = threading.Event(), threading.Event(), os.stat

    def slow_stat(path: Any, **options: Any) -> os.stat_result:
        if path == str(files.chain):
            hangs.set()
            goes_on.wait()
        return stat(path, **options)

    async def check(server: Served) -> None:
        old = await secure(server, files.client(), HEALTH)
        monkeypatch.setattr(os, "stat", slow_stat)
        files.issue()
        while not hangs.is_set():
            await asyncio.sleep(0)
        while_it_hangs = await secure(server, files.client(), HEALTH)
        assert (await while_it_hangs.reply())[0] == 200 and serial(while_it_hangs) == serial(old)
        goes_on.set()
        while serial(new := await secure(server, files.client(), HEALTH)) == serial(old):
            new.close()
        for peer in (old, while_it_hangs, new):
            peer.close()

    served(check, **files.options, enable_ssl_refresh=True)


def test_a_client_without_a_certificate_is_not_served_where_one_is_asked(files: Files) -> None:
    async def check(server: Served) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await (await secure(server, files.client(), HEALTH)).reply()
        known = await secure(server, files.client(known=True), HEALTH)
        assert (await known.reply())[0] == 200
        known.close()

    served(check, **files.options, ssl_ca_certs=str(files.authorities))


@pytest.mark.parametrize("data", [HEALTH, b"\x16\x03\x01\xff\xff" + b"x" * 9000, b"\x00" * 100])
def test_what_is_no_handshake_is_closed_with_one_line(
    files: Files, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    async def check(server: Served) -> None:
        for _ in range(5):
            peer = await Peer.of(server, data)
            with suppress(ConnectionError):
                assert b"HTTP" not in await peer.end()
        good = await secure(server, files.client(), HEALTH)
        assert (await good.reply())[0] == 200
        good.close()

    served(check, **files.options)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "TLS handshake failed" in line


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01"], ids=["silent", "half"])
def test_a_handshake_that_goes_no_further_ends_after_the_time_of_a_header(files: Files, begun: bytes) -> None:
    async def check(server: Served) -> None:
        peer = await Peer.of(server, begun)
        await turn_loop()
        forward(HEADER_S - 1)
        assert await is_open(peer)
        forward(2)
        assert await peer.end() == b""
        good = await secure(server, files.client(), HEALTH)  # there is one place
        assert (await good.reply())[0] == 200
        good.close()

    on_clock(check, ClockLoop, **files.options, max_connections=1)


def test_on_uvloop_a_handshake_ends_as_well(files: Files) -> None:
    async def check(server: Served) -> None:
        assert await (await Peer.of(server)).end() == b""

    on_clock(check, uvloop.new_event_loop, **files.options, header_timeout_s=0.1)


def test_a_server_that_ends_does_not_wait_for_a_handshake(files: Files) -> None:
    async def check(server: Served) -> None:
        await Peer.of(server)
        await turn_loop()

    on_clock(check, ClockLoop, **files.options)  # no time passes on this loop


def test_a_connection_over_the_limit_gets_a_503(files: Files) -> None:
    async def check(server: Served) -> None:
        held = await secure(server, files.client(), half_body("/generate"))
        refused = await secure(server, files.client(), HEALTH)
        assert (await refused.reply())[0] == 503
        held.close()

    served(check, **files.options, max_connections=1)


def test_bytes_that_are_no_request_get_a_400_and_the_connection_ends(files: Files) -> None:
    async def check(server: Served) -> None:
        peer = await secure(server, files.client(), b"\x01\x02\r\n\r\n")
        assert (await peer.reply())[0] == 400
        assert await peer.end() == b""

    served(check, **files.options)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_client_that_reads_nothing_is_ended(files: Files, loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def check(server: Served) -> None:
        many = {"text": ["word"] * 100, "return_logprob": True}
        peer = await secure(server, files.client(), b"")
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            peer.send(post("/generate", many))
        while not any("does not read" in record.getMessage() for record in caplog.records):
            await asyncio.sleep(0.01)  # ends by the time limit of a test
        peer.close()

    on_clock(check, loop, **files.options, transfer_timeout_s=0.2)


def encrypted(key: bytes, password: str) -> bytes:
    read = load_pem_private_key(key, None)
    return read.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))


def test_a_key_with_a_password_is_read_with_it(files: Files) -> None:
    files.key.write_bytes(encrypted(files.key.read_bytes(), "secret"))
    assert certificates_of(make_args(**files.options, ssl_keyfile_password="secret").serve) is not None


@pytest.mark.parametrize("given", ["", "guess"])
def test_a_wrong_password_is_said_and_not_shown(files: Files, given: str) -> None:
    files.key.write_bytes(encrypted(files.key.read_bytes(), "secret"))
    with pytest.raises(ConfigError, match="--ssl-keyfile-password") as raised:
        certificates_of(make_args(**files.options, ssl_keyfile_password=given).serve)
    assert "guess" not in str(raised.value)


def _missing(files: Files) -> dict[str, Any]:
    return {"ssl_certfile": "/nowhere/chain.pem"}


def _of_another(files: Files) -> dict[str, Any]:
    key = files.key.read_bytes()
    files.issue()
    files.key.write_bytes(key)
    return files.options


def _no_pem(files: Files) -> dict[str, Any]:
    files.authorities.write_text("no certificate")
    return {**files.options, "ssl_ca_certs": str(files.authorities)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_missing, "--ssl-certfile /nowhere/chain.pem cannot be read: No such file"),
        (_of_another, "KEY_VALUES_MISMATCH"),
        (_no_pem, "--ssl-ca-certs .* cannot be used"),
    ],
)
def test_files_that_cannot_serve_are_named(
    files: Files, change: Callable[[Files], dict[str, Any]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        certificates_of(make_args(**change(files)).serve)


@pytest.mark.parametrize("name", ["ssl_keyfile", "ssl_ca_certs", "ssl_keyfile_password", "enable_ssl_refresh"])
def test_an_option_of_tls_needs_a_certificate(name: str) -> None:
    value = True if name.startswith("enable") else "x"
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} needs --ssl-certfile"):
        resolve(make_args(**{name: value}))
