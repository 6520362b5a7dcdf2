"""The scheduler: each turn it receives, plans a step, runs it and tells the news. Algorithm 1 of the SGLang paper.

Decides the order of the parts and nothing inside them. A step is planned as an immutable value and its result is
applied as a value, so planning the next step while the device runs this one is another loop over the same parts, not
another scheduler. Knows no socket type, no tensor and no model.
"""

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from ramet.ipc.channel import Outbox
from ramet.ipc.messages import Abort, Admit, Finish, FinishKind, ToScheduler, Uid, unpack_ids
from ramet.ipc.spec import RequestSpec
from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.cache.slots import PageAllocator, RowAllocator
from ramet.runtime.config import Args
from ramet.runtime.engine.batch import LoadedRunner
from ramet.runtime.request import Request, seed_of_sample
from ramet.runtime.scheduler.admission import Admission, Admitted, Refused
from ramet.runtime.scheduler.batch import Step, Work, build_step
from ramet.runtime.scheduler.control import ControlDesk
from ramet.runtime.scheduler.invariants import check_counts, check_idle
from ramet.runtime.scheduler.policy import Policy
from ramet.runtime.scheduler.report import Reporter
from ramet.runtime.scheduler.results import Results
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.stopping import Stopping
from ramet.runtime.scheduler.waiting import WaitingQueue
from ramet.runtime.text.tokenizer import Tokenizer

Clock = Callable[[], float]
JUST_ARRIVED = "has just arrived"


class Inbox(Protocol):
    def drain(self, block: bool) -> list[ToScheduler]: ...


