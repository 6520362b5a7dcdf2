"""What the scheduler tells of itself while somebody looks: the answer to `Watch`, as JSON in a ControlReply.

Decides the shape of what /ui/live sends. The server fills in `SequenceRow.rid`, which it alone knows.
"""

import msgspec

from ramet.ipc.message import Uid

MAX_ROWS = 256  # of running requests, as many of waiting ones, and as many leases


class NodeRow(msgspec.Struct, frozen=True, array_like=True):
    """A node of the radix tree, as it is now."""

    id: int
    parent: int  # 0: it is the first of its namespace's nodes
    namespace: int  # a number that stands for it
    tokens: int  # of its run
    used: int  # value of `lookups` when it was last used
    locks: int  # leases on it or below it


class TreeChanges(msgspec.Struct, frozen=True):
    """What a tree has become since the answer before."""

    begins: bool  # what was told before is void
    nodes: list[NodeRow]  # new or changed; those of one answer are in no order
    removed: list[int]  # evicted
    left_out: list[int]  # still in the tree, but not told of any more: others were used later
    is_whole: bool  # false: the next answers tell of more nodes that are there now
    num_nodes: int  # in the tree, those that are not told of as well
    num_tokens: int
    num_locked_tokens: int
    lookups: int


class SequenceRow(msgspec.Struct, frozen=True):
    uid: Uid
    rid: str
    state: str  # running, waiting
    reason: str  # why it waits, or why nothing is computed
    age_s: float
    priority: int
    prompt_tokens: int
    cached_tokens: int  # of its prompt, where it has run
    computed_tokens: int
    output_tokens: int
    retractions: int
    node: int  # where its lease ends, or the nearest node above of those that are told of; 0: nowhere


class LeaseRow(msgspec.Struct, frozen=True):
    """What is kept for a client (`prefix_lease_s`), or for the next request of a program."""

    kind: str  # client, program
    node: int
    tokens: int
    ends_s: float  # seconds from now


class LiveState(msgspec.Struct, frozen=True):
    tree: TreeChanges
    num_running: int
    num_waiting: int
    num_leases: int
    running: list[SequenceRow]  # MAX_ROWS at most, in the order in which they were admitted
    waiting: list[SequenceRow]  # MAX_ROWS at most, the highest priority first
    reasons: dict[str, int]  # how many wait for what (WaitKind), and for their `grammar`
    leases: list[LeaseRow]  # MAX_ROWS at most


class PrefixFound(msgspec.Struct, frozen=True):
    """How much of a prompt is cached."""

    num_tokens: int
    cached_tokens: int
    reused_tokens: int  # of these, what a request with this prompt would be given
    path: list[tuple[int, int]]  # node, and tokens of it that the prompt has; nodes that are told of


class NodeTokens(msgspec.Struct, frozen=True):
    """The first tokens of a node's run."""

    ids: list[int]
    num_tokens: int  # of all
