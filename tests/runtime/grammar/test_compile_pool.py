"""Constraints compiled by real worker processes: what each asker gets, and what becomes of processes that fail.

A worker that is stopped (SIGSTOP) stands for one that compiles for ever.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest
from constrained import vocabulary
from msgspec.structs import replace

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar import worker_process
from ramet.runtime.grammar.backends import BACKENDS
from ramet.runtime.grammar.compile import SHORT, WORKERS, CompilePool, Compiling
from ramet.runtime.grammar.compiled import REFUSAL_BYTES, Failed, GrammarCache, Loaded
from ramet.runtime.grammar.compiler import UNBOUNDED, CompileLimits, Compiler
from ramet.runtime.workers.subordinate import NICENESS
from ramet.runtime.workers.worker_process import TRIES

WAIT_S = 120.0


def regex(pattern: str, **more: str) -> Constraint:
    return Constraint(ConstraintKind.REGEX, pattern, backend="llguidance", **more)


LONG = Constraint(ConstraintKind.REGEX, "[A-Za-z ,.]{50,16000}", backend="outlines")  # takes more than a second
HUGE = Constraint(
    ConstraintKind.JSON_SCHEMA,
    json.dumps({"enum": [f"value number {i}" for i in range(20_000)]}),
    backend="llguidance",
    whitespace="compact",
)


ENDLESS = Constraint(ConstraintKind.REGEX, "[A-Za-z ,.]{50,60000}", backend="outlines")


class Asking:
    """A pool, and a client of it that waits."""

    def __init__(
        self,
        *,
        timeout_s: float = 60.0,
        cache_bytes: int = 1 << 20,
        memory_mb: float = 1024.0,
        held_bytes: int = UNBOUNDED,
        share: float = 1.0,
    ) -> None:
        self.told: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._others = set(workers_of(psutil.Process()))
        limits = CompileLimits(timeout_s, memory_mb, cache_bytes, held_bytes, share)
        self.pool = CompilePool(Compiler(vocabulary(), limits), lambda: self.told.put(None))

    def begin(self, constraint: Constraint, owner: str = "") -> Compiling:
        compiling = self.pool.get(constraint, owner)
        assert isinstance(compiling, Compiling)
        return compiling

    def wait(self, compiling: Compiling) -> Loaded | Failed:
        while compiling.outcome is None:
            self.told.get(timeout=WAIT_S)
        return compiling.outcome

    def compile(self, constraint: Constraint, owner: str = "") -> Loaded | Failed:
        return self.wait(self.begin(constraint, owner))

    @property
    def workers(self) -> list[psutil.Process]:
        return [worker for worker in workers_of(psutil.Process()) if worker not in self._others]

    def stop_workers(self, num: int = 1) -> list[psutil.Process]:
        """The first `num` workers are started and never answer again."""
        while len(self.workers) < num:
            together = [self.begin(regex(f"started {i} {len(self.workers)}")) for i in range(num)]
            for each in together:
                assert isinstance(self.wait(each), Loaded)
        for worker in self.workers:
            worker.suspend()
        return self.workers


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    def is_worker(child: psutil.Process) -> bool:
        try:
            return "ramet.runtime.grammar.worker" in child.cmdline()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            return False

    return [child for child in process.children(recursive=True) if is_worker(child)]


@pytest.fixture
def asking() -> Iterator[Callable[..., Asking]]:
    made: list[Asking] = []

    def make(**options: float) -> Asking:
        made.append(Asking(**options))
        return made[-1]

    yield make
    for each in made:
        each.pool.close()
    assert not any(each.workers for each in made)


def test_a_constraint_is_compiled_and_ready_is_called(asking: Callable[..., Asking]):
    client = asking()
    compiled = client.compile(regex("a|b"))
    assert isinstance(compiled, Loaded) and compiled.compiled.start().accept(vocabulary().tokenizer.encode("a")[0])
    assert client.pool.get(regex("a|b")) is compiled and client.told.empty()


def test_a_constraint_is_compiled_once_for_all_who_ask(asking: Callable[..., Asking]):
    client = asking()
    compiling = client.begin(regex("a+", place="regex"))
    assert client.begin(regex("a+", place="guided_regex")) is compiling
    assert client.begin(regex("a+", after="</think>")) is compiling
    compiled = client.wait(compiling)
    assert client.pool.get(regex("a+", place="ebnf")) is compiled
    assert client.told.empty() and len(client.workers) == 1


def test_the_log_says_once_how_long_a_worker_loaded_its_library(
    asking: Callable[..., Asking], caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "ramet")
    client = asking()
    for pattern in ("a|b", "a|c"):
        client.compile(regex(pattern))
    assert len([line for line in caplog.messages if "has loaded llguidance in" in line]) == 1


def test_a_constraint_is_compiled_for_each_scope_by_itself(asking: Callable[..., Asking]):
    client = asking()
    one, other = client.compile(regex("a+", scope="a")), client.compile(regex("a+", scope="b"))
    assert isinstance(one, Loaded) and isinstance(other, Loaded) and one is not other
    assert client.pool.get(regex("a+", scope="a")) is one and client.pool.get(regex("a+", scope="b")) is other


def test_a_refusal_is_remembered(asking: Callable[..., Asking]):
    client = asking()
    refused = client.compile(regex("(a"))
    assert isinstance(refused, Failed) and refused.status == 400
    assert client.pool.get(regex("(a")) is refused


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_time_of_a_constraint_is_that_of_its_process(asking: Callable[..., Asking], backend: str):
    client = asking(timeout_s=0.5)
    small = replace(regex("a+"), backend=backend)
    assert isinstance(client.compile(small), Loaded)
    (stopped,) = client.workers
    stopped.suspend()
    resuming = threading.Timer(0.7, stopped.resume)
    resuming.start()
    assert isinstance(client.compile(replace(small, text="b+")), Loaded)
    resuming.join()
    assert client.workers == [stopped]


def test_a_machine_without_time_for_a_constraint_is_not_the_constraints_fault(asking: Callable[..., Asking]):
    client = asking(timeout_s=0.1)
    (stopped,) = client.stop_workers()
    failed = client.compile(regex("a+"))
    assert isinstance(failed, Failed) and failed.status == 503
    assert "the machine was too busy" in failed.fact and "--grammar-timeout-s" in failed.fact
    assert not stopped.is_running()
    assert isinstance(client.compile(regex("a+")), Loaded)
    assert stopped not in client.workers


def test_a_library_that_takes_too_long_is_interrupted(asking: Callable[..., Asking], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_process, "STRETCH", 1000)  # it gets its time, however busy the machine is
    client = asking(timeout_s=0.1)
    failed = client.compile(LONG)
    assert isinstance(failed, Failed) and failed.status == 504
    assert failed.fact == "takes longer than the 0.1 s of --grammar-timeout-s to compile"
    assert not client.workers


def test_a_timeout_is_no_answer_for_who_asks_later(asking: Callable[..., Asking]):
    client = asking(timeout_s=0.1)
    client.stop_workers()
    everybody_left = client.begin(regex("a+"))
    client.wait(everybody_left)
    assert isinstance(client.compile(regex("a+")), Loaded)


def test_a_constraint_whose_worker_is_killed_is_tried_again(asking: Callable[..., Asking]):
    client = asking()
    first, second = client.stop_workers(2)
    killed, other = client.begin(regex("a+")), client.begin(regex("b+"))
    first.kill()
    second.resume()
    assert isinstance(client.wait(killed), Loaded) and isinstance(client.wait(other), Loaded)


def test_a_worker_that_is_killed_while_idle_fails_no_constraint(asking: Callable[..., Asking]):
    client = asking()
    assert isinstance(client.compile(regex("a")), Loaded)
    (worker,) = client.workers
    worker.kill()
    assert isinstance(client.compile(regex("b")), Loaded)


def test_a_constraint_whose_workers_are_all_killed_fails_and_is_not_remembered(asking: Callable[..., Asking]):
    client = asking(timeout_s=600.0)
    slow = client.begin(ENDLESS)
    killed = set[int]()
    while slow.outcome is None:
        for worker in client.workers:
            worker.kill()
            killed.add(worker.pid)
    assert isinstance(slow.outcome, Failed) and slow.outcome.status == 503 and len(killed) >= TRIES
    assert "SIGKILL" in slow.outcome.fact and isinstance(client.pool.get(ENDLESS), Compiling)


def test_what_needs_more_memory_than_the_option_is_refused_by_its_name(asking: Callable[..., Asking]):
    client = asking(memory_mb=64.0)  # it takes 80 beside its library
    failed = client.compile(LONG)
    assert isinstance(failed, Failed) and failed.status == 400 and "64 MiB of --grammar-memory-mb" in failed.fact
    assert client.pool.get(LONG) is failed


@pytest.mark.parametrize("backend", ["xgrammar", "outlines"])
def test_what_is_nested_too_deeply_is_refused_in_words(asking: Callable[..., Asking], backend: str):
    schema = '{"type": "number", "minimum": 1e-200}'  # each decimal is a level
    failed = asking().compile(Constraint(ConstraintKind.JSON_SCHEMA, schema, backend=backend, whitespace="compact"))
    assert isinstance(failed, Failed) and failed.fact == "is nested too deeply to compile"


def test_memory_that_a_constraint_leaves_in_use_is_not_taken_from_the_next(
    asking: Callable[..., Asking], caplog: pytest.LogCaptureFixture
):
    client = asking(memory_mb=64.0)
    small = replace(regex("a"), backend=LONG.backend)
    assert isinstance(client.compile(small), Loaded)
    (first,) = client.workers
    before = first.memory_info().vms
    assert isinstance(client.compile(LONG), Failed)
    assert isinstance(client.compile(replace(small, text="b")), Loaded)
    (second,) = client.workers
    assert second.memory_info().vms < before + (16 << 20)
    assert "tried again" not in caplog.text  # no process failed


def test_a_worker_that_frees_its_memory_stays(asking: Callable[..., Asking]):
    client = asking()
    assert isinstance(client.compile(regex("a")), Loaded)
    workers = client.workers
    for i in range(3):
        assert isinstance(client.compile(replace(HUGE, text=HUGE.text.replace("value", f"text {i}"))), Loaded)
    assert client.workers == workers


def test_there_are_never_more_processes_than_workers(asking: Callable[..., Asking]):
    client = asking()
    stopped = client.stop_workers(WORKERS)
    waiting = [client.begin(regex(f"a{{{i}}}")) for i in range(1, 3 * WORKERS)]
    assert client.workers == stopped and len(stopped) == WORKERS
    for worker in stopped:
        worker.resume()
    assert all(isinstance(client.wait(each), Loaded) for each in waiting)
    assert client.workers == stopped


def long(word: str) -> Constraint:
    return regex("|".join(f"{word}{i:04}" for i in range(SHORT // 5)))


def test_long_constraints_leave_a_worker_to_the_others(asking: Callable[..., Asking]):
    client = asking()
    slow = [client.begin(long(word)) for word in ("a", "b", "c")]
    assert isinstance(client.wait(slow[0]), Loaded) and len(client.workers) == 1
    (stopped,) = client.stop_workers()
    slow += [client.begin(long(word)) for word in ("d", "e", "f")]
    assert isinstance(client.compile(regex("x")), Loaded) and isinstance(client.compile(regex("y")), Loaded)
    assert all(each.outcome is None for each in slow[3:]) and len(client.workers) == 2
    stopped.resume()
    assert all(isinstance(client.wait(each), Loaded) for each in slow)


def test_a_backend_s_constraints_do_not_wait_for_those_of_another(asking: Callable[..., Asking]):
    client = asking()
    client.stop_workers(WORKERS)
    waiting = [client.begin(regex("a")), client.begin(regex("b")), client.begin(regex("c"))]
    assert isinstance(client.compile(replace(regex("a"), backend="outlines")), Loaded)
    assert all(each.outcome is None for each in waiting)


def test_what_nobody_waits_for_is_not_begun(asking: Callable[..., Asking]):
    client = asking()
    stopped = client.stop_workers(WORKERS)
    busy = [client.begin(regex(f"busy {i}")) for i in range(WORKERS)]
    left, wanted = client.begin(regex("left")), client.begin(regex("wanted"))
    client.pool.give_up(regex("left", place="ebnf"), left)
    client.pool.give_up(regex("again"), client.begin(regex("again")))
    asked_again = client.begin(regex("again"))
    assert client.begin(regex("again")) is asked_again
    client.pool.give_up(regex("again"), asked_again)
    for worker in stopped:
        worker.resume()
    assert all(isinstance(client.wait(each), Loaded) for each in [*busy, wanted, asked_again])
    assert left.outcome is None and isinstance(client.compile(regex("left")), Loaded)


def test_the_least_recently_used_is_compiled_again(asking: Callable[..., Asking]):
    sizes = asking().compile(regex("a"))
    assert isinstance(sizes, Loaded)
    client = asking(cache_bytes=int(2.5 * sizes.compiled.num_bytes))
    for pattern in ("a", "b", "a", "c"):  # the first is used again before the third comes
        if isinstance(found := client.pool.get(regex(pattern)), Compiling):
            client.wait(found)
        client.pool.leave(regex(pattern))
    assert isinstance(client.pool.get(regex("a")), Loaded) and isinstance(client.pool.get(regex("c")), Loaded)
    assert isinstance(client.pool.get(regex("b")), Compiling)


def test_a_constraint_without_room_waits_until_another_has_ended(asking: Callable[..., Asking]):
    client = asking(cache_bytes=0, held_bytes=1)  # one is always possible
    first = client.compile(regex("a"))
    assert isinstance(first, Loaded) and client.pool.num_bytes > 1 and not client.pool.has_room("")
    assert client.pool.get(regex("a")) is first, "it takes no more memory"
    other = client.begin(regex("b"))
    client.pool.leave(regex("a"))
    assert not client.pool.has_room("") and not other.begun
    client.pool.leave(regex("a"))
    assert isinstance(client.wait(other), Loaded)
    client.pool.leave(regex("b"))
    assert client.pool.num_bytes == 0 and client.pool.has_room("")


def test_one_that_is_given_up_while_it_waits_for_room_leaves_nothing(asking: Callable[..., Asking]):
    client = asking(cache_bytes=0, held_bytes=1)
    client.compile(regex("a"))
    for pattern in "bcd":
        client.pool.give_up(regex(pattern), client.begin(regex(pattern)))
    assert not client.pool._open and not client.pool._jobs["llguidance"]._waiting
    client.pool.leave(regex("a"))
    assert isinstance(client.compile(regex("e")), Loaded)


def test_one_that_is_given_up_when_it_is_compiled_gives_its_room_back(asking: Callable[..., Asking]):
    client = asking()
    compiling, failing = client.begin(regex("a")), client.begin(regex("(a"))
    client.wait(compiling), client.wait(failing)
    assert client.pool.num_bytes
    client.pool.give_up(regex("a"), compiling)
    client.pool.give_up(regex("(a"), failing)
    assert client.pool.num_bytes == 0


def test_what_is_kept_gives_way_to_what_is_in_use(asking: Callable[..., Asking]):
    sizes = asking().compile(regex("a"))
    assert isinstance(sizes, Loaded)
    client = asking(held_bytes=int(2.5 * sizes.compiled.num_bytes))
    for pattern in "ab":
        client.compile(regex(pattern))
        client.pool.leave(regex(pattern))
    assert isinstance(client.pool.get(regex("b")), Loaded)  # in use again
    client.compile(regex("c"))
    assert isinstance(client.pool.get(regex("b")), Loaded) and isinstance(client.pool.get(regex("c")), Loaded)
    assert isinstance(client.pool.get(regex("a")), Compiling), "nobody had it"


def test_what_is_in_use_is_found_although_it_is_not_kept(asking: Callable[..., Asking]):
    client = asking(cache_bytes=0)
    first = client.compile(regex("a"))
    client.compile(regex("b"))
    assert client.pool.get(regex("a")) is first


def test_a_key_has_its_share_of_the_memory_and_others_theirs(asking: Callable[..., Asking]):
    sizes = asking().compile(regex("a"))
    assert isinstance(sizes, Loaded)
    client = asking(cache_bytes=0, held_bytes=4 * sizes.compiled.num_bytes, share=0.25)
    client.compile(regex("a"), "one")
    waits = client.begin(regex("b"), "one")
    assert isinstance(client.compile(regex("c"), "two"), Loaded) and isinstance(client.compile(regex("d")), Loaded)
    assert not waits.begun and not client.pool.has_room("one")
    assert client.begin(regex("b"), "three") is waits, "which has room, and so has it compiled for both"
    assert isinstance(client.wait(waits), Loaded) and not client.pool.has_room("three")
    client.pool.leave(regex("b"))
    client.pool.leave(regex("b"))
    client.pool.leave(regex("a"))
    assert client.pool.has_room("one") and client.pool.has_room("three")


def test_a_cache_counts_what_it_has_and_keeps_the_newest():
    cache, one = GrammarCache(3 * REFUSAL_BYTES), REFUSAL_BYTES + 1
    for pattern, total in [("a", one), ("b", 2 * one), ("a", 2 * one), ("c", 2 * one), ("d", 2 * one)]:
        cache.put(regex(pattern), Failed(pattern))
        assert cache.num_bytes == total
    kept = [pattern for pattern in "abcd" if cache.get(regex(pattern)) is not None]
    assert kept == ["c", "d"]
    tiny = GrammarCache(0)
    tiny.put(regex("a"), Failed("a"))
    tiny.put(regex("b"), Failed("b"))
    assert tiny.get(regex("a")) is None and tiny.get(regex("b")) == Failed("b") and tiny.num_bytes == one


def test_a_worker_has_the_lowest_priority_and_leaves_signals_to_its_parent(asking: Callable[..., Asking]):
    client = asking()
    assert isinstance(client.compile(regex("a")), Loaded)
    (worker,) = client.workers
    assert worker.nice() == NICENESS == 10
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        worker.send_signal(number)
    assert isinstance(client.compile(regex("b")), Loaded)
    assert client.workers == [worker]


def test_close_ends_processes_and_threads_while_they_compile():
    client = Asking()
    stopped = client.stop_workers(WORKERS)
    for i in range(5):
        client.begin(regex(f"a{{{i + 1}}}"))
    client.pool.close()
    assert not any(worker.is_running() for worker in stopped) and not client.workers
    for thread in client.pool._threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert not client.workers


def test_close_ends_a_worker_that_is_only_just_starting():
    client = Asking()
    for i in range(WORKERS):
        client.begin(regex(f"a{i}"))
    client.pool.close()
    for thread in client.pool._threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert not client.workers


def test_a_pool_that_compiled_nothing_has_no_process():
    client = Asking()
    assert not client.workers
    client.pool.close()


PARENT = """
import sys
sys.path[:] = {path!r}
from test_compile_pool import Asking, regex
client = Asking()
(worker,) = client.stop_workers()
client.begin(regex("a+"))
print(worker.pid, flush=True)
client.told.get()
"""


def test_a_worker_does_not_outlive_its_killed_parent():
    code = PARENT.format(path=sys.path)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    assert worker.ppid() == parent.pid
    parent.kill()
    parent.communicate()
    worker.wait(WAIT_S)


PRINTING = """
import os
from ramet.runtime.workers.subordinate import private_stdout, write_frame
stdout = private_stdout()
print("noise of Python", flush=True)
os.write(1, b"noise of a library")
write_frame(stdout, b"data")
"""


def test_what_a_library_prints_is_no_frame():
    printed = subprocess.run([sys.executable, "-c", PRINTING], capture_output=True, timeout=WAIT_S)
    assert printed.stdout == b"\4\0\0\0data"
    assert b"noise of Python" in printed.stderr and b"noise of a library" in printed.stderr
