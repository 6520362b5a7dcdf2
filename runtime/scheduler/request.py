"""One sequence to generate: what is known of it from its arrival on. Written by the scheduler alone.

A request has no prefill or decode phase: it has `prompt_len` tokens that were given and `len(tokens)` that are known,
and steps compute until they have all been read.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ramet.ipc.message import Uid
from ramet.ipc.messages import Logprobs
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import HiddenMode, Namespace, RequestSpec
from ramet.runtime.arrays import Doubles, Floats, Ints
from ramet.runtime.cache.node import Node
from ramet.runtime.grammar.base import MAX_FORCED_BYTES
from ramet.runtime.grammar.ending import EndTokens
from ramet.runtime.scheduler.features.constrained import Constrained
from ramet.runtime.scheduler.features.contexts import Base, FirstGroup, Group, Part
from ramet.runtime.scheduler.features.media import RequestMedia
from ramet.runtime.scheduler.features.tail_search import Healing
from ramet.runtime.scheduler.features.turns import Turns
from ramet.runtime.scheduler.stage_times import StageTimes
from ramet.runtime.text.pattern import build_automaton

if TYPE_CHECKING:
    from ramet.runtime.scheduler.request_feature import RequestFeature

_MASK = (1 << 64) - 1
_NO_TOKENS: Ints = np.empty(0, dtype=np.int32)
_NO_OUTPUT = SamplingParams(max_new_tokens=0)
LONG = "long"  # the last of the namespace of sequences beyond their boundary
EVERY_STATE = (HiddenMode.ALL, HiddenMode.MEAN)  # what needs the hidden state of every prompt token


MAX_SEARCHED = 50_000  # states of stop patterns, times bytes of forced text that a step searches: 10 ms


def forced_bytes(patterns: tuple[str, ...]) -> int:
    """How much forced text a step may append and search for these stop patterns: a number of any load or machine."""
    states = sum(build_automaton(pattern).size for pattern in patterns)
    return min(max(MAX_SEARCHED // states, 1), MAX_FORCED_BYTES) if states else MAX_FORCED_BYTES


@dataclass(slots=True)
class Match:
    """The cached prefix of a request, as of one version of the tree."""

    length: int = 0  # tokens
    version: int = -1
    end: Node | None = None  # where it ends, while the request waits for it
    losses: int = 0  # of that node then
    next_page: bytes = b""  # what follows the match


class Request:
    """`tokens` is what was known when it last began to wait: the prompt, which the samples of one prompt share, or
    after a retraction the output as well. It is never written. Those of media are numbers below zero (media.py).
    """

    __slots__ = (
        "adapter_slot",
        "arrival_s",
        "asked",
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
        "match",
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
        "weights",
    )

    def __init__(
        self,
        uid: Uid,
        prompt: Ints,
        spec: RequestSpec,
        seed: int,
        arrival_s: float = 0.0,
        times: StageTimes | None = None,
    ) -> None:
        self.uid, self.spec, self.seed, self.arrival_s = uid, spec, seed, arrival_s
        self.times = times or StageTimes()
        self.tokens, self.prompt_len = prompt, len(prompt)
        self.asked: tuple[RequestFeature, ...] = ()  # what it asks beyond tokens
        self.media: RequestMedia | None = None  # None: its prompt is text alone
        self.boundary: int | None = None  # tokens beyond which all of its keys are others; None: none
        self.is_long = False  # it is beyond that
        self.embeds: Floats | None = (
            None  # [prompt_len, hidden size]: what stands for the prompt's ids, which are zeros
        )
        self.groups: tuple[Group, ...] = ()  # parallel contexts of its prompt
        self.first_group: FirstGroup | None = None  # None: it has none
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
        self.healing: Healing | None = None  # set while the end of its prompt is chosen again
        self.tail_bytes = 0  # of its output, which are the prompt's
        self.num_healed = 0  # the first tokens of its output that spell nothing but the prompt's end
        self.opened = False  # its Opened message has been sent
        self.match = Match()
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
        self.is_apart, self.match.version = True, -1

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

    def ending(self, eos_ids: frozenset[int]) -> EndTokens:
        """What ends its output inside a constraint."""
        params, eos = self.spec.params, sorted(eos_ids)
        stops = sorted({*params.stop_token_ids, *eos})
        own, every = np.array(eos, dtype=np.int32), np.array(stops, dtype=np.int32)
        return EndTokens(own, every, params.ignore_eos, params.min_new_tokens)

    @property
    def is_plain(self) -> bool:
        """No feature has something to do when it is opened, when its prompt is computed, or when it ends."""
        spec, shares = self.spec, not self.is_apart and self.base is None
        kept = spec.prefix_lease_s is not None or spec.follow_up is not None
        watched = spec.constraint is not None or spec.params.stop_regex
        return shares and not (kept or watched or spec.logprobs is not None or self.returns_routes)

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
    def precedence(self) -> tuple[int, float, Uid]:
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
