"""What was prepared lately: a program sends a picture with every call that needs it, and it is decoded once.

Decides how long a file stays behind the last request that needs it: as long as such files come to no more than their
share, those that were needed longest ago going first. A piece is known by its bytes and options, not by its address.
"""

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Protocol

from msgspec.structs import replace

from ramet.ipc.media import Prepared
from ramet.runtime.access.owner import NOBODY, Owner
from ramet.runtime.media.source import GivenMedia

SMALL = 1 << 18  # bytes that are hashed at once, in a tenth of a millisecond


class Pool(Protocol):
    """What prepares them (pool.py)."""

    async def prepare(
        self, source: GivenMedia, data: bytes | list[bytes], request: Hashable, owner: str
    ) -> Prepared: ...

    def size_of(self, prepared: Prepared) -> int: ...

    def release(self, prepared: Prepared) -> None: ...


class KeptMedia:
    """For one event loop. `max_bytes`: of files that no request needs."""

    def __init__(self, pool: Pool, max_bytes: int) -> None:
        self._pool, self._max_bytes = pool, max_bytes
        self._known: dict[bytes, Prepared] = {}
        self._keys: dict[str, bytes] = {}  # of each known file
        self._users = Counter[str]()  # of each file
        self._unused: OrderedDict[str, Prepared] = OrderedDict()  # the one that was needed longest ago first

    @property
    def num_used(self) -> int:
        """Files that some request needs."""
        return len(self._users)

    async def prepare(
        self, source: GivenMedia, data: bytes | list[bytes], request: Hashable, owner: Owner = NOBODY
    ) -> Prepared:
        """Prepare a piece, or find it kept. Arguments and errors are those of the pool's `prepare`. Release it as often
        as it was prepared. A piece is found only within the owner's scope. Its key differs between scopes, so that
        a tower's output for it is found only there as well.
        """
        scope, bounded = owner.scope, owner.bounded
        if source.arrays is not None:  # it is made already
            return self._used(_scoped(await self._pool.prepare(source, data, request, bounded), scope))
        key = await _key_of(source, data, scope)
        if (known := self._known.get(key)) is not None:
            return self._used(replace(known, place=source.place))
        made = _scoped(await self._pool.prepare(source, data, request, bounded), scope)
        if key not in self._known:  # else another request was faster
            self._known[key], self._keys[made.file] = made, key
        return self._used(made)

    def release(self, prepared: Prepared) -> None:
        """One of its users has ended."""
        file = prepared.file
        self._users[file] -= 1
        if self._users[file] > 0:
            return
        del self._users[file]
        if file not in self._keys:
            self._pool.release(prepared)
            return
        self._unused[file] = prepared
        while sum(map(self._pool.size_of, self._unused.values())) > self._max_bytes:
            oldest, dropped = self._unused.popitem(last=False)
            del self._known[self._keys.pop(oldest)]
            self._pool.release(dropped)

    def _used(self, prepared: Prepared) -> Prepared:
        self._users[prepared.file] += 1
        self._unused.pop(prepared.file, None)
        return prepared


def _scoped(made: Prepared, scope: str) -> Prepared:
    return replace(made, key=hashlib.sha256(scope.encode() + b" " + made.key).digest()) if scope else made


async def _key_of(source: GivenMedia, data: bytes | list[bytes], scope: str) -> bytes:
    size = len(data) if isinstance(data, bytes) else sum(map(len, data))
    return _hashed(source, data, scope) if size <= SMALL else await asyncio.to_thread(_hashed, source, data, scope)


def _hashed(source: GivenMedia, data: bytes | list[bytes], scope: str) -> bytes:
    each = [data] if isinstance(data, bytes) else data
    form = source.kind.value, sorted(source.options.items()), isinstance(data, bytes), list(map(len, each))
    found = hashlib.sha256(repr((*form, scope) if scope else form).encode())
    for part in each:
        found.update(part)
    return found.digest()
