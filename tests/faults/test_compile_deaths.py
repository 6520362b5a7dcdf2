"""A server that dies while a constraint compiles: no compile worker is left, whoever died first."""

from concurrent.futures import Future, ThreadPoolExecutor

import psutil
import pytest
import requests
from live import Live, running

SCRIPTED = {"runner": "scripted", "context_length": 10_000, "max_total_tokens": 40_000}
RID = "waits"


def workers_of(server: Live) -> list[psutil.Process]:
    return running("ramet.runtime.grammar.worker", psutil.Process(server.process.pid))


def compile_for_ever(server: Live, pool: ThreadPoolExecutor) -> tuple[list[psutil.Process], Future[requests.Response]]:
    """A worker that is stopped while a request waits for what it compiles."""
    assert server.generate(text="x", sampling_params={"regex": "[ab]"}).status_code == 200
    workers = workers_of(server)
    for worker in workers:
        worker.suspend()
    asked = pool.submit(server.generate, text="x", rid=RID, sampling_params={"regex": "[cd]"})
    while "compiled" not in requests.get(f"{server.url}/v1/requests/{RID}", timeout=10).text:
        assert not asked.done()
    return workers, asked


@pytest.mark.parametrize("role", ["scheduler", "parent", "server"])
def test_no_worker_outlives_a_server_that_died_while_it_compiled(role: str):
    with Live(**SCRIPTED, grammar_timeout_s=600) as server, ThreadPoolExecutor(1) as pool:
        workers, asked = compile_for_ever(server, pool)
        assert len(workers) == 1
        died = psutil.Process(server.process.pid) if role == "parent" else server.children()[role]
        died.kill()
        workers[0].wait(30)
        server.process.wait(30)
        if role == "scheduler":
            assert asked.result(30).status_code == 503
        else:
            assert isinstance(asked.exception(30), requests.exceptions.ConnectionError)


def test_sigterm_ends_a_server_whose_worker_compiles():
    with Live(**SCRIPTED, grammar_timeout_s=600, drain_timeout_s=1) as server, ThreadPoolExecutor(1) as pool:
        workers, asked = compile_for_ever(server, pool)
        server.stop()
        workers[0].wait(30)
        assert asked.exception(30) is not None or asked.result().status_code >= 500


def test_sigterm_to_the_whole_group_lets_a_constraint_be_compiled_first():
    with Live(**SCRIPTED, grammar_timeout_s=600) as server, ThreadPoolExecutor(1) as pool:
        (worker,), asked = compile_for_ever(server, pool)
        for process in [worker, *server.children().values(), psutil.Process(server.process.pid)]:
            process.terminate()
        worker.resume()
        assert asked.result(60).status_code == 200
        assert server.process.wait(30) == 0
