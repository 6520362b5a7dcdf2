"""What sequences do, as metrics, and the log line of a finished one.

Decides what is observed when. A token costs one dictionary update: gaps between tokens are gathered over a step.
"""

from collections.abc import Mapping

from ramet.ipc.messages import FinishKind, Opened
from ramet.ipc.params import SamplingParams
from ramet.runtime import log
from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.metrics import Metrics

NO_TOKEN_YET = 0.0


class RequestMetrics:
    def __init__(self, metrics: Metrics, log_requests: bool) -> None:
        self._metrics, self._log_requests = metrics, log_requests

    def opened(self, opened: Opened) -> None:
        self._metrics.prompt_tokens.add(opened.prompt_tokens)
        self._metrics.cached_tokens.add(opened.cached_tokens)

    def first_token(self, sequence: Sequence, now: float) -> None:
        self._metrics.first_token_s.observe(now - sequence.submission.arrival_s)

    def step(self, gaps: Mapping[float, int], now: float) -> None:
        """`gaps`: when the token before came -> how many tokens. Sequences that run together share it: it is short."""
        self._metrics.generated_tokens.add(sum(gaps.values()))
        for last_s, num in gaps.items():
            if last_s != NO_TOKEN_YET:
                self._metrics.token_gap_s.observe(now - last_s, num)

    def ended(self, sequence: Sequence, kind: FinishKind, now: float) -> None:
        latency_s = now - sequence.submission.arrival_s
        self._metrics.sequences.add(1)
        if kind is FinishKind.ABORT:
            self._metrics.aborted.add(1)
        else:
            self._metrics.latency_s.observe(latency_s)
        if self._log_requests:
            log.LOGGER.info(_line(sequence, kind, latency_s))


def _line(sequence: Sequence, kind: FinishKind, latency_s: float) -> str:
    return log.request_line(
        sequence.prompt.rid,
        params=_given(sequence.prompt.params),
        prompt_tokens=sequence.num_prompt,
        cached_tokens=sequence.num_cached,
        completion_tokens=sequence.num_generated,
        latency_s=latency_s,
        ending=kind.value,
    )


def _given(params: SamplingParams) -> str:
    """The parameters that differ from the table's defaults; stop strings are text and only counted."""
    plain = SamplingParams()
    shown = []
    for name in params.__struct_fields__:
        value = getattr(params, name)
        if value != getattr(plain, name):
            shown.append(f"{name}={len(value) if isinstance(value, tuple) else value}")
    return " ".join(shown) or "default parameters"
