"""Every message that crosses a process, as typed structs; one tagged union per inbox.

Decides the wire format. Knows no socket and no torch. Token ids travel as packed int32 (see `pack_ids`), a step of
the whole batch travels as one message of parallel columns. Times are CLOCK_MONOTONIC seconds, which every process
of one machine shares. A `uid` is the internal id of one generated sequence: unique for the life of the server and
never the client's own request id.

    server ── Generate, GenerateAll, Abort, Tokenize, Render, Detokenize ──> tokenizer
    tokenizer ── Generate, Abort ──> scheduler
    server ── RenderPrompt, RenderChoices ──> tokenizer ── PromptReply, ChoicesReply ──> server
    scheduler ── TokenStep ──> detokenizer ── TokenStep ──> server
    tokenizer ── Rejected, Tokenized, RenderReply, Detokenized ──> server <── ControlReply, Stats ── scheduler
    server ── ProgramsEnded, the questions of control.py ──> scheduler
    parent ── Limits, Drain, PeerDied ──> server, tokenizer
    server ── Abort, TokenStep, of nothing ──> whoever waits, to see it move (server/liveness.py)
"""

from array import array
from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec

from ramet.ipc.content import Content, Contexts
from ramet.ipc.control import Control, ControlReply
from ramet.ipc.errors import ErrorRecord
from ramet.ipc.media import MediaKind, MediaTokens, PlacedMedia, Prepared
from ramet.ipc.message import Message, Uid
from ramet.ipc.spec import DetokenizeOptions, RequestSpec
from ramet.ipc.stats import Stats
from ramet.ipc.times import SequenceTimes, Span

ID_BYTES = 4  # of a packed token id


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids as little-endian int32."""
    return array("i", ids).tobytes()


def unpack_ids(packed: bytes) -> list[int]:
    ids = array("i")
    ids.frombytes(packed)
    return ids.tolist()


# -- server -> tokenizer -> scheduler -------------------------------------------------------------------------------


class Generate(Message, frozen=True):
    """One prompt, sampled len(uids) times. The tokenizer checks it against vocabulary and context, and adds its ids."""

    uids: list[Uid]
    spec: RequestSpec
    content: Content  # behind the tokenizer with ids, and without text and media
    arrival_s: float = 0.0
    traced: bool = False  # its end says which steps computed its prompt
    # what the tokenizer adds:
    tail: bytes = b""  # of the prompt's text after its ids: the output begins with these bytes, which are not shown
    tokenized: Span | None = None
    media: tuple[PlacedMedia, ...] = ()


class GenerateAll(Message, frozen=True):
    """A batch: if one of its prompts is refused, all of them are, and none runs."""

    items: list[Generate]


class Abort(Message, frozen=True):
    """End these sequences. Takes the path of Generate, so it can never overtake its request."""

    uids: list[Uid]
    message: str = "aborted by the client"


class Tokenize(Message, frozen=True):
    call: int
    text: str
    add_special_tokens: bool = True
    pair: str | None = None  # a second text, behind the first one as the tokenizer joins two
    owner: str = ""  # the name of the key that asks: see RequestSpec.key_name
    after_prompts: bool = False  # answered when the owner's prompts that came before it are read


class Chat(msgspec.Struct, frozen=True):
    """What a chat template gets, as clients wrote it: nothing in it is checked but its types."""

    messages: list[Any]
    tools: list[Any] | None = None
    kwargs: dict[str, Any] = {}
    add_generation_prompt: bool = True
    continue_final_message: bool = False


class Render(Message, frozen=True):
    """A chat to text to ids."""

    call: int
    chat: memoryview  # a Chat as JSON, whose integers have no bounds; of the message, not copied out of it
    may_exceed: bool = False  # it may be longer than the context: the request that it is for cuts it
    has_media: bool = False  # its placeholders are no prompt yet: the text comes back, too
    owner: str = ""


class Detokenize(Message, frozen=True):
    call: int
    ids: bytes
    skip_special_tokens: bool = True
    owner: str = ""


class ChatTurn(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One turn of a chat, by whose template it is rendered. An open one does not end: the output goes on inside it."""

    role: str
    content: "list[str | ContextGroup | MediaPlace]" = []
    open: bool = False


