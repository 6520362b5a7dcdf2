"""RequestSpec: the one description of what a request asks for.

It is made once, where a client's words are read (runtime/intake), and travels whole: Generate nests it, and
the scheduler's request holds it. A new field is named here, where it is read from a body (runtime/intake/specs.py),
where it takes effect (a file of runtime/scheduler/features, as request_feature.py says), and where the reply has it
(`MetaInfo` of runtime/intake/reply.py; what is known only there comes in messages.Opened, Closed or TokenStep).
What is not known at intake (uids, rows, slots) is not part of it.
"""

from enum import Enum
from typing import Literal, NewType

import msgspec
from msgspec.structs import replace

from ramet.ipc.params import SamplingParams

Namespace = tuple[str, ...]
OF_KEY = "key "  # begins the part of a namespace that keeps the holders of keys apart
ProcessorName = NewType("ProcessorName", str)
Whitespace = Literal["single-space", "compact", "flexible"]  # between the tokens of JSON
BackendName = Literal["llguidance", "xgrammar", "outlines"]  # of grammars


def owned(owner: str, name: str) -> str:
    """What a client calls something, told apart from what other owners call so. An owner's name has no space."""
    return f"{owner} {name}" if owner else name


class HiddenMode(Enum):
    """Which hidden states are returned."""

    ALL = "all"  # of every token that is read
    LAST = "last"  # of the last one
    FIRST = "cls"  # of the prompt's first one
    MEAN = "mean"  # one, the mean over the prompt's tokens


class PoolingTask(Enum):
    """Which of the model's heads the one returned hidden state goes through."""

    EMBED = "embed"  # the dense layers of a sentence-transformers folder
    CLASSIFY = "classify"  # the layers that make labels or a reward of it


class LogprobSpec(msgspec.Struct, frozen=True, array_like=True):
    """Which log-probabilities a request asks for. Those of its output tokens are always among them."""

    start: int | None = None  # the first prompt token they are asked for; None: none is
    num_top: int = 0  # best tokens at each place
    ids: tuple[int, ...] = ()  # tokens whose log-probability is returned at each place
    texts: bool = False  # each comes with its token's text


class Truncation(msgspec.Struct, frozen=True, array_like=True):
    """How many of a prompt's tokens are kept: the last ones, or the first ones."""

    keep: int
    from_start: bool = False

    def kept(self, ids: list[int]) -> list[int]:
        return ids[: self.keep] if self.from_start else ids[-self.keep :]


class ConstraintKind(Enum):
    """What the text of a constraint is written in."""

    REGEX = "regex"  # the whole output matches it
    JSON_SCHEMA = "json_schema"  # JSON text
    EBNF = "ebnf"  # GBNF, or Lark where the backend reads it
    STRUCTURAL_TAG = "structural_tag"  # JSON text: literals, schemas, patterns and free text put together


class Constraint(msgspec.Struct, frozen=True, array_like=True):
    """What an output keeps to."""

    kind: ConstraintKind
    text: str
    place: str = ""  # the field that a client wrote it in, for errors
    backend: str = ""  # empty: that of --grammar-backend
    whitespace: str = ""  # of JSON; empty: that of --json-whitespace
    after: str = ""  # it begins after this text of the output (the end of reasoning); empty: with the first token
    opens: str = ""  # a control token: only an output that begins with it has reasoning; empty: every one has
    scope: str = ""  # what is compiled for it is found within this scope alone; empty: everybody's


class FollowUp(msgspec.Struct, frozen=True, array_like=True):
    """Whose next request is expected to go on where this one ends: one state, of those that a program has."""

    program: str
    state: int
    kind: str = ""  # of the program: those of one kind are expected to call equally often
    owner: str = ""  # its RequestSpec.key_name: two keys may give their programs the same name


class ExpertRoutes(msgspec.Struct, frozen=True, array_like=True):
    """The experts of every token are returned, but of those before `start`."""

    start: int = 0
    compact: bool = False  # of the layers that have experts alone, in the smallest type, as a file of numpy's


class AdapterRef(msgspec.Struct, frozen=True, array_like=True):
    """An adapter as it was when the request was sent: what is loaded under its name later has another generation."""

    name: str
    generation: int = 0  # 0: it has not been sent


class DetokenizeOptions(msgspec.Struct, frozen=True, array_like=True):
    """How an output is shown: fields of SamplingParams, and `chosen`."""

    stop: tuple[str, ...] = ()
    stop_regex: tuple[str, ...] = ()
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False
    chosen: tuple[int, ...] | None = None  # LogprobSpec.ids where log-probabilities come with texts; None: elsewhere


class RequestSpec(msgspec.Struct, frozen=True, array_like=True):
    """What is asked for each of a prompt's samples."""

    params: SamplingParams
    logprobs: LogprobSpec | None = None
    priority: int = 0  # the higher one goes first
    namespace: Namespace = ()  # requests share cached prefixes only inside one namespace
    processor: ProcessorName | None = None  # its logit processor
    hidden: HiddenMode | None = None
    prefix_lease_s: float | None = None  # how long the prompt's prefix is held; 0: a lease on it ends
    truncate: Truncation | None = None  # None: a prompt that is too long is refused
    returns_prompt: bool = False  # the reply has the prompt's ids
    constraint: Constraint | None = None  # what its output keeps to
    token_healing: bool = False  # the prompt's last tokens are chosen again, with what follows
    follow_up: FollowUp | None = None  # its sequence is kept for a moment
    expert_routes: ExpertRoutes | None = None
    pooling_task: PoolingTask | None = None  # what is returned in the place of its hidden state; None: that itself
    padding_id: int | None = None  # tokens of this id at the prompt's end are left out
    lora: AdapterRef | None = None  # its adapter, whose generation is in its namespace as well
    key_name: str = ""  # the name of the key that it was sent with; empty: clients have no keys of their own

    def holding(self, seconds: float) -> "RequestSpec":
        """The spec of a request that only has this prompt's prefix kept for so many seconds; 0: no longer."""
        params = SamplingParams(max_new_tokens=0)
        return RequestSpec(
            params, namespace=self.namespace, prefix_lease_s=seconds, lora=self.lora, key_name=self.key_name
        )

    @property
    def detokenize_options(self) -> DetokenizeOptions:
        """What whoever shows its output must know."""
        params, asked = self.params, self.logprobs
        return DetokenizeOptions(
            params.stop,
            params.stop_regex,
            params.skip_special_tokens,
            params.spaces_between_special_tokens,
            params.no_stop_trim,
            asked.ids if asked is not None and asked.texts else None,
        )

    @property
    def scope(self) -> str:
        """Who shares what is cached for it: requests of the same scope; empty: everybody."""
        return "".join(part for part in self.namespace[3:4] if part.startswith(OF_KEY))

    def owned_by(self, name: str, scope: str) -> "RequestSpec":
        """A copy of the spec for a request that was sent with the key of this name."""
        namespace, follow_up = self.namespace, self.follow_up
        if scope:
            namespace = (*(namespace or ("", "", ""))[:3], OF_KEY + scope)
        if follow_up is not None:
            follow_up = replace(follow_up, owner=name)
        return replace(self, namespace=namespace, follow_up=follow_up, key_name=name)

    def sent_with(self, generation: int) -> "RequestSpec":
        """With its adapter as it is now: prefixes are shared with requests of the same generation alone."""
        assert self.lora is not None, "a request without an adapter has no generation of one"
        _, *keys = self.namespace or ("", "", "")
        own = AdapterRef(self.lora.name, generation)
        return replace(self, lora=own, namespace=(str(generation), *keys))
