"""Chats rendered by real worker processes: a template that never ends costs its own chat, and no other one.

A stopped worker (SIGSTOP) behaves like a filter that never returns.
"""

import fcntl
import os
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
from effort import num_calls
from samples import sampled

from ramet.ipc.media import MediaKind, MediaToken
from ramet.ipc.messages import Chat, Limits, Render, RenderReply
from ramet.runtime.errors import ClientError
from ramet.runtime.exact_json import encode
from ramet.runtime.text import rendering as rendering_module
from ramet.runtime.text.chat_template import RenderLimits
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.context import MAX_CALL_BYTES, TooManyBytes
from ramet.runtime.text.encoder import Encoder
from ramet.runtime.text.rendering import GRACE_S, WORKERS, ChatsElsewhere, RenderWorkers
from ramet.runtime.text.template_files import TemplateSources
from ramet.runtime.text.tokenizer import Tokenizer
from ramet.runtime.workers.worker_process import TRIES, WorkerProcess

WAIT_S = 120.0
MODULE = "ramet.runtime.text.render_worker"
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
SHORT = RenderLimits(timeout_s=0.2, memory_mb=128.0)
BY_NAME = """
{%- if mode == 'time' %}{{ [1] | slice(1000000000) | list }}{% endif -%}
{%- if mode == 'memory' %}{{ 'a'.center(3000000000) }}{% endif -%}
{{ messages[0].content }}"""


LARGE = [
    "{{ 'a'.center(3000000000) }}", "{{ 'a' | center(3000000000) }}", "{{ 'a'.zfill(3000000000) }}",
    "{{ 'a'.ljust(3000000000) }}", "{{ '%3000000000d' % 1 }}", "{{ '{:3000000000}'.format(1) }}",
    "{{ '%3000000000d' | format(1) }}", "{{ 'a' | indent(3000000000, true) }}", "{{ [1] | tojson(indent=10**9) }}",
    "{{ ('a' * 10**7).replace('a', 'b' * 1000) }}", "{{ '\t'.expandtabs(2000000000) }}",
    "{{ [['a' * 10**7] * 100] | join | string }}", "{{ (['a' * 10**7] * 100) | join }}",
    "{% set n = namespace(a='a') %}{% for i in range(40) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
    "{% set n = namespace(a=[]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a | tojson }}",
    "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% set n = namespace(a='a') %}"
    "{% for i in range(40) %}{% set n.a = m(n.a) %}{% endfor %}",
]  # fmt: skip


class Rendering:
    def __init__(self, source: str | None, limits: RenderLimits = RenderLimits()) -> None:
        self.workers = RenderWorkers(TemplateSources(source), limits)
        self._others = set(self._processes())

    @property
    def processes(self) -> list[psutil.Process]:
        return [each for each in self._processes() if each not in self._others]

    def render(self, messages: list[dict[str, Any]] = HELLO, **kwargs: Any) -> str:
        return ChatsElsewhere(self.workers).render(Chat(messages, kwargs=kwargs))

    def refusal(self, messages: list[dict[str, Any]] = HELLO, **kwargs: Any) -> ClientError:
        with pytest.raises(ClientError) as caught:
            self.render(messages, **kwargs)
        return caught.value

    def _processes(self) -> list[psutil.Process]:
        def is_worker(child: psutil.Process) -> bool:
            try:
                return MODULE in child.cmdline()
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                return False

        return [child for child in psutil.Process().children() if is_worker(child)]


@pytest.fixture
def rendering() -> Iterator[Callable[..., Rendering]]:
    made: list[Rendering] = []

    def make(*given: Any) -> Rendering:
        made.append(Rendering(*given))
        return made[-1]

    yield make
    for each in made:
        each.workers.close()
    assert not any(each.processes for each in made)


def test_a_worker_renders_what_is_rendered_here(rendering: Callable[..., Rendering]) -> None:
    source = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}{{ tools | tojson }}{{ mood }}"
    workers = rendering(source)
    far, here = ChatsElsewhere(workers.workers), Chats(TemplateSources(source))
    chat = [*HELLO, {"role": "assistant", "content": "Good d\u00e4y \U0001f600 ", "n": 10**40, "x": 0.1, "none": None}]
    exact = Decimal("0.12345678901234567890123")
    for options in (
        {"kwargs": {"mood": [1, {"a": 2.5}]}},
        {"add_generation_prompt": False, "continue_final_message": True},
        {"tools": [{"type": "function", "function": {"name": "f", "b": True, "d": exact}}]},
    ):
        asked = Chat(chat, **options)
        assert far.render(asked) == here.render(asked)
    assert len(workers.processes) == 1


def test_only_a_worker_looks_at_the_turns_of_a_chat(rendering: Callable[..., Rendering]) -> None:
    chats = ChatsElsewhere(rendering("{{ messages | length }}").workers)
    chat = encode(Chat(HELLO * 5000))
    assert chats.render_json(chat) == "5000"
    assert num_calls(lambda: chats.render_json(chat)) < 2500


