"""The client's side of the engine: sends prompts and questions, and routes every inbound message to its caller.

Decides uids, which tokenizer worker gets a prompt, and whether a request may enter (queue limit, drain, failure). Knows
no HTTP and no transport: messages leave through outboxes and come in through `deliver`. Everything runs on one event
loop: no lock, and no task per token. An Abort is sent through the worker that got the prompt, so it never overtakes it.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from contextlib import contextmanager
from itertools import count

from ramet.ipc.channel import Outbox
from ramet.ipc.messages import (
    Abort,
    CallFailed,
    Control,
    ControlReply,
    Detokenize,
    DetokenizeReply,
    Drain,
    FlushCache,
    Generate,
    GenerateAll,
    GetState,
    Limits,
    LocateSequence,
    PeerDied,
    Rejected,
    Render,
    RenderReply,
    TextStep,
    Tokenize,
    TokenizeReply,
    ToServer,
    Uid,
)
from ramet.ipc.stats import Stats
from ramet.runtime.engine_client import failures
from ramet.runtime.engine_client.calls import Calls
from ramet.runtime.engine_client.sequences import RequestMetrics, SequenceTable
from ramet.runtime.engine_client.submission import MOST_NUMBERS, Prompt, Sequence, Submission
from ramet.runtime.errors import RametError
from ramet.runtime.metrics import Metrics

IN_TURN = 32  # prompts of one request of thousands that are in the queue at once


class EngineClient:
    """The EngineHandle of either transport, which hands what arrives to `deliver`.

    `draining` and `death` become done when the parent process says so.
    """

    def __init__(
        self,
        to_tokenizers: Many[Outbox],
        to_scheduler: Outbox,
        limits: Limits,
        metrics: Metrics,
        *,
        max_queued: int | None = None,
        timeout_s: float | None = None,
        log_requests: bool = False,
        max_numbers: int | None = MOST_NUMBERS,
    ) -> None:
        self.limits = limits
        self.draining: asyncio.Future[Drain] = asyncio.get_running_loop().create_future()
        self.death: asyncio.Future[PeerDied] = asyncio.get_running_loop().create_future()
        self._to_tokenizers, self._to_scheduler = to_tokenizers, to_scheduler
        self._max_queued, self._timeout_s, self._max_numbers = max_queued, timeout_s, max_numbers
        self._metrics = metrics
        self._calls = Calls()
        self._uids = count(1)
        self._sequences = SequenceTable(RequestMetrics(metrics, log_requests))
        self._submissions: set[Submission] = set()
        self._left: asyncio.Future[None] | None = None  # set when the next submission leaves
        self._failure: RametError | None = None
        self.num_streams = 0  # submissions whose callers read tokens as they come
        self._num_unsent = 0  # submissions whose prompts are being made
        self._next_worker = 0

    @property
    def num_open(self) -> int:
        """Sequences whose last message has not come, those of clients that went away included."""
        return len(self._sequences)

    @property
    def num_waiting(self) -> int:
        """Sequences that were sent and are neither opened nor ended, and requests whose prompt is being made."""
        return self._sequences.num_waiting + self._num_unsent

    @property
    def is_draining(self) -> bool:
        return self.draining.done()

    @property
    def failure(self) -> RametError | None:
        """Why nothing can be asked any more."""
        return self._failure

    # -- what callers ask -------------------------------------------------------------------------------------------

    @contextmanager
    def open(self, streaming: bool, probe: bool = False, *, as_batch: bool = False) -> Iterator[Submission]:
        """A request from its arrival on. Leaving the block aborts what has not ended by then.

        It is refused while `max_queued` sequences wait; one that finds a free place enters whole, however many samples
        it asks for. A probe (health) is never refused for the queue.
        """
        self._check_entry(probe)
        submission = Submission(streaming, time.monotonic(), as_batch=as_batch, max_numbers=self._max_numbers)
        self._submissions.add(submission)
        self.num_streams += streaming
        self._num_unsent += 1
        if self._timeout_s is not None:
            submission.timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire, submission)
        try:
            yield submission
        finally:
            self._leave(submission)

    def send(self, prompts: Many[Prompt], submission: Submission) -> None:
        """Its prompts, all of them."""
        self._count_sent(submission)
        if submission.as_batch:
            worker = self._pick_worker()
            batch = GenerateAll([self._generate(prompt, submission, worker) for prompt in prompts])
            self._to_tokenizers[worker].send(batch)
            return
        for prompt in prompts:
            worker = self._pick_worker()
            self._to_tokenizers[worker].send(self._generate(prompt, submission, worker))

    async def run_in_turn(self, prompts: Many[Prompt], submission: Submission) -> list[Sequence]:
        """All of them to their ends, a few at a time: what others ask meanwhile waits for these few only.

        Raises the error that ended the request.
        """
        done: list[Sequence] = []
        for start in range(0, len(prompts), IN_TURN):
            self.send(prompts[start : start + IN_TURN], submission)
            done = await submission.whole()
        return done

    @contextmanager
    def submit(
        self, prompts: Many[Prompt], streaming: bool, probe: bool = False, *, as_batch: bool = False
    ) -> Iterator[Submission]:
        """`open` and `send` at once."""
        with self.open(streaming, probe, as_batch=as_batch) as submission:
            self.send(prompts, submission)
            yield submission

    def abort(self, rid: str | None, message: str) -> int:
        """End the sequences of one request id, or all (None). Their clients get what came so far. Returns how many."""
        hit = [s for s in self._sequences if rid is None or s.prompt.rid == rid]
        self._send_abort(hit, message)
        return len(hit)

    def uids_of(self, rid: str) -> list[Uid]:
        return [sequence.uid for sequence in self._sequences if sequence.prompt.rid == rid]

    async def state(self) -> ControlReply:
        return await self._control(GetState)

    async def locate(self, uid: Uid) -> ControlReply:
        return await self._control(lambda call: LocateSequence(call, uid))

    async def flush_cache(self, timeout_s: float) -> ControlReply:
        """`timeout_s`: how long it may wait until nothing runs or waits."""
        return await self._control(lambda call: FlushCache(call, timeout_s))

    async def tokenize(self, text: str, add_special_tokens: bool = True) -> TokenizeReply:
        self._check_alive()
        worker = self._to_tokenizers[self._pick_worker()]
        answer = await self._calls.ask(worker, lambda call: Tokenize(call, text, add_special_tokens))
        assert isinstance(answer, TokenizeReply)
        return answer

    async def render(self, chat: bytes) -> RenderReply:
        """A chat (JSON, see runtime/text/chats.py) to the ids of its prompt."""
        self._check_alive()
        worker = self._to_tokenizers[self._pick_worker()]
        answer = await self._calls.ask(worker, lambda call: Render(call, chat))
        assert isinstance(answer, RenderReply)
        return answer

    async def detokenize(self, ids: bytes, skip_special_tokens: bool = True) -> str:
        self._check_alive()
        worker = self._to_tokenizers[self._pick_worker()]
        answer = await self._calls.ask(worker, lambda call: Detokenize(call, ids, skip_special_tokens))
        assert isinstance(answer, DetokenizeReply)
        return answer.text

    async def drained(self) -> None:
        """Returns when no handler waits for a sequence any more."""
        while self._submissions:
            self._left = asyncio.get_running_loop().create_future()
            await self._left

    # -- what arrives -----------------------------------------------------------------------------------------------

    def deliver(self, message: ToServer) -> None:
        match message:
            case TextStep():
                self._sequences.apply(message)
            case Rejected():
                self._sequences.reject(message)
            case TokenizeReply() | RenderReply() | DetokenizeReply() | ControlReply():
                self._calls.answer(message)
            case CallFailed():
                self._calls.refuse(message)
            case Stats():
                self._metrics.take(message)
            case Drain():
                if not self.draining.done():
                    self.draining.set_result(message)
            case PeerDied():
                if not self.death.done():
                    self.death.set_result(message)
                self.fail(failures.peer_died(message))
            case Limits():
                raise AssertionError("limits come once, before the server serves")

    def fail(self, error: RametError) -> None:
        """Every open request and call ends with this error, and every later one. The first error counts."""
        if self._failure is None:
            self._failure = error
        for submission in self._submissions:
            submission.fail(self._failure)
        self._calls.fail_all(self._failure)

    # -- life of a request ------------------------------------------------------------------------------------------

    async def _control(self, message: Callable[[int], Control]) -> ControlReply:
        self._check_alive()
        answer = await self._calls.ask(self._to_scheduler, message)
        assert isinstance(answer, ControlReply)
        return answer

    def _check_entry(self, probe: bool) -> None:
        self._check_alive()
        if self.is_draining:
            raise failures.draining()
        if not probe and self._max_queued is not None and self.num_waiting >= self._max_queued:
            raise failures.queue_full()

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _count_sent(self, submission: Submission) -> None:
        if not submission.sent:
            submission.sent = True
            self._num_unsent -= 1

    def _generate(self, prompt: Prompt, submission: Submission, worker: int) -> Generate:
        """The prompt's message, with its samples in the table."""
        uids = [Uid(next(self._uids)) for _ in range(prompt.params.n)]
        for uid in uids:
            sequence = Sequence(uid, len(submission.sequences), worker, prompt, submission)
            submission.sequences.append(sequence)
            self._sequences.add(sequence)
        return Generate(uids, prompt.spec, prompt.text, prompt.ids, prompt.embeds, submission.arrival_s)

    def _leave(self, submission: Submission) -> None:
        """The handler is done with its request: nothing more is kept of what still runs."""
        self._submissions.discard(submission)
        self.num_streams -= submission.streaming
        if self._left is not None and not self._left.done():
            self._left.set_result(None)
        if submission.timer is not None:
            submission.timer.cancel()
        self._count_sent(submission)
        if submission.num_open:
            still_open = [s for s in submission.sequences if s.uid in self._sequences]
            for sequence in still_open:
                sequence.abandon()
            if not submission.aborted:
                self._send_abort(still_open, "the client went away")
        submission.sequences = []  # which know it as well: without this circle a request is freed when it ends

    def _expire(self, submission: Submission) -> None:
        """Out of time: end its sequences now, for its handler may hang on a client that does not read."""
        assert self._timeout_s is not None
        submission.fail(failures.out_of_time(self._timeout_s))
        submission.aborted = True
        self._send_abort([s for s in submission.sequences if s.uid in self._sequences], "ran out of time")

    def _send_abort(self, sequences: list[Sequence], message: str) -> None:
        by_worker: dict[int, list[Uid]] = defaultdict(list)
        for sequence in sequences:
            by_worker[sequence.worker].append(sequence.uid)
        for worker, uids in by_worker.items():
            self._to_tokenizers[worker].send(Abort(uids, message))

    def _pick_worker(self) -> int:
        self._next_worker = (self._next_worker + 1) % len(self._to_tokenizers)
        return self._next_worker
