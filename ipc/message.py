"""The base of everything that crosses a process."""

from typing import NewType

import msgspec

Uid = NewType("Uid", int)  # of one generated sequence; see messages.py


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An array on the wire, its first element the type's name."""
