"""`ramet chat` as a person meets it: a real terminal and a real server."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from live import Live
from terminal import Terminal

GREEDY = ("--set", "temperature=0")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with Live(api_key="k") as server:
        yield server


@pytest.fixture
def shown(live: Live, tmp_path: Path) -> Iterator[Terminal]:
    with Terminal("chat", live.url, *GREEDY, home=tmp_path, RAMET_API_KEY="k") as terminal:
        terminal.until(">>> ")
        yield terminal


def saved(terminal: Terminal, file: Path) -> dict[str, Any]:
    """What the conversation is now."""
    file.unlink(missing_ok=True)
    terminal.ask(f"/save {file}")
    return dict(json.loads(file.read_text()))


def test_an_answer_and_its_pace_are_shown(shown: Terminal) -> None:
    answer = shown.ask("What is the capital of Peru?")
    assert "Lima" in answer and "tokens/s, the first after 0." in answer
    assert shown.end() == 0


def test_a_second_message_goes_on_from_the_first(shown: Terminal, tmp_path: Path) -> None:
    shown.ask("What is the capital of Peru?")
    shown.ask("And of Japan?")
    roles = [message["role"] for message in saved(shown, tmp_path / "chat.json")["messages"]]
    assert roles == ["user", "assistant", "user", "assistant"]


def test_the_system_prompt_comes_first_until_it_is_removed(shown: Terminal, tmp_path: Path) -> None:
    shown.ask("/system Be brief.")
    shown.ask("What is the capital of Peru?")
    first = saved(shown, tmp_path / "chat.json")["messages"][0]
    shown.ask('/system ""')
    then = saved(shown, tmp_path / "other.json")["messages"][0]
    assert (first, then["role"]) == ({"role": "system", "content": "Be brief."}, "user")


def test_regenerate_asks_the_same_again(shown: Terminal, tmp_path: Path) -> None:
    before = shown.ask("/regenerate")
    shown.ask("What is the capital of Peru?")
    assert "Lima" in shown.ask("/regenerate") and "nothing was asked yet" in before
    assert len(saved(shown, tmp_path / "chat.json")["messages"]) == 2


def test_a_saved_chat_goes_on_where_it_was(shown: Terminal, tmp_path: Path) -> None:
    shown.ask("What is the capital of Peru?")
    was = saved(shown, tmp_path / "chat.json")
    shown.ask("/clear")
    assert saved(shown, tmp_path / "none.json")["messages"] == []
    assert "2 messages" in shown.ask(f"/load {tmp_path / 'chat.json'}")
    assert saved(shown, tmp_path / "again.json") == was
    assert (tmp_path / "chat.json").stat().st_mode & 0o777 == 0o600


def test_a_file_of_others_is_not_overwritten(shown: Terminal, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("mine")
    assert "cannot be written" in shown.ask(f"/save {theirs}") and theirs.read_text() == "mine"


def test_a_field_is_set_and_the_servers_refusal_is_shown(shown: Terminal) -> None:
    assert "max_tokens = 3" in shown.ask("/set max_tokens 3")
    assert "3 tokens" in shown.ask("What is the capital of Peru?")
    shown.ask("/set top_p 7")
    assert "top_p is 7" in shown.ask("What is the capital of Peru?")


@pytest.mark.parametrize(
    "keys",
    ["one\\\rtwo\r", '"""one\rtwo"""\r', "\x1b[200~one\ntwo\x1b[201~\r"],
    ids=["backslash", "quotes", "paste"],
)
def test_a_message_may_have_several_lines(shown: Terminal, tmp_path: Path, keys: str) -> None:
    shown.press(keys)
    shown.until("the first after")
    shown.until(">>> ")
    assert saved(shown, tmp_path / "chat.json")["messages"][0]["content"] == "one\ntwo"


def test_lines_are_found_by_a_later_chat_and_by_no_other_user(live: Live, tmp_path: Path) -> None:
    argv = ("chat", live.url, "--api-key", "k", *GREEDY)
    with Terminal(*argv, home=tmp_path) as first:
        first.until(">>> ")
        first.ask("What is the capital of Peru?")
        assert first.end() == 0
    with Terminal(*argv, home=tmp_path) as later:
        later.until(">>> ")
        later.press("\x1b[A\r")  # arrow up
        assert "Lima" in later.until(">>> ")
    file = tmp_path / ".local" / "state" / "ramet" / "chat_history"
    assert file.read_text().splitlines() == ["What is the capital of Peru?"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_no_history_leaves_no_file(live: Live, tmp_path: Path) -> None:
    with Terminal("chat", live.url, "--no-history", home=tmp_path, RAMET_API_KEY="k") as terminal:
        terminal.until(">>> ")
        terminal.ask("/help")
        assert terminal.end() == 0 and not list(tmp_path.iterdir())


def test_ctrl_c_stops_the_answer_and_not_the_chat(tmp_path: Path) -> None:
    argv = ("--set", "ignore_eos=true")
    with (
        Live(runner="scripted", scripted_step_ms=20) as slow,
        Terminal("chat", slow.url, *argv, home=tmp_path) as terminal,
    ):
        terminal.until(">>> ")
        terminal.press("Go on.\r")
        while not slow.state()["running_requests"]:
            time.sleep(0.02)
        terminal.press("\x03")
        terminal.until("; stopped]")
        terminal.until(">>> ")
        while slow.state()["running_requests"]:  # ends by the time limit of a test
            time.sleep(0.02)
        terminal.press("\x03")
        terminal.until("Ctrl-D or /bye ends")
        terminal.until(">>> ")  # between two prompts the terminal itself reads Ctrl-D
        assert terminal.end() == 0


def test_without_a_url_a_model_is_started_and_ended(tmp_path: Path) -> None:
    with Terminal("chat", *GREEDY, "--max-running-requests", "2", home=tmp_path) as terminal:
        terminal.until(">>> ")
        started = psutil.Process(terminal.process.pid).children(recursive=True)
        assert "Lima" in terminal.ask("What is the capital of Peru?")
        assert terminal.end() == 0 and len(started) >= 5
        assert not psutil.wait_procs(started, 20)[1]


def piped(text: str, *argv: str, **env: str) -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAMET_")}
    command = [sys.executable, "-m", "ramet", "chat", *argv]
    return subprocess.run(command, input=text, env=clean | env, capture_output=True, text=True, timeout=60, check=False)


def test_bytes_that_are_no_utf8_are_refused(live: Live) -> None:
    for argv, text, name in (
        ([], b"a\xff", "what was piped in"),
        ([b"--system", b"\xff"], b"a", "--system"),
        ([b"--set", b"a=\xff"], b"a", "--set"),
        ([b"--served-model-name", b"\xff"], b"a", "--served-model-name"),
    ):
        command = [sys.executable, "-m", "ramet", "chat", live.url, "--api-key", "k", *argv]
        done = subprocess.run(command, input=text, capture_output=True, timeout=60, check=False)
        assert done.returncode == 2 and done.stderr.startswith(f"ramet: {name} is not UTF-8".encode()), done.stderr
        assert done.stderr.count(b"\n") == 1 and not done.stdout


def test_bytes_that_are_no_utf8_do_not_end_a_chat(shown: Terminal) -> None:
    os.write(shown._keys, b"a\xff\r")
    shown.until("tokens/s")
    shown.until(">>> ")
    assert shown.end() == 0


def test_what_is_piped_in_is_one_message(live: Live) -> None:
    done = piped("What is the capital of Peru?\nAnd of Japan?\n", live.url, *GREEDY, RAMET_API_KEY="k")
    assert done.returncode == 0 and done.stdout.strip()
    assert done.stderr.count("\n") == 1 and "tokens/s" in done.stderr


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["{url}"], 1, "ramet: "),  # no key
        (["http://127.0.0.1:1"], 1, "no answer from http://127.0.0.1:1"),
        (["localhost:30000"], 2, "is not the address of a server"),
        (["{url}", "--dtype", "float32"], 2, "--dtype is an option of a server that is started"),
        (["{url}", "--set", "messages=[]"], 2, "messages cannot be set"),
        (["--api-key", "a\nb"], 2, "the key has a space at an end, a line break"),
        (["--model-path", "/nowhere"], 1, "--model-path /nowhere is not a folder on this machine"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_answered(
    live: Live, argv: list[str], code: int, message: str
) -> None:
    done = piped("hello", *(word.format(url=live.url) for word in argv))
    assert (done.returncode, done.stdout) == (code, "") and message in done.stderr and "Traceback" not in done.stderr
