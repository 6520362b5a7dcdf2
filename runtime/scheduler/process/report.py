"""What the scheduler reports of itself: log lines, Stats for the metrics, the live state. Decides nothing.

Knows every part read-only. Of steps with prefill, and of those without, it says a line at most every LINE_INTERVAL_S,
which sums what came since the last of its kind. It sends Stats at most once a second and when it becomes idle.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import asdict

from ramet.ipc.channel import Outbox
from ramet.ipc.stats import STEP_BOUNDS, Stats
from ramet.runtime import log
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.features.composed import SchedulerFeatures
from ramet.runtime.scheduler.features.prefix_leases import NOTHING_HELD
from ramet.runtime.scheduler.policy import WINDOW
from ramet.runtime.scheduler.process.invariants import owned_tokens
from ramet.runtime.scheduler.step import Step, StepTimes

DECODE_INTERVAL = 40  # steps between two lines of decode steps, at least
LINE_INTERVAL_S = 5.0
STATS_INTERVAL_S = 1.0


@dataclass(slots=True)
class PrefillLine:
    """When the last one was said, and what steps with prefill computed since then."""

    said_s: float = -math.inf
    cached: int = 0  # tokens that had been found in the cache when it was said
    sequences: int = 0
    tokens: int = 0


@dataclass(slots=True)
class DecodeLine:
    """When the last one was said, and how long something has run since then, up to `from_s` and after it."""

    said_s: float = -math.inf
    steps: int = 0  # when it was said
    generated: int = 0  # tokens, when it was said
    from_s: float | None = None  # None: nothing runs
    busy_s: float = 0.0


class Reporter:
    """Counts what steps do (`count` listens to them), and says so when it is time to."""

    def __init__(self, server: Outbox, clock: Callable[[], float], core: Core, features: SchedulerFeatures) -> None:
        self._server, self._clock, self._core, self._features = server, clock, core, features
        self.steps = 0
        self.prefill_tokens = 0  # prompt tokens computed
        self.step_sizes = [0] * (len(STEP_BOUNDS) + 1)  # steps by the tokens that they computed
        self.step_tokens = 0
        self.prefill_s = 0.0  # of the steps that computed them
        self.phase_seconds = {"plan": 0.0, "forward": 0.0, "sample": 0.0, "results": 0.0}
        self._sent_s = 0.0
        self._sent_generated = 0
        self._sent_idle = False
        self._sent_paused = ""
        self._sent_used = 0
        self._rate = 0.0  # generated tokens per second over the last interval
        self._prefill_line, self._decode_line = PrefillLine(), DecodeLine()

    @property
    def num_running(self) -> int:
        return len(self._core.running)

    @property
    def num_waiting(self) -> int:
        return len(self._core.waiting)

    def count(self, step: Step, result: StepResult, times: StepTimes) -> None:
        """Account for one applied step."""
        num_prefill = step.num_prefill_tokens
        num_computed = num_prefill + len(step.uids) - len(step.prefills)
        self.steps += 1
        self.prefill_tokens += num_prefill
        self.step_sizes[bisect_left(STEP_BOUNDS, num_computed)] += 1
        self.step_tokens += num_computed
        self.phase_seconds["plan"] += times.plan_s
        self.phase_seconds["forward"] += result.phases.get("forward", times.run_s)
        self.phase_seconds["sample"] += result.phases.get("sample", 0.0)
        self.phase_seconds["results"] += times.apply_s
        if num_prefill:
            self.prefill_s += times.run_s
        self._log(step, num_prefill, times.begun_s)

    def send(self, idle: bool) -> None:
        """Send Stats if it is time to, or if there is news of being idle or paused."""
        now, used, paused = self._clock(), self._used(), self._core.pausing.why_no_steps
        if (idle or paused) and (from_s := self._decode_line.from_s) is not None:
            self._decode_line.busy_s += now - from_s
            self._decode_line.from_s = None
        is_news = idle != self._sent_idle or paused != self._sent_paused
        is_news = is_news or (idle and used != self._sent_used)  # a client's lease has ended
        if now - self._sent_s < STATS_INTERVAL_S and not is_news:
            return
        self._sent_used, self._sent_paused = used, paused
        passed, new = now - self._sent_s, self._core.results.news.generated_tokens - self._sent_generated
        # a window that begins or ends idle says nothing of how fast tokens come
        self._rate = 0.0 if idle or self._sent_idle or paused or self._sent_paused or passed <= 0 else new / passed
        self._sent_s, self._sent_generated, self._sent_idle = now, self._core.results.news.generated_tokens, idle
        self._server.send(self.stats())

    def stats(self) -> Stats:
        """Every counter as it is now."""
        paused = self._core.pausing.why_no_steps
        cache, results = self._core.cache, self._core.results
        leases, towers = self._features.leases, self._features.towers
        held = leases.held() if leases.claimed else NOTHING_HELD
        first = self._core.waiting.first(WINDOW)
        return Stats(
            prefill_tokens=self.prefill_tokens,
            retractions=self._core.running.num_retractions,
            evicted_tokens=cache.evicted_tokens,
            steps=self.steps,
            discarded_tokens=results.discarded_tokens,
            forced_tokens=self._features.late.constrained.forced_tokens,
            tower_tokens=towers.num_tokens if towers else 0,
            found_media=towers.num_found if towers else 0,
            media_cache_bytes=towers.source.num_bytes if towers else 0,
            running_requests=len(self._core.running),
            waiting_requests=len(self._core.waiting),
            used_tokens=self._used(),
            total_tokens=cache.total_tokens,
            evictable_tokens=cache.tree.evictable_tokens,
            last_gen_throughput=self._rate,
            waiting_by_reason=self._core.why.counts(self._core.waiting),
            step_sizes=tuple(self.step_sizes),
            step_tokens=self.step_tokens,
            paused_requests=len(self._core.running) + len(self._core.waiting) if paused else 0,
            paused=paused,
            waiting_tokens=self._core.waiting.num_tokens,
            waiting_uncached_tokens=self._core.waiting.num_tokens - sum(each.match.length for each in first),
            prefill_left_tokens=sum(each.target - each.scheduled for each in self._core.running if each.prefilling),
            retracted_requests=sum(each.num_retractions > 0 for each in first),
            compiling_requests=sum(map(len, self._features.constraints.compiling.values())),
            constraint_bytes=self._features.constraints.num_bytes if self._features.constraints.is_used else 0,
            adapters_in_slots=len(self._features.adapters.taken),
            prefill_seconds=self.prefill_s,
            generated_tokens=results.news.generated_tokens,
            finished_requests=results.finished_requests,
            cached_tokens=results.cached_tokens,
            leased_tokens=cache.tree.locked_tokens - held.num_tokens,
            prefix_leases=held.num,
            prefix_lease_tokens=held.num_tokens,
            prefix_lease_limit=leases.ledger.max_tokens,
            revoked_prefix_leases=leases.num_revoked,
            next_prefix_lease_end_s=held.next_end_s,
            owned_tokens=owned_tokens(self._core.running, self._features.parts),
            penalty_slots=self._features.penalties.slots.num_taken,
            cached_tokens_in_tree=cache.tree_tokens,
            free_tokens=cache.free_tokens,
            lookups=cache.tree.clock,
            phase_seconds=dict(self.phase_seconds),
        )

    def state(self) -> dict[str, object]:
        """What /get_server_info shows of the live scheduler."""
        stats = self.stats()
        by_reason = dict(stats.waiting_by_reason)
        return {**asdict(stats), "waiting_by_reason": by_reason}

    def _log(self, step: Step, num_prefill: int, begun_s: float) -> None:
        now, prefill, decode = self._clock(), self._prefill_line, self._decode_line
        generated, cached = self._core.results.news.generated_tokens, self._core.results.cached_tokens
        if decode.from_s is None:
            decode.from_s = begun_s
        if num_prefill:
            prefill.sequences += len(step.prefills)
            prefill.tokens += num_prefill
            if now - prefill.said_s >= LINE_INTERVAL_S:
                log.LOGGER.info(self._line("Prefill", prefill.sequences, prefill.tokens, cached - prefill.cached))
                self._prefill_line = PrefillLine(now, cached)
        elif self.steps - decode.steps >= DECODE_INTERVAL and now - decode.said_s >= LINE_INTERVAL_S:
            new, busy_s = generated - decode.generated, decode.busy_s + now - decode.from_s
            rate = new / busy_s if busy_s else 0.0
            log.LOGGER.info(self._line("Decode", len(step.uids), new, tokens_per_s=rate))
            self._decode_line = DecodeLine(now, self.steps, generated, now)

    def _line(
        self, kind: str, num_sequences: int, new_tokens: int, cached: int = 0, tokens_per_s: float | None = None
    ) -> str:
        core = self._core
        return log.step_line(
            kind,
            log.SchedulerLoad(len(core.running), len(core.waiting), self._used(), core.cache.total_tokens),
            num_sequences=num_sequences,
            new_tokens=new_tokens,
            cached_tokens=cached,
            tokens_per_s=tokens_per_s,
        )

    def _used(self) -> int:
        """Slots that cannot be taken: leased or owned by running requests, or held by clients."""
        return self._core.cache.total_tokens - self._core.cache.available_tokens
