"""The keys of a server: which requests need one, and who owns a request, by the key that it sent.

A sent key is looked up by a hash with a secret of this process, so that the time of the look-up reveals nothing about
any key. A key file is read again when it changes: within a second, new keys are accepted and removed ones refused.
Requests that a removed key has sent continue. A file that cannot be read changes nothing, and the log says why.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Iterable

from aiohttp import web

from ramet.runtime.access.key_file import ADMIN, read_key_file, version_of
from ramet.runtime.access.owner import Owner
from ramet.runtime.config import ServeArgs
from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.log import LOGGER
from ramet.runtime.server.http.service import Access

LOOK_EVERY_S = 1.0  # time between two checks of the key file
OF_CLIENTS, OF_ADMINS = (Access.READ, Access.USE), (Access.WATCH, Access.ADMIN)
API, ADMINS = "API key", "admin key (--admin-api-key)"


class Keys:
    """`is_apart`: clients with keys of their own share nothing that is cached."""

    def __init__(self, serve: ServeArgs, *, is_apart: bool) -> None:
        """Raises ConfigError."""
        self._file, self._admin_key, self._is_apart = serve.api_key_file, serve.admin_api_key, is_apart
        self._secret = secrets.token_bytes(32)
        self.of_clients = bool(serve.api_key or self._file)  # whether clients need a key
        self.of_admins = bool(serve.admin_api_key or serve.api_key)
        self.stranger = Owner(is_admin=not self.of_admins)  # who asks without a key, where none is needed
        self._own: dict[bytes, Owner] = {}
        if serve.api_key:
            self._own[self._hashed(serve.api_key.encode())] = Owner(is_admin=not serve.admin_api_key)
        if serve.admin_api_key:
            admin = Owner(ADMIN, True, is_apart) if self._file else Owner()
            self._own[self._hashed(serve.admin_api_key.encode())] = admin
        self._seen = version_of(self._file)  # before the file is read: a change in between is seen
        self._named = self._read()

    def guard(self, access: Access) -> bool:
        """Whether a request with this access needs a key."""
        if access is Access.SCRAPE:
            return bool(self._file)
        return (access in OF_CLIENTS and self.of_clients) or (access in OF_ADMINS and self.of_admins)

    def owner(self, sent: Iterable[bytes]) -> Owner | None:
        """The owner of a request that has sent these keys. None: the server knows none of them."""
        found = [self._own.get(each) or self._named.get(each) for each in map(self._hashed, sent)]
        known = [owner for owner in found if owner is not None]
        return max(known, key=lambda owner: owner.is_admin, default=None)

    def check(self, access: Access, owner: Owner | None) -> None:
        """Raises ClientError: 401 without a valid key, 403 with a client's key where the admin key is needed."""
        if not self.guard(access):
            return
        for_clients = access in OF_CLIENTS
        if owner is None:
            name = API if for_clients or not self._admin_key else ADMINS
            raise ClientError("", f"The {name} is missing or wrong.", "send the header Authorization: Bearer KEY", 401)
        if not for_clients and not owner.is_admin:
            fact = "This is for operators: it takes the admin key (--admin-api-key), not the API key."
            raise ClientError("", fact, status=403)

    async def following(self, _: web.Application) -> AsyncIterator[None]:
        """Read the key file whenever it changes, while the app serves."""
        task = asyncio.create_task(self._follow()) if self._file else None
        yield
        if task is not None:
            task.cancel()

    def refresh(self) -> None:
        """Read the file if it changed since it was read last."""
        if (now := version_of(self._file)) == self._seen:
            return
        self._seen = now
        try:
            self._named = self._read()
            LOGGER.info("--api-key-file changed: it has %d keys now", len(self._named))
        except ConfigError as error:
            LOGGER.error("--api-key-file changed, but its former keys stay valid: %s", error)

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await asyncio.to_thread(self.refresh)

    def _read(self) -> dict[bytes, Owner]:
        if not self._file:
            return {}
        found = read_key_file(self._file, self._admin_key)
        return {self._hashed(key.encode()): Owner(name, False, self._is_apart) for name, key in found}

    def _hashed(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, key=self._secret, digest_size=32).digest()
