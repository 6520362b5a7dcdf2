"""The two text processes as processes: they answer, they are light, they do not run when idle."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ramet.ipc import paths
from ramet.ipc.channel import Receiver, Sender
from ramet.ipc.content import Content
from ramet.ipc.messages import (
    Abort,
    Chat,
    Closed,
    Finish,
    FinishKind,
    Generate,
    Limits,
    Opened,
    Rejected,
    Render,
    RenderReply,
    Tokenize,
    Tokenized,
    TokenStep,
    ToScheduler,
    ToServer,
    pack_ids,
)
from ramet.ipc.paths import SocketFolder
from ramet.ipc.spec import DetokenizeOptions
from ramet.runtime.text.tokenizer import Tokenizer
from tests.fakes.specs import make_spec

PATIENCE_S = 30.0
LOADER = """
import sys
from pathlib import Path
from ramet.ipc.paths import SocketFolder
from ramet.runtime.config import Args, ModelArgs
args = Args(model=ModelArgs(tokenizer_path=sys.argv[2], chat_template=sys.argv[3], chat_template_timeout_s=600))
sockets = SocketFolder(Path(sys.argv[1]))

def ready(phases):
    heavy = sorted({"torch", "transformers", "numpy", "aiohttp"} & sys.modules.keys())
    print("ready", [name for name, seconds in phases if seconds >= 0], heavy, flush=True)
"""
TEMPLATE = "{% if ends %}{{ messages[0].content }}{% else %}{% for x in [1] | slice(10 ** 12) %}{% endfor %}{% endif %}"
ENCODE = LOADER + "from ramet.runtime.text.tokenizer_process import run\nrun(args, sockets, 0, ready)"
DECODE = LOADER + "from ramet.runtime.text.detokenizer_process import run\nrun(args, sockets, ready)"


@pytest.fixture
def sockets() -> Iterator[SocketFolder]:
    folder = SocketFolder.create()
    yield folder
    folder.remove()


@pytest.fixture
def start(sockets: SocketFolder, byte_level_folder: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    children: list[subprocess.Popen[str]] = []

    def start(program: str) -> subprocess.Popen[str]:
        template = byte_level_folder / "without_end.jinja"
        template.write_text(TEMPLATE)
        command = [sys.executable, "-c", program, str(sockets.path), str(byte_level_folder), str(template)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready ['load tokenizer', 'open sockets'] []\n"
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def cpu_ticks(child: subprocess.Popen[str]) -> int:
    """User and system time so far, in ticks of 10 ms."""
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_tokenizer_process_serves_what_came_before_the_limits(
    sockets: SocketFolder, start: Callable[[str], subprocess.Popen[str]], byte_level: Tokenizer
) -> None:
    scheduler: Receiver[ToScheduler] = Receiver(sockets.address(paths.SCHEDULER), ToScheduler)
    server: Receiver[ToServer] = Receiver(sockets.address(paths.SERVER), ToServer)
    start(ENCODE)
    inbox = Sender(sockets.address(paths.tokenizer(0)))
    inbox.send(Generate([1], make_spec(), Content("the fox")))
    inbox.send(Limits(64, 1000, 430, 8))
    inbox.send(Generate([2], make_spec(), Content(ids=pack_ids([9999]))))
    inbox.send(Abort([1]))
    inbox.send(Tokenize(5, "ok"))
    admitted = scheduler.recv(PATIENCE_S)
    assert isinstance(admitted, Generate) and admitted.content.ids == pack_ids(byte_level.encode("the fox"))
    assert admitted.spec.params.max_new_tokens == 64 - len(byte_level.encode("the fox"))
    assert scheduler.recv(PATIENCE_S) == Abort([1])
    assert isinstance(server.recv(PATIENCE_S), Rejected)
    assert isinstance(server.recv(PATIENCE_S), Tokenized)
    for end in (inbox, scheduler, server):
        end.close()


def test_a_chat_without_end_keeps_neither_prompts_nor_other_chats_waiting(
    sockets: SocketFolder, start: Callable[[str], subprocess.Popen[str]], byte_level: Tokenizer
) -> None:
    scheduler: Receiver[ToScheduler] = Receiver(sockets.address(paths.SCHEDULER), ToScheduler)
    server: Receiver[ToServer] = Receiver(sockets.address(paths.SERVER), ToServer)
    start(ENCODE)
    inbox = Sender(sockets.address(paths.tokenizer(0)))
    inbox.send(Limits(64, 1000, 430, 8))
    turns = [{"role": "user", "content": "the fox"}]
    inbox.send(Render(1, msgspec.json.encode(Chat(turns))))
    inbox.send(Render(2, msgspec.json.encode(Chat(turns, kwargs={"ends": True}))))
    inbox.send(Generate([3], make_spec(), Content("the fox")))
    inbox.send(Tokenize(4, "ok"))
    assert isinstance(scheduler.recv(PATIENCE_S), Generate)
    answers = {type(each): each for each in (server.recv(PATIENCE_S) for _ in range(2))}
    assert answers.keys() == {RenderReply, Tokenized}
    assert answers[RenderReply].call == 2 and answers[RenderReply].ids == pack_ids(byte_level.encode("the fox"))
    for end in (inbox, scheduler, server):
        end.close()


def test_detokenizer_process_answers_every_step(
    sockets: SocketFolder, start: Callable[[str], subprocess.Popen[str]], byte_level: Tokenizer
) -> None:
    server: Receiver[ToServer] = Receiver(sockets.address(paths.SERVER), ToServer)
    start(DECODE)
    inbox = Sender(sockets.address(paths.DETOKENIZER))
    ids = byte_level.encode("naïve café 東京")
    shown = ""
    for index, token in enumerate(ids):
        closed = [Closed(1, Finish(FinishKind.LENGTH, length=len(ids)))] if index == len(ids) - 1 else []
        inbox.send(TokenStep([1], pack_ids([token]), [] if index else [Opened(1, DetokenizeOptions(), 1, 0)], closed))
    for _ in ids:
        step = server.recv(PATIENCE_S)
        assert isinstance(step, TokenStep)
        shown += "".join(step.texts) + "".join(step.tails)
    assert shown == "naïve café 東京"
    for end in (inbox, server):
        end.close()


@pytest.mark.parametrize("program", [ENCODE, DECODE])
def test_idle_process_costs_no_cpu(
    program: str, sockets: SocketFolder, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    child = start(program)
    quiet: Receiver[ToServer] = Receiver(sockets.address(paths.SERVER), ToServer)
    assert quiet.recv(0.2) is None  # it settles
    before = cpu_ticks(child)
    assert quiet.recv(1.0) is None
    assert cpu_ticks(child) - before <= 2
    quiet.close()
