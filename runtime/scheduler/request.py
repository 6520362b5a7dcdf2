"""One sequence to generate: what is known of it (Request), and its row while it runs (RowTable, RunningRequest).

Written by the scheduler alone. A request has no prefill or decode phase: it has `prompt_len` tokens that were given and
`len(tokens)` that are known, and steps compute until they have all been read. A RunningRequest is what a
running request has and a waiting one has not: row, slots, room for its output.

The running requests are columns, one entry for each row of the slot table, so that a step costs what changes. Knows no
tree and no device. M rows, L context length rounded up to pages; row 0 is padding and belongs to no request.

    tokens[row]   [0, total)  known           [total, planned_total)  drawn by steps whose result is still to come
    slots[row]    [0, applied)  computed      [applied, scheduled)  being computed      [scheduled, allocated)  taken
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish, Logprobs
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import HiddenMode, Namespace, RequestSpec
from ramet.ipc.times import PrefillChunk, SequenceTimes, Span
from ramet.kernels import draw_params
from ramet.runtime.arrays import Doubles, Floats, Ints
from ramet.runtime.cache.node import Node
from ramet.runtime.cache.prefix import Lease
from ramet.runtime.engine.batch import PART_ROWS
from ramet.runtime.errors import ConfigError
from ramet.runtime.grammar.base import MAX_FORCED_BYTES
from ramet.runtime.grammar.output import ConstrainedOutput, Ending
from ramet.runtime.sampling.columns import MIN_REPETITION, write_draw_params
from ramet.runtime.scheduler.features.contexts import Base, FirstGroup, Group, Part
from ramet.runtime.scheduler.features.media import RequestMedia
from ramet.runtime.scheduler.features.tail_search import Healing
from ramet.runtime.scheduler.features.turns import Turns
from ramet.runtime.text.healing import Tail
from ramet.runtime.text.pattern import build_automaton

_MASK = (1 << 64) - 1
_NO_TOKENS: Ints = np.empty(0, dtype=np.int32)
_NO_OUTPUT = SamplingParams(max_new_tokens=0)
LONG = "long"  # the last of the namespace of sequences beyond their boundary
EVERY_STATE = (HiddenMode.ALL, HiddenMode.MEAN)  # what needs the hidden state of every prompt token


@dataclass(slots=True)
class Constrained:
    """What a request with a constraint has beyond others, as long as it lives."""

    output: ConstrainedOutput
    leave: Callable[[], None]  # says that the request has ended
    unsent: list[tuple[int, Logprobs | None]] = field(default_factory=list)  # tokens that a jump may still replace
    failure: Finish | None = None  # why no mask could be made for its next token
    is_slow: bool = True  # its masks are made and measured one by one, after those that are quick
    mask_s: float = 0.0  # processor time of its next mask, if that was measured
    parse_s: float = 0.0  # time of its library for its last tokens; on a clock that is cheap and counts other threads
    forced_bytes: int | None = None  # of text that a step appends without a draw; None: before the first one does
    undo: bool = False  # its mask was not ready in time: the next drawn token is taken back
    late_mask: Ints | None = None  # [W] int32, which a later turn fills: its step had no time for it
    ready: Ints | None = None  # [W] int32: its next mask, which was filled between two steps
    postponed: Callable[["RunningRequest"], Finish | None] | None = None  # a later turn does it with its last tokens

    @property
    def is_late(self) -> bool:
        """A later turn must do something before its next token can be drawn."""
        return self.postponed is not None or self.late_mask is not None


MAX_SEARCHED = 50_000  # states of stop patterns, times bytes of forced text that a step searches: 10 ms


def forced_bytes(patterns: tuple[str, ...]) -> int:
    """How much forced text a step may append and search for these stop patterns: a number of any load or machine."""
    states = sum(build_automaton(pattern).size for pattern in patterns)
    return min(max(MAX_SEARCHED // states, 1), MAX_FORCED_BYTES) if states else MAX_FORCED_BYTES


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
        times, chunks = (self.queued_s, self.admitted_s, self.prefilled_s, ended_s), tuple(self.chunks or ())
        return SequenceTimes(os.getpid(), *times, self.tokenized, chunks)


class Request:
    """`tokens` is what was known when it last began to wait: the prompt, which the samples of one prompt share, or
    after a retraction the output as well. It is never written. Those of media are numbers below zero (media.py).
    """

    __slots__ = (
        "adapter_slot",
        "arrival_s",
        "base",
        "biases",
        "boundary",
        "cached_tokens",
        "constrained",
        "embeds",
        "epoch",
        "first_group",
        "first_logprob",
        "groups",
        "healing",
        "is_apart",
        "is_long",
        "match_length",
        "match_losses",
        "match_next",
        "match_version",
        "media",
        "next_hidden",
        "next_logprob",
        "num_calls",
        "num_healed",
        "num_retractions",
        "opened",
        "part",
        "pooled",
        "prompt_len",
        "reads_others",
        "seed",
        "spec",
        "tail_bytes",
        "times",
        "tokens",
        "uid",
        "wanted",
        "weights",
    )

    def __init__(
        self,
        uid: Uid,
        prompt: Ints,
        spec: RequestSpec,
        *,
        seed: int,
        arrival_s: float = 0.0,
        embeds: Floats | None = None,
        tail: Tail | None = None,
        groups: tuple[Group, ...] = (),
        first_group: FirstGroup | None = None,
        boundary: int | None = None,
        times: StageTimes | None = None,
        media: RequestMedia | None = None,
    ) -> None:
        self.uid, self.spec, self.seed, self.arrival_s = uid, spec, seed, arrival_s
        self.times = times or StageTimes()
        self.tokens = prompt if media is None else media.mark(prompt)
        self.media = media  # None: its prompt is text alone
        self.prompt_len = len(prompt)
        self.boundary = boundary  # tokens beyond which all of its keys are others; None: there is no such length
        self.is_long = boundary is not None and len(prompt) > boundary  # it is beyond that
        self.embeds = embeds  # [prompt_len, hidden size]: what stands for the prompt's ids, which are zeros then
        self.groups, self.first_group = groups, first_group  # parallel contexts of its prompt; None: it has none
        self.base: Base | None = None  # what its row begins with, while it runs; None: nothing but its own prefix
        self.part: Part | None = None  # set where it is one sequence of a prompt with contexts
        self.biases = _biases_of(spec.params)  # made once: thousands of them would cost milliseconds in every step
        self.epoch = 0  # raised by a retraction: results of steps that were planned before it are dropped
        self.next_hidden = 0  # index of the first token whose hidden state was not returned yet (ALL, MEAN)
        self.pooled: Doubles | None = None  # [hidden size]: the sum of those before `next_hidden` (MEAN)
        # the first prompt token whose log-probability is asked for; None: there is none
        self.first_logprob = start = spec.logprobs.start if spec.logprobs is not None else None
        # index of the next prompt token whose log-probability is to be returned; None: none is left, or none is asked
        self.next_logprob = None if start is None or start + 1 >= self.prompt_len else start + 1
        self.cached_tokens: int | None = None  # of the prompt, when it was first admitted
        self.reads_others = False  # some of what it has read was computed by others
        self.is_apart = False  # it shares nothing with anybody (unsound.py)
        self.num_retractions = 0
        self.constrained: Constrained | None = None  # set when its constraint is compiled
        # set while the end of its prompt is chosen again
        self.healing = Healing(tail, None if spec.params.greedy else seed) if tail is not None else None
        self.tail_bytes = len(tail.text) if tail is not None else 0  # of its output, which are the prompt's
        self.num_healed = 0  # the first tokens of its output that spell nothing but the prompt's end
        self.opened = False  # its Opened message has been sent
        self.match_length, self.match_version = 0, -1  # cached prefix as of that version of the tree
        self.wanted: Node | None = None  # where it ends, while the request waits
        self.match_losses, self.match_next = 0, b""  # losses of that node then, and the page that follows the match
        self.adapter_slot = 0  # where its adapter is while it runs; 0: it has none
        self.weights = 0  # the number of those that have computed what it has cached
        self.num_calls = 0  # that its program has made before on the same state, as far as they are known

    @property
    def params(self) -> SamplingParams:
        return self.spec.params

    @property
    def namespace(self) -> Namespace:
        """Where what it computes is cached."""
        return self._computed_in((*self.spec.namespace, LONG) if self.is_long else self.spec.namespace)

    @property
    def prompt_namespace(self) -> Namespace:
        """Where its prompt is cached, whatever follows it."""
        return self._computed_in(self._prompt_in)

    @property
    def claimed_in(self) -> Namespace:
        """Where its leases are kept, for any weights. It includes the owner, so that no other may end its leases."""
        owner = self.spec.key_name
        return (*self._prompt_in, f"owner {owner}") if owner else self._prompt_in

    @property
    def _prompt_in(self) -> Namespace:
        is_long = self.boundary is not None and self.prompt_len > self.boundary
        return (*self.spec.namespace, LONG) if is_long else self.spec.namespace

    def _computed_in(self, namespace: Namespace) -> Namespace:
        if self.is_apart:
            namespace = (*namespace, f"apart {self.uid}")
        if self.media is not None and self.media.era:
            namespace = (*namespace, f"media {self.media.era}")
        return (*namespace, f"weights {self.weights}") if self.weights else namespace

    def take_weights(self, number: int) -> None:
        """It waits, and what it has computed so far was computed with others."""
        self.weights = number
        if self.media is not None:
            self.media.features.clear()
        if self.pooled is not None:
            self.pooled, self.next_hidden = None, 0

    def begin_apart(self) -> None:
        """It waits, and nothing that was computed so far is of use to it."""
        self.is_apart, self.match_version = True, -1

    @property
    def num_logprobs(self) -> int:
        """How many are returned at each place, if any are."""
        asked = self.spec.logprobs
        return 1 if asked is None else 1 + asked.num_top + len(asked.ids)

    @property
    def num_logprob_ids(self) -> int:
        """How many of them are those of ids that the client has chosen."""
        asked = self.spec.logprobs
        return 0 if asked is None else len(asked.ids)

    @property
    def forced_bytes(self) -> int:
        return forced_bytes(self.params.stop_regex)

    def ending(self, eos_ids: frozenset[int]) -> Ending:
        """What ends its output inside a constraint."""
        params, eos = self.spec.params, sorted(eos_ids)
        stops = sorted({*params.stop_token_ids, *eos})
        own, every = np.array(eos, dtype=np.int32), np.array(stops, dtype=np.int32)
        return Ending(own, every, params.ignore_eos, params.min_new_tokens)

    @property
    def returns_routes(self) -> bool:
        """Which experts its tokens went through."""
        return self.spec.expert_routes is not None

    def needs_each_step(self, raw_logprobs: bool) -> bool:
        """Something of each output token is returned, or done to it, that only a step of its own computes."""
        spec = self.spec
        returned = spec.hidden is not None or self.returns_routes
        return spec.processor is not None or returned or (raw_logprobs and spec.logprobs is not None)

    @property
    def returns_nothing(self) -> bool:
        """No token is drawn, and nothing is told of the prompt's."""
        return self.params.max_new_tokens == 0 and self.spec.logprobs is None and self.spec.hidden is None

    @property
    def returns_states_at_end(self) -> bool:
        """With the step that ends it."""
        return self.spec.hidden is not None

    @property
    def returns_states(self) -> bool:
        """The hidden state of every token is returned."""
        return self.spec.hidden is HiddenMode.ALL

    @property
    def rank(self) -> tuple[int, float, Uid]:
        """Who goes first: the highest priority, then the earliest arrival. Sorts ascending."""
        return -self.spec.priority, self.arrival_s, self.uid

    @property
    def limit(self) -> int:
        """Tokens of prompt and output together that it may have."""
        return self.prompt_len + self.params.max_new_tokens

    @property
    def remaining(self) -> int:
        """New tokens it may still get, as of when it last began to wait."""
        return self.limit - len(self.tokens)

    @property
    def prompt(self) -> Ints:
        """Its token ids; none if it came as embeddings."""
        return self.ids(0, self.prompt_len) if self.embeds is None else _NO_TOKENS

    def ids(self, start: int, stop: int) -> Ints:
        """Known tokens as the vocabulary has them."""
        tokens = self.tokens[start:stop]
        return tokens if self.media is None else self.media.numbers.ids(tokens)

    @property
    def reusable(self) -> Ints:
        """The known tokens of which all but the last may come from the cache: what is returned must be computed.

        Those after its base; of contexts that are to be computed only the first is among them.
        """
        end = len(self.tokens) if self.next_logprob is None else self.next_logprob
        if self.spec.hidden in EVERY_STATE or (self.spec.hidden is HiddenMode.FIRST and not self.next_hidden):
            end = min(end, self.next_hidden + 1)
        if self.groups and self.base is None:
            end = min(end, self.groups[0].start + self.groups[0].lengths[0] + 1)
        return self.tokens[self.base_length : end]

    @property
    def turns(self) -> Turns | None:
        """None: each of its tokens is at its index to the model, less the shift of its row."""
        return None if self.media is None else self.media.turns

    @property
    def returns_mean(self) -> bool:
        """That of the prompt's hidden states."""
        return self.spec.hidden is HiddenMode.MEAN

    @property
    def returns_early_states(self) -> bool:
        """Of tokens before the prompt's last one, or their mean: these must be computed, whatever is cached."""
        return self.spec.hidden is HiddenMode.FIRST or self.spec.hidden in EVERY_STATE

    def unknown_logprob(self, token: int) -> Logprobs:
        """Of a token of the prompt before which none has seen all that it follows."""
        asked = self.spec.logprobs
        assert asked is not None, self.uid
        nan, ids = np.float32(np.nan).tobytes(), np.array([token], dtype=np.int32).tobytes()
        return Logprobs(self.uid, True, ids, nan, ids * asked.num_top, nan * asked.num_top, nan * len(asked.ids))

    @property
    def base_length(self) -> int:
        return 0 if self.base is None else self.base.length


