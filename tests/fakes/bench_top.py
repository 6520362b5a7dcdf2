"""A scheduler on a table: real parts, a hash for a model, memory for sockets, and what came out by uid."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from delayed_runner import DelayedRunner
from hash_runner import HashRunner
from manual_clock import ManualClock

from ramet.ipc.channel import MemoryChannel
from ramet.ipc.content import Content
from ramet.ipc.control import Control, ControlReply
from ramet.ipc.media import PlacedMedia
from ramet.ipc.messages import (
    Abort,
    Contexts,
    Finish,
    Generate,
    Opened,
    ToDetokenizer,
    TokenStep,
    ToScheduler,
    ToServer,
    Wake,
    pack_ids,
    unpack_ids,
)
from ramet.ipc.spec import RequestSpec
from ramet.ipc.times import SequenceTimes
from ramet.runtime.config import make_args
from ramet.runtime.grammar.compile import GrammarSource
from ramet.runtime.replies.logprobs import HiddenLists, LogprobLists
from ramet.runtime.scheduler.process.compose import SchedulerChannels, compose
from ramet.runtime.scheduler.process.invariants import check_locks, check_owners, check_wanted
from ramet.runtime.text.healing import take_tail
from ramet.runtime.text.tokenizer import Tokenizer
from tests.fakes.specs import make_spec


class BenchTop:
    def __init__(
        self,
        *,
        total: int = 4096,
        rows: int = 64,
        context: int = 512,
        deep_checks: bool = True,
        eos_ids: Iterable[int] = (),
        tokenizer: Tokenizer | None = None,
        grammars: GrammarSource | None = None,
        runners: tuple[Callable[..., Any], Callable[..., Any]] = (HashRunner, DelayedRunner),
        **options: Any,
    ) -> None:
        page = options.get("page_size", 1)
        self.clock = ManualClock()
        self.runner = runners[options.get("overlap") == "on"](total, rows, context, page)
        if grammars is not None:  # their masks are over the tokenizer's whole vocabulary
            assert tokenizer is not None
            if self.runner.facts.vocab_size != tokenizer.vocab_size:
                self.runner.vocab_size = tokenizer.vocab_size
        self.inbox: MemoryChannel[Any] = MemoryChannel(ToScheduler)
        self.steps: MemoryChannel[Any] = MemoryChannel(ToDetokenizer)
        self.server: MemoryChannel[Any] = MemoryChannel(ToServer)
        args = make_args(**{"check_invariants": True, "random_seed": 0, **options})
        channels = SchedulerChannels(self.inbox, self.steps, self.server, wake=lambda: self.inbox.send(Wake()))
        composed = compose(
            args, self.runner, channels, tokenizer, frozenset(eos_ids), clock=self.clock, grammars=grammars
        )
        self.scheduler, self.features, self.reporter = composed.scheduler, composed.features, composed.reporter
        self.listeners = composed.steps.listeners
        self.deep_checks, self._tokenizer = deep_checks, tokenizer
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.specs: dict[int, RequestSpec] = {}
        self.opened: dict[int, Opened] = {}
        self.scores: dict[int, LogprobLists] = {}  # of those that asked for log-probabilities
        self.hidden: dict[int, HiddenLists] = {}  # of those that asked for hidden states
        self.routes: dict[int, bytes] = {}  # of those that asked for experts, when they have ended
        self.finish: dict[int, Finish] = {}
        self.finish_order: list[int] = []
        self.times: dict[int, SequenceTimes] = {}  # when they have ended
        self.replies: list[ControlReply] = []
        self.told: list[TokenStep] = []  # every message to the detokenizer, in order

    def add(
        self,
        uid: int,
        prompt: list[int],
        num_new: int,
        *,
        n: int = 1,
        contexts: Contexts = (),
        traced: bool = False,
        media: tuple[PlacedMedia, ...] = (),
        **more: Any,
    ) -> None:
        """Request `uid` (and uid + 1, ... when n > 1) arrives now."""
        spec = make_spec(**{"max_new_tokens": num_new, "temperature": 0.0, "n": n, **more})
        uids, tail = list(range(uid, uid + n)), b""
        self.specs.update(dict.fromkeys(uids, spec))
        if spec.token_healing:
            assert self._tokenizer is not None
            prompt, tail = take_tail(self._tokenizer, prompt, self.runner.facts.vocab_size, num_new)
            self.runner.heals = True
        given = {"arrival_s": self.clock(), "tail": tail, "traced": traced, "media": media}
        self.inbox.send(Generate(uids, spec, Content(ids=pack_ids(prompt), contexts=contexts), **given))

    @property
    def reserve_ratio(self) -> float:
        """The share of its remaining output that is reserved for each running request now."""
        return self.scheduler.planner.admission.ratio.value

    def abort(self, *uids: int) -> None:
        self.inbox.send(Abort(list(uids)))

    def control(self, kind: type[Control], **more: Any) -> None:
        self.inbox.send(kind(len(self.replies) + 1, **more))

    def turn(self) -> None:
        if self.scheduler.waits_for_kept and self.inbox.is_empty:
            kept_s = self.features.follow_ups.wait_s(is_awaited=True)  # its inbox waits for so long
            self.clock.advance(kept_s or 0.0)
        self.scheduler.receive(block=False)
        self.scheduler.turn()
        if self.deep_checks:
            check_owners(self.scheduler.cache, self.scheduler.running, self.features.parts)
            check_locks(self.scheduler.cache, self.scheduler.running, self.features.parts, self.scheduler.kept)
            check_wanted(self.scheduler.cache, self.scheduler.waiting)
            self._check_in_flight()
        for step in self.steps.drain():
            self.told.append(step)
            for opened in step.opened:
                assert opened.uid not in self.opened, f"{opened.uid} opened twice"
                self.opened[opened.uid] = opened
                spec = self.specs[opened.uid]
                if spec.logprobs is not None:
                    self.scores[opened.uid] = LogprobLists(spec.logprobs, opened.chosen_texts)
                if spec.hidden is not None:
                    self.hidden[opened.uid] = HiddenLists(spec.hidden, opened.prompt_tokens)
            for uid, token in zip(step.uids, unpack_ids(step.tokens), strict=True):
                assert uid in self.opened and uid not in self.finish, f"a token for {uid} out of its life"
                self.tokens[uid].append(token)
            for scores in step.logprobs:
                assert scores.uid in self.opened and scores.uid not in self.finish, f"scores for {scores.uid}"
                self.scores[scores.uid].add(scores)
            for states in step.hidden:
                assert states.uid in self.opened and states.uid not in self.finish, f"states for {states.uid}"
                self.hidden[states.uid].add(states)
            for closed in step.closed:
                assert closed.uid in self.opened and closed.uid not in self.finish, f"{closed.uid} closed out of turn"
                self.finish[closed.uid], self.times[closed.uid] = closed.finish, closed.times
                if self.specs[closed.uid].expert_routes is not None:
                    self.routes[closed.uid] = closed.routes
                self.finish_order.append(closed.uid)
        self.replies += [m for m in self.server.drain() if isinstance(m, ControlReply)]

    def _check_in_flight(self) -> None:
        """Nobody can be given a slot that a launched step reads or writes."""
        if isinstance(self.runner, DelayedRunner):
            table, taken = self.scheduler.running.table, self.scheduler.cache._pages._taken
            for late in self.runner.in_flight:
                for row, length in zip(late.batch.rows, late.batch.seq_lens, strict=True):
                    assert taken[table.slots[row, :length] // self.runner.page_size].all(), f"row {row} lost a slot"

    def run(self, most: int = 100_000) -> int:
        """Turns until nothing is left; returns how many."""
        for turns in range(1, most + 1):
            self.turn()
            if self.scheduler.idle:
                return turns
        raise AssertionError(f"not idle after {most} turns")
