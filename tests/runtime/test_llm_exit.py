"""Python exits while threads wait for an engine that nobody closed: nothing is printed about it."""

import subprocess
import sys

import pytest

BEFORE = """
import asyncio, sys, threading
from ramet import LLM, function, gen
llm = LLM(runner="scripted", context_length=1_000_000, max_total_tokens=4_000_000)
endless = {"max_new_tokens": 900_000, "ignore_eos": True}
begun = threading.Event()

def stream():
    for _ in llm.stream("a", endless):
        begun.set()

async def call():
    await llm.agenerate("a", endless)

@function
def program(s):
    s += "a" + gen("x", max_tokens=900_000, ignore_eos=True)

def beside(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread

streaming = beside(stream)
assert begun.wait(30)
"""
CASES = {
    "a stream": "",
    "a call": 'beside(lambda: llm.generate("a", endless))',
    "an async call": "beside(lambda: asyncio.run(call()))",
    "a variable of a program": 'state = program.run(backend=llm, stream=True)\nbeside(lambda: state["x"])',
}


def ended(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", BEFORE + code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("case", CASES)
def test_a_daemon_thread_that_waits_says_nothing_when_python_ends(case: str) -> None:
    done = ended(CASES[case] + "\nwhile llm.state()['running_requests'] < " + str(1 + bool(CASES[case])) + ": pass")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_daemon_thread_whose_engine_the_program_closes_says_so() -> None:
    hook = "threading.excepthook = lambda args: print(args.exc_type.__name__, flush=True)"
    done = ended(f"{hook}\nllm.close()\nstreaming.join()\nsys.exit(3)")
    assert (done.returncode, done.stdout, done.stderr) == (3, "EngineClosed\n", "")
