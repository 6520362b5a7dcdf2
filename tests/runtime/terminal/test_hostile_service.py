"""What a chat shows of a server that means harm, or fails."""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ramet.runtime.errors import ConfigError
from ramet.runtime.terminal.answer import say
from ramet.runtime.terminal.commands import obey
from ramet.runtime.terminal.conversation import Conversation
from ramet.runtime.terminal.lines import read_message
from ramet.runtime.terminal.service import Service, ServiceError
from ramet.runtime.terminal.visible import visible


@contextmanager
def sending(reply: bytes, status: int = 200, **headers: str) -> Iterator[tuple[str, list[Any]]]:
    """A server that answers all with these bytes; its address, and the headers of what came."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.headers)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply)

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def events(*deltas: dict[str, Any], done: bool = True) -> bytes:
    lines = [json.dumps({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    return "".join(f"data: {line}\n\n" for line in [*lines, *(["[DONE]"] if done else [])]).encode()


def said(reply: bytes, capsys: pytest.CaptureFixture[str], **kind: Any) -> tuple[str, str, Conversation]:
    conversation = Conversation("", {})
    with sending(reply, **kind) as (url, _):
        say(Service(url, ""), conversation, "hello")
    return *capsys.readouterr(), conversation


def test_escapes_of_a_model_are_shown_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    out, _, conversation = said(events({"content": "a\x1b]0;"}, {"content": "x\x07\x9b2J\r\tb\u202e"}), capsys)
    assert out == "a\\x1b]0;x\\x07\\x9b2J\\r\tb\\u202e\n"
    assert conversation.messages[1].content == "a\x1b]0;x\x07\x9b2J\r\tb\u202e"  # the model gets its own words


def test_escapes_of_an_error_are_shown_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    _, err, _ = said(b'{"error": {"message": "\\u001b[2Jno"}}', capsys, status=400)
    assert err == "ramet: \\x1b[2Jno\n"


def test_every_character_that_moves_a_cursor_is_written_out() -> None:
    every = "".join(map(chr, range(0x100)))
    assert [c for c in visible(every) if not c.isprintable() and c != "\u00ad"] == ["\t", "\n", "\u00a0"]


def test_a_reply_that_breaks_off_is_an_error_and_what_came_stays(capsys: pytest.CaptureFixture[str]) -> None:
    out, err, conversation = said(events({"content": "half"}, done=False), capsys)
    assert out == "half\n" and "ended before its end" in err and conversation.messages[1].content == "half"


def test_a_refused_message_is_no_part_of_the_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(b"<html>", capsys, status=500)[2].messages == []


@pytest.mark.parametrize(
    "reply",
    [b"data: {\n\n", b"data: []\n\n", b'data: {"error": "e"}\n\n', b"data: " + b"x" * (17 << 20)],
    ids=["cut", "list", "error", "endless"],
)
def test_events_that_are_none_end_the_reply(reply: bytes) -> None:
    with sending(reply) as (url, _), pytest.raises(ServiceError):
        list(Service(url, "").chunks({}))


def test_a_key_does_not_follow_a_redirect() -> None:
    with (
        sending(b"") as (other, asked_there),
        sending(b"", status=302, Location=other) as (url, asked),
        pytest.raises(ServiceError, match="HTTP 302"),
    ):
        Service(url, "secret").models()
    assert asked[0]["Authorization"] == "Bearer secret" and not asked_there


def test_a_text_that_is_not_closed_ends_with_the_input() -> None:
    lines = io.StringIO('"""never closed\n')

    def read(_: str) -> str:
        if line := lines.readline():
            return line.removesuffix("\n")
        raise EOFError

    with pytest.raises(EOFError):
        read_message(read)


@pytest.mark.parametrize(
    ("line", "message"),
    [("/sytem x", "did you mean /system"), ("/save", "needs the name"), ("/set x", "x is not set"),
     ("/load /nowhere", "cannot be read"), ("/load /dev/null", "is no saved chat")],
)  # fmt: skip
def test_a_wrong_command_says_what_would_be_right(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        obey(Conversation("", {}), line)
