"""Profiles of the model's operations: torch's profiler around steps, as SGLang's /start_profile asks for.

Recording begins and ends between two steps, on the thread that computes them, for torch records by thread. To collect
what was recorded takes that thread longer the more steps there are, so a profile has MAX_STEPS at most. The file is
written by another thread and compressed by another process. torch.profiler would import what takes seconds, before its
first start; the profiler of torch.autograd, on which it is built, does not.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from ramet.ipc.channel import Sender
from ramet.ipc.control import ProfileWritten, StartProfile, StopProfile
from ramet.ipc.params import shown
from ramet.runtime.config import Args
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.log import LOGGER
from ramet.runtime.metrics.timeline import trace_folder
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.process.report import Reporter
from ramet.runtime.scheduler.step import Step, StepListener, StepTimes

MAX_STEPS = 1000
IN_PROGRESS = "Profiling is already in progress. Call /stop_profile first."
NOT_IN_PROGRESS = "Profiling is not in progress. Call /start_profile first."
SUFFIX = ".trace.json"


@dataclass
class Profile:
    """`recorder`: torch's; None: it has not begun, or its thread has it. `step`: the scope of the step that runs."""

    asked: StartProfile
    path: Path  # of the compressed file
    num_steps: int
    recorder: Any = None
    step: Any = None
    num_done: int = 0
    is_being_written: bool = False
    stop_call: int | None = None


class Profiler:
    """One at a time. `address`: of the scheduler's inbox, where the thread that writes says that it has."""

    def __init__(
        self, args: Args, control: ControlHandler, reporter: Reporter, listeners: list[StepListener], address: str
    ) -> None:
        self._args, self._control, self._reporter, self._address = args, control, reporter, address
        self._listeners = listeners
        self._profile: Profile | None = None
        self._ended: tuple[dict[str, object], bool] | None = (
            None  # the last, by itself: what is told of it, and if it is well
        )
        control.on(StartProfile, self._start)
        control.on(StopProfile, self._stop)
        control.on(ProfileWritten, self._written)

    def _start(self, message: StartProfile) -> None:
        refusal, path = self._refusal(message), None
        if not refusal:
            path, refusal = _place(message, self._args.serve.trace_dir)
        if path is None:
            self._control.reply(message.call, {"error": refusal}, ok=False)
            return
        self._profile, self._ended = Profile(message, path, message.num_steps or MAX_STEPS), None
        self._listeners.append(self._after_step)
        self._begin_if_due(self._profile)
        self._control.reply(message.call, {"path": str(path)})

    def _refusal(self, message: StartProfile) -> str:
        if self._profile is not None:
            return IN_PROGRESS
        if self._args.execute.runner == "scripted":
            return "--runner scripted computes nothing that torch could record; GET /trace shows its steps."
        if not message.with_cpu and not _has_gpu():
            return 'activities is ["GPU"], but this model runs on the CPU'
        return ""

    def _begin_if_due(self, profile: Profile) -> None:
        next_step = self._reporter.steps + 1
        if profile.asked.start_step is not None and next_step < profile.asked.start_step:
            return
        from torch.autograd.profiler import profile as record

        asked = profile.asked
        device = "cuda" if asked.with_gpu and _has_gpu() else None
        profile.recorder = record(
            use_cpu=asked.with_cpu, use_device=device, use_kineto=True,
            record_shapes=asked.record_shapes, with_stack=asked.with_stack,
        )  # fmt: skip
        profile.recorder.__enter__()
        profile.step = _scope(next_step)

    def _after_step(self, step: Step, result: StepResult, times: StepTimes) -> None:
        profile = self._profile
        assert profile is not None, "the profiler listens without a profile"
        if profile.recorder is None:
            self._begin_if_due(profile)
            return
        profile.num_done += 1
        profile.step.__exit__(None, None, None)
        profile.step = _scope(self._reporter.steps + 1)
        if profile.num_done >= profile.num_steps:
            self._end(profile)

    def _stop(self, message: StopProfile) -> None:
        profile = self._profile
        if profile is None and self._ended is not None:
            about, is_well = self._ended
            self._control.reply(message.call, about, ok=is_well)
            return
        if profile is None or profile.stop_call is not None:
            self._control.reply(message.call, {"error": NOT_IN_PROGRESS}, ok=False)
            return
        profile.stop_call = message.call
        if not profile.is_being_written:
            self._end(profile)

    def _end(self, profile: Profile) -> None:
        self._listeners.remove(self._after_step)
        profile.is_being_written = True
        recorder, profile.recorder = profile.recorder, None
        if recorder is None:
            self._written(ProfileWritten(profile.asked.call, "it ended before its first step"))
            return
        with self._control.excused():
            profile.step.__exit__(None, None, None)
            recorder.__exit__(None, None, None)
        write = (recorder.export_chrome_trace, profile.path, self._address, profile.asked.call)
        threading.Thread(target=_write, args=write, name="profile", daemon=True).start()

    def _written(self, message: ProfileWritten) -> None:
        profile, self._profile = self._profile, None
        assert profile is not None and profile.asked.call == message.call, f"profile {message.call} is not known"
        about: dict[str, object] = {"path": str(profile.path), "steps": profile.num_done}
        if message.error:
            about["error"] = f"No profile was written: {message.error}"
            LOGGER.error("the profile %s was not written: %s", profile.path, message.error)
        else:
            LOGGER.info("a profile of %d steps is in %s", profile.num_done, profile.path)
        if profile.stop_call is not None:
            self._control.reply(profile.stop_call, about, ok=not message.error)
        else:
            self._ended = about, not message.error


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _scope(step: int) -> Any:
    from torch.autograd.profiler import record_function

    scope: Any = record_function(f"step {step}")
    scope.__enter__()
    return scope


