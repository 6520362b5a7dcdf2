"""The composition of the scheduler: its parts, the features beside them, and who gets which message."""

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
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.enqueue import Enqueuer
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.features import requests
from ramet.runtime.scheduler.features.adapters import Adapters, AdapterSlots
from ramet.runtime.scheduler.features.answers import StepAnswers
from ramet.runtime.scheduler.features.assembler import Assembler
from ramet.runtime.scheduler.features.background import Background
from ramet.runtime.scheduler.features.composed import SchedulerFeatures
from ramet.runtime.scheduler.features.constraints import Constraints
from ramet.runtime.scheduler.features.context_requests import ParallelContexts
from ramet.runtime.scheduler.features.follow_ups import FollowUps
from ramet.runtime.scheduler.features.held_rows import HeldRows
from ramet.runtime.scheduler.features.late_tokens import LateTokens
from ramet.runtime.scheduler.features.lifecycle import Lifecycle
from ramet.runtime.scheduler.features.masks import MaskThread
from ramet.runtime.scheduler.features.media import Towers
from ramet.runtime.scheduler.features.media_turns import TowerTurns
from ramet.runtime.scheduler.features.occupation import MemoryOccupation
from ramet.runtime.scheduler.features.outgrown_rows import OutgrownRows
from ramet.runtime.scheduler.features.pace import chunk_of, pace_of
from ramet.runtime.scheduler.features.penalties import PenaltySlots
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.features.programs import ProgramRequests
from ramet.runtime.scheduler.features.routes import ReturnedRoutes
from ramet.runtime.scheduler.features.row_features import RowFeatures
from ramet.runtime.scheduler.features.states import RowStates
from ramet.runtime.scheduler.features.unsound import UnsoundPrefixes
from ramet.runtime.scheduler.features.weights import WeightUpdates
from ramet.runtime.scheduler.loop import Scheduler
from ramet.runtime.scheduler.news import News
from ramet.runtime.scheduler.pausing import Pausing
from ramet.runtime.scheduler.planning import StepPlanner
from ramet.runtime.scheduler.policy import Policy
from ramet.runtime.scheduler.process.report import Reporter
from ramet.runtime.scheduler.process.view import LiveView
from ramet.runtime.scheduler.queue import WaitingQueue
from ramet.runtime.scheduler.receiving import MessageReceiver
from ramet.runtime.scheduler.request_feature import RequestFeature
from ramet.runtime.scheduler.results import ResultFeatures, Results
from ramet.runtime.scheduler.retraction import Retraction
from ramet.runtime.scheduler.rows import RowTable
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.scheduler.steps import StepRunner
from ramet.runtime.scheduler.stopping import Stopping
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
    facts, seed = runner.facts, args.schedule.random_seed or 0
    max_running, total = facts.max_running_requests, facts.max_total_tokens
    table = RowTable(max_running, min(facts.context_length, total), args.cache.page_size)
    cache, states = _cache_of(args, facts, table)
    leases = PrefixLeases(cache, clock, args.cache.max_prefix_lease_s, partial(_spelled, tokenizer), args.share_per_key)
    follow_ups = FollowUps(cache, clock)

    def give_way(alone: bool) -> bool:
        return bool(follow_ups.kept and follow_ups.give_way()) or (alone and leases.give_way())

    prompt_is_seen = args.schedule.repetition_penalty_scope == "all"
    penalties = PenaltySlots(RowAllocator(args.max_penalised), table, prompt_is_seen)
    of_rows = RowFeatures(penalties, AdapterSlots(args.adapters.max_loras_per_batch), states)
    running = RunningSet(cache, RowAllocator(max_running), table, of_rows, give_way)
    stopping, news, unsound = Stopping(tokenizer, eos_ids), News(), UnsoundPrefixes(running, leases)
    late = LateTokens(running, stopping, news, args.grammar.grammar_output_s, clock)
    beyond = ResultFeatures(
        StepAnswers(running, late, unsound, news, runner.pooler), late,
        Lifecycle(running, leases, follow_ups, late, unsound, ReturnedRoutes(runner.routes), news),
    )  # fmt: skip
    results = Results(running, stopping, news, beyond, channels.detokenizer, clock)
    waiting = WaitingQueue(cache)
    retraction = Retraction(running, results.fail)
    core = Core(cache, waiting, running, retraction, results, Pausing(running, waiting), WaitReasons())
    towers = None if runner.media is None else Towers(runner.media, args.media.max_vision_tokens_per_step, clock)
    constraints = Constraints(args, grammars, tokenizer, eos_ids)
    adapters, background = Adapters(args, of_rows.adapters, runner.adapters), Background(channels.wake)
    bound = pace_of(args.schedule, runner.cost, clock)
    held, assembler = HeldRows(core, late), Assembler(cache, running, retraction, results.open)
    of_turns: list[TurnFeature] = [leases, follow_ups, constraints, background, late.slow, held, unsound]
    of_turns += [late.constrained.aside, assembler]
    if facts.boundary is not None:
        of_turns.append(OutgrownRows(running))
    if towers is not None:
        of_turns.append(TowerTurns(core, towers, bound))
    features = SchedulerFeatures(leases, follow_ups, constraints, late, towers, of_turns)
    policy = Policy(args.schedule.schedule_policy, cache, args.schedule.max_wait_s, seed)
    admission = Admission(cache, running, policy, follow_ups.kept, args.schedule.schedule_conservativeness)
    planner = StepPlanner(
        core, policy, admission, chunk=chunk_of(args.schedule, runner.cost), hidden_size=facts.hidden_size,
        bound=bound, features=of_turns, clock=clock,
    )  # fmt: skip
    reporter = Reporter(channels.server, clock, core, features)
    steps = StepRunner(runner, MaskThread(running, facts.vocab_size), results, clock)
    steps.listeners += [planner.after_step, reporter.count]
    held.steps, core.pausing.apply_in_flight = steps, steps.apply_in_flight
    for feature in of_turns:
        if isinstance(feature, TowerTurns):
            feature.steps = steps
    enqueuer = Enqueuer(core, _of_requests(runner, features, core, tokenizer), requests.MARKS, seed, clock)
    constraints.compiled_for = enqueuer.wait_or_close
    control = ControlHandler(channels.server, clock, partial(_flush, cache, of_turns))
    receiver = MessageReceiver(channels.inbox, core, enqueuer, control, of_turns, Aborts(core, of_turns), clock)
    receiver.program_ended = follow_ups.end
    overlapped = args.execute.overlap == "on" or (args.execute.overlap == "auto" and runner.asynchronous)
    checks = args.execute.check_invariants
    scheduler = Scheduler(core, features, receiver, planner, steps, reporter.send, overlapped=overlapped, checks=checks)
    control.on(GetState, lambda message: control.reply(message.call, reporter.state()))
    control.on(
        LocateSequences,
        lambda message: control.reply(message.call, {"sequences": [scheduler.where(uid) for uid in message.uids]}),
    )
    WeightUpdates(runner.weights, core, leases, background, steps, control)
    MemoryOccupation(runner.memory, core, background, steps, control)
    LiveView(core, features, clock).register(control)
    adapters.register(control, background)
    core.pausing.register(control)
    return Composition(scheduler, features, reporter, steps)