def test_a_worker_knows_what_stands_for_media(rendering: Callable[..., Rendering]) -> None:
    far = ChatsElsewhere(rendering("{{ messages[0].content }}").workers)
    media = {MediaKind.IMAGE: MediaToken("<image>", "<image>", 5)}
    chat = Chat([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]}])
    assert far.with_media(media).render(chat) == "<image>a"
    assert far.with_media({}).render(Chat(HELLO)) == "Hello"


def test_a_client_s_error_names_its_place(rendering: Callable[..., Rendering]) -> None:
    error = rendering("{{ raise_exception('roles must alternate') }}").refusal()
    assert str(error) == "messages are refused by the chat template: roles must alternate" and error.status == 400
    assert rendering("x").refusal(tools=None).place == "chat_template_kwargs"


@pytest.fixture
def on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rendering gets the CPU time that it may take, however long other tests need the cores."""
    monkeypatch.setattr(rendering_module, "BUSY", 1000)


@pytest.mark.usefixtures("on_a_busy_machine")
@pytest.mark.parametrize(
    "source",
    [
        "{{ range(10) | slice(1000000000) | list }}",
        "{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}"
        "{% set m = namespace(a=[1]) %}{% for i in range(60) %}{% set m.a = [m.a, m.a] %}{% endfor %}"
        "{{ n.a == m.a }}",
    ],
)  # fmt: skip
def test_what_never_ends_is_ended_and_the_log_says_so_once(
    source: str, rendering: Callable[..., Rendering], caplog: pytest.LogCaptureFixture
) -> None:
    bounded = rendering(source, SHORT)
    bounded.refusal()
    error = bounded.refusal()
    assert len([line for line in caplog.messages if line.startswith("the rendering of a chat was ended: ")]) == 1
    assert error.status == 400 and error.place == "messages"
    assert "the 0.2 s of --chat-template-timeout-s" in error.fact or "--chat-template-memory-mb" in error.fact


@pytest.mark.parametrize("source", sampled(LARGE, 6, seed=1))
def test_what_takes_all_memory_is_refused(source: str, rendering: Callable[..., Rendering]) -> None:
    """Each takes it in a single expression, between two checks of the time and the text's length."""
    bounded = rendering(source + "{{ messages[0].content }}", RenderLimits(timeout_s=20.0, memory_mb=96.0))
    error = bounded.refusal()
    assert error.status == 400 and error.place == "messages"
    assert "the 96 MiB of --chat-template-memory-mb" in error.fact or "must" in error.fact or "more than" in error.fact


@contextmanager
def waiting(both: Rendering, ask: Callable[[], Any]) -> Iterator[tuple[psutil.Process, "Future[Any]"]]:
    """Its one process, stopped, and a chat that it has been given."""
    assert both.render() == "Hello"
    (stopped,) = both.processes
    stopped.suspend()
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(ask)
        while not has_job(stopped):
            time.sleep(0.001)
        yield stopped, waits


