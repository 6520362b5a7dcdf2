"""One caller's request while it runs: its sequences, and the wait for what comes next.

Decides what is kept of a sequence between two reads of its caller. Knows no socket and no message union.
A sequence that its client gave up stays known until its last message came, but keeps nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ramet.ipc.message import Uid
from ramet.ipc.messages import Closed, Finish, Opened
from ramet.ipc.spec import DetokenizeOptions
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.access.owner import Owner
from ramet.runtime.engine_client.prompt import MAX_NUMBERS, Prompt
from ramet.runtime.engine_client.recording import CURRENT as RECORDING
from ramet.runtime.engine_client.recording import RequestRecording
from ramet.runtime.engine_client.trace_context import CURRENT, TraceContext
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.replies.logprobs import HiddenLists, LogprobLists

T = TypeVar("T")
E = TypeVar("E")
WEIGHT_VERSION = "default"  # of the weights of the start
UNOPENED = Opened(Uid(0), DetokenizeOptions(), 0, 0)  # a sequence has this until its message comes
MAX_RENDERED = 8  # waits for the tokenizer that are kept of a request that is traced


def ended(why: str) -> ClientError:
    """The error of a request that somebody ended and that has nothing to show."""
    return ClientError("", f"The request was ended before it was done: {why}")


@dataclass(slots=True)
class WeightHistory:
    """Which weights drew a sequence's tokens."""

    version: str = WEIGHT_VERSION  # of the weights that draw its tokens now
    # a version that drew its first tokens, and how many, earliest first
    changes: list[tuple[str, int]] = field(default_factory=list)


class GeneratedSequence:
    """One uid. `texts` and `tokens` are parallel: what arrived and was not taken yet."""

    __slots__ = (
        "closed", "fresh", "hidden", "index", "last_s", "logprobs", "num_taken", "opened", "prompt", "said", "sample",
        "submission", "tail", "texts", "tokens", "uid", "weights", "worker",
    )  # fmt: skip

    def __init__(
        self, uid: Uid, index: int, worker: int, prompt: Prompt, submission: "Submission", sample: int = 0
    ) -> None:
        self.uid, self.index, self.worker, self.prompt, self.submission = uid, index, worker, prompt, submission
        self.sample = sample
        self.texts: list[str] | None = []  # None: abandoned
        self.tokens: list[int] = []
        self.said: list[str] | None = None  # texts that were taken, where the log wants them
        self.num_taken = 0
        self.opened = UNOPENED  # the message that came before its first token
        self.fresh = False  # listed in submission.fresh
        self.closed: Closed | None = None  # its last message
        self.tail = ""  # text that only the end made certain
        self.logprobs: LogprobLists | None = None  # of one that asked for log-probabilities, once it is opened
        self.hidden: HiddenLists | None = None  # of one that asked for hidden states, once it is opened
        self.weights = WeightHistory()
        self.last_s = 0.0  # when the newest token came; 0.0: none yet

    @property
    def id(self) -> str:
        """The name that clients know it by."""
        return self.prompt.id_of(self.sample) or f"{self.uid}"

    @property
    def interval(self) -> int:
        """How many tokens its reader wants at once."""
        return self.prompt.spec.params.stream_interval

    @property
    def finish(self) -> Finish | None:
        """Why it ended; None: it has not."""
        return None if self.closed is None else self.closed.finish

    @property
    def routes(self) -> bytes:
        """The experts of its tokens as Closed has them, of a sequence that asked for them and has ended."""
        return b"" if self.closed is None else self.closed.routes

    def take(self) -> tuple[list[str], list[int]]:
        """What arrived since the last take, one text per token."""
        assert self.texts is not None, "an abandoned sequence was read"
        texts, tokens = self.texts, self.tokens
        self.texts, self.tokens = [], []
        self.num_taken += len(tokens)
        if self.said is not None:
            self.said += texts
        return texts, tokens

    @property
    def is_told(self) -> bool:
        """Something has come that was computed: tokens, or numbers of the prompt (none are of its first token)."""
        if self.tokens or self.num_taken:
            return True
        if self.logprobs is not None and len(self.logprobs.prompt) > 1:
            return True
        return self.hidden is not None and not self.hidden.is_empty

    def take_weights(self, version: str) -> None:
        """Weights of this version draw its tokens from here on."""
        if self.is_told:
            self.weights.changes.append((self.weights.version, self.num_generated))
        self.weights.version = version

    def abandon(self) -> None:
        """Keep nothing of what came and of what will come."""
        self.num_taken += len(self.tokens)
        if self.said is not None:
            self.said += self.texts or ()
        self.texts = None
        self.tokens = []
        if self.opened.prompt_ids:
            self.opened = replace(self.opened, prompt_ids=b"")
        self.logprobs = self.hidden = None

    def is_named(self, rid: str) -> bool:
        """Whether it has this id, or its prompt or request has."""
        return rid in (self.id, self.prompt.rid, self.prompt.batch_rid)

    @property
    def due(self) -> bool:
        """So much is new that its reader wants to know: the first token, or an interval's tokens."""
        return self.num_taken == 0 or len(self.tokens) >= self.interval

    @property
    def returns_numbers(self) -> bool:
        """Log-probabilities or hidden states, of which a reply may have very many."""
        return self.logprobs is not None or self.hidden is not None

    @property
    def pooled(self) -> list[float]:
        """The numbers of the one state of its prompt that it asked for, or what a head made of them, once it ended."""
        assert self.hidden is not None, f"{self.uid} did not ask for hidden states"
        return self.hidden.pooled

    @property
    def num_generated(self) -> int:
        return self.num_taken + len(self.tokens)


