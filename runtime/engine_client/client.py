"""The engine as its callers see it: the server's handlers, `LLM`, and the language.

Decides uids, which tokenizer worker gets a prompt, and whether a request may enter (queue limit, drain, failure). Knows
no HTTP and no transport: messages leave through outboxes and come in through `deliver`. Between processes they travel
over ZeroMQ (server/process.py), within one between threads (runtime/processes/inprocess.py). Everything runs on the
event loop that the client was made on: no lock, and no task per token. An Abort is sent through the worker that got
the prompt, so it never overtakes it.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator, Sized
from collections.abc import Sequence as Many
from contextlib import contextmanager
from functools import partial
from itertools import count, cycle
from typing import Any, TypeVar

import msgspec

from ramet.ipc.channel import Outbox
from ramet.ipc.control import (
    Control,
    ControlReply,
    DropAdapter,
    FlushCache,
    GetState,
    LoadAdapter,
    LocateSequences,
    MemoryTag,
)
from ramet.ipc.media import Prepared
from ramet.ipc.message import Message, Uid
from ramet.ipc.messages import (
    Abort,
    CallFailed,
    ChoicesReply,
    Detokenize,
    DetokenizeReply,
    Drain,
    Generate,
    GenerateAll,
    Limits,
    LinesDropped,
    PeerDied,
    ProgramsEnded,
    PromptReply,
    Rejected,
    Render,
    RenderChoices,
    RenderPrompt,
    RenderReply,
    Segment,
    TextStep,
    Tokenize,
    TokenizeReply,
    ToServer,
)
from ramet.ipc.params import shown
from ramet.ipc.stats import Stats
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.access.owner import Owner
from ramet.runtime.config import Args
from ramet.runtime.engine_client.adapters import AdapterNames, has_generation, in_use
from ramet.runtime.engine_client.caller import Caller, for_caller
from ramet.runtime.engine_client.media import MediaService, Preparing, preparing, with_media
from ramet.runtime.engine_client.occupation import Occupation
from ramet.runtime.engine_client.pauses import Pauses
from ramet.runtime.engine_client.queue_share import QueueShare
from ramet.runtime.engine_client.recording import Recording
from ramet.runtime.engine_client.request_log import RequestLog
from ramet.runtime.engine_client.sequences import SequenceTable
from ramet.runtime.engine_client.submission import (
    MAX_NUMBERS,
    QUEUE_FULL,
    SEQUENCES_AT_ONCE,
    Prompt,
    Sequence,
    Submission,
    Weight,
    check_bytes,
    check_queue,
    ended,
    in_pieces,
    num_sequences,
    sum_of,
    weight_of,
)
from ramet.runtime.engine_client.weights import ServedWeights
from ramet.runtime.errors import ClientError, RametError, ServerError
from ramet.runtime.metrics.table import Metrics

Answer = ControlReply | TokenizeReply | RenderReply | DetokenizeReply | PromptReply | ChoicesReply
T = TypeVar("T")
A = TypeVar("A", ControlReply, TokenizeReply, RenderReply, DetokenizeReply, PromptReply, ChoicesReply)
IN_TURN = 32  # prompts of one request of thousands that are in the queue at once
MAX_FLUSH_WAIT_S = 3600.0


class EngineClient:
    """A submission is read whole (`await submission.finished()`) or as a stream (`await submission.next()`).

    `draining` and `death` become done when the parent process says so. `limits`: of the model and the memory.
    """

    def __init__(
        self,
        to_tokenizers: Many[Outbox],
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
        self._to_tokenizers, self._to_scheduler = to_tokenizers, to_scheduler
        self._max_queued, self._timeout_s = args.schedule.max_queued_requests, args.serve.request_timeout_s
        self._queue_share = QueueShare(args, limits.max_running_requests)
        self._max_numbers = max_numbers
        self._max_media = None if max_numbers is None else args.media.max_media_per_request
        self._metrics = metrics
        self._workers = cycle(range(len(to_tokenizers)))
        self._uids, self._call_numbers = count(1), count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}  # questions by their numbers: what waits for the answer
        self.request_log = RequestLog(args.serve, metrics)
        self._sequences = SequenceTable(metrics, self.request_log)
        self.adapters = AdapterNames(args)
        self._changes_adapters = asyncio.Lock()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._submissions: set[Submission] = set()
        of_all = self.control, self._sequences
        self.pauses = Pauses(*of_all, self._abort_all)
        self.weights = ServedWeights(args, *of_all, self._submissions, self.pauses, self._abort_all)
        self._occupation = Occupation(self.control, self.pauses, self.weights.changing)
        self._unsent: set[Submission] = set()  # those whose prompts are being made
        self._none_left = asyncio.Event()  # no submission is open
        self._none_left.set()
        self._failure: RametError | None = None
        self.stats, self.stats_s = Stats(), time.time()  # what the scheduler said last, and when (Unix time)
        self.num_streams = 0  # submissions whose callers read tokens as they come

    @property
    def num_open(self) -> int:
        """Sequences whose last message has not come, those of clients that went away included."""
        return len(self._sequences.by_uid)

    @property
    def num_waiting(self) -> int:
        """Sequences that are neither opened nor ended, and requests whose prompts are being made."""
        return self._sequences.num_waiting + sum(each.num_unsent for each in self._unsent)

    @property
    def _num_free_rows(self) -> int:
        """How many of the waiting sequences can run at once: they wait for no other one to end, nor for an operator."""
        if self.pauses.began.is_set():
            return 0
        num_opened = self.num_open - self._sequences.num_waiting
        return max(0, self.limits.max_running_requests - num_opened)

    def _num_waiting_of(self, name: str) -> int:
        """The number of waiting sequences that belong to the owner of this name."""
        unsent = sum(each.num_unsent for each in self._unsent if each.owner.name == name)
        return self._sequences.waiting_of[name] + unsent

    def _num_free_rows_for(self, name: str) -> int:
        """The free rows that waiting sequences of other owners leave."""
        return max(0, self._num_free_rows - (self.num_waiting - self._num_waiting_of(name)))

    def adapters_in_use(self) -> tuple[frozenset[str], frozenset[str]]:
        """Of sequences that run, and of those that wait."""
        return in_use(self._sequences.by_uid.values())

    @property
    def unanswered(self) -> list[Sized]:
        """What was sent and has no last answer yet, as it is at any time: questions and sequences."""
        return [self._calls, self._sequences.by_uid]

    def check_alive(self) -> None:
        """Raises why nothing can be asked any more."""
        if self._failure is not None:
            raise self._failure

    def check_ready(self) -> None:
        """Raises why no new request is taken."""
        self.check_alive()
        if self.draining.done():
            raise ServerError("The server is shutting down and takes no new requests.", 503)

    # -- what callers ask -------------------------------------------------------------------------------------------

    @contextmanager
    def open(
        self, streaming: bool, probe: bool = False, *, as_batch: bool = False, rid: str = ""
    ) -> Iterator[Submission]:
        """A request from its arrival on. Leaving the block aborts what has not ended by then.

        It is refused while `max_queued` sequences wait, not counting those for which rows are free, and by `send`
        where its own are too many beside them.
        `rid`: what ends it while its prompts are being made.
        """
        self.check_ready()
        most = self._max_queued
        if not probe and most is not None and self.num_waiting >= most + self._num_free_rows:
            raise ServerError(QUEUE_FULL, 503)
        if not probe and (name := OWNER.get().bounded):
            self._queue_share.check(self._num_waiting_of(name), self._num_free_rows_for(name))
        submission = Submission(
            streaming, time.monotonic(), as_batch=as_batch, probe=probe, max_numbers=self._max_numbers, rid=rid
        )
        self._submissions.add(submission)
        self._none_left.clear()
        self.num_streams += streaming
        self._unsent.add(submission)
        if self._timeout_s is not None:
            submission.timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire, submission)
        try:
            yield submission
        finally:
            self._leave(submission)

    def send(self, prompts: Many[Prompt], submission: Submission) -> None:
        """Its prompts, all of them. Raises ClientError or ServerError where they are more than may be sent."""
        self._take_room(prompts, weight_of(prompts), submission)
        self._send(self._marked(prompts, submission.owner), submission)

    async def send_in_pieces(self, prompts: Many[Prompt], submission: Submission) -> None:
        """As `send`, but other requests are served between pieces: here, and in the tokenizer workers, to which the
        next piece is sent when they have read the last one.

        Raises the error that ended the request meanwhile; what was sent of it is aborted when its block is left.
        """
        if submission.as_batch or len(prompts) < 2:  # a batch is one message
            self.send(prompts, submission)
            return
        if len(prompts) > SEQUENCES_AT_ONCE:
            prompts = await submission.unless_ended(self._marked_in_turn(prompts, submission))
        else:
            self._take_room(prompts, weight_of(prompts), submission)
            prompts = self._marked(prompts, submission.owner)
        for i, piece in enumerate(in_pieces(prompts, lambda prompt: (prompt.params.n, prompt.num_bytes))):
            if i:
                await submission.unless_ended(self._read_by_workers(submission.owner.name))
            self._send(piece, submission)

    async def _marked_in_turn(self, prompts: Many[Prompt], submission: Submission) -> Many[Prompt]:
        """As `_marked`, if there is room for them; other requests are served in between."""
        weights = await _in_turn(prompts, lambda piece: [weight_of(piece)])
        self._take_room(prompts, sum_of(weights), submission)
        return await _in_turn(prompts, partial(self._marked, owner=submission.owner))

    def _marked(self, prompts: Many[Prompt], owner: Owner) -> Many[Prompt]:
        """The prompts as they are sent. Raises ClientError where they name an adapter that is not loaded."""
        return self._with_adapters(_owned(prompts, owner))

    async def _read_by_workers(self, owner: str) -> None:
        """Returns when the tokenizer workers have read all prompts of this owner that were sent before."""

        def question(call: int) -> Tokenize:
            return Tokenize(call, "", False, owner=owner, after_prompts=True)

        await asyncio.gather(*[self._ask(each, TokenizeReply, question) for each in self._to_tokenizers])

    def _send(self, prompts: Many[Prompt], submission: Submission) -> None:
        submission.num_unsent -= num_sequences(prompts)
        if not submission.num_unsent:
            self._unsent.discard(submission)
        if submission.recording is not None:
            self._record(submission.recording, prompts, submission)
        if submission.as_batch:
            worker = next(self._workers)
            batch = GenerateAll([self._generate(prompt, submission, worker) for prompt in prompts])
            self._to_tokenizers[worker].send(batch)
            return
        for prompt in prompts:
            worker = next(self._workers)
            self._to_tokenizers[worker].send(self._generate(prompt, submission, worker))

    async def send_with_media(self, prompts: Many[Prompt], submission: Submission) -> None:
        """As `send_in_pieces`, when the media of the prompts are prepared, where they have some."""
        if any(prompt.sources for prompt in prompts):
            prompts = await submission.during(with_media(prompts, self.preparing(submission)))
        await self.send_in_pieces(prompts, submission)

    def preparing(self, submission: Submission) -> Preparing:
        """What becomes of a request's media."""
        return preparing(self.media, self.limits.media, submission, self._max_media)

    async def run_in_turn(self, prompts: Many[Prompt], submission: Submission) -> list[Sequence]:
        """All of them to their ends, a few at a time: what others ask meanwhile waits for these few only.

        Raises the error that ended the request.
        """
        done: list[Sequence] = []
        num = min(IN_TURN, self._max_queued or IN_TURN)
        for start in range(0, len(prompts), num):
            self.send(prompts[start : start + num], submission)
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
        """End what a rid names (a request, a prompt or a sample), or everything (None); clients get what came so far.

        A rid names what the one who asks may use: see Owner. Returns how many sequences; a request whose prompts are
        being made, which is refused then, counts as one.
        """
        sequences = self._sequences.by_uid
        hit = list(sequences.values()) if rid is None else [sequences[uid] for uid in self.uids_of(rid)]
        self._send_abort(hit, message)
        unsent = list(self._unsent) if rid is None else self._unsent_of(rid)
        for submission in unsent:
            submission.fail(ended(message))
        return len(hit) + len(unsent)

    def _abort_all(self, message: str) -> None:
        self.abort(None, message)

    def end(self, submission: Submission, message: str) -> None:
        """End its sequences; its caller gets what came so far."""
        self._send_abort(self._open_of(submission), message)

    def uids_of(self, rid: str) -> list[Uid]:
        """Sequences of this name that the one who asks may use."""
        may_use = OWNER.get().may_use
        return [
            uid
            for uid, sequence in self._sequences.by_uid.items()
            if sequence.is_named(rid) and may_use(sequence.submission.owner.name)
        ]

    def is_making(self, rid: str) -> bool:
        """Whether the prompts of a request with this id are being made: media are prepared, and texts rendered."""
        return bool(self._unsent_of(rid))

    def id_of(self, uid: Uid) -> str:
        """The id of a sequence as clients know it; empty: it has ended."""
        sequence = self._sequences.by_uid.get(uid)
        return "" if sequence is None else sequence.id

    def end_programs(self, names: list[str]) -> None:
        """What is kept for their next requests is not needed. Raises what ended the engine."""
        self.check_alive()
        self._to_scheduler.send(ProgramsEnded(names, OWNER.get().name))

    async def control(self, question: Callable[[int], Control]) -> ControlReply:
        """Sends the scheduler what `question` makes of the call's number; returns its answer."""
        return await self._ask(self._to_scheduler, ControlReply, question)

    async def state(self) -> ControlReply:
        return await self.control(GetState)

    async def locate(self, uids: list[Uid]) -> ControlReply:
        """`uids`: MAX_LOCATED at most."""
        return await self.control(lambda call: LocateSequences(call, uids))

    def next_step(self) -> asyncio.Future[None]:
        """Becomes done when a step's tokens arrive, of any request: the scheduler and the detokenizer work."""
        return self._sequences.next_step()

    async def flush_cache(self, timeout_s: float) -> ControlReply:
        """`timeout_s`: how long it may wait until nothing runs or waits."""
        return await self.control(lambda call: FlushCache(call, timeout_s))

    async def load_adapter(self, name: str, path: str, *, pinned: bool = False, replaces: bool = False) -> None:
        """From its end on, requests get it by this name. `replaces`: what has the name is dropped, once its sequences
        have ended. See Caller for one that goes away. Raises ClientError.
        """
        await self._changed(lambda caller: self._load_adapter(caller, name, path, pinned, replaces))

    async def unload_adapter(self, name: str) -> None:
        """Refused to new requests at once; returns when those that have it are done. Raises ClientError."""
        generation = self.adapters.take_away(name)
        await self._changed(lambda _: self._drop_adapter(generation))

    async def update_weights(self, path: str, version: str | None, *, abort_all: bool = False) -> int:
        """As ServedWeights.update."""
        return await self._changed(lambda caller: self.weights.update(caller, path, version, abort_all=abort_all))

    async def release_memory(self, tags: Collection[MemoryTag]) -> None:
        """As Occupation.release."""
        await self._changed(lambda caller: self._occupation.release(caller, tags))

    async def resume_memory(self, tags: Collection[MemoryTag]) -> None:
        """As Occupation.resume."""
        await self._changed(lambda caller: self._occupation.resume(caller, tags))

    async def _changed(self, change: Callable[[Caller], Coroutine[Any, Any, T]]) -> T:
        return await for_caller(change, self.in_background)

    def in_background(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Whatever becomes of the caller."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load_adapter(self, caller: Caller, name: str, path: str, pinned: bool, replaces: bool) -> None:
        async with caller.turn(self._changes_adapters):
            generation = self.adapters.check_new(name, path, replaces=replaces)
            reply = await self.control(lambda call: LoadAdapter(call, generation, path, pinned))
            if not reply.ok:
                raise ClientError("lora_path", f"is {shown(path)}: {msgspec.json.decode(reply.body)['error']}")
            before = self.adapters.give(name, path, pinned, generation)
        if before is not None:
            await self._drop_adapter(before)

    async def _drop_adapter(self, generation: int) -> None:
        await self._sequences.none_left(lambda sequence: has_generation(sequence.prompt.spec, generation))
        await self.control(lambda call: DropAdapter(call, generation))

    async def tokenize(self, text: str, add_special_tokens: bool = True, pair: str | None = None) -> TokenizeReply:
        """`pair`: a second text behind it, as the tokenizer joins two."""
        asked = partial(Tokenize, text=text, add_special_tokens=add_special_tokens, pair=pair)
        return await self._ask_tokenizer(TokenizeReply, asked)

    async def render(self, chat: bytes, may_exceed: bool = False, has_media: bool = False) -> RenderReply:
        """A chat (JSON, see runtime/text/chats.py) to the ids of its prompt. The options are those of Render."""
        asked = partial(Render, chat=memoryview(chat), may_exceed=may_exceed, has_media=has_media)
        return await self._ask_tokenizer(RenderReply, asked)

    async def render_prompt(self, segments: list[Segment], media: tuple[Prepared, ...] = ()) -> PromptReply:
        """A prompt of the language to its text and ids, with what its media expand to."""
        return await self._ask_tokenizer(PromptReply, partial(RenderPrompt, segments=segments, media=media))

    async def render_choices(
        self, segments: list[Segment], choices: list[str], healed: bool, media: tuple[Prepared, ...] = ()
    ) -> ChoicesReply:
        """A prompt of the language and what may follow it to ids. `healed`: each is tokenised with the prompt."""
        asked = partial(RenderChoices, segments=segments, choices=choices, healed=healed, media=media)
        return await self._ask_tokenizer(ChoicesReply, asked)

    async def detokenize(self, ids: bytes, skip_special_tokens: bool = True) -> str:
        asked = partial(Detokenize, ids=ids, skip_special_tokens=skip_special_tokens)
        answer = await self._ask_tokenizer(DetokenizeReply, asked)
        return answer.text

    async def drained(self) -> None:
        """Returns when no handler waits for a sequence any more."""
        await self._none_left.wait()

    # -- what arrives -----------------------------------------------------------------------------------------------

    def deliver(self, message: ToServer) -> None:
        match message:
            case TextStep():
                self._sequences.apply(message)
            case Rejected():
                self._sequences.reject(message)
            case TokenizeReply() | RenderReply() | DetokenizeReply() | ControlReply() | CallFailed():
                self._answer(message)
            case PromptReply() | ChoicesReply():
                self._answer(message)
            case Stats():
                self._metrics.take(message)
                self.stats, self.stats_s = message, time.time()
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
        if self._failure is None:
            self._failure = error
        for submission in self._submissions:
            submission.fail(self._failure)
        for waiting in self._calls.values():
            if not waiting.done():
                waiting.set_exception(self._failure)

    # -- questions with one answer ----------------------------------------------------------------------------------

    async def _ask_tokenizer(self, kind: type[A], question: Callable[..., Message]) -> A:
        """Ask the worker whose turn it is. `question` makes the message of the call's number and the owner's name."""
        worker, owner = self._to_tokenizers[next(self._workers)], OWNER.get().bounded
        return await self._ask(worker, kind, lambda call: question(call=call, owner=owner))

    async def _ask(self, outbox: Outbox, kind: type[A], question: Callable[[int], Message]) -> A:
        """Sends the question with its number; returns the answer, or raises what it failed with."""
        self.check_alive()
        number = next(self._call_numbers)
        waiting = self._calls[number] = asyncio.get_running_loop().create_future()
        outbox.send(question(number))
        answer = await waiting
        assert isinstance(answer, kind)
        return answer

    def _answer(self, message: Answer | CallFailed) -> None:
        waiting = self._calls.pop(message.call)
        if waiting.done():
            return  # whoever asked went away
        if isinstance(message, CallFailed):
            waiting.set_exception(ClientError.of(message.error))
        else:
            waiting.set_result(message)

    # -- life of a request ------------------------------------------------------------------------------------------

    def _take_room(self, prompts: Many[Prompt], weight: Weight, submission: Submission) -> None:
        """Of these, the next that are sent. Raises ClientError and ServerError where a request that has sent nothing
        yet is more than may be sent.
        """
        if prompts and submission in self._unsent and not submission.probe:
            if self._max_numbers is not None:
                check_bytes(prompts[0].places.all_prompts, weight.num_bytes, "lower n, or send fewer prompts")
            self.check_count(prompts[0].places.all_prompts, weight.num_sequences, submission)
        submission.num_unsent = weight.num_sequences

    def check_count(self, place: str, asked: int, submission: Submission | None = None) -> None:
        """Check how many sequences a request has. Call it as soon as that is known, because reading them takes longer.

        `place`: the field of its prompts. `submission`: the request, once it is open. Raises ClientError and
        ServerError.
        """
        own = submission is not None  # counted while its prompts are being made
        if name := (submission.owner if submission is not None else OWNER.get()).bounded:
            held, free_rows = self._num_waiting_of(name) - own, self._num_free_rows_for(name)
            self._queue_share.check_asked(place, asked, held, free_rows)
        if self._max_queued is not None:
            rows = self._num_free_rows, self.limits.max_running_requests
            check_queue(place, asked, self.num_waiting - own, self._max_queued, *rows)

    def _with_adapters(self, prompts: Many[Prompt]) -> Many[Prompt]:
        """Those that name one with its generation. Raises ClientError."""
        found = []
        for prompt in prompts:
            if prompt.spec.lora is not None:
                try:
                    prompt = prompt._replace(spec=self.adapters.sent(prompt.spec))
                except ClientError as error:
                    raise prompt.places.as_written(error.record) from None
            found.append(prompt)
        return found

    def _generate(self, prompt: Prompt, submission: Submission, worker: int) -> Generate:
        """The prompt's message, with its samples in the table."""
        uids = [Uid(next(self._uids)) for _ in range(prompt.params.n)]
        for sample, uid in enumerate(uids):
            sequence = Sequence(uid, len(submission.sequences), worker, prompt, submission, sample)
            submission.sequences.append(sequence)
            self._sequences.add(sequence)
            if self.request_log.on and not submission.probe:
                self.request_log.begins(sequence)
        traced = submission.recording is not None
        return Generate(uids, prompt.spec, prompt.content, submission.arrival_s, traced)

    def _record(self, recording: Recording, prompts: Many[Prompt], submission: Submission) -> None:
        """What is sent of a request that is traced."""
        first = prompts[0].spec if prompts else None
        if first is not None and recording.sampling is None:
            recording.sampling, recording.is_stream = first.params, submission.streaming
            recording.adapter = first.lora.name if first.lora is not None else ""
        recording.sent(len(prompts), sum(prompt.params.n for prompt in prompts))

    def _leave(self, submission: Submission) -> None:
        """The handler is done with its request: nothing more is kept of what still runs."""
        self._submissions.discard(submission)
        self.weights.left.set()
        self.num_streams -= submission.streaming
        if not self._submissions:
            self._none_left.set()
        if submission.timer is not None:
            submission.timer.cancel()
        self._unsent.discard(submission)
        if submission.num_open:
            giving_up = self._give_up([*submission.sequences], aborted=submission.aborted)
            if next(giving_up, None) is not None:
                self.in_background(_each_in_turn(giving_up))
        submission.leave()
        # its sequences know it as well: without this circle a request is freed when it ends
        submission.sequences, submission.fresh = [], []

    def _give_up(self, sequences: list[Sequence], *, aborted: bool) -> Iterator[int]:
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
                self._send_abort(piece, "the client went away")
            if sequences:
                yield len(sequences)

    def _expire(self, submission: Submission) -> None:
        """Out of time: end its sequences now, for its handler may hang on a client that does not read."""
        assert self._timeout_s is not None
        fact = f"The request did not finish within {self._timeout_s:g} s (--request-timeout-s)."
        submission.fail(ServerError(fact, 504))
        submission.aborted = True
        self._send_abort(self._open_of(submission), "ran out of time")

    def _unsent_of(self, rid: str) -> list[Submission]:
        may_use = OWNER.get().may_use
        return [each for each in self._unsent if each.rid == rid and may_use(each.owner.name)]

    def _open_of(self, submission: Submission) -> list[Sequence]:
        return [sequence for sequence in submission.sequences if sequence.uid in self._sequences.by_uid]

    def _send_abort(self, sequences: list[Sequence], message: str) -> None:
        by_worker: dict[int, list[Uid]] = defaultdict(list)
        for sequence in sequences:
            by_worker[sequence.worker].append(sequence.uid)
        for worker, uids in by_worker.items():
            self._to_tokenizers[worker].send(Abort(uids, message))


async def _each_in_turn(steps: Iterator[object]) -> None:
    """Other tasks of the event loop run before each step."""
    await asyncio.sleep(0)
    for _ in steps:
        await asyncio.sleep(0)


async def _in_turn(prompts: Many[Prompt], act: Callable[[Many[Prompt]], Many[T]]) -> list[T]:
    """What `act` makes of all of them, some at a time; other requests are served in between."""
    made: list[T] = []
    for start in range(0, len(prompts), SEQUENCES_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        made += act(prompts[start : start + SEQUENCES_AT_ONCE])
    return made


def _owned(prompts: Many[Prompt], owner: Owner) -> Many[Prompt]:
    """The prompts, marked as this owner's where clients have keys of their own."""
    if not owner.name:
        return prompts
    return [prompt._replace(spec=prompt.spec.owned_by(owner.name, owner.scope)) for prompt in prompts]