def has_job(stopped: psutil.Process) -> bool:
    """Whether its standard input has bytes that it has not read."""
    pipe = os.open(f"/proc/{stopped.pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    finally:
        os.close(pipe)


@pytest.mark.usefixtures("on_a_busy_machine")
def test_a_chat_after_one_that_was_ended_is_rendered(rendering: Callable[..., Rendering]) -> None:
    both = rendering(BY_NAME, SHORT)
    for mode in ("time", "memory", "time"):
        assert both.refusal(mode=mode).status == 400
        assert both.render() == "Hello"


def test_other_chats_are_rendered_beside_one_that_never_ends(rendering: Callable[..., Rendering]) -> None:
    both = rendering(BY_NAME, RenderLimits(timeout_s=600.0))
    with waiting(both, both.render) as (stopped, waits):
        assert [both.render() for _ in range(3)] == ["Hello"] * 3
        assert not waits.done()
        stopped.resume()
        assert waits.result(WAIT_S) == "Hello"
    assert len(both.processes) == WORKERS


def test_a_machine_without_time_for_a_chat_is_not_the_chats_fault(rendering: Callable[..., Rendering]) -> None:
    both = rendering(BY_NAME, RenderLimits(timeout_s=0.5))
    assert both.render() == "Hello"
    (stopped,) = both.processes
    stopped.suspend()
    resuming = threading.Timer(0.5 + GRACE_S + 0.2, stopped.resume)
    resuming.start()
    assert both.render() == "Hello"
    resuming.join()
    stopped.suspend()
    error = both.refusal()
    assert error.status == 503 and "the machine was busy" in error.fact
    assert both.render() == "Hello"


def test_a_chat_whose_worker_is_killed_is_tried_again(rendering: Callable[..., Rendering]) -> None:
    both = rendering(BY_NAME, RenderLimits(timeout_s=600.0))
    for _ in range(2):  # while it is idle
        assert both.render() == "Hello"
        both.processes[0].kill()
    with waiting(both, both.render) as (stopped, waits):
        stopped.kill()
        assert waits.result(WAIT_S) == "Hello"


def test_a_chat_that_crashes_its_worker_is_not_tried_again(rendering: Callable[..., Rendering]) -> None:
    both = rendering(BY_NAME, RenderLimits(timeout_s=600.0))
    with waiting(both, both.refusal) as (stopped, waits):
        stopped.send_signal(signal.SIGSEGV)
        stopped.resume()
        error = waits.result(WAIT_S)
    assert error.status == 400 and "SIGSEGV" in error.fact and not both.processes


def test_a_chat_whose_workers_are_all_killed_may_be_tried_again(rendering: Callable[..., Rendering]) -> None:
    both, killed = rendering(BY_NAME, RenderLimits(timeout_s=600.0)), set[int]()
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(both.refusal, mode="time")
        while not waits.done():
            for process in both.processes:
                process.kill()
                killed.add(process.pid)
        error = waits.result(WAIT_S)
    assert error.status == 503 and "SIGKILL" in error.fact and len(killed) >= TRIES


def test_values_that_are_nested_too_deeply_are_the_clients_fault(rendering: Callable[..., Rendering]) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert "RecursionError" in rendering("{{ kwarg | tojson }}").refusal(kwarg=nested).fact


def test_a_text_that_is_no_unicode_is_refused(rendering: Callable[..., Rendering]) -> None:
    assert "UnicodeEncodeError" in rendering("{{ '\\ud800' }}").refusal().fact


def test_close_ends_what_is_being_rendered() -> None:
    both = Rendering(BY_NAME, RenderLimits(timeout_s=600.0))
    with waiting(both, both.refusal) as (_, waits):
        both.workers.close()
        assert waits.result(WAIT_S).status == 503
    assert not both.processes and both.refusal().status == 503


def test_templates_that_are_not_used_start_no_process(rendering: Callable[..., Rendering]) -> None:
    assert not rendering(BY_NAME).processes
    none = rendering(None)
    none.workers.warm()
    assert none.refusal().status == 400 and not none.processes


@pytest.mark.parametrize("may_exceed", [False, True])
def test_of_a_text_that_is_too_long_for_any_prompt_its_length_alone_comes_back(
    may_exceed: bool,
    rendering: Callable[..., Rendering],
    byte_level: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, limits = "{{ messages[0].content }}", Limits(64, 128, byte_level.vocab_size, 8)
    far = Encoder(byte_level, limits, ChatsElsewhere(rendering(source).workers))
    here = Encoder(byte_level, limits, Chats(TemplateSources(source)))
    most = MAX_CALL_BYTES if may_exceed else byte_level.max_bytes(64)
    assert most is not None
    received = list[int]()

    def counted(*given: Any) -> bytearray:
        received.append(given[2])
        return receive(*given)

    receive = WorkerProcess._receive
    monkeypatch.setattr(WorkerProcess, "_receive", counted)
    for text in ("a" * (most + 1), "\u00e4" * (most // 2 + 1)):
        call = Render(1, encode(Chat([{"role": "user", "content": text}])), may_exceed)
        assert far.render(call) == here.render(call)
    assert sum(received[-4:]) < 64, "two answers, with the length of each"
    fits = Render(1, encode(Chat([{"role": "user", "content": "the fox " * 15}])), may_exceed)
    assert far.render(fits) == here.render(fits) and isinstance(far.render(fits), RenderReply)


def test_a_worker_asks_for_memory_once_for_chats_of_the_same_size(rendering: Callable[..., Rendering]) -> None:
    workers = rendering("{{ messages[0].content }}")
    chat = encode(Chat([{"role": "user", "content": "a" * (1 << 20)}]))

    def pages_taken() -> int:
        with pytest.raises(TooManyBytes):
            workers.workers.render(chat, {}, 1000)
        return num_faults(workers.processes[0])

    pages_taken()
    before = pages_taken()
    assert pages_taken() - before < 100, "256 pages are one copy of the chat"


def test_nothing_is_left_of_a_large_chat_by_the_next_one(rendering: Callable[..., Rendering]) -> None:
    """A macro that sees the chat is a cycle, which holds it. A process ends that has a quarter of its memory in use."""
    workers = rendering("{% macro m() %}{{ messages[0].content }}{% endmacro %}{{ m() }}", SHORT)
    chat, seen = [{"role": "user", "content": "a" * (1 << 20)}], set[int]()
    for _ in range(40):
        assert workers.render(chat) == chat[0]["content"]
        seen |= {process.pid for process in workers.processes}
    assert len(seen) == 1


def num_faults(process: psutil.Process) -> int:
    """Pages that a process has got from the system so far, none of them from a disk."""
    return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[7])
