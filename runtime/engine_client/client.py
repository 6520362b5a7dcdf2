"""The server's side of the engine: sends prompts, and routes every inbound message to whoever waits for it.

Decides uids, which tokenizer worker gets a prompt, who may still enter (queue limit, drain), and when a sequence is
forgotten. Knows no HTTP. Everything runs on one event loop: no lock, and no task per token.

A sequence is known from `submit` until its last message (Closed or Rejected). Abort takes the way of Generate, through
the same worker, so it can never overtake its prompt.
"""

import asyncio
import time
from array import array
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
    Finish,
    FinishKind,
    FlushCache,
    Generate,
    GetState,
    Limits,
    LocateSequence,
    Opened,
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
from ramet.runtime.engine_client.submission import Prompt, Sequence, Submission
from ramet.runtime.engine_client.tally import NO_TOKEN_YET, Tally
from ramet.runtime.errors import RametError
from ramet.runtime.logprobs import HiddenLists, LogprobLists
from ramet.runtime.metrics import Metrics

IN_TURN = 32  # prompts of one request of thousands that are in the queue at once


class EngineClient:
    """`deliver` takes what arrives; `submit`, `abort`, `control`, `tokenize` and `detokenize` are for handlers.

    `draining` and `death` become done when the parent says so.
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
    ) -> None:
        self.limits = limits
        self.draining: asyncio.Future[Drain] = asyncio.get_running_loop().create_future()
        self.death: asyncio.Future[PeerDied] = asyncio.get_running_loop().create_future()
        self._to_tokenizers, self._to_scheduler = to_tokenizers, to_scheduler
        self._max_queued, self._timeout_s = max_queued, timeout_s
        self._metrics = metrics
        self._tally = Tally(metrics, log_requests)
        self._calls = Calls()
        self._uids = count(1)
        self._sequences: dict[Uid, Sequence] = {}
        self._submissions: set[Submission] = set()
        self._left: asyncio.Future[None] | None = None  # who waits for the next submission to leave
        self._num_waiting = 0
        self._next_worker = 0

    @property
    def num_open(self) -> int:
        """Sequences whose last message has not come, those of clients that went away included."""
        return len(self._sequences)

    @property
    def num_waiting(self) -> int:
        """Sequences that were sent and are neither opened nor ended, and requests whose prompt is being made."""
        return self._num_waiting

    # -- what handlers ask ------------------------------------------------------------------------------------------

    @contextmanager
    def open(self, streaming: bool, probe: bool = False) -> Iterator[Submission]:
        """A request from its arrival on. Leaving the block aborts what has not ended by then.

        It is refused while `max_queued` sequences wait; one that finds a free place enters whole, however many samples
        it asks for. A probe (health) is never refused for the queue.
        """
        self._admit(probe)
        submission = Submission(streaming, time.monotonic())
        self._submissions.add(submission)
        self._num_waiting += 1
        if self._timeout_s is not None:
            submission.timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire, submission)
        try:
            yield submission
        finally:
            self._leave(submission)

    def send(self, prompts: Many[Prompt], submission: Submission) -> None:
        """Its prompts, all of them."""
        self._count_sent(submission)
        for prompt in prompts:
            self._send(prompt, submission)

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
    def submit(self, prompts: Many[Prompt], streaming: bool, probe: bool = False) -> Iterator[Submission]:
        """`open` and `send` at once."""
        with self.open(streaming, probe) as submission:
            self.send(prompts, submission)
            yield submission

    def abort(self, rid: str | None, message: str) -> int:
        """End the sequences of one request id, or all (None). Their clients get what came so far. Returns how many."""
        hit = [s for s in self._sequences.values() if rid is None or s.prompt.rid == rid]
        self._send_abort(hit, message)
        return len(hit)

    def uids_of(self, rid: str) -> list[Uid]:
        return [uid for uid, sequence in self._sequences.items() if sequence.prompt.rid == rid]

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

    def fail_all(self, error: RametError) -> None:
        """Every open request and call ends with this error."""
        for submission in self._submissions:
            submission.fail(error)
        self._calls.fail_all(error)

    async def _control(self, message: Callable[[int], Control]) -> ControlReply:
        self._check_alive()
        answer = await self._calls.ask(self._to_scheduler, message)
        assert isinstance(answer, ControlReply)
        return answer

    # -- what arrives -----------------------------------------------------------------------------------------------

    def deliver(self, message: ToServer) -> None:
        match message:
            case TextStep():
                self._text_step(message)
            case Rejected():
                self._rejected(message)
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
                self.fail_all(failures.peer_died(message))
            case Limits():
                raise AssertionError("limits come once, before the server serves")

    def _text_step(self, step: TextStep) -> None:
        """One pass over the columns: this is the way of every token."""
        now, sequences = time.monotonic(), self._sequences
        woken: set[Submission] = set()
        gaps: dict[float, int] = defaultdict(int)  # when the token before came -> how many tokens
        for opened in step.opened:
            self._open(sequences[opened.uid], opened)
        tokens = array("i")
        tokens.frombytes(step.tokens)
        for uid, token, text in zip(step.uids, tokens, step.texts, strict=True):
            sequence = sequences[uid]
            gaps[sequence.last_s] += 1
            if sequence.last_s == NO_TOKEN_YET:
                self._tally.first_token(sequence, now)
            sequence.last_s = now
            texts = sequence.texts
            if texts is None:
                continue  # abandoned
            texts.append(text)
            sequence.tokens.append(token)
            if not sequence.fresh and (submission := sequence.submission).streaming:
                sequence.fresh = True
                submission.fresh.append(sequence)
                woken.add(submission)
        for scores in step.logprobs:
            sequence = sequences[scores.uid]
            if sequence.scores is not None:  # not abandoned
                sequence.submission.hold(sequence.scores.add(scores))
        for states in step.hidden:
            sequence = sequences[states.uid]
            if sequence.hidden is not None:
                sequence.submission.hold(sequence.hidden.add(states))
        for closed, tail in zip(step.closed, step.tails, strict=True):
            woken.add(self._close(sequences.pop(closed.uid), closed.finish, tail, now))
        for submission in woken:
            submission.wake()
        self._tally.step(gaps, now)

    def _open(self, sequence: Sequence, opened: Opened) -> None:
        sequence.opened = True
        sequence.num_prompt, sequence.num_cached = opened.prompt_tokens, opened.cached_tokens
        if opened.spec.logprobs is not None and sequence.texts is not None:
            sequence.scores = LogprobLists(opened)
        if opened.spec.hidden is not None and sequence.texts is not None:
            sequence.hidden = HiddenLists(opened)
        self._num_waiting -= 1
        self._tally.opened(opened)

    def _close(self, sequence: Sequence, finish: Finish, tail: str, now: float) -> Submission:
        submission = sequence.submission
        sequence.finish, sequence.tail = finish, tail
        self._end(sequence, finish.kind, now)
        if finish.aborted and finish.status:
            submission.fail(failures.aborted(finish))
        elif sequence.texts is not None and not sequence.fresh:
            sequence.fresh = True
            submission.fresh.append(sequence)
        return submission

    def _rejected(self, message: Rejected) -> None:
        now = time.monotonic()
        for uid in message.uids:
            sequence = self._sequences.pop(uid)
            submission = sequence.submission
            self._end(sequence, FinishKind.ABORT, now)
            submission.fail(failures.rejected(message, sequence.prompt))

    # -- life of a sequence -----------------------------------------------------------------------------------------

    def _admit(self, probe: bool) -> None:
        self._check_alive()
        if self.draining.done():
            raise failures.draining()
        if not probe and self._max_queued is not None and self._num_waiting >= self._max_queued:
            raise failures.queue_full()

    def _check_alive(self) -> None:
        if self.death.done():
            raise failures.peer_died(self.death.result())

    def _count_sent(self, submission: Submission) -> None:
        if not submission.sent:
            submission.sent = True
            self._num_waiting -= 1

    def _send(self, prompt: Prompt, submission: Submission) -> None:
        worker = self._pick_worker()
        uids = [Uid(next(self._uids)) for _ in range(prompt.params.n)]
        for uid in uids:
            sequence = Sequence(uid, len(submission.sequences), worker, prompt, submission)
            submission.sequences.append(sequence)
            self._sequences[uid] = sequence
        submission.num_open += len(uids)
        self._num_waiting += len(uids)
        generate = Generate(uids, prompt.spec, prompt.text, prompt.ids, prompt.embeds, submission.arrival_s)
        self._to_tokenizers[worker].send(generate)

    def _end(self, sequence: Sequence, kind: FinishKind, now: float) -> None:
        """Its last message came, and the table has forgotten it."""
        sequence.submission.num_open -= 1
        if not sequence.opened:
            self._num_waiting -= 1
        self._tally.ended(sequence, kind, now)

    def _leave(self, submission: Submission) -> None:
        """The handler is done with its request: nothing more is kept of what still runs."""
        self._submissions.discard(submission)
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
