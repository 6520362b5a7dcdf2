"""The owner of a request: the holder of the key that it was sent with, by the key's name in --api-key-file.

What one key has (running requests, sessions, stored responses, leases, programs), no other key can read, continue or
end, except the admin key. Where clients have no keys of their own, everything has one owner, whose name is empty.
"""

from contextvars import ContextVar
from typing import NamedTuple


class Owner(NamedTuple):
    name: str = ""  # the name of its key; empty: the server has no file of keys
    is_admin: bool = True  # may see and end what others have
    is_apart: bool = False  # shares no cache entries with others: see --cache-isolation

    @property
    def scope(self) -> str:
        """Owners of the same scope share cache entries."""
        return self.name if self.is_apart else ""

    @property
    def bounded(self) -> str:
        """The owner's name if a bound applies to what it may hold, otherwise empty."""
        return "" if self.is_admin else self.name

    def may_use(self, name: str) -> bool:
        """Whether it may use something that the owner of this name has."""
        return self.is_admin or self.name == name


NOBODY = Owner()
CURRENT: ContextVar[Owner] = ContextVar("owner", default=NOBODY)