def request_of_part(request: Request, part: Part) -> Request:
    """One without output, to compute a part of its prompt. What it returns of these tokens is returned here."""
    tokens = np.concatenate([request.tokens[: part.own], request.tokens[part.at : part.stop]])
    states = request.spec.hidden if request.returns_early_states and request.next_hidden <= part.at else None
    spec = RequestSpec(_NO_OUTPUT, request.spec.logprobs, hidden=states)
    made = Request(part.uid, tokens, spec, seed=0, arrival_s=request.arrival_s)
    made.adapter_slot = request.adapter_slot
    made.base, made.part, made.next_hidden, made.next_logprob = part.base, part, part.own, None
    asked = request.next_logprob
    if asked is not None and asked < part.stop:
        first = part.own + max(asked - part.at, 0)
        if first == part.base.length:  # nothing that it follows is computed with it
            part.logprobs = [request.unknown_logprob(int(tokens[first]))]
            first += 1
        made.next_logprob = first if first < len(tokens) else None
    return made


def _biases_of(params: SamplingParams) -> tuple[Ints, Floats] | None:
    """Tokens, and what is added to the logit of each."""
    if not params.logit_bias:
        return None
    ids, values = zip(*params.logit_bias, strict=True)
    return np.array(ids, dtype=np.int32), np.array(values, dtype=np.float32)


