"""When a request passed each stage of the scheduler, and which steps computed how much of a traced one."""

import os

from ramet.ipc.times import PrefillChunk, SequenceTimes, Span

MAX_CHUNKS = 64  # of one sequence that are told


class StageTimes:
    """When a request passed each stage of the scheduler; the first time counts. 0.0: it has not.

    `chunks`: of one that is traced, steps that computed tokens of it.
    """

    __slots__ = ("admitted_s", "chunks", "prefilled_s", "queued_s", "tokenized")

    def __init__(self, queued_s: float = 0.0, tokenized: Span | None = None, traced: bool = False) -> None:
        self.queued_s, self.tokenized = queued_s, tokenized
        self.admitted_s = self.prefilled_s = 0.0
        self.chunks: list[PrefillChunk] | None = [] if traced else None

    def computed(self, start_s: float, end_s: float, num_tokens: int) -> None:
        if self.chunks is not None and len(self.chunks) < MAX_CHUNKS:
            self.chunks.append(PrefillChunk(max(start_s, self.admitted_s), end_s, num_tokens))

    def until(self, ended_s: float) -> SequenceTimes:
        chunks = tuple(self.chunks or ())
        return SequenceTimes(
            os.getpid(), self.queued_s, self.admitted_s, self.prefilled_s, ended_s, self.tokenized, chunks
        )
