"""What a chat and `ramet trace` make of a server that means harm, or fails, and of words that are none."""

import gzip
import io
import json
import os
import resource
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ramet.__main__ import main as ramet
from ramet.runtime.commands.trace import asked
from ramet.runtime.errors import ConfigError
from ramet.runtime.terminal.answer import StreamedAnswer, say
from ramet.runtime.terminal.commands import obey
from ramet.runtime.terminal.conversation import Conversation, read_field
from ramet.runtime.terminal.http_client import ServiceError
from ramet.runtime.terminal.lines import read_message
from ramet.runtime.terminal.service import ChatService, ReceivedUsage
from ramet.runtime.terminal.visible import visible


@contextmanager
def sending(reply: bytes, status: int = 200, **headers: str) -> Iterator[tuple[str, list[Any]]]:
    """A server that answers all with these bytes; its address, and the headers of what came."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.headers)
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
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()


def events(*deltas: dict[str, Any], done: bool = True) -> bytes:
    lines = [json.dumps({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    return "".join(f"data: {line}\n\n" for line in [*lines, *(["[DONE]"] if done else [])]).encode()


def said(reply: bytes, capsys: pytest.CaptureFixture[str], **kind: Any) -> tuple[str, str, Conversation]:
    conversation = Conversation("", {})
    with sending(reply, **kind) as (url, _):
        say(ChatService(url, ""), conversation, "hello")
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
    [b"{", b"[]", b'{"error": "e"}', b'{"error": 5}', b"x" * (17 << 20), b'{"choices": [null]}', b'{"choices": 5}',
     b'{"choices": {"a": 1}}', b'{"choices": [{"delta": 5}]}', b'{"choices": [{"delta": {"content": 5}}]}',
     b'{"usage": 5}', b'{"usage": {"completion_tokens": "x"}}', b'{"usage": {"prompt_tokens_details": 7}}',
     b'{"choices": [{"finish_reason": ["x"]}]}', b'{"choices": [{"delta": {"content": "\xff"}}]}',
     b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"usage": {"completion_tokens": ' + b"9" * 400 + b"}}"],
    ids=lambda reply: reply[:60].decode(errors="replace"),
)  # fmt: skip
def test_an_event_that_is_none_ends_the_reply_and_what_came_stays(
    reply: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err, conversation = said(events({"content": "half"}, done=False) + b"data: " + reply + b"\n\n", capsys)
    assert err.startswith("ramet: ") and err.count("\n") == 1
    assert [message.content for message in conversation.messages] == ["hello", "half"]


def test_fields_that_are_null_are_as_those_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    nulls = b'data: {"error": null, "usage": null, "choices": [{"delta": null, "finish_reason": null}]}\n\n'
    out, err, _ = said(nulls + events({"content": "a"}), capsys)
    assert out == "a\n" and err.startswith("[1 pieces, the first after ")


@pytest.mark.parametrize("reply", [b"{}", b'{"data": 5}', b'{"data": [{"id": 5}]}', b'"\xff"', b"[" * 100_000])
def test_a_list_of_models_that_is_none_is_an_error(reply: bytes) -> None:
    with sending(reply) as (url, _), pytest.raises(ServiceError, match="/v1/models has no list of models: "):
        ChatService(url, "").models()


def test_the_pace_is_of_all_the_time_since_the_request() -> None:
    answer = StreamedAnswer()
    answer.pieces, answer.usage = 9, ReceivedUsage(completion_tokens=9)
    answer.begun, answer.first, answer.last = 100.0, 102.0, 102.000144  # in one burst
    assert answer.report() == "[9 tokens in 2.00 s, 4.5 tokens/s, the first after 2.00 s]"
    answer.usage = ReceivedUsage()
    assert "tokens/s" not in answer.report()


def test_a_key_does_not_follow_a_redirect() -> None:
    with (
        sending(b"") as (other, got_there),
        sending(b"", status=302, Location=other) as (url, got),
        pytest.raises(ServiceError, match=f"HTTP 302: {url} redirects to {other}, which is not followed"),
    ):
        ChatService(url, "secret").models()
    assert got[0]["Authorization"] == "Bearer secret" and not got_there


def test_the_key_of_a_trace_does_not_follow_a_redirect(tmp_path: Path) -> None:
    with sending(b"") as (other, got_there), sending(b"", status=302, Location=other) as (url, got):
        assert ramet(["trace", url, "--api-key", "secret", "-o", str(tmp_path / "t.gz")]) == 1
    assert got[0]["Authorization"] == "Bearer secret" and not got_there and not list(tmp_path.iterdir())


zipped = partial(gzip.compress, mtime=0)  # without the time: names of tests are the same in each process


@pytest.mark.parametrize(
    "sent",
    [b"", b"<html>", b'{"traceEvents": []}', zipped(b"{}"), zipped(b'{"traceEvents": 5}'),
     zipped(b'{"traceEvents": []}')[:-4], zipped(b"["), zipped(b'"\xff"')],
)  # fmt: skip
def test_what_is_no_timeline_is_not_saved(sent: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sending(sent) as (url, _):
        assert ramet(["trace", url, "-o", str(tmp_path / "t.gz")]) == 1
    assert f"ramet: what {url} sent is not a timeline: " in capsys.readouterr().err and not list(tmp_path.iterdir())


ASK = {"chat": lambda url, key: ChatService(url, key).models(), "trace": lambda url, key: asked(url, 30, key)}


@pytest.mark.parametrize(
    "answer",
    [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort", b"",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz"],
)  # fmt: skip
@pytest.mark.parametrize("command", ASK)
def test_an_answer_that_is_not_http_is_one_line(answer: bytes, command: str) -> None:
    def answers() -> None:
        with listener.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answers, daemon=True).start()
        with pytest.raises(ServiceError) as told:
            ASK[command](f"http://127.0.0.1:{listener.getsockname()[1]}", "")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("url", ["http://[::1", "http://h/a b", "http://h:x", "http://h:99999", "h", "http://h\n", ""])
@pytest.mark.parametrize("command", ASK)
def test_what_is_no_address_of_a_server_is_refused(url: str, command: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a server, must be like http://"):
        ASK[command](url, "")


@pytest.mark.parametrize("key", ["se\ncret", "se\rcret", "s\u00e9cret", "\u8a9esecret", "secret\udcff", "secret "])
@pytest.mark.parametrize("command", ASK)
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str, command: str) -> None:
    with pytest.raises(ConfigError) as told:
        ASK[command]("http://127.0.0.1:1", key)
    assert "--api-key" in str(told.value) and "cret" not in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(("command", "variable"), [("chat", "RAMET_API_KEY"), ("trace", "RAMET_ADMIN_API_KEY")])
@pytest.mark.parametrize(("key", "fact"), [("", "needs a key"), ("k", "does not take the key")])
def test_a_refused_key_names_the_option_and_the_variable(command: str, variable: str, key: str, fact: str) -> None:
    curls = b'{"error": {"message": "The API key is missing or wrong. (send the header Authorization: Bearer KEY)"}}'
    with sending(curls, status=401) as (url, _), pytest.raises(ServiceError, match=f"{fact}.*--api-key.*{variable}"):
        ASK[command](url, key)


@pytest.mark.parametrize(
    ("sent", "said"),
    [(b'{"error": {"message": "You must be a member of an organization."}}', r"\. It says: You must be a member"),
     (b"<html>", r"RAMET_API_KEY$")],
)  # fmt: skip
def test_a_refused_key_has_the_servers_own_words(sent: bytes, said: str) -> None:
    with sending(sent, status=401) as (url, _), pytest.raises(ServiceError, match=rf"not take the key: .*{said}"):
        ChatService(url, "k").models()


def test_a_trace_that_takes_another_key_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with sending(b'{"error": {"message": "It takes the admin key."}}', status=403) as (url, _):
        ramet(["trace", url, "--api-key", "k"])
    assert "ramet: It takes the admin key. (see --api-key, RAMET_ADMIN_API_KEY or" in capsys.readouterr().err


def test_escapes_of_a_servers_refusal_are_shown_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    with sending(b'{"error": {"message": "\\u001b[2Jno"}}', status=500) as (url, _):
        assert ramet(["trace", url]) == 1
    assert capsys.readouterr().err == "ramet: \\x1b[2Jno\n"


def test_a_trace_replaces_a_file_where_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, trace = tmp_path / "t.gz", gzip.compress(b'{"traceEvents": []}')
    with sending(trace) as (url, _):
        argv = ["trace", url, "-o", str(file)]
        assert ramet(argv) == 0 and ramet(argv) == 2
        assert "is there already: choose another name, or --force" in capsys.readouterr().err
        file.write_bytes(b"")
        assert ramet([*argv, "--force"]) == 0 and file.read_bytes() == trace


def test_a_trace_that_cannot_be_written_leaves_the_old_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, trace = tmp_path / "t.gz", gzip.compress(b'{"traceEvents": []}')
    file.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with sending(trace) as (url, _):
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(trace) - 1, limits[1]))  # as a full disk, in the midst of it
        try:
            assert ramet(["trace", url, "-o", str(file), "--force"]) == 2
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"--output {file}: File too large" in capsys.readouterr().err
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


MAKES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "link": lambda path: path.symlink_to("nowhere"),
    "folder": Path.mkdir,
}


@pytest.mark.parametrize("kind", MAKES)
def test_a_trace_replaces_files_alone(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    MAKES[kind](place := tmp_path / "t.gz")
    was = stat.S_IFMT(place.lstat().st_mode)
    with sending(gzip.compress(b'{"traceEvents": []}')) as (url, got):
        assert ramet(["trace", url, "-o", str(place), "--force"]) == 2
    assert "is there already and no regular file" in capsys.readouterr().err
    assert stat.S_IFMT(place.lstat().st_mode) == was and list(tmp_path.iterdir()) == [place] and not got


def test_a_name_that_no_file_can_have_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sending(gzip.compress(b'{"traceEvents": []}')) as (url, _):
        assert ramet(["trace", url, "-o", str(tmp_path / ("a" * 300))]) == 2
    assert "File name too long" in capsys.readouterr().err


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
    [("/sytem x", "did you mean /system"), ("/save", "has no file name"), ("/set x", "x is not set"),
     ("/load /nowhere", "cannot be read"), ("/load /dev/null", "is not a saved chat"),
     ("/save ~nouser/x", "cannot be written: Could not determine home"), ("/load ~nouser/x", "cannot be read"),
     ("/save a\0b", "cannot be written"), ("/load a\0b", "cannot be read"),
     ("/save " + "a" * 300, "File name too long"), ("/load " + "a" * 300, "File name too long"),
     ("/set temperature abc", "temperature is 'abc', must be a number, finite and >= 0"),
     ("/set max_tokens 1.5", "max_tokens is 1.5, must be an integer"), ("/set seed x", "seed is 'x', must be an integ"),
     ("/set ignore_eos 1", "ignore_eos is 1, must be true or false"), ("/set stop 5", "stop is 5, must be a string"),
     ("/set logit_bias []", "logit_bias is .., must be an object")],
)  # fmt: skip
def test_a_wrong_command_says_what_would_be_right(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        obey(Conversation("", {}), line)


def test_a_chat_is_not_saved_where_a_link_of_others_leads(tmp_path: Path) -> None:
    link, chat = tmp_path / "chat.json", Conversation("", {})
    link.symlink_to(tmp_path / "target")
    with pytest.raises(ConfigError, match=r"chat\.json cannot be written: File exists"):
        obey(chat, f"/save {link}")
    link.unlink()
    obey(chat, f"/save {link}")
    link.rename(tmp_path / "moved")
    link.symlink_to(tmp_path / "target")
    with pytest.raises(ConfigError, match=r"chat\.json cannot be written: File exists"):
        obey(chat, f"/save {link}")
    assert not (tmp_path / "target").exists()


def test_a_chat_that_was_loaded_through_a_link_is_saved_through_it(tmp_path: Path) -> None:
    link, file, chat = tmp_path / "link", tmp_path / "chat.json", Conversation("Be brief.", {})
    file.write_text('{"messages": [{"role": "user", "content": "x"}]}')
    link.symlink_to(file)
    obey(chat, f"/load {link}")
    chat.messages.clear()
    obey(chat, f"/save {link}")
    assert json.loads(file.read_text())["messages"] == [] and link.is_symlink()


@pytest.mark.parametrize("word", ["/save", "/load"])
def test_a_loop_of_links_ends_no_chat(word: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ConfigError, match="loop cannot be "):
        obey(Conversation("", {}), f"{word} {tmp_path / 'loop'}")


@pytest.mark.parametrize(
    ("text", "value"),
    [("temperature=3", 3), ("top_p 7", 7), ("repetition_penalty=5.5", 5.5), ("max_tokens=-1", -1),
     ("seed=null", None), ("stop=a", "a"), ("stop [\"a\"]", ["a"]), ("logit_bias={}", {}), ("their_own=abc", "abc")],
)  # fmt: skip
def test_what_another_server_may_take_can_be_set(text: str, value: Any) -> None:
    _, read = read_field(text)
    assert read == value