def seed_of_sample(seed: int, sample: int) -> int:
    """The seed of the sample-th sequence of one prompt; sample 0 keeps the client's. uint64 (splitmix64 steps)."""
    z = (seed + sample * 0x9E3779B97F4A7C15) & _MASK
    if sample == 0:
        return z
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


NEVER = np.iinfo(np.int32).max


class RowFlag:
    """Bits of RowTable.flags: what a row asks beyond columns, so that its request is looked at step by step."""

    STOP_CHECK = 1  # stop ids, strings or patterns of its own
    BIAS = 2
    LOGPROBS = 4
    HIDDEN = 8
    PROCESSOR = 16  # sees its output: it cannot be planned before its last token is known
    IGNORE_EOS = 32
    CONSTRAINED = 64  # draws what a grammar allows
    JUMPS = 128  # what follows its next token may not be drawn: it cannot be planned before that token is known
    PATTERNS = 512  # stop patterns of its own: they may take long
    HEALING = 256  # the end of its prompt is chosen again: its next token may be taken back
    SERIAL = PROCESSOR | JUMPS | HEALING
    MASKED = CONSTRAINED | HEALING
    TOLD_LATE = MASKED | PATTERNS  # its token is told when more is known than that it was drawn


class RowTable:
    """Columns [M] unless said otherwise; the tokens and slots are [M, L]. Unwritten pages take no memory."""

    def __init__(self, max_running: int, context_length: int, page_size: int) -> None:
        num = max_running + PART_ROWS + 1
        width = -(-context_length // page_size) * page_size
        try:
            self.tokens: Ints = np.empty((num, width), dtype=np.int32)
            self.slots: Ints = np.empty((num, width), dtype=np.int32)
        except MemoryError:  # of addresses: see above
            fact = f"no room for {num} rows of {width} tokens: lower --max-running-requests or --context-length"
            raise ConfigError(fact) from None
        # (uid, epoch) is the key that results carry; uid 0: the row runs nothing
        self.uids, self.epochs = np.zeros(num, np.int64), np.zeros(num, np.int64)
        self.arrivals = np.zeros(num, np.float64)  # what came in one client's request has the same
        self.prompt_lens, self.limits = np.zeros(num, np.int32), np.zeros(num, np.int32)
        self.totals, self.planned_totals = np.zeros(num, np.int32), np.zeros(num, np.int32)
        self.scheduled, self.applied = np.zeros(num, np.int32), np.zeros(num, np.int32)
        self.allocated = np.zeros(num, np.int32)
        self.shifts = np.zeros(num, np.int32)  # a token's index less its position to the model
        self.ends = np.full(num, NEVER, np.int32)  # tokens beyond which what is computed in this row is good no more
        self.adapters = np.zeros(num, np.int32)  # slot of its adapter; 0: none
        self.last_steps = np.zeros(num, np.int64)  # number of the last step that has this row
        self.flags = np.zeros(num, np.uint16)  # of RowFlag
        # how it samples
        self.draw_params = draw_params.neutral(num)
        self.min_new = np.zeros(num, np.int32)
        self.num_healed = np.zeros(num, np.int32)  # tokens of the output that only spell the end of its prompt
        self.penalty_slots = np.zeros(num, np.int32)  # 0: no penalties
        self.frequency, self.presence = np.zeros(num, np.float32), np.zeros(num, np.float32)
        self.repetition = np.ones(num, np.float32)

    def open(self, row: int, request: Request, num_cached: int, penalty_slot: int) -> None:
        """A request begins to run in `row`, its first `num_cached` tokens computed. Its slots are the caller's."""
        known = len(request.tokens)
        self.tokens[row, :known] = request.tokens
        self.uids[row], self.epochs[row], self.arrivals[row] = request.uid, request.epoch, request.arrival_s
        self.prompt_lens[row], self.limits[row] = request.prompt_len, request.limit
        self.totals[row] = self.planned_totals[row] = known
        self.begin(row, request, num_cached)
        self.adapters[row] = request.adapter_slot
        self.last_steps[row] = 0
        self._set_sampling(row, request, penalty_slot)

    def begin(self, row: int, request: Request, num_cached: int) -> None:
        """Its first `num_cached` tokens are computed."""
        self.scheduled[row] = self.applied[row] = self.allocated[row] = num_cached
        self.shifts[row] = 0 if request.base is None else request.base.shift
        self.ends[row] = NEVER
        if request.boundary is not None and request.is_long:
            self.shifts[row] = -request.boundary
        elif request.boundary is not None:
            self.ends[row] = request.boundary
        if request.turns is not None:
            self.shifts[row] = request.turns.shift

    def _set_sampling(self, row: int, request: Request, penalty_slot: int) -> None:
        params = request.params
        write_draw_params(self.draw_params, row, params, request.seed)
        self.min_new[row], self.num_healed[row] = params.min_new_tokens, request.num_healed
        self.penalty_slots[row] = penalty_slot
        self.frequency[row], self.presence[row] = params.frequency_penalty, params.presence_penalty
        self.repetition[row] = max(params.repetition_penalty, MIN_REPETITION)
        self.flags[row] = _flags_of(request)


def _flags_of(request: Request) -> int:
    spec, params = request.spec, request.params
    asked = {
        RowFlag.STOP_CHECK: bool(params.stop or params.stop_regex or params.stop_token_ids),
        RowFlag.BIAS: bool(params.logit_bias),
        RowFlag.LOGPROBS: spec.logprobs is not None,
        RowFlag.HIDDEN: spec.hidden is not None,
        RowFlag.PROCESSOR: spec.processor is not None,
        RowFlag.IGNORE_EOS: params.ignore_eos,
        RowFlag.CONSTRAINED: request.constrained is not None,
        RowFlag.JUMPS: request.constrained is not None and request.constrained.output.jumps,
        RowFlag.HEALING: request.healing is not None,
        RowFlag.PATTERNS: bool(params.stop_regex),
    }
    return sum(flag for flag, is_set in asked.items() if is_set)


class RunningRequest:
    """A request in its row. Slots [0, leased) belong to its base and the tree, [leased, allocated) to this request."""

    __slots__ = ("_table", "lease", "next_hidden", "next_logprob", "request", "row", "target")

    def __init__(self, request: Request, row: int, lease: Lease, table: RowTable) -> None:
        self.request, self.row, self.lease, self._table = request, row, lease, table
        self.target = len(request.tokens)  # until so many tokens are scheduled it prefills, after that it decodes
        self.next_logprob, self.next_hidden = request.next_logprob, request.next_hidden  # of planned steps

    @property
    def uid(self) -> Uid:
        return self.request.uid

    @property
    def scheduled(self) -> int:
        """Tokens that are computed once every planned step has run."""
        return int(self._table.scheduled[self.row])

    @property
    def applied(self) -> int:
        """Tokens whose keys and values results have confirmed."""
        return int(self._table.applied[self.row])

    @property
    def total(self) -> int:
        """Tokens that are known."""
        return int(self._table.totals[self.row])

    @property
    def num_output(self) -> int:
        return self.total - self.request.prompt_len

    @property
    def remaining(self) -> int:
        """New tokens it may still get."""
        return self.request.limit - self.total

    @property
    def tokens(self) -> Ints:
        """Those that are known: a view."""
        return self._table.tokens[self.row, : self.total]

    @property
    def output(self) -> Ints:
        """A view."""
        return self._table.tokens[self.row, self.request.prompt_len : self.total]

    @property
    def slots(self) -> Ints:
        """Those that are allocated: a view."""
        return self._table.slots[self.row, : int(self._table.allocated[self.row])]

    @property
    def leased(self) -> int:
        """Tokens whose slots are not its own."""
        return self.request.base_length + self.lease.length

    @property
    def prefilling(self) -> bool:
        return self.scheduled < self.target

    @property
    def returns_logprobs(self) -> bool:
        return bool(self._table.flags[self.row] & RowFlag.LOGPROBS)

    @property
    def returns_prompt(self) -> bool:
        """Something is returned of each prompt token that is yet to be computed, or of some of them."""
        return self.next_logprob is not None or self.request.returns_states
