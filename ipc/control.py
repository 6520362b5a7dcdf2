"""What the server may ask of the scheduler beside generating, and the one shape of every answer.

Decides the wire format of these, as messages.py does of all others. `call` is the number of a question, which its
answer has as well. What handles them registers by type (runtime/scheduler/control.py).

    server ── one of Control ──> scheduler ── ControlReply ──> server
    ProfileWritten: scheduler ──> scheduler
"""

from enum import Enum

from ramet.ipc.message import Message, Uid

MAX_LOCATED = 1024  # sequences that one question is about: 3 ms between two steps


class FlushCache(Message, frozen=True):
    """Forget every cached prefix, once nothing runs or waits."""

    call: int
    timeout_s: float = 0.0  # how long it may wait for that


class GetState(Message, frozen=True):
    """The counters of the scheduler as they are now."""

    call: int


class LocateSequences(Message, frozen=True):
    """Where sequences are, MAX_LOCATED at most, and while they wait, why. The answer has a list `sequences`, with null
    for those that the scheduler does not hold.
    """

    call: int
    uids: list[Uid]


class Watch(Message, frozen=True):
    """Everything that a page shows of the scheduler (ipc/live.py), and of the tree what changed since the last call.

    `begins`: whoever asks knows nothing yet.
    """

    call: int
    begins: bool


class Unwatch(Message, frozen=True):
    """Nobody looks any more."""

    call: int


class MatchPrefix(Message, frozen=True):
    """How much of a prompt of the default namespace is cached, and where. Changes nothing."""

    call: int
    ids: bytes


class ReadNode(Message, frozen=True):
    """The first tokens of a node that is shown."""

    call: int
    node: int


class LoadAdapter(Message, frozen=True):
    """Read an adapter's folder, under a generation that no other one had."""

    call: int
    generation: int
    path: str
    pinned: bool = False


class DropAdapter(Message, frozen=True):
    """Forget an adapter, which no request has or is going to have."""

    call: int
    generation: int


class PauseGeneration(Message, frozen=True):
    """Compute no step until generation goes on. Answered when no step is in flight any more."""

    call: int
    retract: bool = False  # what runs goes back to the queue, and loses its keys and values


class ContinueGeneration(Message, frozen=True):
    """Compute steps again."""

    call: int


class SetLogLevel(Message, frozen=True):
    """Print lines of this severity and worse: debug, info, warning or error."""

    call: int
    level: str


class ReadWeights(Message, frozen=True):
    """Read other weights for the model from a folder, while steps run. Answered when they can be placed."""

    call: int
    path: str


class HoldRequests(Message, frozen=True):
    """Requests that arrived later wait until weights are placed; None: no request waits for that any more."""

    call: int
    after_s: float | None


class PlaceWeights(Message, frozen=True):
    """Compute with the weights that were read, from the next step on."""

    call: int
    number: int  # of these weights: 1, 2, ...


class MemoryTag(Enum):
    """What is released and resumed by itself."""

    WEIGHTS = "weights"
    KV_CACHE = "kv_cache"
    CUDA_GRAPH = "cuda_graph"


class ReleaseMemory(Message, frozen=True):
    """Give memory back to the system, and compute no step until it is resumed. Refused while something runs."""

    call: int
    tags: list[MemoryTag]


class ResumeMemory(Message, frozen=True):
    """Take back what was released of these. Answered when it can be used."""

    call: int
    tags: list[MemoryTag]


class SlowDown(Message, frozen=True):
    """Sleep so long after each step; None: no longer."""

    call: int
    sleep_s: float | None


class StartProfile(Message, frozen=True):
    """Record the operations of the steps that follow, from step `start_step` on and `num_steps` of them."""

    call: int
    name: str  # of the file
    folder: str | None = None
    start_step: int | None = None
    num_steps: int | None = None
    with_cpu: bool = True
    with_gpu: bool = True
    with_stack: bool = False
    record_shapes: bool = False


class StopProfile(Message, frozen=True):
    """Answered when the file is written."""

    call: int


class ProfileWritten(Message, frozen=True):
    """scheduler -> scheduler: the thread that writes a profile is done. `error`: empty if it could."""

    call: int  # of the profile
    error: str


class ControlReply(Message, frozen=True):
    call: int
    ok: bool
    body: bytes = b"{}"  # JSON object


Looking = Watch | Unwatch | MatchPrefix | ReadNode
Updating = ReadWeights | HoldRequests | PlaceWeights
Releasing = ReleaseMemory | ResumeMemory
Control = (
    FlushCache
    | GetState
    | LocateSequences
    | LoadAdapter
    | DropAdapter
    | PauseGeneration
    | ContinueGeneration
    | Looking
    | SetLogLevel
    | Updating
    | Releasing
    | SlowDown
    | StartProfile
    | StopProfile
    | ProfileWritten
)
