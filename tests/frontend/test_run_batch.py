"""run_batch: every result in its place, bounded, resumable, and with the cause where something fails."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import dataclass

import pytest
from samples import slow

from ramet import BatchFailed, CallFailed, ProgramError, function, gen
from ramet.frontend.backends.mock import Mock
from tests.fakes.services import Service


@function
def echo(s, word):
    s += word + gen("x")
    return word


@function
async def echo_async(p, word):
    p += word + gen("x")
    return word


@pytest.mark.parametrize("program", [echo, echo_async], ids=["plain", "async"])
def test_states_come_in_the_order_of_their_arguments(program):
    service = Service(lambda text: text[::-1])
    words = [f"word {i}" for i in range(300)]
    states = program.run_batch([{"word": word} for word in words], backend=service, num_threads=7)
    assert [state["x"] for state in states] == [word[::-1] for word in words]
    assert [state.ret_value for state in states] == words
    assert 1 < service.most_running <= 7


@pytest.mark.parametrize("program", [echo, slow(echo_async)], ids=["plain", "async"])
def test_ten_thousand_programs_all_come_back(program):
    service = Service(lambda text: text)
    states = program.run_batch([(str(i),) for i in range(10_000)], backend=service)
    assert [state["x"] for state in states] == [str(i) for i in range(10_000)]


def test_an_iterator_yields_as_soon_as_it_can_and_holds_little():
    service = Service(lambda text: text)
    found = echo.run_batch([(str(i),) for i in range(2000)], backend=service, num_threads=4, generator_style=True)
    first = next(found)
    assert first["x"] == "0" and len(service.prompts) <= 8
    assert [state["x"] for state in found] == [str(i) for i in range(1, 2000)]

    tracemalloc.start()
    for _ in echo.run_batch([("a" * 1000,)] * 100, backend=service, generator_style=True):
        pass
    before = tracemalloc.get_traced_memory()[0]
    service.prompts.clear()
    for state in echo.run_batch([("a" * 1000,)] * 3000, backend=service, generator_style=True):
        service.prompts.clear()
        del state
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 3_000_000, grown  # of 3,000 states none is kept


def test_leaving_an_iterator_early_ends_what_runs():
    service = Service()
    service.held = {"1"}
    found = echo.run_batch([("0",), ("1",), ("2",)], backend=service, num_threads=3, generator_style=True)
    assert next(found)["x"] == "<1>"
    service.wait_for(3)
    found.close()
    service.let_go()
    assert service.num_running == 0


@pytest.mark.parametrize("program", [echo, echo_async], ids=["plain", "async"])
def test_the_first_failure_ends_the_batch_and_says_which_it_was(program):
    service = Service()
    service.failing = {"bad"}
    service.held = {"slow"}
    arguments = [("slow",), ("bad",), *[("later",)] * 50]
    with pytest.raises(BatchFailed, match=r"batch_kwargs\[1\]: CallFailed: gen\('x'\).*out of order") as caught:
        program.run_batch(arguments, backend=service, num_threads=2)
    assert caught.value.index == 1 and isinstance(caught.value.reason, CallFailed)
    assert "later" not in service.prompts
    service.let_go()
    assert service.num_running == 0


@pytest.mark.parametrize("program", [echo, echo_async], ids=["plain", "async"])
def test_failures_may_be_returned_in_their_places(program):
    service = Service()
    service.failing = {"bad"}
    states = program.run_batch([("a",), ("bad",), ("b",)], backend=service, on_error="return")
    assert [state.error() is None for state in states] == [True, False, True]
    assert states[2]["x"] == "<1>"
    with pytest.raises(CallFailed):
        states[1]["x"]


RAISED = (ValueError("no bad words"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError())


@function
def picky(s, i):
    s += str(i) + gen("x")
    if i:
        raise RAISED[i - 1]


@function
async def picky_async(s, i):
    s += str(i) + gen("x")
    if i:
        raise RAISED[i - 1]


@pytest.mark.parametrize("program", [picky, picky_async], ids=["plain", "async"])
def test_a_body_that_raises_is_a_failure_of_its_program(program):
    states = program.run_batch([(i,) for i in range(5)], backend=Service(), on_error="return")
    assert [state.error() for state in states] == [None, *RAISED]
    with pytest.raises(BatchFailed, match=r"batch_kwargs\[1\]: ValueError: no bad words"):
        program.run_batch([(0,), (1,)], backend=Service())


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (["word"], {}, r"batch_kwargs\[0\] is 'word', must be a dict or a tuple"),
        ([{"word": "a"}], {"num_threads": 0}, "num_threads is 0, must be an integer >= 1 or 'auto'"),
        ([{"word": "a"}], {"on_error": "ignore"}, "on_error is 'ignore', must be 'raise' or 'return'"),
        ([{"word": "a"}], {"word": "b"}, "run_batch has no 'word'"),
        ([{"word": "a"}], {"stream": True}, "run_batch has no 'stream'"),
        ([{"word": "a"}], {"wrod": "b"}, "no parameter 'wrod'"),
        ([{"word": "a"}], {"temperature": -1}, "temperature is -1, must be finite and >= 0"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(arguments, options, words):
    service = Service()
    with pytest.raises(Exception, match=words):
        echo.run_batch(arguments, backend=service, **options)
    assert service.prompts == []


def test_an_empty_batch_is_empty():
    assert echo.run_batch([], backend=Service()) == []


@dataclass
class Point:
    x: int


def test_a_batch_is_resumed_where_it_ended(tmp_path):
    path, ran = tmp_path / "results.jsonl", []

    @function
    def program(s, i):
        ran.append(i)
        s += s.user(f"q{i}") + s.assistant(gen("x") + gen("n", dtype=int))
        s["point"] = Point(i)
        return {"i": i}

    service = Service(lambda text: "7")
    service.failing = {"q5"}
    arguments = [{"i": i} for i in range(8)]
    with pytest.raises(BatchFailed):
        program.run_batch(arguments, backend=service, num_threads=1, resume=path)
    assert ran == [0, 1, 2, 3, 4, 5]
    with open(path, "ab") as file:
        file.write(b'{"key":"cut off in the mid')
    service.failing = set()
    ran.clear()
    states = program.run_batch(arguments, backend=service, num_threads=1, resume=path)
    assert ran == [5, 6, 7]
    assert [state["n"] for state in states] == [7] * 8
    assert states[0]["point"] == {"x": 0} and states[0].ret_value == {"i": 0}
    question, answer = states[0].messages()
    assert question == {"role": "user", "content": "q0"} and answer == {"role": "assistant", "content": "77"}
    assert states[0].get_meta_info("x") == {"finish_reason": {"type": "stop"}}
    assert len(path.read_bytes().splitlines()) == 8 and all(json.loads(line) for line in path.open())
    ran.clear()
    program.run_batch(arguments, backend=service, temperature=0.5, resume=path, num_threads=1)
    assert ran == list(range(8)), "other parameters give other results"


def test_a_last_line_without_its_end_counts_if_it_is_whole(tmp_path):
    path, arguments = tmp_path / "r", [("a",), ("b",), ("c",)]
    echo.run_batch(arguments[:2], backend=Service(), resume=path, num_threads=1)
    whole, service = path.read_bytes(), Service()
    path.write_bytes(whole[:-1])
    echo.run_batch(arguments, backend=service, resume=path)
    assert service.prompts == ["c"] and path.read_bytes().startswith(whole)


def test_equal_arguments_of_a_batch_each_run(tmp_path):
    service = Service()
    states = echo.run_batch([("a",), ("a",)], backend=service, resume=tmp_path / "r", num_threads=1)
    assert len(states) == 2 and [state["x"] for state in states] == ["<1>", "<1>"]


def test_each_of_several_equal_programs_is_kept_once(tmp_path):
    """They draw each their own."""
    drawn = iter(range(100))
    service, path = Service(lambda text: str(next(drawn))), tmp_path / "r"
    echo.run_batch([("a",)] * 3, backend=service, resume=path, num_threads=1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    for _ in range(2):
        states = echo.run_batch([("a",)] * 3, backend=service, resume=path, num_threads=1)
        assert [state["x"] for state in states] == ["0", "1", "3"]


@pytest.mark.parametrize(
    "content", [b'{"prompt": 1}\n', b"notes of mine", b'{"key":"a"}\n', b"\n", b"GOOD\nbad\nGOOD\n"]
)
def test_a_file_that_is_not_a_batch_s_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "r"
    echo.run_batch([("a",)], backend=Service(), resume=path)
    content = content.replace(b"GOOD", path.read_bytes().rstrip())
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"resume: line [12] of '.*r' is not of a batch that may be resumed"):
        echo.run_batch([("a",)], backend=Service(), resume=path)
    assert path.read_bytes() == content


def test_programs_of_a_batch_share_the_connections_of_a_server_named_by_its_url():
    @function
    def program(s):
        return s.run.backend

    url = "http://127.0.0.1:9"
    backends = {state.ret_value for state in program.run_batch([()] * 20, backend=url)}
    assert len(backends) == 1 and program.run(backend=url).ret_value in backends


def returns_an_object(s):
    return object()


def sets_an_object(s):
    s["x"] = object()


def has_a_text_that_is_no_unicode(s):
    s["x"] = "\ud800"


def holds_itself(s):
    s["x"] = []
    s["x"].append(s["x"])


@pytest.mark.parametrize(
    ("unwritten", "why"),
    [
        (returns_an_object, "object cannot be written as JSON"),
        (sets_an_object, "object cannot be written as JSON"),
        (has_a_text_that_is_no_unicode, "surrogates not allowed"),
        (holds_itself, "maximum recursion depth"),
    ],
)
def test_what_cannot_be_written_is_a_failure_of_its_program(tmp_path, unwritten, why):
    @function
    def program(s, i):
        s += str(i) + gen("y")
        return unwritten(s) if i == 1 else i

    arguments, path = [(i,) for i in range(3)], tmp_path / "r"
    states = program.run_batch(arguments, backend=Mock(), resume=path, on_error="return")
    assert [state.error() is None for state in states] == [True, False, True]
    assert isinstance(states[1].error(), ProgramError) and states[1]["y"] and states[2].ret_value == 2
    with pytest.raises(BatchFailed, match=rf"batch_kwargs\[1\]: .*resume: its values cannot be written: .*{why}"):
        program.run_batch(arguments, backend=Mock(), resume=path)
    assert len(path.read_bytes().splitlines()) == 2


def test_progress_is_shown_on_demand(capsys):
    echo.run_batch([("a",)] * 3, backend=Service(), progress_bar=True)
    assert "3/3" in capsys.readouterr().err
    echo.run_batch([("a",)] * 3, backend=Service())
    assert capsys.readouterr().err == ""


def test_parallel_batches_share_a_backend():
    service = Service(lambda text: text)
    found: dict[int, list[str]] = {}

    def run(number):
        states = echo.run_batch([(f"{number}-{i}",) for i in range(200)], backend=service)
        found[number] = [state["x"] for state in states]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [f"{number}-{i}" for i in range(200)] for number in range(4)}


INTERRUPTED = """
import asyncio, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
from ramet import function, gen
from tests.fakes.services import Service

