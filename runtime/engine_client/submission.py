"""One caller's request while it runs: its sequences, and the wait for what comes next.

Decides what is kept of a sequence between two reads of its caller. Knows no socket and no message union.
A sequence that its client gave up stays known until its last message came, but keeps nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from collections.abc import Sequence as Many
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ramet.ipc.content import Content
from ramet.ipc.media import Prepared
from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.engine_client.places import FieldPlaces
from ramet.runtime.engine_client.recording import CURRENT as RECORDING
from ramet.runtime.engine_client.trace_context import CURRENT
from ramet.runtime.errors import ClientError, RametError, ServerError
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.replies.logprobs import HiddenLists, LogprobLists

T = TypeVar("T")
E = TypeVar("E")
WEIGHT_VERSION = "default"  # of the weights of the start
MAX_RENDERED = 8  # waits for the tokenizer that are kept of a request that is traced
MAX_NUMBERS = 1 << 22  # of one reply: they become lists and JSON while other requests wait

# of all prompts of one request, each times its samples: 128 samples of 127k token ids, or every body of 32 MiB once
MAX_PROMPT_BYTES = 1 << 26
SEQUENCES_AT_ONCE = 256  # the server sends them in 5 to 10 ms
BYTES_AT_ONCE = 1 << 16  # of prompts: a tokenizer reads them in 20 to 30 ms
QUEUE_FULL = "The request queue is full."
COUNTED = "a token id or number counts 4 and a character, of a constraint too, 1, in each sample of its prompt"


def check_numbers(place: str, count: int, each: int) -> None:
    """Raises ClientError where `count` prompts, so many numbers of each, come to more than one reply holds."""
    if count * each > MAX_NUMBERS:
        fact = f"makes {count} times {each} numbers, must be at most {MAX_NUMBERS} together"
        raise ClientError(place, fact, "send it as several requests")


def check_bytes(place: str, total: int, hint: str) -> None:
    """`total`: bytes of all prompts with their samples, as Prompt.num_bytes counts them. Raises ClientError."""
    if total > MAX_PROMPT_BYTES:
        raise ClientError(
            place, f"comes to {total} bytes over all sequences, must be at most {MAX_PROMPT_BYTES}: {COUNTED}", hint
        )


def ended(why: str) -> ClientError:
    """Of a request that somebody ended, and that has nothing to show."""
    return ClientError("", f"The request was ended before it was done: {why}")


class Prompt(NamedTuple):
    """One prompt, to be sampled spec.params.n times."""

    rid: str
    spec: RequestSpec
    content: Content = Content()
    batch_rid: str = ""  # of the whole request, where its prompts have rids of their own
    places: FieldPlaces = FieldPlaces()  # for errors
    sources: tuple[GivenMedia, ...] = ()  # media that are not prepared yet

    @property
    def params(self) -> SamplingParams:
        return self.spec.params

    def with_media(self, media: tuple[Prepared, ...]) -> "Prompt":
        """The prompt with what was made of its sources."""
        return self._replace(content=replace(self.content, media=media), sources=())

    def id_of(self, sample: int) -> str:
        """The samples of one prompt have ids of their own; "" without a rid."""
        return f"{self.rid}-{sample}" if self.rid and self.params.n > 1 else self.rid

    @property
    def num_bytes(self) -> int:
        """Of one sample; those of a text are its characters."""
        constraint = self.spec.constraint
        return self.content.size + (len(constraint.text) if constraint else 0)


def in_pieces(entries: Many[E], weigh: Callable[[E], tuple[int, int]]) -> Iterator[Many[E]]:
    """Entries in order, as many at once as are sent before others are served.

    `weigh`: how many sequences or calls an entry is, and its bytes.
    """
    start, num, size = 0, 0, 0
    for end, (more, its_size) in enumerate(map(weigh, entries), 1):
        num, size = num + more, size + its_size
        if num >= SEQUENCES_AT_ONCE or size >= BYTES_AT_ONCE or end == len(entries):
            yield entries[start:end]
            start, num, size = end, 0, 0


def num_sequences(prompts: Many[Prompt]) -> int:
    """Each prompt as often as it is sampled."""
    return sum(prompt.params.n for prompt in prompts)


class Weight(NamedTuple):
    """Of prompts, each as often as it is sampled."""

    num_sequences: int
    num_bytes: int  # as Prompt.num_bytes counts them


def weight_of(prompts: Many[Prompt]) -> Weight:
    return Weight(num_sequences(prompts), sum(prompt.num_bytes * prompt.params.n for prompt in prompts))


def sum_of(weights: Iterable[Weight]) -> Weight:
    return Weight(*map(sum, zip(*weights, strict=True)))


def check_queue(place: str, asked: int, waiting: int, most: int, free_rows: int, at_once: int) -> None:
    """Raises where the `asked` sequences of a request do not all fit into the queue beside the `waiting` ones, `most`
    together, not counting those that can run at once because rows are free. `place`: the field of its prompts.

    A request enters whole or not at all. While nothing else waits, it may bring as many sequences more as run
    `at_once`: they leave the queue with the next steps.
    """
    if asked > most + at_once:
        fact = f"asks for {asked} sequences (prompts times n), must be at most {most + at_once}"
        hint = f"{most} wait (--max-queued-requests) while {at_once} run; send fewer at once"
        raise ClientError(place, fact, hint)
    if waiting and waiting + asked > most + free_rows:
        raise ServerError(QUEUE_FULL, 503)


class Sequence:
    """One uid. `texts` and `tokens` are parallel: what arrived and was not taken yet."""

    __slots__ = (
        "changes", "finish", "fresh", "hidden", "id", "index", "interval", "last_s", "logprobs", "num_cached",
        "num_prompt", "num_taken", "opened", "prompt", "prompt_ids", "routes", "said", "sample", "submission", "tail",
        "texts", "tokens", "uid", "weight_version", "worker",
    )  # fmt: skip

    def __init__(
        self, uid: Uid, index: int, worker: int, prompt: Prompt, submission: "Submission", sample: int = 0
    ) -> None:
        self.uid, self.index, self.worker, self.prompt, self.submission = uid, index, worker, prompt, submission
        self.sample = sample
        self.id = prompt.id_of(sample) or f"{uid}"
        self.texts: list[str] | None = []  # None: abandoned
        self.tokens: list[int] = []
        self.said: list[str] | None = None  # texts that were taken, where the log wants them
        self.num_taken = self.num_prompt = self.num_cached = 0
        self.interval = prompt.params.stream_interval
        self.opened = False
        self.prompt_ids = b""  # packed, of one that asked for them, once it is opened
        self.fresh = False  # listed in submission.fresh
        self.finish: Finish | None = None
        self.tail = ""  # text that only the end made certain
        self.logprobs: LogprobLists | None = None  # of one that asked for log-probabilities, once it is opened
        self.hidden: HiddenLists | None = None  # of one that asked for hidden states, once it is opened
        self.routes = b""  # of one that asked for its tokens' experts, once it has ended: as Closed has them
        self.weight_version = WEIGHT_VERSION  # of the weights that draw its tokens now
        self.changes: list[tuple[str, int]] = []  # a version that drew its first tokens, and how many, earliest first
        self.last_s = 0.0  # when the newest token came; 0.0: none yet

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
            self.changes.append((self.weight_version, self.num_taken + len(self.tokens)))
        self.weight_version = version

    def abandon(self) -> None:
        """Keep nothing of what came and of what will come."""
        self.num_taken += len(self.tokens)
        if self.said is not None:
            self.said += self.texts or ()
        self.texts = None
        self.tokens = []
        self.prompt_ids = self.routes = b""
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
        """Of one that has ended and asked for one state of its prompt: its numbers, or what a head made of them."""
        assert self.hidden is not None, f"{self.uid} did not ask for hidden states"
        return self.hidden.pooled

    @property
    def num_generated(self) -> int:
        return self.num_taken + len(self.tokens)


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
        self.rid = rid  # of the whole; its prompts have their own
        self.streaming, self.arrival_s, self.as_batch, self.probe = streaming, arrival_s, as_batch, probe
        self.sequences: list[Sequence] = []
        self.fresh: list[Sequence] = []
        self.num_unsent = 1  # sequences that are not sent yet; 1 while its prompts are being made
        self.num_open = 0
        self.longest = 0  # new tokens of the longest sequence that has ended
        self.error: RametError | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.aborted = False  # an Abort of its sequences was sent
        self.left = False  # its caller is done with it
        self.at_end: list[Callable[[], None]] = []  # called when it is left and its last sequence has ended
        self.owner = OWNER.get()
        self.trace = CURRENT.get()  # None: no server's
        self.recording = None if probe else RECORDING.get()
        self._num_held, self._max_numbers = 0, max_numbers
        self._is_whole = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_mixed(self) -> bool:
        """Of a request that has not ended, and is worth nothing in part: other weights have computed some of it."""
        return self._is_whole and any(each.finish is not None or each.is_told for each in self.sequences)

    async def next(self, most: int | None = None) -> list[Sequence]:
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

    async def finished(self) -> list[Sequence]:
        """Every sequence, when all have ended. Raises the error that ended the request."""
        while await self.next():
            pass
        return self.sequences

    async def whole(self) -> list[Sequence]:
        """As `finished`, for a reply that is worth nothing in part: an abort is an error."""
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
            if self.recording is not None and len(self.recording.rendered) < MAX_RENDERED:
                self.recording.rendered.append((began_s, time.monotonic()))

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
            if self.recording is not None:
                self.recording.failure = error.status
        self.wake()

    def leave(self) -> None:
        self.left = True
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
    """As a task, which can be cancelled without a trace; asyncio logs a gathering future that nobody awaits."""
    return await asked
