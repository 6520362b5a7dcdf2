"""The scheduler: each turn it receives, plans a step, runs it and sends what is new. Algorithm 1 of the SGLang paper.

Decides the order of the parts and nothing inside them. A step is planned as an immutable value and its result is
applied as a value, so `run_overlapped`, which plans a step while the device runs the one before, is another loop over
the same parts, not another scheduler. Knows no socket type, no tensor and no model.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import numpy as np

from ramet.ipc.channel import Outbox
from ramet.ipc.control import Control, GetState, LocateSequences
from ramet.ipc.media import PlacedMedia
from ramet.ipc.message import Uid
from ramet.ipc.messages import Abort, Admit, Finish, FinishKind, ProgramsEnded, Wake, unpack_ids
from ramet.ipc.params import shown
from ramet.ipc.spec import RequestSpec, owned
from ramet.ipc.stats import WaitKind
from ramet.runtime import log
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.prefix import Lease, PageAllocator, RowAllocator
from ramet.runtime.cache.prefix_list import make_cache
from ramet.runtime.cache.stateful import StatefulCache
from ramet.runtime.config import Args
from ramet.runtime.engine.batch import LoadedRunner, Pending
from ramet.runtime.grammar.compile import GrammarSource
from ramet.runtime.scheduler.aborts import Aborts
from ramet.runtime.scheduler.admission import Admission, Admitted, Refused
from ramet.runtime.scheduler.arrivals import Inbox, TakeShare, taken_from
from ramet.runtime.scheduler.batch import DecodePlanner, plan_step
from ramet.runtime.scheduler.begin_share import ENOUGH, OTHERS, BeginShare
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.features.adapters import Adapters
from ramet.runtime.scheduler.features.assembler import Assembler
from ramet.runtime.scheduler.features.constraints import Constraints
from ramet.runtime.scheduler.features.contexts import FirstGroup, groups_of, memory_of_parts, no_contexts
from ramet.runtime.scheduler.features.follow_ups import FollowUps
from ramet.runtime.scheduler.features.masks import MaskThread
from ramet.runtime.scheduler.features.media import RequestMedia, Towers
from ramet.runtime.scheduler.features.occupation import MemoryOccupation
from ramet.runtime.scheduler.features.pace import chunk_of, pace_of
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.features.routes import ReturnedRoutes
from ramet.runtime.scheduler.features.states import RowStates
from ramet.runtime.scheduler.features.weights import WeightUpdates
from ramet.runtime.scheduler.invariants import check_counts, check_idle
from ramet.runtime.scheduler.locating import where
from ramet.runtime.scheduler.pausing import Pausing
from ramet.runtime.scheduler.policy import Policy
from ramet.runtime.scheduler.prefill_budget import PrefillBudget
from ramet.runtime.scheduler.queue import WaitingQueue
from ramet.runtime.scheduler.report import Reporter, StepTimes
from ramet.runtime.scheduler.request import Request, seed_of_sample
from ramet.runtime.scheduler.results import Results
from ramet.runtime.scheduler.rows import RowTable, RunningRequest
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.stage_times import StageTimes
from ramet.runtime.scheduler.step import Prefill, Step
from ramet.runtime.scheduler.stopping import Stopping
from ramet.runtime.scheduler.view import LiveView
from ramet.runtime.scheduler.wait_reasons import WaitReasons
from ramet.runtime.text.healing import Tail
from ramet.runtime.text.tokenizer import Tokenizer

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class InFlight:
    """A step that was launched and whose result was not applied yet."""

    step: Step
    pending: Pending
    begun_s: float  # of its planning, by the scheduler's clock
    plan_s: float
    filling: Future[Ints] | None = None  # its masks, if they are made meanwhile


class MemoryShort(Exception):
    """No room for the next step before the result of the one in flight is applied, or keys that it must not read."""


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
        wake: Callable[[], None],
        clock: Clock = time.monotonic,
        grammars: GrammarSource | None = None,
    ) -> None:
        """`wake` sends `Wake` to the inbox, for the thread that reads adapters."""
        seed = args.schedule.random_seed or 0
        self._seeds = np.random.default_rng(seed)
        self._args, self._inbox, self._clock = args, inbox, clock
        self.overlapped = _overlaps(args, runner)
        self._tokenizer = tokenizer
        self._loaded, self._model = runner, runner.facts
        self._in_flight: InFlight | None = None
        self.waits_for_kept = False  # what waits needs memory that is kept for follow-ups, and nothing runs
        self._num_planned = 0
        self.chunk = chunk_of(args.schedule, runner.cost)  # prompt tokens of a step
        self._pace = pace_of(args.schedule, runner.cost, clock)
        page = args.cache.page_size
        pages = PageAllocator(max_total_tokens // page, page)
        table = RowTable(max_running, min(self._model.context_length, max_total_tokens), page)
        is_enabled, states = not args.cache.disable_radix_cache, None
        num_snapshots = self._model.num_snapshots
        if num_snapshots is None:
            self.cache = make_cache(args.cache.prefix_cache, pages, is_enabled)
        else:
            cache = self.cache = StatefulCache(pages, is_enabled, num_snapshots, first_place=max_running + 1)
            states = RowStates(cache, table)
        self.rows = RowAllocator(max_running)
        self.penalty_slots = RowAllocator(args.max_penalised)
        all_tokens = args.schedule.repetition_penalty_scope == "all"
        spell = partial(_spelled, tokenizer) if tokenizer is not None else _no_text
        self.leases = PrefixLeases(self.cache, clock, args.cache.max_prefix_lease_s, spell, args.share_per_key)
        self.follow_ups = FollowUps(self.cache, clock)
        self.running = RunningSet(
            self.cache, self.rows, self.penalty_slots, table, self._give_way, self._fail, prompt_is_seen=all_tokens,
            states=states, num_adapters=args.adapters.max_loras_per_batch,
        )  # fmt: skip
        self.waiting = WaitingQueue(self.cache)
        self._share = BeginShare(table, self.chunk, clock)
        self._take_share = TakeShare(clock)
        self._policy = Policy(args.schedule.schedule_policy, self.cache, args.schedule.max_wait_s, seed)
        conservativeness = args.schedule.schedule_conservativeness
        self._admission = Admission(self.cache, self.running, self._policy, self.follow_ups, conservativeness)
        self._stopping = Stopping(tokenizer, eos_ids)
        self._decode_planner = DecodePlanner(self.running, eos_ids)
        self._results = Results(
            self.running, self.leases, self.follow_ups, self._stopping, ReturnedRoutes(runner.routes), detokenizer,
            runner.pooler, clock, args.grammar.grammar_output_s,
        )  # fmt: skip
        self._assembler = Assembler(self.cache, self.running, self._results.open)
        self.pausing = Pausing(self.running, self.waiting, self._apply_in_flight)
        self._constraints = Constraints(args, grammars, tokenizer, eos_ids)
        self._aborts = Aborts(self.waiting, self._constraints, self.running, self._results)
        self._why = WaitReasons()
        most_media = args.media.max_vision_tokens_per_step
        self._towers = None if runner.media is None else Towers(runner.media, most_media, clock)
        self._tower_s = 0.0  # that towers took in this turn
        self.reporter = Reporter(
            server, clock, self.cache, self.running, self.leases, self.waiting, self._results, self._constraints,
            self.pausing, self._why, self._towers,
        )  # fmt: skip
        self.reporter.listeners.append(self._share.after_step)
        self._masks = MaskThread(self.running, self._model.vocab_size)
        self._no_budget = f"the {self.chunk} prompt tokens of --chunked-prefill-size are used up in this step"
        self._adapters = Adapters(args, self.running.adapters, runner.adapters, wake)
        self.control = control = ControlHandler(server, clock, self.flush)
        control.on(GetState, lambda message: control.reply(message.call, self.state()))
        control.on(LocateSequences, self._locate)
        self.view = LiveView(
            self.cache, self.running, self.waiting, self._why, self._constraints, self.leases, self.follow_ups,
            self.pausing, self._towers, clock,
        )  # fmt: skip
        self.view.register(control)
        self._adapters.register(control)
        self.pausing.register(control)
        by_thread = self._apply_in_flight, self.flush, self._adapters.thread, wake
        self._weights = WeightUpdates(runner.weights, self.running, self.waiting, self._results, *by_thread)
        self._weights.register(control)
        self._memory = MemoryOccupation(runner.memory, self.running, self.waiting, self.pausing, *by_thread)
        self._memory.register(control)

    @property
    def idle(self) -> bool:
        return not (len(self.running) or len(self.waiting) or self._aborts.left) and self._in_flight is None

    @property
    def waits(self) -> bool:
        """Nothing can be computed before something arrives, or what is kept for follow-ups ends."""
        if self._aborts.left or self._constraints.compiled or self.cache.has_dropped:
            return False
        return self.idle or self.waits_for_kept or (bool(self.reporter.paused) and self._in_flight is None)

    @property
    def kept(self) -> list[Lease]:
        """What stays cached for clients while no request needs it."""
        leases = self.leases.leases if self.leases.claimed else []
        return [*leases, *self.follow_ups.leases] if self.follow_ups.kept else leases

    def run(self, beat: Callable[[bool], None]) -> None:
        """For ever. `beat(idle)` is called before each wait and each step."""
        if self.overlapped:
            self.run_overlapped(beat)
        else:
            self.run_plain(beat)

    def run_plain(self, beat: Callable[[bool], None]) -> None:
        """One step after the other."""
        while True:
            beat(self.waits)
            self.receive(block=self.waits)
            beat(self.idle)
            self.turn_plain()

    def run_overlapped(self, beat: Callable[[bool], None]) -> None:
        """A step is planned and launched while the device runs the one before it."""
        while True:
            beat(self.waits)
            self.receive(block=self.waits)
            beat(self.idle)
            self.turn_overlapped()

    def turn(self) -> Step | None:
        """One turn of whichever loop this scheduler runs."""
        return self.turn_overlapped() if self.overlapped else self.turn_plain()

    def close(self) -> None:
        """End what compiles constraints, and the step that runs. What is in flight is not applied."""
        self._constraints.close()
        self._masks.close()
        self._loaded.close()

    def receive(self, block: bool) -> None:
        """Take what has arrived, as far as a turn may; if `block`, wait for something, or until what is kept ends."""
        asked: list[Control] = []
        aborts: list[Abort] = []
        most = self._take_share.most(self.running.table.arrivals[self.running.decoding])
        messages = taken_from(self._inbox, block, self._wait_s if block else None, most)
        if self.leases.claimed:
            self.leases.expire()
        for message in messages:
            match message:
                case Admit():
                    self._enqueue(message)
                case Abort():
                    aborts.append(message)
                case Wake():
                    self._adapters.settle()
                    self._weights.settle()
                    self._memory.settle()
                    self._constraints.take_compiled()
                case ProgramsEnded():
                    for program in message.programs:
                        self.follow_ups.end(owned(message.owner, program))
                case control:
                    asked.append(control)
        self._take_share.taken(messages, waited=block)
        if aborts:  # whose prompts came before them
            self._aborts.begin(aborts)
        if self._aborts.left:
            self._aborts.proceed()
        if self._constraints.compiled:
            for request, refused in self._constraints.settled():
                self._wait_or_close(request, refused)
        if self.follow_ups.kept:  # those whose next request was among the messages have ended already
            self.follow_ups.expire()
        if asked and not len(self.running):  # what has ended holds nothing any more, so say so
            self._apply_in_flight()
        for control in asked:
            self.control.handle(control)

    @property
    def _wait_s(self) -> float | None:
        """Until something that is kept has to end or a flush gives up; None: there is nothing. Follow-ups end together
        if nobody waits.
        """
        ends = [self.leases.wait_s] if self.leases.claimed else []
        if self.follow_ups.kept:
            ends.append(self.follow_ups.wait_s if self.waits_for_kept else self.follow_ups.wait_all_s)
        if self.control.flushes:
            ends.append(self.control.wait_s)
        return min((each for each in ends if each is not None), default=None)

    def turn_plain(self) -> Step | None:
        """Plan, run and apply one step, if there is anything to run. Returns it."""
        self._settle_aside()
        self._tower_s = self._compute_media()
        launched = self._launch(self._masks)
        if launched is not None:
            self._draw(launched)
            self._apply(launched)
        self._settle(stuck=launched is None)
        return launched.step if launched is not None else None

    def turn_overlapped(self) -> Step | None:
        """Plan and launch the next step, then apply the one that was in flight. Returns what was launched.

        A step that does not run meanwhile is applied at once: nothing is gained by planning before its result is known.
        """
        self._settle_aside()
        self._tower_s = self._compute_media()
        try:
            launched = self._launch()
        except MemoryShort:
            self._apply_in_flight()
            launched = self._launch()
        stuck = launched is None and self._in_flight is None
        self._apply_in_flight()
        if launched is not None:
            self._draw(launched)
            if launched.pending.runs:
                self._in_flight = launched
            else:
                self._apply(launched)
        self._settle(stuck)
        return launched.step if launched is not None else None

    def _settle_aside(self) -> None:
        if self._results.slow.is_begun:
            self._results.slow.begin_turn()
        if self.running.held or self._results.constrained.aside:
            others = len(self.running.decoding) or self.running.prefilling or self._in_flight is not None
            self._results.settle_aside(alone=not others)

    def flush(self) -> None:
        """Forget every cached prefix that no running request leases, those that clients hold as well. Their memory is
        freed by this turn and, where they are many, by those behind it.
        """
        self.leases.end_all()
        self.follow_ups.end_all()
        self.cache.drop_unleased()
        if self._towers is not None:
            self._towers.forget()

    def state(self) -> dict[str, object]:
        """What /get_server_info shows of the live scheduler."""
        return self.reporter.state()

    def _locate(self, message: LocateSequences) -> None:
        self.control.reply(message.call, {"sequences": [self.where(uid) for uid in message.uids]})

    def where(self, uid: Uid) -> dict[str, object] | None:
        """Where a request is, and while it waits, why."""
        queued, paused = self._why.of(uid), self.pausing.why
        return where(uid, self.waiting, self._constraints, self.running, queued=queued, paused=paused)

    # -- one turn ---------------------------------------------------------------------------------------------------

    def _launch(self, masks: MaskThread | None = None) -> InFlight | None:
        """Plan the next step and hand it to the device. Raises MemoryShort.

        `masks` fills the step's masks while the device computes, where no result is waited for.
        """
        begun_s = self._clock()
        step = self._plan()
        if step is None:
            return None
        plan_s = self._clock() - begun_s  # of the same reading: slices of a timeline do not overlap
        is_masked = masks is not None and step.batch.sampling.masked is not None
        filling = masks.fill(step) if masks is not None and is_masked else None
        return InFlight(step, self._loaded.launch(step.batch), begun_s, plan_s, filling)

    def _draw(self, launched: InFlight) -> None:
        """Give a step the masks that it waits for: every step before it has been applied."""
        if launched.step.batch.sampling.masked is not None:
            filling = launched.filling
            launched.pending.draw(self._masks.make(launched.step) if filling is None else filling.result())

    def _apply_in_flight(self) -> None:
        launched, self._in_flight = self._in_flight, None
        if launched is not None:
            self._apply(launched)

    def _apply(self, launched: InFlight) -> None:
        waited = time.perf_counter()
        result = launched.pending.result()
        ran = time.perf_counter()
        self._results.apply(launched.step, result, launched.begun_s)
        self._admission.ratio.step()
        if self._pace is not None:
            self._pace.applied(launched.step.batch.load, launched.begun_s)
        times = StepTimes(launched.begun_s, launched.plan_s, run_s=ran - waited, apply_s=time.perf_counter() - ran)
        self.reporter.count(launched.step, result, times)

    def _plan(self) -> Step | None:
        """Decide what runs next: every decoding request one token, then prompts by chunks, then new requests."""
        if self.pausing.why:
            self._why.begin()
            self._why.end(WaitKind.PAUSE, self.pausing.why)
            return None
        if self._results.unsound.again or self._results.unsound.withdrawn:
            if self.running.left.in_flight:
                raise MemoryShort
            for request in self._results.unsound.settle():
                self.waiting.add(request)
        if self._model.boundary is not None:
            for request in self.running.take_outgrown():
                self.waiting.add(request)
        retracted = self.running.make_room()
        if retracted is None:
            raise MemoryShort
        if self.running.parts.assemblies:
            retracted += self._assembler.proceed()
        for request in retracted:
            self.waiting.add(request)
        decoding, budget = self.running.decoding, PrefillBudget(self.chunk, self._model.hidden_size)
        if self._pace is not None and self.running.num_in_output:
            step_time = self._pace.beside(self.running.table, decoding, self._tower_s)
            budget = PrefillBudget(self.chunk, self._model.hidden_size, step_time)
        prefills = [prefill for running in self.running.prefilling for prefill in budget.take(running)]
        self._why.begin()
        if retracted:
            fact = f"memory ran out: {len(retracted)} running requests were retracted in this step"
            self._why.end(WaitKind.RETRACTION, fact)
            self._admission.ratio.retracted(self.running)
        elif self.waiting.num_ready:
            self._share.begin(self._num_planned + 1, decoding, prefills)
            prefills += self._admit(budget)
            self._share.end()
        if not len(decoding) and not prefills:
            return None
        self._num_planned += 1
        if prefills:
            return plan_step(self._num_planned, self.running, decoding, prefills, self._stopping.eos_ids)
        return self._decode_planner.plan(self._num_planned, decoding)

    def _admit(self, budget: PrefillBudget) -> list[Prefill]:
        """Run waiting requests in the policy's order while prefill tokens, memory and rows last, and their share."""
        prefills: list[Prefill] = []
        if not self.running.num_free_rows:
            self._why.end(WaitKind.ROWS, f"all {len(self.running)} rows of --max-running-requests are taken")
            return prefills
        if budget.tokens <= 0:
            self._why.end(WaitKind.PREFILL_BUDGET, self._no_budget)
            return prefills
        now_s = self._clock()
        self._admission.begin(now_s)
        for request in self._share.allowed(self._policy.order(self.waiting, now_s)):
            if self._share.is_used_up:
                self._why.end(WaitKind.PREFILL_BUDGET, ENOUGH)
                break
            if budget.tokens <= 0:
                self._why.end(WaitKind.PREFILL_BUDGET, self._no_budget)
                break
            if self._pace is not None and (fact := self._pace.refusal(self.running, request)):
                self._why.end(WaitKind.PACE, fact)
                break
            if request.media is not None and (failure := request.media.failure):
                self.waiting.remove(request.uid)
                self._results.close_waiting(request, failure)
                continue
            match self._admission.try_add(request):
                case Admitted(running):
                    self.waiting.begin(request, now_s)
                    taken: list[Prefill] = []
                    if not request.groups and self._results.open(running) and running.uid not in self.running.held:
                        taken = list(budget.take(running))
                    self._share.begins(request, taken)
                    prefills += taken
                case Refused(reason, full):
                    self._why.note(request.uid, reason)
                    if full:
                        self._why.end(reason.kind, f"is behind a request that {reason.text}")
                        break
        else:
            if self._share.has_kept_out:
                self._why.end(WaitKind.PREFILL_BUDGET, OTHERS)
        return prefills

    def _compute_media(self) -> float:
        """What waiting requests lack of features, between two steps. Returns the seconds it took.

        Where running requests have a bound, the turn behind is theirs and their prompts'.
        """
        towers = self._towers
        if towers is None or not towers.has_work:
            return 0.0
        pace = self._pace if self.running.num_in_output else None
        if pace is not None and self._tower_s:
            return 0.0
        self._apply_in_flight()
        self._results.send()
        if pace is None or not self.running.num_in_output:
            return towers.compute()
        return towers.compute(pace.room_s(self.running.table, self.running.decoding))

    def _settle(self, stuck: bool) -> None:
        """Between two steps: send what is new, check that nothing is lost, answer calls that wait for idleness.

        `stuck`: nothing was computed or is being computed.
        """
        if self._results.constrained.aside:
            self._results.constrained.aside.sweep()
        self._results.send()
        self.waits_for_kept = stuck and self.waiting.num_ready > 0 and bool(self.follow_ups.kept)
        self.waits_for_kept = self.waits_for_kept and not (self._towers is not None and self._towers.has_work)
        self.waits_for_kept = self.waits_for_kept and not (self._assembler.is_interrupted or self.running.held)
        if self.idle and not self._constraints.compiling:  # the leases that those asked for are claimed already
            check_idle(self.cache, self.running, self.leases, self.kept, self.rows, self.penalty_slots)
            self._admission.ratio.reset()
        elif self._args.execute.check_invariants:
            check_counts(self.cache, self.running, self.rows, self.penalty_slots)
        if self.control.flushes:
            self.control.settle(self.idle or (bool(self.reporter.paused) and not len(self.running)))
        if self.cache.has_dropped:
            self.cache.free_dropped()
        if self.control.flushed and not self.cache.has_dropped:
            self.control.reply_flushed()
        self.reporter.send(self.idle)

    def _give_way(self, alone: bool) -> bool:
        """Memory is short: see RunningSet."""
        return bool(self.follow_ups.kept and self.follow_ups.give_way()) or (alone and self.leases.give_way())

    def _fail(self, running: RunningRequest, fact: str) -> None:
        log.LOGGER.error("request %d ends: it %s", running.uid, fact)
        self._results.close_running(running, Finish.abort("", f"internal error: the request {fact}", status=500))

    # -- messages ---------------------------------------------------------------------------------------------------

    def _enqueue(self, message: Admit) -> None:
        spec, content, now_s = message.spec, message.content, self._clock()
        assert content.ids is not None, f"{message.uids} came without ids"
        prompt = np.array(unpack_ids(content.ids), dtype=np.int32)
        num_calls = self.follow_ups.came(spec.follow_up) if spec.follow_up is not None else 0
        given = spec.params.sampling_seed
        base = given if given is not None else int(self._seeds.integers(1 << 63))
        embeds = content.embeds
        values = None if embeds is None else np.frombuffer(embeds, dtype=np.float32).reshape(len(prompt), -1)
        media = self._media_of(message.media, len(prompt)) if message.media else None
        groups = groups_of(content.contexts) if content.contexts else ()
        first = FirstGroup.of(prompt, groups, self.cache.page_size) if groups else None
        place, refusal = self._refusal(spec, bool(groups))
        tail = self._tail(message) if message.tail else None
        for sample, uid in enumerate(message.uids):
            seed = seed_of_sample(base, sample)
            request = Request(
                uid,
                prompt,
                spec,
                seed=seed,
                arrival_s=message.arrival_s,
                embeds=values,
                tail=tail,
                groups=groups,
                first_group=first,
                boundary=self._model.boundary,
                times=StageTimes(now_s, message.tokenized, message.traced),
                media=media,
            )
            request.num_calls = num_calls
            if refusal:
                self._results.close_waiting(request, Finish.abort(place, refusal))
            elif fact := self._too_large(request):
                self._results.close_waiting(request, Finish.abort("", fact))
            elif spec.prefix_lease_s is not None and (denied := self.leases.claim(request)):
                self._results.close_waiting(request, Finish(FinishKind.ABORT, error=denied))
            elif spec.prefix_lease_s == 0 and request.returns_nothing:  # it was sent to end a lease
                self._results.close_waiting(request, Finish(FinishKind.LENGTH, length=0))
            elif spec.constraint is None:
                self.waiting.add(request)
            elif (attached := self._constraints.attach(request)) is not False:
                self._wait_or_close(request, None if attached is True else attached)

    def _media_of(self, placed: tuple[PlacedMedia, ...], prompt_len: int) -> RequestMedia:
        assert self._towers is not None, "media were sent to a model that takes none"
        return self._towers.of_request(placed, prompt_len)

    def _tail(self, message: Admit) -> Tail:
        assert self._tokenizer is not None, "a prompt is healed without a tokenizer"
        table = self._tokenizer.token_bytes_table(self._model.vocab_size)
        return Tail(message.tail, table, message.spec.params.max_new_tokens)

    def _wait_or_close(self, request: Request, refused: Finish | None) -> None:
        if refused is None:
            self.waiting.add(request)
        else:
            self._results.close_waiting(request, refused)

    def _too_large(self, request: Request) -> str:
        """Why it may need more memory than there is; empty: it does not."""
        total = self.cache.total_tokens
        parts = memory_of_parts(request.groups, self.cache.page_size, self.cache.copies) if request.groups else 0
        if request.limit + parts <= total:
            return ""
        asked = f"{request.prompt_len} prompt and {request.remaining} new tokens"
        beside = f", and {parts} for its contexts," if parts else ""
        return f"{asked}{beside} do not fit the {total} tokens of the KV pool"

    def _refusal(self, spec: RequestSpec, has_contexts: bool) -> tuple[str, str]:
        """The field that this model cannot serve, and why; empty: it can be served."""
        if has_contexts and (why := no_contexts(self._model)):
            place, fact = "contexts", why
        elif spec.processor is not None:
            place = "custom_logit_processor"
            fact = self._loaded.refusal(spec.processor, spec.params.custom_params or {})
        elif spec.lora is not None and spec.lora.generation not in self.running.adapters:
            place, fact = "lora_path", f"is {shown(spec.lora.name)}, which is not loaded"
        else:
            return "", ""
        return (place, fact) if fact else ("", "")


def _no_text(token: int) -> None:
    """What a token adds to a text where no text is known."""


def _spelled(tokenizer: Tokenizer, token: int) -> bytes | None:
    """Media have no text."""
    return None if token < 0 else tokenizer.token_bytes(token)


def _overlaps(args: Args, runner: LoadedRunner) -> bool:
    """--overlap; auto is on where steps run by themselves once they were launched."""
    return args.execute.overlap == "on" or (args.execute.overlap == "auto" and runner.asynchronous)
