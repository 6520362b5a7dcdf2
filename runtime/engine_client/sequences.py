"""The sequences that were sent and have not ended, what arrives for them, and what metrics and the log get of it.

Decides when a sequence is forgotten: with its last message (Closed or Rejected), also if its client went away before;
and what is observed when. Knows no transport and no queue limit. A token costs a few dictionary and list updates, and
no task: gaps between tokens are gathered over a step.
"""

import asyncio
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable

from msgspec.structs import replace

from ramet.ipc.errors import ErrorRecord
from ramet.ipc.message import Uid
from ramet.ipc.messages import Closed, FinishKind, Opened, Rejected, TokenStep
from ramet.ipc.times import SequenceTimes, Span
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.recording import EndedSequence, RequestRecording
from ramet.runtime.engine_client.request_log import RequestLog
from ramet.runtime.engine_client.submission import UNOPENED, WEIGHT_VERSION, GeneratedSequence, Submission
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.metrics.table import DEVICE, Metrics
from ramet.runtime.replies.logprobs import HiddenLists, LogprobLists

NO_TOKEN_YET = 0.0
MIXED = "The weights were updated while the prompts of this request were computed: send it again."


class SequenceTable:
    """`num_waiting`: how many are neither opened nor ended."""

    def __init__(self, metrics: Metrics, request_log: RequestLog) -> None:
        self._metrics, self._request_log = metrics, request_log
        self.by_uid: dict[Uid, GeneratedSequence] = {}
        self.num_waiting = 0
        self.waiting_of = Counter[str]()  # the same by the name of their owner
        self.weight_version = WEIGHT_VERSION  # of the weights that compute now
        self._versions = {0: WEIGHT_VERSION}  # by the number of the weights
        self._step_waiters: list[asyncio.Future[None]] = []
        self._end_waiters: list[asyncio.Future[None]] = []

    async def none_left(self, held: Callable[[GeneratedSequence], bool]) -> None:
        """Returns when the last of those that are `held` has ended."""
        while any(map(held, self.by_uid.values())):
            waiter = asyncio.get_running_loop().create_future()
            self._end_waiters.append(waiter)
            await waiter

    def named(self, rid: str) -> list[GeneratedSequence]:
        """Sequences of this name that the one who asks may use."""
        may_use = OWNER.get().may_use
        return [
            each for each in self.by_uid.values() if each.is_named(rid) and may_use(each.submission.origin.owner.name)
        ]

    def open_of(self, submission: Submission) -> list[GeneratedSequence]:
        """Sequences of the request that have not ended."""
        return [sequence for sequence in submission.sequences if sequence.uid in self.by_uid]

    def next_step(self) -> asyncio.Future[None]:
        """Becomes done when a step arrives, whosesoever tokens it brings."""
        waiter = asyncio.get_running_loop().create_future()
        self._step_waiters = [*(each for each in self._step_waiters if not each.done()), waiter]
        return waiter

    def name_weights(self, version: str) -> int:
        """A number for weights that are about to compute."""
        number = len(self._versions)
        self._versions[number] = version
        return number

    def _take_weights(self, number: int) -> None:
        """What follows is computed with these. A request whose numbers would be of both is of no use in part."""
        self.weight_version = version = self._versions[number]
        for sequence in self.by_uid.values():
            if sequence.texts is not None:
                sequence.take_weights(version)
        for submission in {sequence.submission for sequence in self.by_uid.values()}:
            if submission.is_mixed:
                submission.fail(ServerError(MIXED, 503))

    def add(self, sequence: GeneratedSequence) -> None:
        """One that is sent now."""
        self.by_uid[sequence.uid] = sequence
        sequence.submission.num_open += 1
        self.num_waiting += 1
        self.waiting_of[sequence.submission.origin.owner.name] += 1

    def apply(self, step: TokenStep) -> None:
        """One pass over the columns of a step."""
        now, sequences = time.monotonic(), self.by_uid
        if step.weights:
            self._take_weights(step.weights)
        woken: set[Submission] = set()
        # when the token before came -> how many tokens; sequences that run together share it, so this is short
        gaps: dict[float, int] = defaultdict(int)
        for opened in step.opened:
            self._open(sequences[opened.uid], opened)
        tokens = array("i")
        tokens.frombytes(step.tokens)
        for uid, token, text in zip(step.uids, tokens, step.texts, strict=True):
            sequence = sequences[uid]
            gaps[sequence.last_s] += 1
            if sequence.last_s == NO_TOKEN_YET:
                self._metrics.timing.first_token_s.observe(now - sequence.submission.origin.arrival_s)
                if (recording := sequence.submission.origin.recording) is not None:
                    recording.first_token_s = recording.first_token_s or now
            sequence.last_s = now
            texts = sequence.texts
            if texts is None:
                continue  # abandoned
            texts.append(text)
            sequence.tokens.append(token)
            if not sequence.fresh and (submission := sequence.submission).streaming and sequence.due:
                sequence.fresh = True
                submission.fresh.append(sequence)
                woken.add(submission)
        for logprobs in step.logprobs:
            sequence = sequences[logprobs.uid]
            if sequence.logprobs is not None:  # not abandoned
                sequence.submission.hold(sequence.logprobs.add(logprobs))
        for states in step.hidden:
            sequence = sequences[states.uid]
            if sequence.hidden is not None:
                sequence.submission.hold(sequence.hidden.add(states))
        for closed, tail in zip(step.closed, step.tails, strict=True):
            sequence = sequences.pop(closed.uid)
            if closed.routes and sequence.texts is not None:
                sequence.submission.hold(len(closed.routes) // 4)
            woken.add(self._close(sequence, closed, tail, now))
            if (recording := sequence.submission.origin.recording) is not None:
                _record(recording, sequence, closed, step.detokenized)
        if step.closed and self._end_waiters:
            self._wake_end_waiters()
        for submission in woken:
            submission.wake()
        if self._step_waiters:
            self._wake_waiters()
        self._metrics.generated_tokens.add(len(tokens))
        for last_s, num in gaps.items():
            if last_s != NO_TOKEN_YET:
                self._metrics.timing.token_gap_s.observe(now - last_s, num)

    def _leaves_queue(self, sequence: GeneratedSequence) -> None:
        self.num_waiting -= 1
        name = sequence.submission.origin.owner.name
        self.waiting_of[name] -= 1
        if not self.waiting_of[name]:
            del self.waiting_of[name]

    def reject(self, message: Rejected) -> None:
        now = time.monotonic()
        for uid in message.uids:
            sequence = self.by_uid.pop(uid)
            self._end(sequence, FinishKind.ABORT, now)
            sequence.submission.fail(sequence.prompt.places.as_written(message.error))
            if (recording := sequence.submission.origin.recording) is not None:
                _record(recording, sequence, None, None)
        self._wake_end_waiters()

    def _wake_end_waiters(self) -> None:
        for waiter in self._end_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._end_waiters.clear()

    def _wake_waiters(self) -> None:
        for waiter in self._step_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._step_waiters.clear()

    def _open(self, sequence: GeneratedSequence, opened: Opened) -> None:
        if sequence.texts is None:  # abandoned
            opened = replace(opened, prompt_ids=b"")
        sequence.opened, sequence.weights.version = opened, self.weight_version
        if opened.prompt_ids:
            sequence.submission.hold(opened.prompt_tokens)
        spec = sequence.prompt.spec
        if spec.logprobs is not None and sequence.texts is not None:
            sequence.logprobs = LogprobLists(spec.logprobs, opened.chosen_texts)
        if spec.hidden is not None and sequence.texts is not None:
            sequence.hidden = HiddenLists(spec.hidden, opened.prompt_tokens)
        self._leaves_queue(sequence)
        if sequence.submission.probe:
            return
        self._metrics.prompt_tokens.add(opened.prompt_tokens)
        self._metrics.cached_tokens.add(opened.cached_tokens, DEVICE)

    def _close(self, sequence: GeneratedSequence, closed: Closed, tail: str, now: float) -> Submission:
        submission, finish = sequence.submission, closed.finish
        sequence.closed, sequence.tail = closed, tail
        self._end(sequence, finish.kind, now)
        if not finish.aborted and not submission.probe:
            self._metrics.timing.observe(closed.times, sequence.opened.prompt_tokens, sequence.num_generated)
        if finish.error is not None and finish.error.status and not submission.as_batch:
            submission.fail(_failure(finish.error, sequence.prompt))
        elif sequence.texts is not None and not sequence.fresh:
            sequence.fresh = True
            submission.fresh.append(sequence)
        return submission

    def _end(self, sequence: GeneratedSequence, kind: FinishKind, now: float) -> None:
        """Its last message came, and the table has forgotten it."""
        submission = sequence.submission
        submission.num_open -= 1
        if submission.at_end:
            submission.end_if_done()
        if sequence.opened is UNOPENED:
            self._leaves_queue(sequence)
        if submission.probe:
            return  # of no client: one that a busy server did not get to would count as a request that was aborted
        latency_s = now - submission.origin.arrival_s
        self._metrics.sequences.add(1)
        self._metrics.ended.add(1, kind.value)
        submission.longest = max(submission.longest, sequence.num_generated)
        if not submission.num_open and not submission.num_unsent:  # the last of its sequences
            self._metrics.timing.longest_outputs.observe(submission.longest)
        if kind is FinishKind.ABORT:
            self._metrics.aborted.add(1)
        else:
            self._metrics.timing.latency_s.observe(latency_s)
        if self._request_log.on:
            self._request_log.ended(sequence, kind, latency_s)


def _record(
    recording: RequestRecording, sequence: GeneratedSequence, closed: Closed | None, detokenized: Span | None
) -> None:
    """The end of a sequence that is traced. `closed` None: it was refused before the scheduler got it."""
    finish, times = (closed.finish, closed.times) if closed is not None else (None, SequenceTimes())
    recording.add(
        EndedSequence(sequence.index, sequence.sample, finish, times, detokenized),
        prompt_tokens=sequence.opened.prompt_tokens,
        cached_tokens=sequence.opened.cached_tokens,
        new_tokens=sequence.num_generated,
    )


def _failure(error: ErrorRecord, prompt: Prompt) -> ClientError | ServerError:
    """The error of a request whose sequence was aborted for a reason of its own."""
    return prompt.places.as_written(error) if 400 <= error.status < 500 else ServerError(str(error), error.status)
