"""When a sequence passed its stages, as the processes tell each other with messages that they send anyway.

Times are CLOCK_MONOTONIC seconds, which every process of one machine shares. 0.0: it did not get so far.
"""

import msgspec


class Span(msgspec.Struct, frozen=True, array_like=True):
    """What one process did for a request."""

    pid: int
    start_s: float
    end_s: float


class PrefillChunk(msgspec.Struct, frozen=True, array_like=True):
    """A step that computed tokens of a prompt."""

    start_s: float  # of its planning
    end_s: float  # its result was applied
    num_tokens: int


class SequenceTimes(msgspec.Struct, frozen=True, array_like=True):
    """When a sequence passed its stages, until the scheduler was done with it."""

    pid: int = 0  # of the scheduler
    queued_s: float = 0.0  # it came to the scheduler
    admitted_s: float = 0.0  # it began to run
    prefilled_s: float = 0.0  # its prompt was computed: the step that computes the last of it draws the first token
    ended_s: float = 0.0
    tokenized: Span | None = None  # its prompt, or that of all samples of a prompt
    chunks: tuple[PrefillChunk, ...] = ()  # of one that is traced, the first ones
