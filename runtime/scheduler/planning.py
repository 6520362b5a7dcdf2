"""What runs next: every decoding request one token, then prompts by chunks, then new requests in the policy's order."""

from collections.abc import Callable, Sequence

from ramet.ipc.stats import WaitKind
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.scheduler.admission import Admission, AdmissionRound, Refused
from ramet.runtime.scheduler.batch import BatchPlanner
from ramet.runtime.scheduler.begin_share import ENOUGH, OTHERS, BeginShare
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.feature import MemoryShort, StepBound, TurnFeature
from ramet.runtime.scheduler.policy import Policy
from ramet.runtime.scheduler.prefill_budget import Limits, PrefillBudget
from ramet.runtime.scheduler.step import Step, StepTimes


class StepPlanner:
    """`plan` once in a turn. `chunk`: prompt tokens of a step. `bound`: on a step's time; None: there is none."""

    def __init__(
        self, core: Core, policy: Policy, admission: Admission, batches: BatchPlanner, *, chunk: int, limits: Limits,
        bound: StepBound | None, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._core, self._policy, self.admission, self._batches = core, policy, admission, batches
        self.chunk, self._limits, self._bound, self._clock = chunk, limits, bound, clock
        self._beside: Sequence[TurnFeature] = admission.beside
        self._share = BeginShare(core.running.table, chunk, clock)
        self._num_planned = 0

    def plan(self) -> Step | None:
        """None: there is nothing to compute. Raises MemoryShort."""
        core, running = self._core, self._core.running
        core.why.begin()
        if core.pausing.why:
            core.why.end(WaitKind.PAUSE, core.pausing.why)
            return None
        for feature in self._beside:
            if feature.work:
                for request in feature.take_back():
                    core.waiting.add(request)
        retracted = core.retraction.make_room()
        if retracted is None:
            raise MemoryShort
        for feature in self._beside:
            if feature.work:
                retracted += feature.proceed()
        for request in retracted:
            core.waiting.add(request)
        decoding, table = running.decoding, running.table
        is_bound = self._bound is not None and running.num_in_output
        time = self._bound.beside(table, decoding) if self._bound is not None and is_bound else None
        budget = PrefillBudget(table, self.chunk, self._limits, time)
        for each in running.prefilling:
            budget.take(each)
        if retracted:
            fact = f"memory ran out: {len(retracted)} running requests were retracted in this step"
            core.why.end(WaitKind.RETRACTION, fact)
            self.admission.ratio.retracted(running)
        elif core.waiting.num_ready:
            self._share.begin(self._num_planned + 1, decoding, sum(budget.prefills.values()))
            self._admit(budget)
            self._share.end()
        if not len(decoding) and not budget.prefills:
            return None
        self._num_planned += 1
        if budget.prefills:
            return self._batches.plan(self._num_planned, decoding, budget.prefills)
        return self._batches.plan_decode(self._num_planned, decoding)

    def after_step(self, step: Step, result: StepResult, times: StepTimes) -> None:
        """The result of a step was applied."""
        self.admission.ratio.step()
        if self._bound is not None:
            self._bound.applied(step.batch.load, times.begun_s)
        self._share.after_step(step, times)

    def _admit(self, budget: PrefillBudget) -> None:
        """Run waiting requests in the policy's order while prefill tokens, memory and rows last, and their share."""
        core = self._core
        if not core.running.free_rows.num_free:
            core.why.end(WaitKind.ROWS, f"all {len(core.running)} rows of --max-running-requests are taken")
            return
        no_budget = f"the {self.chunk} prompt tokens of --chunked-prefill-size are used up in this step"
        if budget.tokens <= 0:
            core.why.end(WaitKind.PREFILL_BUDGET, no_budget)
            return
        now_s = self._clock()
        turn = AdmissionRound(self.admission, now_s)
        for request in self._share.allowed(self._policy.order(core.waiting, now_s)):
            if self._share.left <= 0:
                core.why.end(WaitKind.PREFILL_BUDGET, ENOUGH)
                break
            if budget.tokens <= 0:
                core.why.end(WaitKind.PREFILL_BUDGET, no_budget)
                break
            if self._bound is not None and (fact := self._bound.refusal(core.running, request)):
                core.why.end(WaitKind.PACE, fact)
                break
            if request.asked and (failure := turn.failure(request)):
                core.waiting.remove(request.uid)
                core.results.close_waiting(request, failure)
                continue
            match turn.try_add(request):
                case Refused(reason, full):
                    core.why.note(request.uid, reason)
                    if full:
                        core.why.end(reason.kind, f"is behind a request that {reason.text}")
                        break
                case running:
                    core.waiting.begin(request, now_s)
                    goes_on = request.uid not in core.running.slotless and core.results.open(running)
                    is_computed = goes_on and request.uid not in core.running.held
                    self._share.begins(request, budget.take(running) if is_computed else 0)
        else:
            if self._share.has_kept_out:
                core.why.end(WaitKind.PREFILL_BUDGET, OTHERS)
