"""What the scheduler reports of itself: log lines, Stats for the metrics, the live state. Decides nothing.

Knows every part read-only. Says a line for each step with prefill, one for every DECODE_INTERVAL steps without, and
sends Stats at most once a second and when it becomes idle.
"""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import asdict

from ramet.ipc.channel import Outbox
from ramet.ipc.stats import Stats
from ramet.runtime import log
from ramet.runtime.cache.prefix import PrefixCache
from ramet.runtime.engine.batch import StepResult
from ramet.runtime.scheduler.admission import WaitingQueue
from ramet.runtime.scheduler.batch import Step
from ramet.runtime.scheduler.prefix_leases import NOTHING_HELD, PrefixLeases
from ramet.runtime.scheduler.results import Results
from ramet.runtime.scheduler.running import RunningSet

DECODE_INTERVAL = 40  # steps
STATS_INTERVAL_S = 1.0


@dataclass(slots=True)
class StepTimes:
    """Of one step. Times are the scheduler's clock's, in seconds."""

    begun_s: float  # of its planning
    plan_s: float  # and handing it to the device
    run_s: float  # for which its result was waited for, or it was computed
    apply_s: float


StepListener = Callable[[Step, StepResult, StepTimes], None]


class Reporter:
    """`listeners` are called after each step that was applied."""

    def __init__(
        self,
        server: Outbox,
        clock: Callable[[], float],
        cache: PrefixCache,
        running: RunningSet,
        leases: PrefixLeases,
        waiting: WaitingQueue,
        results: Results,
    ) -> None:
        self._server, self._clock = server, clock
        self._cache, self._running, self._leases = cache, running, leases
        self._waiting, self._results = waiting, results
        self.listeners: list[StepListener] = []
        self.steps = 0
        self.prefill_tokens = 0  # prompt tokens computed
        self.phase_seconds = {"plan": 0.0, "forward": 0.0, "sample": 0.0, "results": 0.0}
        self._sent_s = 0.0
        self._sent_generated = self._logged_cached = 0
        self._sent_idle = False
        self._sent_used = 0
        self._rate = 0.0  # generated tokens per second over the last interval

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def count(self, step: Step, result: StepResult, times: StepTimes) -> None:
        """Account for one applied step."""
        self.steps += 1
        self.prefill_tokens += step.num_prefill_tokens
        self.phase_seconds["plan"] += times.plan_s
        self.phase_seconds["forward"] += result.phases.get("forward", times.run_s)
        self.phase_seconds["sample"] += result.phases.get("sample", 0.0)
        self.phase_seconds["results"] += times.apply_s
        for listener in self.listeners:
            listener(step, result, times)
        if step.num_prefill_tokens:
            log.LOGGER.info(self._line("Prefill", len(step.prefills), step.num_prefill_tokens, None))
        elif self.steps % DECODE_INTERVAL == 0:
            log.LOGGER.info(self._line("Decode", step.num_rows, step.num_rows, self._rate))

    def send(self, idle: bool) -> None:
        """Send Stats if it is time to, or if there is news of being idle."""
        now, used = self._clock(), self._used()
        is_news = idle != self._sent_idle or (idle and used != self._sent_used)  # a client's lease has ended
        if now - self._sent_s < STATS_INTERVAL_S and not is_news:
            return
        self._sent_used = used
        passed, new = now - self._sent_s, self._results.generated_tokens - self._sent_generated
        # a window that begins or ends idle says nothing of how fast tokens come
        self._rate = 0.0 if idle or self._sent_idle or passed <= 0 else new / passed
        self._sent_s, self._sent_generated, self._sent_idle = now, self._results.generated_tokens, idle
        self._server.send(self.stats())

    def stats(self) -> Stats:
        """Every counter as it is now."""
        cache, results, leases = self._cache, self._results, self._leases
        held = leases.held() if leases.claimed else NOTHING_HELD
        return Stats(
            prefill_tokens=self.prefill_tokens,
            retractions=self._running.num_retractions,
            evicted_tokens=cache.evicted_tokens,
            steps=self.steps,
            discarded_tokens=results.discarded_tokens,
            forced_tokens=results.constrained.forced_tokens,
            running_requests=len(self._running),
            waiting_requests=len(self._waiting),
            used_tokens=self._used(),
            total_tokens=cache.total_tokens,
            evictable_tokens=cache.tree.evictable_tokens,
            last_gen_throughput=self._rate,
            generated_tokens=results.generated_tokens,
            finished_requests=results.finished_requests,
            cached_tokens=results.cached_tokens,
            leased_tokens=cache.tree.locked_tokens - held.num_tokens,
            prefix_leases=held.num,
            prefix_lease_tokens=held.num_tokens,
            prefix_lease_limit=leases.max_tokens,
            revoked_prefix_leases=leases.num_revoked,
            next_prefix_lease_end_s=held.next_end_s,
            owned_tokens=self._running.owned_tokens,
            penalty_slots=self._running.num_penalty_slots,
            cached_tokens_in_tree=cache.tree_tokens,
            free_tokens=cache.free_tokens,
        )

    def state(self) -> dict[str, object]:
        """What /get_server_info shows of the live scheduler."""
        return {**asdict(self.stats()), "phase_seconds": dict(self.phase_seconds)}

    def _line(self, kind: str, num_sequences: int, new_tokens: int, tokens_per_s: float | None) -> str:
        stats = self.stats()
        cached, self._logged_cached = stats.cached_tokens - self._logged_cached, stats.cached_tokens
        return log.step_line(
            kind,
            num_sequences=num_sequences,
            new_tokens=new_tokens,
            cached_tokens=cached,
            used_tokens=stats.used_tokens,
            total_tokens=stats.total_tokens,
            running=stats.running_requests,
            waiting=stats.waiting_requests,
            tokens_per_s=tokens_per_s,
        )

    def _used(self) -> int:
        """Slots that cannot be taken: leased or owned by running requests, or held by clients."""
        return self._cache.total_tokens - self._cache.available_tokens
