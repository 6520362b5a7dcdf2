"""What runs next: every decoding request one token, then prompts by chunks, then new requests in the policy's order."""

from collections.abc import Callable, Sequence

from ramet.ipc.stats import WaitKind
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.scheduler.admission import Admission, Admitted, Refused
from ramet.runtime.scheduler.batch import DecodePlanner, plan_step
from ramet.runtime.scheduler.begin_share import ENOUGH, OTHERS, BeginShare
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.feature import MemoryShort, TurnFeature
from ramet.runtime.scheduler.features.pace import Pace
from ramet.runtime.scheduler.policy import Policy
from ramet.runtime.scheduler.prefill_budget import PrefillBudget
from ramet.runtime.scheduler.step import Prefill, Step, StepTimes


class StepPlanner:
    """`plan` once in a turn. `chunk`: prompt tokens of a step. `bound`: on a step's time; None: there is none."""

    def __init__(
        self, core: Core, policy: Policy, admission: Admission, *, chunk: int, hidden_size: int, bound: Pace | None,
        features: Sequence[TurnFeature], clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._core, self._policy, self.admission, self._bound = core, policy, admission, bound
        self.chunk, self._hidden_size, self._features, self._clock = chunk, hidden_size, features, clock
        self._share = BeginShare(core.running.table, chunk, clock)
        self._decodes = DecodePlanner(core.running, core.results.eos_ids)
        self._num_planned = 0

    def plan(self) -> Step | None:
        """None: there is nothing to compute. Raises MemoryShort."""
        core, running = self._core, self._core.running
        core.why.begin()
        if core.pausing.why:
            core.why.end(WaitKind.PAUSE, core.pausing.why)
            return None
        for feature in self._features:
            if feature.work:
                for request in feature.take_back():
                    core.waiting.add(request)
        retracted = core.retraction.make_room()
        if retracted is None:
            raise MemoryShort
        for feature in self._features:
            if feature.work:
                retracted += feature.proceed()
        for request in retracted:
            core.waiting.add(request)
        decoding, budget = running.decoding, PrefillBudget(self.chunk, self._hidden_size)
        if self._bound is not None and running.num_in_output:
            time = self._bound.beside(running.table, decoding)
            budget = PrefillBudget(self.chunk, self._hidden_size, time)
        prefills = [prefill for each in running.prefilling for prefill in budget.take(each)]
        if retracted:
            fact = f"memory ran out: {len(retracted)} running requests were retracted in this step"
            core.why.end(WaitKind.RETRACTION, fact)
            self.admission.ratio.retracted(running)
        elif core.waiting.num_ready:
            self._share.begin(self._num_planned + 1, decoding, prefills)
            prefills += self._admit(budget)
            self._share.end()
        if not len(decoding) and not prefills:
            return None
        self._num_planned += 1
        if prefills:
            return plan_step(self._num_planned, running, decoding, prefills, core.results.eos_ids)
        return self._decodes.plan(self._num_planned, decoding)

    def after_step(self, step: Step, result: StepResult, times: StepTimes) -> None:
        """The result of a step was applied."""
        self.admission.ratio.step()
        if self._bound is not None:
            self._bound.applied(step.batch.load, times.begun_s)
        self._share.after_step(step, times)

    def _admit(self, budget: PrefillBudget) -> list[Prefill]:
        """Run waiting requests in the policy's order while prefill tokens, memory and rows last, and their share."""
        core, prefills = self._core, list[Prefill]()
        if not core.running.num_free_rows:
            core.why.end(WaitKind.ROWS, f"all {len(core.running)} rows of --max-running-requests are taken")
            return prefills
        no_budget = f"the {self.chunk} prompt tokens of --chunked-prefill-size are used up in this step"
        if budget.tokens <= 0:
            core.why.end(WaitKind.PREFILL_BUDGET, no_budget)
            return prefills
        now_s = self._clock()
        turn = self.admission.round(now_s)
        for request in self._share.allowed(self._policy.order(core.waiting, now_s)):
            if self._share.is_used_up:
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
                case Admitted(running, is_whole):
                    core.waiting.begin(request, now_s)
                    taken: list[Prefill] = []
                    if is_whole and core.results.open(running) and running.uid not in core.running.held:
                        taken = list(budget.take(running))
                    self._share.begins(request, taken)
                    prefills += taken
                case Refused(reason, full):
                    core.why.note(request.uid, reason)
                    if full:
                        core.why.end(reason.kind, f"is behind a request that {reason.text}")
                        break
        else:
            if self._share.has_kept_out:
                core.why.end(WaitKind.PREFILL_BUDGET, OTHERS)
        return prefills
