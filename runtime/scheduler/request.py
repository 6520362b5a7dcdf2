"""One sequence to generate: what is known of it from its arrival on. Written by the scheduler alone.

A request has no prefill or decode phase: it has `prompt_len` tokens that were given and `len(tokens)` that are known,
and steps compute until they have all been read. What only some requests have is in `own`: one value for each feature
that they ask for, of a class in the feature's file.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from ramet.ipc.message import Uid
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import Namespace, RequestSpec
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.node import Node
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.stage_times import StageTimes

if TYPE_CHECKING:
    from ramet.runtime.scheduler.request_feature import RequestFeature

_MASK = (1 << 64) - 1


@dataclass(slots=True)
class Match:
    """The cached prefix of a request, as of one version of the tree."""

    length: int = 0  # tokens
    version: int = -1
    end: Node | None = None  # where it ends, while the request waits for it
    losses: int = 0  # of that node then
    next_page: bytes = b""  # what follows the match


class OutputStart(NamedTuple):
    """What an output begins with that is the prompt's."""

    num_tokens: int = 0  # that spell nothing else
    num_bytes: int = 0


class FeatureState:
    """What a feature knows of one request. Each question has the answer of a request that asks for nothing."""

    __slots__ = ()

    @property
    def rewinds(self) -> bool:
        """The last tokens of its output may be replaced."""
        return False

    def reusable(self, end: int) -> int:
        """How many of its first `end` tokens may come from the cache, all but the last of them."""
        return end

    def prompt(self, ids: Ints) -> Ints:
        """The prompt as the client knows it. `ids`: as the cache does."""
        return ids

    def rewound(self, kept: int, computed: int) -> None:
        """Its known tokens from `kept` on were taken back while it ran, when `computed` of them were computed."""

    def waits_again(self, request: "Request") -> None:
        """It goes back to waiting, with the output that it has."""

    def begin_anew(self) -> None:
        """It waits, and other weights will compute it."""


State = TypeVar("State", bound=FeatureState)


class StatesByKind(Protocol):
    """A dict whose values are of the class that is their key."""

    def __getitem__(self, kind: type[State], /) -> State: ...
    def __setitem__(self, kind: type[State], state: State, /) -> None: ...
    def get(self, kind: type[State], /) -> State | None: ...
    def __delitem__(self, kind: type[State], /) -> None: ...
    def values(self) -> Iterable[FeatureState]: ...


class Request:
    """`tokens` is what was known when it last began to wait: the prompt, which the samples of one prompt share, or
    after a retraction the output as well. It is never written. Numbers below zero are no ids of the vocabulary.
    """

    __slots__ = (
        "arrival_s",
        "asked",
        "cached_tokens",
        "epoch",
        "flags",
        "match",
        "namespace",
        "num_retractions",
        "opened",
        "own",
        "prompt_len",
        "seed",
        "spec",
        "start",
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
        self.own = cast(StatesByKind, dict[type, Any]())  # what features know of it
        params = spec.params
        self.flags = RowFlag.IGNORE_EOS if params.ignore_eos else 0  # of RowFlag
        if params.stop or params.stop_regex or params.stop_token_ids:
            self.flags |= RowFlag.STOP_CHECK
        self.namespace: Namespace = spec.namespace  # where what it computes is cached
        self.weights = 0  # the number of those that have computed what it has cached
        self.start = OutputStart()
        self.epoch = 0  # raised by a retraction: results of steps that were planned before it are dropped
        self.cached_tokens: int | None = None  # of the prompt, when it was first admitted
        self.num_retractions = 0
        self.opened = False  # its Opened message has been sent
        self.match = Match()

    @property
    def params(self) -> SamplingParams:
        return self.spec.params

    def cache_apart(self, kind: str, number: int) -> None:
        """What it computes is of use to requests alone whose number of this kind is the same."""
        names = {name.partition(" ")[0]: name for name in self.namespace[len(self.spec.namespace) :]}
        names[kind] = f"{kind} {number}"
        self.namespace = (*self.spec.namespace, *sorted(names.values()))

    def take_weights(self, number: int) -> None:
        """It waits, and what it has computed so far was computed with others."""
        self.weights = number
        self.cache_apart("weights", number)
        for each in self.own.values():
            each.begin_anew()

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
        """Its token ids; none if it has none."""
        ids = self.tokens[: self.prompt_len]
        for each in self.own.values():
            ids = each.prompt(ids)
        return ids

    @property
    def reusable(self) -> Ints:
        """The known tokens of which all but the last may come from the cache: what is returned must be computed."""
        end = len(self.tokens)
        for each in self.own.values():
            end = min(end, each.reusable(end))
        return self.tokens[:end]


def seed_of_sample(seed: int, sample: int) -> int:
    """The seed of the sample-th sequence of one prompt; sample 0 keeps the client's. uint64 (splitmix64 steps)."""
    z = (seed + sample * 0x9E3779B97F4A7C15) & _MASK
    if sample == 0:
        return z
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
