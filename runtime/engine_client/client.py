"""The engine as its callers see it: the server's handlers, `LLM`, and the language.

Decides the life of a request, from its arrival until its handler has left and its last message came. Knows no HTTP and
no transport: messages leave through outboxes and come in through `deliver`. Between processes they travel over ZeroMQ
(server/process.py), within one between threads (runtime/processes/inprocess.py). Everything runs on the event loop that
the client was made on: no lock, and no task per token.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

from ramet.ipc.channel import Outbox
from ramet.ipc.control import ControlReply
from ramet.ipc.messages import (
    CallRefused,
    ChoicesReply,
    Detokenized,
    Drain,
    Limits,
    LinesDropped,
    PeerDied,
    ProgramsEnded,
    PromptReply,
    Rejected,
    RenderReply,
    Tokenized,
    TokenStep,
    ToServer,
)
from ramet.ipc.stats import Stats
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.config import Args
from ramet.runtime.engine_client.admin import Admin
from ramet.runtime.engine_client.caller import BackgroundTasks
from ramet.runtime.engine_client.calls import Calls, Tokenizers
from ramet.runtime.engine_client.media import MediaService, Preparing, preparing, with_media
from ramet.runtime.engine_client.open_requests import OpenRequests
from ramet.runtime.engine_client.prompt import MAX_NUMBERS, SEQUENCES_AT_ONCE, Prompt, in_pieces, sum_of, weight_of
from ramet.runtime.engine_client.prompt_outbox import PromptOutbox
from ramet.runtime.engine_client.queue_bounds import QueueBounds
from ramet.runtime.engine_client.request_log import RequestLog
from ramet.runtime.engine_client.sequences import SequenceTable
from ramet.runtime.engine_client.submission import GeneratedSequence, Submission, ended
from ramet.runtime.engine_client.text import TextCalls
from ramet.runtime.errors import RametError, ServerError
from ramet.runtime.metrics.table import Metrics

T = TypeVar("T")
IN_TURN = 32  # prompts of one request of thousands that are in the queue at once


class ReceivedStats(NamedTuple):
    """What the scheduler said last, and when."""

    newest: Stats
    at_s: float  # Unix time


class EngineClient:
    """A submission is read whole (`await submission.finished()`) or as a stream (`await submission.next()`).

    `text` asks tokenizers, `admin` is for operators, `queue` says what may enter, `requests` are open ones. `draining`
    and `death` become done when the parent process says so. `limits`: of the model and the memory.
    """

    def __init__(
        self,
        to_tokenizers: Sequence[Outbox],
        to_scheduler: Outbox,
        limits: Limits,
        metrics: Metrics,
        args: Args,
        max_numbers: int | None = MAX_NUMBERS,
        media: MediaService | None = None,
    ) -> None:
        self.limits, self.media = limits, media
        self.draining: asyncio.Future[Drain] = asyncio.get_running_loop().create_future()
        self.death: asyncio.Future[PeerDied] = asyncio.get_running_loop().create_future()
        self.stats, self._timeout_s = ReceivedStats(Stats(), time.time()), args.serve.request_timeout_s
        self._max_media = None if max_numbers is None else args.media.max_media_per_request
        self._metrics = metrics
        self.request_log = RequestLog(args.serve, metrics)
        self._sequences, self.requests = SequenceTable(metrics, self.request_log), OpenRequests()
        self._tokenizers, self._calls = Tokenizers(to_tokenizers), Calls(to_scheduler)
        self.text, self.background = TextCalls(self._calls, self._tokenizers), BackgroundTasks()
        sequences, requests, abort_all = self._sequences, self.requests, partial(self.abort, None)
        self.admin = Admin(args, self._calls, sequences, requests, self.background, abort_all)
        self._outbox = PromptOutbox(self._tokenizers, sequences, requests, self.admin.adapters, self.request_log)
        halted, max_running = self.admin.pauses.began, limits.max_running_requests
        self.queue = QueueBounds(args, max_running, max_numbers, sequences, requests, halted)

    @property
    def num_open(self) -> int:
        """Sequences whose last message has not come, those of clients that went away included."""
        return len(self._sequences.by_uid)

    @property
    def num_waiting(self) -> int:
        """See QueueBounds."""
        return self.queue.num_waiting

    @property
    def unanswered(self) -> list[Sized]:
        """What was sent and has no last answer yet, as it is at any time: questions and sequences."""
        return [self._calls.open, self._sequences.by_uid]

    def check_alive(self) -> None:
        """Raises why nothing can be asked any more."""
        self._calls.check_alive()

    def check_ready(self) -> None:
        """Raises why no new request is taken."""
        self._calls.check_alive()
        if self.draining.done():
            raise ServerError("The server is shutting down and takes no new requests.", 503)

    # -- what callers ask -------------------------------------------------------------------------------------------

    @contextmanager
    def open(
        self, streaming: bool, probe: bool = False, *, as_batch: bool = False, rid: str = ""
    ) -> Iterator[Submission]:
        """A request from its arrival on. Leaving the block aborts what has not ended by then.

        It is refused while too many sequences wait, and by `send` where its own are too many beside them (`queue`).
        `rid`: what ends it while its prompts are being made.
        """
        self.check_ready()
        if not probe:
            self.queue.check_arrival()
        submission = Submission(
            streaming, time.monotonic(), as_batch=as_batch, probe=probe, max_numbers=self.queue.max_numbers, rid=rid
        )
        self.requests.enter(submission)
        if self._timeout_s is not None:
            submission.timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire, submission)
        try:
            yield submission
        finally:  # the handler is done with it: nothing more is kept of what still runs
            self.requests.leave(submission)
            if submission.timer is not None:
                submission.timer.cancel()
            if submission.num_open:
                giving_up = self._give_up([*submission.sequences], aborted=submission.aborted)
                if next(giving_up, None) is not None:
                    self.background.begin(_each_in_turn(giving_up))
            submission.leave()
            # its sequences know it as well: without this circle a request is freed when it ends
            submission.sequences, submission.fresh = [], []

    def send(self, prompts: Sequence[Prompt], submission: Submission) -> None:
        """Its prompts, all of them. Raises ClientError or ServerError where they are more than may be sent."""
        self.queue.take_room(prompts, weight_of(prompts), submission)
        self._outbox.send(self._outbox.marked(prompts, submission.origin.owner), submission)

    async def send_in_pieces(self, prompts: Sequence[Prompt], submission: Submission) -> None:
        """Sends all of its prompts, and other requests are served between pieces: here, and in the tokenizer workers,
        to which the next piece is sent when they have read the last one. Media are prepared before.

        Raises the error that ended the request meanwhile; what was sent of it is aborted when its block is left.
        """
        if any(prompt.sources for prompt in prompts):
            prompts = await submission.during(with_media(prompts, self.preparing(submission)))
        if submission.as_batch or len(prompts) < 2:  # a batch is one message
            self.send(prompts, submission)
            return
        if len(prompts) > SEQUENCES_AT_ONCE:
            prompts = await submission.unless_ended(self._marked_in_turn(prompts, submission))
        else:
            self.queue.take_room(prompts, weight_of(prompts), submission)
            prompts = self._outbox.marked(prompts, submission.origin.owner)
        for i, piece in enumerate(in_pieces(prompts, lambda prompt: (prompt.spec.params.n, prompt.num_bytes))):
            if i:
                await submission.unless_ended(self.text.prompts_are_read(submission.origin.owner.name))
            self._outbox.send(piece, submission)

    def preparing(self, submission: Submission) -> Preparing:
        """What becomes of a request's media."""
        return preparing(self.media, self.limits.media, submission, self._max_media)

    async def run_in_turn(self, prompts: Sequence[Prompt], submission: Submission) -> list[GeneratedSequence]:
        """All of them to their ends, a few at a time: what others ask meanwhile waits for these few only.

        Raises the error that ended the request.
        """
        done: list[GeneratedSequence] = []
        num = min(IN_TURN, self.queue.max_queued or IN_TURN)
        for start in range(0, len(prompts), num):
            self.send(prompts[start : start + num], submission)
            done = await submission.whole()
        return done

    @contextmanager
    def submit(
        self, prompts: Sequence[Prompt], streaming: bool, probe: bool = False, *, as_batch: bool = False
    ) -> Iterator[Submission]:
        """`open` and `send` at once."""
        with self.open(streaming, probe, as_batch=as_batch) as submission:
            self.send(prompts, submission)
            yield submission

    def abort(self, rid: str | None, message: str) -> int:
        """End what a rid names (a request, a prompt or a sample), or everything (None); clients get what came so far.

        A rid names what the one who asks may use: see Owner. Returns how many sequences; a request whose prompts are
        being made, which is refused then, counts as one.
        """
        hit = [*self._sequences.by_uid.values()] if rid is None else self._sequences.named(rid)
        self._tokenizers.abort(hit, message)
        unsent = [*self.requests.unsent] if rid is None else self.requests.unsent_of(rid)
        for submission in unsent:
            submission.fail(ended(message))
        return len(hit) + len(unsent)

    def end(self, submission: Submission, message: str) -> None:
        """End its sequences; its caller gets what came so far."""
        self._tokenizers.abort(self._sequences.open_of(submission), message)

    def end_programs(self, names: list[str]) -> None:
        """What is kept for their next requests is not needed. Raises what ended the engine."""
        self._calls.check_alive()
        self._calls.to_scheduler.send(ProgramsEnded(names, OWNER.get().name))

    # -- what arrives -----------------------------------------------------------------------------------------------

    def deliver(self, message: ToServer) -> None:
        match message:
            case TokenStep():
                self._sequences.apply(message)
            case Rejected():
                self._sequences.reject(message)
            case Tokenized() | RenderReply() | Detokenized() | PromptReply() | ChoicesReply():
                self._calls.answer(message)
            case ControlReply() | CallRefused():
                self._calls.answer(message)
            case Stats():
                self._metrics.take(message)
                self.stats = ReceivedStats(message, time.time())
            case Drain():
                if not self.draining.done():
                    self.draining.set_result(message)
            case PeerDied():
                if not self.death.done():
                    self.death.set_result(message)
                fact = f"The {message.name} process ended with code {message.code}; this server is ending too."
                self.fail(ServerError(fact, 503))
            case LinesDropped():
                for output, num in message.lines.items():
                    self._metrics.dropped_lines.set(num, output)
            case Limits():
                raise AssertionError("limits come once, before the server serves")

    def fail(self, error: RametError) -> None:
        """Every open request and call ends with this error, and every later one. The first error counts."""
        failure = self._calls.fail(error)
        for submission in self.requests.all:
            submission.fail(failure)

    # -- life of a request ------------------------------------------------------------------------------------------

    async def _marked_in_turn(self, prompts: Sequence[Prompt], submission: Submission) -> Sequence[Prompt]:
        """Marks the prompts, if there is room for them; other requests are served in between."""
        weights = await _in_turn(prompts, lambda piece: [weight_of(piece)])
        self.queue.take_room(prompts, sum_of(weights), submission)
        return await _in_turn(prompts, partial(self._outbox.marked, owner=submission.origin.owner))

    def _give_up(self, sequences: list[GeneratedSequence], *, aborted: bool) -> Iterator[int]:
        """Forget these, and end those that are open unless they are `aborted` already; a piece at each step, of which
        the last one goes first.

        WRITES `sequences`. Yields how many are left, as long as there are some.
        """
        while sequences:
            piece = [each for each in sequences[-SEQUENCES_AT_ONCE:] if each.uid in self._sequences.by_uid]
            del sequences[-SEQUENCES_AT_ONCE:]  # an output of one that has ended may be thousands of texts
            for sequence in piece:
                sequence.abandon()
            if not aborted:
                self._tokenizers.abort(piece, "the client went away")
            if sequences:
                yield len(sequences)

    def _expire(self, submission: Submission) -> None:
        """Out of time: end its sequences now, for its handler may hang on a client that does not read."""
        assert self._timeout_s is not None
        fact = f"The request did not finish within {self._timeout_s:g} s (--request-timeout-s)."
        submission.fail(ServerError(fact, 504))
        submission.aborted = True
        self.end(submission, "ran out of time")


async def _each_in_turn(steps: Iterator[object]) -> None:
    """Other tasks of the event loop run before each step."""
    await asyncio.sleep(0)
    for _ in steps:
        await asyncio.sleep(0)


async def _in_turn(prompts: Sequence[Prompt], act: Callable[[Sequence[Prompt]], Sequence[T]]) -> list[T]:
    """What `act` makes of all of them, some at a time; other requests are served in between."""
    made: list[T] = []
    for start in range(0, len(prompts), SEQUENCES_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        made += act(prompts[start : start + SEQUENCES_AT_ONCE])
    return made