class RequestOrigin(NamedTuple):
    """Where a request came from, and when."""

    rid: str  # of the whole request; its prompts have their own
    arrival_s: float
    owner: Owner
    trace: TraceContext | None  # None: it came to no server
    recording: RequestRecording | None  # None: it is not traced


class Submission:
    """The sequences of one request, prompt-major. Read by one caller only.

    A failure of one sequence ends the request. In a batch it ends that sequence alone, whose finish says why; but the
    prompts of a batch are refused together, before any of them runs. A `probe` of the server itself is never refused
    for the queue, and is counted, logged and traced nowhere. `max_numbers`: how many log-probabilities and numbers of
    hidden states its reply may hold.
    """

    def __init__(
        self,
        streaming: bool,
        arrival_s: float,
        *,
        as_batch: bool = False,
        probe: bool = False,
        max_numbers: int | None = MAX_NUMBERS,
        rid: str = "",
    ) -> None:
        self.streaming, self.as_batch, self.probe = streaming, as_batch, probe
        trace, recording = CURRENT.get(), None if probe else RECORDING.get()
        self.origin = RequestOrigin(rid, arrival_s, OWNER.get(), trace, recording)
        self.sequences: list[GeneratedSequence] = []
        self.fresh: list[GeneratedSequence] = []
        self.num_unsent = 1  # sequences that are not sent yet; 1 while its prompts are being made
        self.num_open = 0
        self.longest = 0  # new tokens of the longest sequence that has ended
        self.error: RametError | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.aborted = False  # an Abort of its sequences was sent
        self.left = False  # its caller is done with it
        self.at_end: list[Callable[[], None]] = []  # called when it is left and its last sequence has ended
        self._num_held, self._max_numbers = 0, max_numbers
        self._is_whole = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_mixed(self) -> bool:
        """Whether other weights have computed some of a request that is worth nothing in part."""
        return self._is_whole and any(each.finish is not None or each.is_told for each in self.sequences)

    async def next(self, most: int | None = None) -> list[GeneratedSequence]:
        """The sequences with something new, waiting for at least one; [] when all have ended and were read. `most`: how
        many of them, should there be more: the others come with the next calls.

        Raises the error that ended the request.
        """
        while not self.fresh and self.num_open and self.error is None:
            await self._wait()
        if self.error is not None:
            raise self.error
        num = len(self.fresh) if most is None else most
        fresh, self.fresh = self.fresh[:num], self.fresh[num:]
        for sequence in fresh:
            sequence.fresh = False
        return fresh

    async def finished(self) -> list[GeneratedSequence]:
        """Every sequence, when all have ended. Raises the error that ended the request."""
        while await self.next():
            pass
        return self.sequences

    async def whole(self) -> list[GeneratedSequence]:
        """Every sequence, as `finished` has them, for a reply that is worth nothing in part: an abort is an error."""
        self._is_whole = True
        for sequence in await self.finished():
            assert sequence.finish is not None
            if sequence.finish.aborted:
                raise ended(str(sequence.finish.error))
        return self.sequences

    async def during(self, asked: Awaitable[T]) -> T:
        """An answer that is needed before anything can be sent. Raises the error that ended the request meanwhile."""
        began_s = time.monotonic()
        try:
            return await self.unless_ended(asked)
        finally:
            if self.origin.recording is not None and len(self.origin.recording.rendered) < MAX_RENDERED:
                self.origin.recording.rendered.append((began_s, time.monotonic()))

    async def unless_ended(self, asked: Awaitable[T]) -> T:
        """An answer. Raises the error that ended the request meanwhile."""
        asking = asyncio.ensure_future(_awaited(asked))
        asking.add_done_callback(lambda _: self.wake())
        try:
            while not asking.done() and self.error is None:
                await self._wait()
            if self.error is not None:
                raise self.error
            return asking.result()
        finally:
            asking.cancel()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: RametError) -> None:
        """The first error counts."""
        if self.error is None:
            self.error = error
            if self.origin.recording is not None:
                self.origin.recording.failure = error.status
        self.wake()

    def leave(self) -> None:
        self.left = True
        if self.at_end:
            self.end_if_done()

    def end_if_done(self) -> None:
        if self.left and not self.num_open:
            while self.at_end:
                self.at_end.pop()()

    def hold(self, numbers: int) -> None:
        """So many more log-probabilities, numbers of hidden states, ids of prompts or experts wait for the reply."""
        self._num_held += numbers
        if self._max_numbers is not None and self._num_held > self._max_numbers:
            kinds = "log-probabilities, numbers of hidden states, ids of prompts and experts"
            fact = f"comes to more than {self._max_numbers} {kinds}"
            self.fail(ClientError("the reply", fact, "ask for fewer, or in several requests"))

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


async def _awaited(asked: Awaitable[T]) -> T:
    """A task of the answer is cancelled without a trace; asyncio logs a gathering future that nobody awaits."""
    return await asked
