"""What is told of a request that is traced: when it passed its stages, its sequences, how it ended. Knows no span.

Nothing of a prompt's or an output's text is kept. A recording is done when its handler and all of its sequences have
ended, in whatever order: a client that goes away leaves before the last message of its sequences comes.
"""

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple

from ramet.ipc.messages import Finish
from ramet.ipc.spec import RequestSpec
from ramet.ipc.times import SequenceTimes, Span
from ramet.runtime.engine_client.trace_context import TraceContext

MAX_SEQUENCES = 32  # of one request whose stages are kept

# of the request that this task answers; None: it is not traced
CURRENT: ContextVar["RequestRecording | None"] = ContextVar("recording", default=None)


class EndedSequence(NamedTuple):
    """A sequence, when its last message came. `finish` None: the tokenizer refused it."""

    number: int  # among the request's, from 0
    sample: int  # of its prompt
    finish: Finish | None
    times: SequenceTimes
    detokenized: Span | None


class Outcome(NamedTuple):
    """How the handler ended."""

    end_s: float
    status: int  # of HTTP, or 499: the client went away
    request_id: str


class RequestRecording:
    """The record of one request, which came at `start_s`. `done` gets it when nothing more will be told."""

    def __init__(
        self, trace: TraceContext, path: str, start_s: float, done: Callable[["RequestRecording"], None]
    ) -> None:
        self.trace, self.path, self.start_s, self._done = trace, path, start_s, done
        self.rendered: list[tuple[float, float]] = []  # waits for the tokenizer before anything was sent
        self.sent_s = 0.0  # its prompts went to the tokenizer
        self.first_token_s = 0.0
        self.is_stream = False
        self.spec: RequestSpec | None = None  # of its first prompt
        self.sequences: list[EndedSequence] = []  # the first ones that ended
        self.num_sequences = self.num_prompts = 0  # sent
        self.prompt_tokens = self.cached_tokens = self.new_tokens = 0  # of all of them; a prompt counts once
        self.failure = 0  # status of the error that ended it, also where the reply had begun; 0: none did
        self.outcome: Outcome | None = None
        self._num_open = 0

    @property
    def finish_reasons(self) -> list[str]:
        return [each.finish.kind.value if each.finish is not None else "refused" for each in self.sequences]

    def sent(self, first: RequestSpec, num_prompts: int, num_sequences: int, is_stream: bool) -> None:
        """Some of its prompts were sent. `first`: the spec of the first one."""
        if self.spec is None:
            self.spec, self.is_stream = first, is_stream
        self.sent_s = self.sent_s or time.monotonic()
        self.num_prompts += num_prompts
        self.num_sequences += num_sequences
        self._num_open += num_sequences

    def add(self, ended: EndedSequence, *, prompt_tokens: int, cached_tokens: int, new_tokens: int) -> None:
        """A sequence ended."""
        if len(self.sequences) < MAX_SEQUENCES:
            self.sequences.append(ended)
        if ended.sample == 0:
            self.prompt_tokens += prompt_tokens
            self.cached_tokens += cached_tokens
        self.new_tokens += new_tokens
        self._num_open -= 1
        self._settle()

    def end(self, status: int, request_id: str) -> None:
        """Its handler is done."""
        self.outcome = Outcome(time.monotonic(), status, request_id)
        self._settle()

    def _settle(self) -> None:
        if self.outcome is not None and not self._num_open:
            self._done(self)
