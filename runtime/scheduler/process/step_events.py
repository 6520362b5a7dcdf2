"""The scheduler's ring: one event for each step, with what it computed and where its time went."""

from pathlib import Path

from ramet.ipc.ring import MANY_RECORDS, Ring
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.scheduler.process.report import Reporter
from ramet.runtime.scheduler.step import Step, StepTimes

STEP, NUMBERS = 0, (
    "step", "rows", "prefill_tokens", "running", "waiting", "plan_s", "wait_s", "results_s", "forward_s", "sample_s",
)  # fmt: skip


def step_ring(path: Path) -> Ring:
    return Ring(path, {"step": NUMBERS}, MANY_RECORDS)


class StepEvents:
    """Listens to steps behind a Reporter, which has counted them.

    An event begins with the plan of a step and ends when its result is applied.
    """

    def __init__(self, ring: Ring, reporter: Reporter) -> None:
        self._ring, self._reporter = ring, reporter

    def add(self, step: Step, result: StepResult, times: StepTimes) -> None:
        reporter = self._reporter
        forward_s, sample_s = result.phases.get("forward", times.run_s), result.phases.get("sample", 0.0)
        self._ring.add(
            STEP, times.begun_s,
            reporter.steps, len(step.uids), step.num_prefill_tokens, reporter.num_running, reporter.num_waiting,
            times.plan_s, times.run_s, times.apply_s, forward_s, sample_s,
        )  # fmt: skip