class ContextGroup(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Texts that attend to all before the group and each to itself. What follows attends to all of them."""

    contexts: list[str]


class MediaPlace(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A piece of media stands here."""

    kind: MediaKind


Segment = str | ChatTurn | ContextGroup | MediaPlace  # of a prompt of the language, which is a list of them


class RenderPrompt(Message, frozen=True):
    """A prompt of the language to text and ids. Without its media, placeholders stand for them."""

    call: int
    segments: list[Segment]
    media: tuple[Prepared, ...] = ()
    owner: str = ""


class RenderChoices(Message, frozen=True):
    """A prompt of the language and what may follow it, to ids. `healed`: each choice is tokenised with the prompt."""

    call: int
    segments: list[Segment]
    choices: list[str]
    healed: bool = True
    media: tuple[Prepared, ...] = ()
    owner: str = ""


class PromptReply(Message, frozen=True):
    call: int
    text: str
    ids: bytes
    contexts: Contexts = ()
    may_heal: bool = True  # the text ends as the client wrote it, not as a template ends it, and tokens are bytes


class ChoicesReply(Message, frozen=True):
    """The prompt's tokens that are the same before every choice, and those of each choice that follow them."""

    call: int
    ids: bytes
    choices: list[bytes]
    prompt_tokens: int  # of the prompt by itself
    contexts: Contexts = ()
    opening: bytes = b""  # what the tokenizer puts before every text, or else a token that ends one
    ends: tuple[int, ...] = ()  # tokens that end an output


class Tokenized(Message, frozen=True):
    call: int
    ids: bytes


class RenderReply(Message, frozen=True):
    call: int
    ids: bytes
    tail: str  # the last characters of the text
    text: str = ""  # all of it, of a chat with media


class Detokenized(Message, frozen=True):
    call: int
    text: str


class Rejected(Message, frozen=True):
    """A request that never reached the scheduler. The last message of its uids."""

    uids: list[Uid]
    error: ErrorRecord


class CallRefused(Message, frozen=True):
    """The answer to a call to the tokenizer that cannot be served."""

    call: int
    error: ErrorRecord


# -- scheduler -> detokenizer -> server -----------------------------------------------------------------------------


class FinishKind(Enum):
    STOP = "stop"  # a stop token, string or pattern
    LENGTH = "length"
    ABORT = "abort"  # by a client's or operator's request, or by a failure


class Finish(msgspec.Struct, frozen=True, array_like=True):
    """Why a sequence ended."""

    kind: FinishKind
    matched: int | str | None = None  # STOP: token id, stop string or pattern
    length: int = 0  # LENGTH: the number of new tokens
    cut: int | None = None  # STOP by text: characters of the output that are kept
    error: ErrorRecord | None = None  # ABORT: its status is 0 when the client asked for it
    num_retractions: int = 0

    @classmethod
    def abort(cls, place: str, fact: str, hint: str = "", status: int = 400) -> "Finish":
        """The end of a sequence that is refused or has failed. The arguments are those of ErrorRecord."""
        return cls(FinishKind.ABORT, error=ErrorRecord(place, fact, hint, status))

    @property
    def aborted(self) -> bool:
        return self.kind is FinishKind.ABORT


class Logprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities at N consecutive tokens of one sequence: of the token itself, of the k best, of m chosen ones.

    Packed row by row, ids as int32 and log-probabilities as float32. At a prompt's very first place, which nothing
    comes before, they are NaN and its best tokens mean nothing.
    """

    uid: Uid
    of_prompt: bool
    ids: bytes  # [N]
    values: bytes  # [N]
    top_ids: bytes = b""  # [N, k]
    top_values: bytes = b""  # [N, k]
    chosen: bytes = b""  # [N, m] of LogprobSpec.ids
    # what the detokenizer adds where texts are asked for, by token id, of tokens that come for the first time:
    texts: dict[int, str] = {}
    raw: dict[int, bytes] = {}  # the bytes of those that are no whole characters
    lengths: bytes = b""  # [N] int32, with the texts: characters that each of ids adds to the sequence's text


class HiddenStates(msgspec.Struct, frozen=True, array_like=True):
    """Hidden states after the final norm at the next places of one sequence, packed float32. [N, width]

    Of a request for one state of its prompt a single row, or what a head of the model makes of that.
    """

    uid: Uid
    width: int
    values: bytes


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """What the detokenizer and the server must know of a sequence before its first token.

    It is small whatever the request has: 1,000 requests may begin or end in one step, which is one message.
    """

    uid: Uid
    shown: DetokenizeOptions
    prompt_tokens: int
    cached_tokens: int
    prompt_ids: bytes = b""  # packed, where spec.returns_prompt
    tail_bytes: int = 0  # of the output, which end the prompt's text: they are not shown
    chosen_texts: tuple[str, ...] = ()  # of `shown.chosen`, which the detokenizer adds


class Closed(msgspec.Struct, frozen=True, array_like=True):
    """The end of a sequence."""

    uid: Uid
    finish: Finish
    routes: bytes = b""  # where spec.expert_routes asks for them: packed int32 [tokens, layers, per token], or a file
    times: SequenceTimes = SequenceTimes()


class TokenStep(Message, frozen=True):
    """One scheduler step: uids[i] has the new token tokens[i].

    `opened` precedes its uid's first row, `closed` follows its last; a stop token and its Closed come in the same step.
    The detokenizer adds texts: texts[i] is what became certain of uids[i] in this step (often ""), tails[i] belongs to
    closed[i]: text that only the end made certain.
    """

    uids: list[Uid]
    tokens: bytes  # packed int32, one per uid
    opened: list[Opened] = []
    closed: list[Closed] = []
    logprobs: list[Logprobs] = []
    hidden: list[HiddenStates] = []
    weights: int = 0  # what follows is computed with the weights of this number; 0: nothing has changed
    texts: list[str] = []
    tails: list[str] = []
    detokenized: Span | None = None  # by the detokenizer, of a step that closes sequences


# -- to the scheduler alone ------------------------------------------------------------------------------------------


class ProgramsEnded(Message, frozen=True):
    """What was kept for their next requests is not needed (RequestSpec.follow_up). Nothing answers."""

    programs: list[str]
    owner: str = ""  # the key whose requests they belong to: see RequestSpec.key_name


class Wake(Message, frozen=True):
    """scheduler -> scheduler: another of its threads is done with something, one way or the other."""


# -- parent ---------------------------------------------------------------------------------------------------------


class RouteLayout(msgspec.Struct, frozen=True, array_like=True):
    """What the experts of one token are: as many of each layer that has some."""

    layers: int
    sparse: tuple[int, ...]  # numbers of the layers with experts
    per_token: int
    experts: int  # of a layer

    @property
    def numbers(self) -> int:
        """How many numbers a token has, where layers without experts count as well."""
        return self.layers * self.per_token


class ModelFacts(msgspec.Struct, frozen=True):
    """What a loaded model and its memory allow: made once, by the runner."""

    context_length: int  # tokens of prompt and output together
    max_total_tokens: int  # slots of the KV pool, beside the padding page
    vocab_size: int
    max_running_requests: int  # each has a row of the slot table
    hidden_size: int = 0  # numbers of a hidden state; 0: there are none
    routes: RouteLayout | None = None  # None: nobody keeps which experts a token went through
    takes_embeds: bool = True  # embeddings in the place of a prompt's ids
    num_labels: int = 0  # numbers of a classifier or reward model; 0: the model is none
    dense_size: int = 0  # numbers of an embedding behind the folder's dense layers; 0: there are none
    generates: bool = True  # the model has a head that predicts tokens
    media: MediaTokens = {}  # what stands for each kind of media that the model takes
    windowed: bool = False  # some layer sees only the last tokens before each
    # tokens of the longest sequence that has other keys than longer ones: a longer one's positions begin there; None:
    # keys depend on nothing that follows
    longrope_limit: int | None = None
    num_snapshots: int | None = None  # places of the state pool behind those of rows; None: no layer has a state


class Limits(ModelFacts, Message, frozen=True):
    """parent -> tokenizer and server: what the scheduler found that the model and the memory allow."""

    resolved: bytes = b"{}"  # JSON object: what the options that were left open came to


class Ready(Message, frozen=True):
    """child -> parent, of the server a second time when it answers requests. `phases`: seconds of each, in order."""

    name: str
    pid: int
    phases: list[tuple[str, float]]
    port: int | None = None  # from the server alone: where it listens
    limits: Limits | None = None  # from the scheduler alone


class Drain(Message, frozen=True):
    """parent -> server: refuse new requests, finish the running ones, then exit."""

    timeout_s: float


class PeerDied(Message, frozen=True):
    """parent -> server: give every open client an error; the end is near."""

    name: str
    code: int


class LinesDropped(Message, frozen=True):
    """parent -> server: how many lines of all processes could not be written so far, by output: stdout, stderr."""

    lines: dict[str, int]


ToTokenizer = Generate | GenerateAll | Abort | Tokenize | Render | Detokenize | RenderPrompt | RenderChoices | Limits
ToScheduler = Generate | Abort | ProgramsEnded | Control | Wake
ToDetokenizer = TokenStep
ToServer = (
    TokenStep
    | Rejected
    | Tokenized
    | RenderReply
    | Detokenized
    | PromptReply
    | ChoicesReply
    | CallRefused
    | ControlReply
    | Stats
    | Limits
    | Drain
    | PeerDied
    | LinesDropped
)
ToParent = Ready