service = Service()
service.held = {"slow"}
KIND

def ready():
    service.wait_for(5)  # the fast one is done
    print("ready", flush=True)
import threading
threading.Thread(target=ready, daemon=True).start()
program.run_batch([("fast",)] + [("slow",)] * 50, backend=service, num_threads=4, resume=sys.argv[1])
"""
PLAIN = "@function\ndef program(s, word):\n    s += word + gen('x')\n    s['x']"
ASYNC = "@function\nasync def program(s, word):\n    s += word + gen('x')\n    await s['x']"


@pytest.mark.parametrize("kind", [PLAIN, ASYNC], ids=["plain", "async"])
def test_ctrl_c_ends_a_batch_at_once_and_keeps_what_is_done(tmp_path, kind):
    path = tmp_path / "results.jsonl"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.replace("KIND", kind), str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT and words.rstrip().endswith("KeyboardInterrupt"), words
    assert len(path.read_bytes().splitlines()) == 1


@pytest.mark.parametrize("program", [echo, echo_async], ids=["plain", "async"])
def test_a_batch_inside_a_program_uses_its_backend_and_ends_with_it(program):
    service = Service()
    service.held = {"slow"}

    @function
    def outer(s):
        s["x"] = [state["x"] for state in program.run_batch([("a",), ("bc",)])]
        threading.Thread(target=lambda: (service.wait_for(3), s.cancel())).start()
        with pytest.raises(BatchFailed, match="cancelled"):
            program.run_batch([("slow",)])

    assert outer.run(backend=service)["x"] == ["<1>", "<2>"]
    service.let_go()
    assert service.num_running == 0


def test_mock_is_the_same_in_a_batch_and_alone():
    alone = [echo.run(word=word, backend=Mock())["x"] for word in "abc"]
    assert [state["x"] for state in echo.run_batch([(word,) for word in "abc"], backend=Mock())] == alone


@pytest.mark.parametrize("value", [float("nan"), [1.0, {"a": float("-inf")}]])
def test_a_number_that_json_does_not_have_is_not_resumed_as_null(tmp_path, value):
    @function
    def program(s):
        s += "a" + gen("x")
        s["y"] = value
        return value

    for _ in range(2):
        (state,) = program.run_batch([()], backend=Mock(), resume=tmp_path / "file", on_error="return")
        assert "resume: its values cannot be written" in str(state.error())
    assert (tmp_path / "file").read_bytes() == b""
