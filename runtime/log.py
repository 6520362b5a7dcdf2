"""What a process prints: one line per fact, with time, process and level.

Decides the format of every regular line (a step, a request). Knows no process and no clock: callers pass numbers.
"""

import logging
from dataclasses import dataclass
from typing import Protocol

LOGGER = logging.getLogger("ramet")


class Writes(Protocol):
    def write(self, text: str, /) -> object: ...


def setup(level: str, process: str, stream: Writes | None = None) -> None:
    """Let this process print lines of `level` (debug, info, warning, error) and worse to `stream`; None: stderr."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(f"%(asctime)s {process:<11} %(levelname)-7s %(message)s", "%H:%M:%S"))
    LOGGER.handlers[:] = [handler]
    set_level(level)
    LOGGER.propagate = False


def set_level(level: str) -> None:
    """Of this process, from now on."""
    LOGGER.setLevel(level.upper())


@dataclass(frozen=True, slots=True)
class SchedulerLoad:
    """Sequences that run and wait, and tokens of the KV pool."""

    running: int
    waiting: int
    used_tokens: int
    total_tokens: int


def step_line(
    kind: str,
    load: SchedulerLoad,
    *,
    num_sequences: int,
    new_tokens: int,
    cached_tokens: int,
    tokens_per_s: float | None = None,
) -> str:
    """One step of the scheduler. `kind` is "Prefill" or "Decode"; cached tokens are those a prefill did not compute."""
    parts = [f"{kind} batch: {num_sequences} seqs", f"{new_tokens} new tokens"]
    if kind == "Prefill":
        parts.append(f"{cached_tokens} cached tokens")
    parts.append(f"pool {load.used_tokens}/{load.total_tokens} ({share(load.used_tokens, load.total_tokens)})")
    parts += [f"{load.running} running", f"{load.waiting} waiting"]
    if tokens_per_s is not None:
        parts.append(f"{tokens_per_s:.1f} tokens/s")
    return ", ".join(parts)


def request_line(
    rid: str,
    *,
    params: str,
    prompt_tokens: int,
    cached_tokens: int,
    completion_tokens: int,
    latency_s: float,
    ending: str,
    trace_id: str = "",
) -> str:
    """One finished sequence, without any of its text. What is empty is not said."""
    more = (f", {params}" if params else "") + (f", trace {trace_id}" if trace_id else "")
    return (
        f"Request {rid}: {ending}, {prompt_tokens} prompt tokens ({cached_tokens} cached), "
        f"{completion_tokens} new tokens, {latency_s:.3f} s{more}"
    )


def share(part: float, whole: float) -> str:
    """A percentage; of nothing it is 0."""
    return f"{100 * part / whole:.1f} %" if whole else "0.0 %"