def _cache_of(args: Args, facts: ModelFacts, table: RowTable) -> tuple[PrefixCache, RowStates | None]:
    """The cache, and the states of rows if the model's layers have them."""
    page, is_enabled = args.cache.page_size, not args.cache.disable_radix_cache
    pages = PageAllocator(facts.max_total_tokens // page, page)
    if facts.num_snapshots is None:
        return make_cache(args.cache.prefix_cache, pages, is_enabled), None
    cache = StatefulCache(pages, is_enabled, facts.num_snapshots, first_place=facts.max_running_requests + 1)
    return cache, RowStates(cache, table)


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
    running = core.running
    asked: list[RequestFeature] = [requests.InputEmbeddings(), requests.PenalisedRequests(running)]
    asked += [requests.BiasedRequests(), requests.LogprobRequests(), requests.HiddenStateRequests()]
    asked.append(ProgramRequests(features.follow_ups))
    if runner.facts.boundary is not None:
        asked.append(requests.LongRopeLimit(runner.facts.boundary))
    asked += [requests.MediaRequests(features.towers), requests.HealedPrompts(tokenizer, runner.facts.vocab_size)]
    asked += [ParallelContexts(runner, core.cache), requests.Processors(runner)]
    asked += [requests.AdapterRequests(running), requests.LeaseRequests(features.leases)]
    return [*asked, requests.ConstrainedRequests(features.constraints)]


def _spelled(tokenizer: Tokenizer | None, token: int) -> bytes | None:
    """What a token adds to a text. Media have none, and without a tokenizer no text is known."""
    return None if token < 0 or tokenizer is None else tokenizer.token_bytes(token)