def _place(message: StartProfile, trace_dir: str) -> tuple[Path | None, str]:
    """Where the file goes; or None, and why it cannot."""
    try:
        if message.folder is None:
            folder = trace_folder(trace_dir)
        else:
            folder = Path(message.folder)
            if trace_dir and not folder.resolve().is_relative_to(Path(trace_dir).resolve()):
                return None, f"output_dir is {shown(message.folder)}, must be in the folder of --trace-dir"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()  # it can be written to
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links that go round in a circle
        return None, f"output_dir: {message.folder or trace_dir} cannot be written to: {error}"
    path = folder / f"{message.name}{SUFFIX}.gz"
    try:
        path.lstat()
    except FileNotFoundError:
        return path, ""
    except OSError as error:
        return None, f"profile_id: {message.name} cannot be the name of a file: {error.strerror}"
    return None, f"profile_id: {path} is there already; choose another"


def _name(whole: Path, path: Path) -> None:
    """Give a file its name, not over one that has come meanwhile. Not every file system has links."""
    try:
        os.link(whole, path)
    except FileExistsError:
        raise
    except OSError:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(whole.read_bytes())


def _write(export: Callable[[str], None], path: Path, address: str, call: int) -> None:
    error = ""
    try:
        with TemporaryDirectory(prefix=".profile-", dir=path.parent) as work:
            plain = Path(work) / "profile.json"
            export(str(plain))
            command = [sys.executable, "-m", "gzip", "--fast", str(plain)]
            if (done := subprocess.run(command, capture_output=True, text=True)).returncode:
                raise OSError(f"gzip failed: {done.stderr.strip().rpartition(chr(10))[2]}")
            whole = plain.with_suffix(".json.gz")
            whole.chmod(0o600)
            _name(whole, path)
    except (OSError, RuntimeError) as failed:
        error = f"{path} could not be written: {failed}"
    sender = Sender(address)
    sender.send(ProfileWritten(call, error))
    sender.close()
