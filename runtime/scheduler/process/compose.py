"""The composition of the scheduler: the core, the features beside it, and who gets which message."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ramet.ipc.channel import Outbox
from ramet.ipc.control import GetState, LocateSequences
from ramet.ipc.messages import ModelFacts
from ramet.runtime.cache.prefix import PageAllocator, PrefixCache, RowAllocator
from ramet.runtime.cache.prefix_list import make_cache
from ramet.runtime.cache.stateful import StatefulCache
from ramet.runtime.config import Args
from ramet.runtime.engine.batch import LoadedRunner
from ramet.runtime.grammar.compile import GrammarSource
from ramet.runtime.scheduler.aborts import Aborts
from ramet.runtime.scheduler.admission import Admission
from ramet.runtime.scheduler.arrivals import Inbox
from ramet.runtime.scheduler.batch import BatchPlanner
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.deferred import DeferredFrees
from ramet.runtime.scheduler.enqueue import Enqueuer
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.features import requests
from ramet.runtime.scheduler.features.adapters import Adapters, AdapterSlots
from ramet.runtime.scheduler.features.answers import StepAnswers
from ramet.runtime.scheduler.features.assembler import Assembler
from ramet.runtime.scheduler.features.background import Background
from ramet.runtime.scheduler.features.beside_tokens import BesideTokens
from ramet.runtime.scheduler.features.composed import SchedulerFeatures
from ramet.runtime.scheduler.features.constraints import Constraints
from ramet.runtime.scheduler.features.context_requests import ParallelContexts
from ramet.runtime.scheduler.features.follow_ups import FollowUps
from ramet.runtime.scheduler.features.held_rows import HeldRows
from ramet.runtime.scheduler.features.late_tokens import LateTokens
from ramet.runtime.scheduler.features.lifecycle import Lifecycle
from ramet.runtime.scheduler.features.masks import MaskThread
from ramet.runtime.scheduler.features.media import Towers
from ramet.runtime.scheduler.features.media_rows import WholePieces
from ramet.runtime.scheduler.features.media_turns import TowerTurns
from ramet.runtime.scheduler.features.occupation import MemoryOccupation
from ramet.runtime.scheduler.features.outgrown_rows import OutgrownRows
from ramet.runtime.scheduler.features.pace import Pace, chunk_of, pace_of
from ramet.runtime.scheduler.features.parts import Parts
from ramet.runtime.scheduler.features.penalties import PenaltySlots
from ramet.runtime.scheduler.features.planned import planned_by_bit
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.features.programs import ProgramRequests
from ramet.runtime.scheduler.features.returned import ReturnBudget
from ramet.runtime.scheduler.features.rewriting import RewrittenRows
from ramet.runtime.scheduler.features.routes import ReturnedRoutes
from ramet.runtime.scheduler.features.row_features import OF_ROWS
from ramet.runtime.scheduler.features.states import StatefulMemory, StatefulPrefixes
from ramet.runtime.scheduler.features.unsound import UnsoundPrefixes
from ramet.runtime.scheduler.features.weights import WeightUpdates
from ramet.runtime.scheduler.loop import Scheduler
from ramet.runtime.scheduler.memory import RowMemory
from ramet.runtime.scheduler.news import News
from ramet.runtime.scheduler.pausing import Pausing
from ramet.runtime.scheduler.planning import StepPlanner
from ramet.runtime.scheduler.policy import Policy
from ramet.runtime.scheduler.process.invariants import check
from ramet.runtime.scheduler.process.report import Reporter
from ramet.runtime.scheduler.process.view import LiveView
from ramet.runtime.scheduler.queue import WaitingQueue
from ramet.runtime.scheduler.receiving import MessageReceiver
from ramet.runtime.scheduler.request_feature import RequestFeature
from ramet.runtime.scheduler.results import BesideResults, Results
from ramet.runtime.scheduler.retraction import Retraction
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RowTable
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.step_runner import StepRunner
from ramet.runtime.scheduler.stopping import Stopping
from ramet.runtime.scheduler.unpublished import UnpublishedPrefixes
from ramet.runtime.scheduler.wait_reasons import WaitReasons
from ramet.runtime.text.tokenizer import Tokenizer

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class SchedulerChannels:
    """Where messages come from and go to. `wake` sends `Wake` to the inbox, for threads that read beside the loop."""

    inbox: Inbox
    detokenizer: Outbox
    server: Outbox
    wake: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Composition:
    """A scheduler, and the parts of it that others look at."""

    scheduler: Scheduler
    features: SchedulerFeatures
    reporter: Reporter
    steps: StepRunner


def compose(
    args: Args,
    runner: LoadedRunner,
    channels: SchedulerChannels,
    tokenizer: Tokenizer | None,
    eos_ids: frozenset[int],
    *,
    clock: Clock = time.monotonic,
    grammars: GrammarSource | None = None,
) -> Composition:
    """`eos_ids`: tokens that end an output. `grammars` None: no request may have a constraint."""
    facts, schedule = runner.facts, args.schedule
    memory = _memory_of(args, facts)
    cache, states = memory.cache, memory.states if isinstance(memory, StatefulMemory) else None
    leases = PrefixLeases(cache, clock, args.cache.max_prefix_lease_s, partial(_spelled, tokenizer), args.share_per_key)
    follow_ups = FollowUps(cache, clock)

    def give_way(alone: bool) -> bool:
        return bool(follow_ups.kept and follow_ups.give_way()) or (alone and leases.give_way())

    running = RunningSet(memory, RowAllocator(facts.max_running_requests), give_way)
    parts, rewritten = Parts(running), RewrittenRows(running, states)
    prompt_is_seen = schedule.repetition_penalty_scope == "all"
    penalties = PenaltySlots(RowAllocator(args.max_penalised), running.table, prompt_is_seen)
    stopping, news, unsound = Stopping(tokenizer, eos_ids), News(), UnsoundPrefixes(running, parts, leases)
    beside = BesideTokens(news)
    late = LateTokens(running, rewritten, stopping, beside, args.grammar.grammar_output_s, clock)
    slots = AdapterSlots(args.adapters.max_loras_per_batch)
    running.beside.add(penalties, slots, parts, *OF_ROWS)
    results = Results(running, stopping, news, BesideResults(
        StepAnswers(running, late, unsound, beside, runner.pooler), late,
        Lifecycle(parts, leases, follow_ups, late, unsound, ReturnedRoutes(runner.routes), beside),
        () if states is None else (states.apply,),
    ), channels.detokenizer, clock)  # fmt: skip
    waiting = WaitingQueue(cache)
    retraction = Retraction(running, results.fail)
    core = Core(cache, waiting, running, retraction, results, Pausing(running, waiting), WaitReasons())
    towers = None if runner.media is None else Towers(runner.media, args.media.max_vision_tokens_per_step, clock)
    constraints = Constraints(args, grammars, tokenizer, eos_ids)
    features = SchedulerFeatures(leases, follow_ups, constraints, late, parts, penalties, slots, towers)
    steps = StepRunner(runner, MaskThread(running, facts.vocab_size), results, clock)
    core.pausing.apply_in_flight = steps.apply_in_flight
    background, bound = Background(channels.wake), pace_of(schedule, runner.cost, clock)
    of_turns: list[TurnFeature] = [leases, follow_ups, constraints, background, late.slow, HeldRows(core, late, steps)]
    of_turns += [unsound, late.constrained.aside, Assembler(parts, running, retraction, results.open)]
    if facts.longrope_limit is not None:
        of_turns.append(OutgrownRows(running))
    if towers is not None:
        of_turns.append(TowerTurns(core, towers, bound, steps))
    planner = _planner_of(args, runner, core, of_turns, follow_ups, bound, clock)
    reporter = Reporter(channels.server, clock, core, features)
    steps.listeners += [planner.after_step, reporter.count]
    of_requests = _of_requests(runner, features, core, tokenizer)
    enqueuer = Enqueuer(core, of_requests, requests.MARKS, schedule.random_seed or 0, clock)
    constraints.compiled_for = enqueuer.wait_or_close
    control = ControlHandler(channels.server, clock, partial(_flush, cache, of_turns))
    receiver = MessageReceiver(channels.inbox, core, enqueuer, control, of_turns, Aborts(core, of_turns), clock)
    receiver.program_ended = follow_ups.end
    overlapped = args.execute.overlap == "on" or (args.execute.overlap == "auto" and runner.asynchronous)
    scheduler = Scheduler(core, of_turns, receiver, planner, steps, reporter.send, overlapped=overlapped)
    scheduler.check, scheduler.checks_turns = partial(check, scheduler, features), args.execute.check_invariants
    control.on(GetState, lambda message: control.reply(message.call, reporter.state()))
    control.on(
        LocateSequences,
        lambda message: control.reply(message.call, {"sequences": [scheduler.where(uid) for uid in message.uids]}),
    )
    WeightUpdates(runner.weights, core, leases, background, steps, control, channels.detokenizer)
    MemoryOccupation(runner.memory, core, background, steps, control)
    LiveView(core, features, clock).register(control)
    Adapters(args, slots, runner.adapters).register(control, background)
    core.pausing.register(control)
    return Composition(scheduler, features, reporter, steps)


def _memory_of(args: Args, facts: ModelFacts) -> RowMemory:
    """The cache and the rows, and what is kept in them."""
    page, is_enabled = args.cache.page_size, not args.cache.disable_radix_cache
    table = RowTable(facts.max_running_requests, min(facts.context_length, facts.max_total_tokens), page)
    pages = PageAllocator(facts.max_total_tokens // page, page)
    if facts.num_snapshots is None:
        cache = make_cache(args.cache.prefix_cache, pages, is_enabled)
        return RowMemory(cache, table, DeferredFrees(cache))
    stateful = StatefulCache(pages, is_enabled, facts.num_snapshots, first_place=facts.max_running_requests + 1)
    return StatefulMemory(stateful, table, DeferredFrees(stateful))


def _planner_of(
    args: Args, runner: LoadedRunner, core: Core, of_turns: Sequence[TurnFeature], follow_ups: FollowUps,
    bound: Pace | None, clock: Clock,
) -> StepPlanner:  # fmt: skip
    schedule, running, page = args.schedule, core.running, args.cache.page_size
    policy = Policy(schedule.schedule_policy, core.cache, schedule.max_wait_s, schedule.random_seed or 0)
    unpublished, states = UnpublishedPrefixes(page), None
    if isinstance(running.memory, StatefulMemory):
        states = running.memory.states
        unpublished = StatefulPrefixes(running.memory, lambda: running.prefilling)
    admission = Admission(running, unpublished, policy, of_turns, follow_ups.kept, schedule.schedule_conservativeness)
    limits = (
        (RowFlag.LOGPROBS | RowFlag.HIDDEN, partial(ReturnBudget, runner.facts.hidden_size)),
        (RowFlag.MEDIA, WholePieces),
    )
    batches = BatchPlanner(running, core.results.eos_ids, planned_by_bit(states))
    return StepPlanner(
        core, policy, admission, batches, chunk=chunk_of(schedule, runner.cost), limits=limits, bound=bound, clock=clock
    )


def _flush(cache: PrefixCache, features: Sequence[TurnFeature]) -> None:
    """Forget every cached prefix that no running request leases, those that clients hold as well. Their memory is
    freed by this turn and, where they are many, by those behind it.
    """
    for feature in features:
        feature.flush()
    cache.drop_unleased()


def _of_requests(
    runner: LoadedRunner, features: SchedulerFeatures, core: Core, tokenizer: Tokenizer | None
) -> Sequence[RequestFeature]:
    """What requests may ask: those that only note what came, then those that may refuse, then those that keep it."""
    asked: list[RequestFeature] = [requests.InputEmbeddings(), requests.PenalisedRequests(features.penalties)]
    asked += [requests.BiasedRequests(), requests.LogprobRequests(), requests.HiddenStateRequests()]
    asked.append(ProgramRequests(features.follow_ups))
    if runner.facts.longrope_limit is not None:
        asked.append(requests.LongRopeLimit(runner.facts.longrope_limit))
    asked += [requests.MediaRequests(features.towers), requests.HealedPrompts(tokenizer, runner.facts.vocab_size)]
    asked += [ParallelContexts(runner, core.cache), requests.Processors(runner)]
    asked += [requests.AdapterRequests(core.running, features.adapters), requests.LeaseRequests(features.leases)]
    return [*asked, requests.ConstrainedRequests(features.constraints)]


def _spelled(tokenizer: Tokenizer | None, token: int) -> bytes | None:
    """What a token adds to a text. Media have none, and without a tokenizer no text is known."""
    return None if token < 0 or tokenizer is None else tokenizer.token_bytes(token)
