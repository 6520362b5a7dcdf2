"""The headers traceparent and tracestate, by which a request belongs to a trace. W3C Trace Context, levels 1 and 2.

What is not as the specification has it is ignored, as it says: the request then begins a trace of its own.
"""

import re
from collections.abc import Sequence
from contextvars import ContextVar
from typing import NamedTuple

SAMPLED = 1
KNOWN_FLAGS = 3  # sampled, and that the trace's id is random
MAX_MEMBERS = 32
MAX_STATE = 512  # characters that are passed on
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_KEY = r"[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}|[a-z][a-z0-9_\-*/]{0,255}"
_MEMBER = re.compile(rf"(?P<key>{_KEY})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


class TraceContext(NamedTuple):
    """The trace that a request belongs to. Ids in hexadecimal digits, as headers have them."""

    trace_id: str
    span_id: str  # of what this server does for it
    parent_id: str = ""  # of the caller's span; "": there is none
    flags: int = 0
    state: str = ""  # tracestate, as it is passed on


# of the request that this task answers; None: it answers none
CURRENT: ContextVar[TraceContext | None] = ContextVar("trace_context", default=None)


def read(parents: Sequence[str], states: Sequence[str], span_id: str) -> TraceContext | None:
    """From the values of all headers of both names; None: they name no trace."""
    if len(parents) != 1 or (found := _PARENT.fullmatch(parents[0].strip(" \t"))) is None:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(parent_id, 16):
        return None
    return TraceContext(trace_id, span_id, parent_id, int(flags, 16) & KNOWN_FLAGS, _read_state(states))


def _read_state(states: Sequence[str]) -> str:
    """A list that is passed on whole, or shortened by its last members; "" where one of them is wrong."""
    members = [member for state in states for part in state.split(",") if (member := part.strip(" \t"))]
    found = [_MEMBER.fullmatch(member) for member in members]
    keys = [each["key"] for each in found if each is not None]
    if len(keys) != len(members) or len(set(keys)) != len(keys) or len(keys) > MAX_MEMBERS:
        return ""
    while members and len(",".join(members)) > MAX_STATE:
        members.pop()
    return ",".join(members)
