"""The scheduler's loop feeds its watchdog: a step that hangs ends the process, a quiet hour does not."""

import subprocess
import sys
from pathlib import Path

FAKES = Path(__file__).parents[1] / "fakes"

# A whole scheduler process: its own sockets, its own loop. Only the device is one that never answers.
HUNG_DEVICE = """
import threading
from pathlib import Path
from ramet.ipc import paths
from ramet.ipc.channel import Sender
from ramet.ipc.content import Content
from ramet.ipc.messages import Generate, pack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.ipc.paths import SocketFolder
from ramet.runtime.config import make_args
from ramet.runtime.engine.scripted import ScriptedRunner
from ramet.runtime.scheduler.process import start

class Hung(ScriptedRunner):
    def launch(self, batch):
        threading.Event().wait()

def admit_one(phases, limits):
    admit = Generate([1], RequestSpec(SamplingParams(max_new_tokens=5)), Content(ids=pack_ids([8, 9, 10])))
    Sender(sockets.address(paths.SCHEDULER)).send(admit)

sockets = SocketFolder(Path())
start.make_runner = lambda args, tokenizer, report: Hung(tokenizer.vocab_size, 64, 64, 4)
start.run(make_args(watchdog_timeout=0.3), sockets, admit_one)
"""

# The loop alone: one request is served, then nothing comes for three timeouts.
QUIET = """
import os, threading
from pathlib import Path
from hash_runner import HashRunner
from ramet.ipc.channel import MemoryChannel
from ramet.ipc.content import Content
from ramet.ipc.messages import Generate, pack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.config import make_args
from ramet.runtime.scheduler.process.compose import SchedulerChannels, compose
from ramet.runtime.scheduler.process.watchdog import Watchdog
from ramet.ipc.ring import Ring

class Quiet:
    def __init__(self):
        self.left = [Generate([1], RequestSpec(SamplingParams(max_new_tokens=5)), Content(ids=pack_ids([8, 9, 10])))]
    def drain(self, block, timeout_s, most):
        if block and not self.left:
            threading.Event().wait(0.9)
            print("still here", flush=True)
            os._exit(0)
        arrived, self.left = self.left, []
        return arrived

channels = SchedulerChannels(Quiet(), MemoryChannel(), MemoryChannel(), wake=lambda: None)
scheduler = compose(make_args(), HashRunner(64, 4, 64), channels, None, frozenset()).scheduler
scheduler.run(Watchdog(0.3, Ring(Path("a.ring"), {"step": ()}, 8)).beat)
"""


def run(code: str, tmp: Path) -> "subprocess.CompletedProcess[str]":
    code = f"import sys; sys.path.insert(0, {str(FAKES)!r})\n" + code
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=15, check=False, cwd=tmp
    )


def test_a_device_that_never_answers_ends_the_scheduler_with_its_stacks(tmp_path: Path):
    ended = run(HUNG_DEVICE, tmp_path)
    assert ended.returncode == 1, ended.stderr
    assert "Timeout" in ended.stderr and "in launch" in ended.stderr and "in turn_plain" in ended.stderr


def test_a_scheduler_without_work_outlives_its_watchdog(tmp_path: Path):
    ended = run(QUIET, tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "still here\n"), ended.stderr