class Scheduler:
    """Owns the waiting queue, the running set and the cache; drives one runner."""

    def __init__(
        self,
        args: Args,
        runner: LoadedRunner,
        *,
        max_total_tokens: int,
        max_running: int,
        inbox: Inbox,
        detokenizer: Outbox,
        server: Outbox,
        tokenizer: Tokenizer | None,
        eos_ids: frozenset[int],
        clock: Clock = time.monotonic,
    ) -> None:
        seed = args.schedule.random_seed or 0
        self._seeds = np.random.default_rng(seed)
        self._args, self._runner, self._inbox, self._clock = args, runner, inbox, clock
        self._chunk = args.schedule.chunked_prefill_size if args.schedule.chunked_prefill_size > 0 else 1 << 30
        page = args.cache.page_size
        self.cache = PrefixCache(PageAllocator(max_total_tokens // page, page), not args.cache.disable_radix_cache)
        self.rows = RowAllocator(max_running)
        self.penalty_slots = RowAllocator(args.max_penalised)
        all_tokens = args.schedule.repetition_penalty_scope == "all"
        self.running = RunningSet(self.cache, self.rows, self.penalty_slots, prompt_is_seen=all_tokens)
        self.waiting = WaitingQueue()
        self._policy = Policy(args.schedule.schedule_policy, self.cache, args.schedule.max_wait_s, seed)
        self._admission = Admission(self.cache, self.running, self._policy, args.schedule.schedule_conservativeness)
        self._stopping = Stopping(tokenizer, eos_ids)
        self._results = Results(self.running, self._stopping, detokenizer)
        self.reporter = Reporter(server, clock, self.cache, self.running, self.waiting, self._results)
        self._refusals: dict[Uid, str] = {}  # uid -> why it was refused in the last step that asked
        self._queue_waits = JUST_ARRIVED  # why those wait that were not asked
        self._desk = ControlDesk(server, clock, state=self.state, where=self.where, flush=self.cache.flush)

    @property
    def idle(self) -> bool:
        return not len(self.running) and not len(self.waiting)

    def run_plain(self, beat: Callable[[bool], None]) -> None:
        """For ever: one step after the other. `beat(idle)` is called before each wait and each step."""
        while True:
            beat(self.idle)
            self.receive(block=self.idle)
            beat(self.idle)
            self.turn()

    def receive(self, block: bool) -> None:
        """Take everything that has arrived; if `block`, wait for something."""
        for message in self._inbox.drain(block):
            match message:
                case Admit():
                    self._enqueue(message)
                case Abort():
                    self._abort(message)
                case control:
                    self._desk.handle(control)

    def turn(self) -> Step | None:
        """Plan, run and apply one step, if there is anything to run. Returns what ran."""
        started = time.perf_counter()
        step = self._plan()
        if step is not None:
            planned = time.perf_counter()
            result = self._runner.launch(step.batch).result()
            ran = time.perf_counter()
            self._results.apply(step, result)
            self._admission.ratio.step()
            self.reporter.count(
                step, result, plan_s=planned - started, run_s=ran - planned, apply_s=time.perf_counter() - ran
            )
        self._results.send()
        self._settle()
        return step

    def state(self) -> dict[str, object]:
        """What /get_server_info shows of the live scheduler."""
        return self.reporter.state()

    def where(self, uid: Uid) -> dict[str, object] | None:
        """Where a request is, and while it waits, why."""
        waiting = self.waiting.get(uid)
        if waiting is not None:
            reason = self._refusals.get(uid, self._queue_waits)
            return {"state": "waiting", "reason": reason, "retractions": waiting.num_retractions}
        seat = self.running.get(uid)
        if seat is not None:
            known = {"computed_tokens": seat.computed, "output_tokens": seat.request.num_output}
            return {"state": "running", **known, "retractions": seat.request.num_retractions}
        return None

    # -- one turn ---------------------------------------------------------------------------------------------------

    def _plan(self) -> Step | None:
        """Decide what runs next: every decoding request one token, then prompts by chunks, then new requests."""
        retracted = self.running.make_room()
        for request in retracted:
            self.waiting.add(request)
        works = [Work(seat, seat.uncomputed) for seat in self.running if seat.decoding]
        left = self._chunk
        for seat in self.running:
            if not seat.decoding and left > 0:
                works.append(Work(seat, min(seat.uncomputed, left)))
                left -= works[-1].num_new
        self._refusals.clear()
        if retracted:
            self._queue_waits = f"memory ran out: {len(retracted)} running requests were retracted in this step"
            self._admission.ratio.retracted(self.running)
        elif len(self.waiting):
            works += self._admit(left)
        if not works:
            return None
        slot_updates = [fill for work in works if (fill := self.running.take_fill(work.seat)) is not None]
        penalty_resets = [count for work in works if (count := self.running.take_recount(work.seat)) is not None]
        return build_step(works, slot_updates, penalty_resets, self._stopping.eos_ids)

    def _admit(self, left: int) -> list[Work]:
        """Seat waiting requests in the policy's order while `left` prefill tokens, memory and rows last."""
        works: list[Work] = []
        self._queue_waits = JUST_ARRIVED
        if not self.running.num_free_rows:
            self._queue_waits = f"all {len(self.running)} rows of --max-running-requests are taken"
            return works
        self._admission.begin()
        for request in self._policy.order(self.waiting, self._clock()):
            if left <= 0:
                self._queue_waits = (
                    f"the {self._chunk} prompt tokens of --chunked-prefill-size are used up in this step"
                )
                break
            match self._admission.try_add(request):
                case Admitted(seat):
                    self.waiting.remove(request.uid)
                    self._results.open(seat)
                    works.append(Work(seat, min(seat.uncomputed, left)))
                    left -= works[-1].num_new
                case Refused(reason, full):
                    self._refusals[request.uid] = reason
                    if full:
                        self._queue_waits = f"is behind a request that {reason}"
                        break
        return works

    def _settle(self) -> None:
        """Between two steps: nothing may be lost, and whoever waits for idleness gets it."""
        if self.idle:
            check_idle(self.cache, self.running, self.rows, self.penalty_slots)
            self._admission.ratio.reset()
        elif self._args.execute.check_invariants:
            check_counts(self.cache, self.running, self.rows, self.penalty_slots)
        self._desk.settle(self.idle)
        self.reporter.tell(self.idle)

    # -- messages ---------------------------------------------------------------------------------------------------

    def _enqueue(self, message: Admit) -> None:
        prompt = np.array(unpack_ids(message.ids), dtype=np.int32)
        spec = message.spec
        given = spec.params.sampling_seed
        base = given if given is not None else int(self._seeds.integers(1 << 63))
        embeds = message.embeds
        values = None if embeds is None else np.frombuffer(embeds, dtype=np.float32).reshape(len(prompt), -1)
        refusal = self._refusal(spec)
        for sample, uid in enumerate(message.uids):
            seed = seed_of_sample(base, sample)
            request = Request(uid, prompt, spec, seed=seed, arrival_s=message.arrival_s, embeds=values)
            if refusal:
                self._results.close_waiting(request, Finish(FinishKind.ABORT, message=refusal, status=400))
            elif len(request.tokens) > self.cache.total_tokens:
                room = f"{self.cache.total_tokens} tokens of the KV pool"
                fact = f"{request.prompt_len} prompt and {request.remaining} new tokens do not fit the {room}"
                self._results.close_waiting(request, Finish(FinishKind.ABORT, message=fact, status=400))
            else:
                self.waiting.add(request)

    def _refusal(self, spec: RequestSpec) -> str:
        """Why it cannot be served by this model; empty: it can."""
        if spec.processor is None:
            return ""
        fact = self._runner.refusal(spec.processor, spec.params.custom_params or {})
        return f"custom_logit_processor {fact}" if fact else ""

    def _abort(self, message: Abort) -> None:
        for uid in message.uids:
            waiting = self.waiting.remove(uid)
            if waiting is not None:
                self._results.close_waiting(waiting, Finish(FinishKind.ABORT, message=message.message))
            seat = self.running.get(uid)
            if seat is not None:
                self._results.close_running(seat, Finish(FinishKind.ABORT, message=message.message))
