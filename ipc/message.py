"""The base of everything that crosses a process."""

import msgspec


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An array on the wire, its first element the type's name."""
