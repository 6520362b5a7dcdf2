"""The scheduler: each turn it receives, plans a step, runs it and sends what is new. Algorithm 1 of the SGLang paper.

Decides the order of a turn and nothing inside it. A step is planned as an immutable value and its result is
applied as a value, so `turn_overlapped`, which plans a step while the device runs the one before, is another turn over
the same objects, not another scheduler. Knows no socket type, no tensor, no model and no feature.
"""

from collections.abc import Callable, Sequence

from ramet.ipc.message import Uid
from ramet.runtime.cache.prefix import Lease
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.feature import MemoryShort, TurnFeature
from ramet.runtime.scheduler.locating import where
from ramet.runtime.scheduler.planning import StepPlanner
from ramet.runtime.scheduler.receiving import MessageReceiver
from ramet.runtime.scheduler.step import Step
from ramet.runtime.scheduler.step_runner import StepRunner


class Scheduler:
    """What process/compose.py puts together, and the order in which a turn goes through it."""

    check: Callable[[bool], None]  # that nothing is lost, given whether the scheduler is idle; set when it is composed

    def __init__(
        self, core: Core, beside: Sequence[TurnFeature], receiver: MessageReceiver, planner: StepPlanner,
        steps: StepRunner, report: Callable[[bool], None], *, overlapped: bool,
    ) -> None:  # fmt: skip
        """`report` is called at the end of each turn, with whether the scheduler is idle."""
        self._core, self._beside, self._receiver, self.planner = core, beside, receiver, planner
        self.cache, self.running, self.waiting, self.results = core.cache, core.running, core.waiting, core.results
        self._steps, self._report, self.control = steps, report, receiver.control
        self.overlapped = overlapped
        # One turn of the loop that this scheduler runs. Returns the step that was launched.
        self.turn: Callable[[], Step | None] = self.turn_overlapped if overlapped else self.turn_plain
        self.checks_turns = False  # check every turn, which tests ask for, and not only those in which nothing runs
        self.waits_for_kept = False  # what waits needs memory that a feature keeps for a moment, and nothing runs

    @property
    def idle(self) -> bool:
        busy = len(self.running) or len(self.waiting) or self._receiver.aborts.left
        return not busy and self._steps.in_flight is None

    @property
    def waits(self) -> bool:
        """Nothing can be computed before something arrives, or what is kept for a moment ends."""
        if self._receiver.aborts.left or self.cache.has_dropped:
            return False
        for feature in self._beside:
            if feature.work and feature.keeps_awake:
                return False
        if self.idle or self.waits_for_kept:
            return True
        return self._steps.in_flight is None and bool(self._core.pausing.why_no_steps)

    @property
    def kept(self) -> list[Lease]:
        """What stays cached while no request needs it."""
        leases = list[Lease]()
        for each in self._beside:
            if each.work:
                leases += each.leases
        return leases

    def run(self, beat: Callable[[bool], None] | None = None) -> None:
        """For ever. `beat(idle)` is called before each wait and each step."""
        while True:
            waits = self.waits
            if beat is not None:
                beat(waits)
            self.receive(block=waits)
            if beat is not None:
                beat(self.idle)
            self.turn()

    def receive(self, block: bool) -> None:
        """Take what has arrived, as far as a turn may; if `block`, wait for something, or until what is kept ends."""
        self._receiver.receive(block, self._wait_s if block else None, self._steps.apply_in_flight)

    def turn_plain(self) -> Step | None:
        """Plan, run and apply one step, if there is anything to run. Returns it."""
        self._begin_turn()
        step = self._launch(fill=True)
        if step is not None:
            if step.draws_late:
                self._steps.draw(step)
            self._steps.apply(step)
        self._settle(stuck=step is None)
        return step

    def turn_overlapped(self) -> Step | None:
        """Plan and launch the next step, then apply the one that was in flight. Returns what was launched.

        A step that does not run meanwhile is applied at once: nothing is gained by planning before its result is known.
        """
        self._begin_turn()
        try:
            step = self._launch(fill=False)
        except MemoryShort:
            self._steps.apply_in_flight()
            step = self._launch(fill=False)
        stuck = step is None and self._steps.in_flight is None
        self._steps.apply_in_flight()
        if step is not None:
            if step.draws_late:
                self._steps.draw(step)
            if self._steps.runs(step):
                self._steps.in_flight = step
            else:
                self._steps.apply(step)
        self._settle(stuck)
        return step

    def where(self, uid: Uid) -> dict[str, object] | None:
        """Where a request is, and while it waits, why."""
        return where(uid, self._core, self._beside)

    def close(self) -> None:
        """End what was begun beside steps, and the step that runs. What is in flight is not applied."""
        for feature in self._beside:
            feature.close()
        self._steps.close()

    # -- inside -----------------------------------------------------------------------------------------------------

    @property
    def _wait_s(self) -> float | None:
        """Until something that is kept has to end or a flush gives up; None: there is nothing."""
        ends = [self.control.wait_s] if self.control.flushes else []
        for each in self._beside:
            if each.work and (wait_s := each.wait_s(is_awaited=self.waits_for_kept)) is not None:
                ends.append(wait_s)
        return min(ends, default=None)

    def _begin_turn(self) -> None:
        for feature in self._beside:
            if feature.work:
                feature.begin_turn()

    def _launch(self, *, fill: bool) -> Step | None:
        """Plan the next step and hand it to the device. Raises MemoryShort. See `StepRunner.launch`."""
        begun_s = self._steps.clock()
        step = self.planner.plan()
        if step is None:
            return None
        plan_s = self._steps.clock() - begun_s  # of the same reading: slices of a timeline do not overlap
        self._steps.launch(step, begun_s, plan_s, fill=fill)
        return step

    def _settle(self, stuck: bool) -> None:
        """Between two steps: send what is new, check that nothing is lost, answer calls that wait for idleness.

        `stuck`: nothing was computed or is being computed.
        """
        busy = [each for each in self._beside if each.work]
        for feature in busy:
            feature.settle()
        self.results.send()
        awaited = stuck and self.waiting.num_ready > 0 and any(each.gives_way for each in busy)
        self.waits_for_kept = awaited and not any(each.goes_on for each in busy)
        is_idle = self.idle and not any(each.apart for each in self._beside)  # their leases are claimed already
        if is_idle or self.checks_turns:
            self.check(is_idle)
        if is_idle:
            self.planner.admission.ratio.reset()
        if self.control.flushes:
            self.control.settle(self.idle or (not len(self.running) and bool(self._core.pausing.why_no_steps)))
        if self.cache.has_dropped:
            self.cache.free_dropped()
        if self.control.flushed and not self.cache.has_dropped:
            self.control.reply_flushed()
        self._report(self.idle)
