"""Whose a request is: the holder of the key that it came with, by the name that --api-key-file gives that key.

What one key has (requests that run, sessions, stored responses, leases, programs) no other key reads, continues or
ends; the admin key may. Where clients have no keys of their own, everything has one owner, whose name is empty.
"""

from contextvars import ContextVar
from typing import NamedTuple


class Owner(NamedTuple):
    name: str = ""  # of its key; empty: the server has no file of keys
    is_admin: bool = True  # may see and end what others have
    is_apart: bool = False  # shares nothing that is cached with others: see --cache-isolation

    @property
    def scope(self) -> str:
        """Who shares what is cached for it: those of the same scope."""
        return self.name if self.is_apart else ""

    @property
    def bounded(self) -> str:
        """Its name, if there is a bound on what it may hold; empty: there is none."""
        return "" if self.is_admin else self.name

    def may_use(self, name: str) -> bool:
        """Something that the owner of this name has."""
        return self.is_admin or self.name == name


NOBODY = Owner()
CURRENT: ContextVar[Owner] = ContextVar("owner", default=NOBODY)
