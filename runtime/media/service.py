"""What surfaces ask: media as a client wrote them to what a prompt takes. Fetches, and has workers prepare them.

A few pieces of a request are fetched and prepared at once; where one fails, the others end with it. What is prepared
stands in files, which are there until `release`: engine_client calls it when the last sequence of a request has ended
(`Submission.at_end`).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from ramet.ipc.media import MediaKind, Prepared
from ramet.runtime.errors import ClientError
from ramet.runtime.media.fetch import Fetcher
from ramet.runtime.media.formats.base import MediaFormat
from ramet.runtime.media.pool import MediaPool
from ramet.runtime.media.source import MediaSource

AT_ONCE = 4  # pieces of one request, so that those of others are fetched between them


class Lasting(Protocol):
    """A submission: calls what it is given when its caller has left it and its last sequence has ended."""

    def at_end(self, call: Callable[[], None]) -> None: ...


class MediaIntake:
    """Of one model. Everything runs on the event loop of the engine client."""

    def __init__(self, media: MediaFormat | None, pool: MediaPool | None, fetcher: Fetcher) -> None:
        self._media, self._pool, self._fetcher = media, pool, fetcher

    @property
    def kinds(self) -> frozenset[MediaKind]:
        """What the model takes; empty: texts alone."""
        return frozenset() if self._media is None else frozenset(self._media.tokens)

    async def prepare(self, sources: Sequence[MediaSource]) -> tuple[Prepared, ...]:
        """One for each, in order. Whoever gets them releases them. Raises ClientError and ServerError."""
        for source in sources:
            self._check_kind(source)
        request = asyncio.Semaphore(AT_ONCE)
        tasks = [asyncio.ensure_future(self._prepare_one(source, request)) for source in sources]
        try:
            return tuple(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            self.release(each for each in ended if isinstance(each, Prepared))
            raise

    async def prepare_for(self, submission: Lasting, sources: Sequence[MediaSource]) -> tuple[Prepared, ...]:
        """As `prepare`; they are released when the request has ended. Inside `submission.during(...)`, a client that
        goes away, or a deadline, ends it.
        """
        prepared = await self.prepare(sources)
        submission.at_end(partial(self.release, prepared))
        return prepared

    def release(self, prepared: Iterable[Prepared]) -> None:
        """Nothing computes with them any more."""
        for each in prepared:
            assert self._pool is not None
            self._pool.release(each)

    def warm(self) -> None:
        """So that the first piece need not wait for a process to begin."""
        if self._pool is not None:
            self._pool.warm()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _prepare_one(self, source: MediaSource, request: asyncio.Semaphore) -> Prepared:
        assert self._pool is not None
        async with request, self._fetcher.fetched(source) as data:
            return await self._pool.prepare(source, data, request)

    def _check_kind(self, source: MediaSource) -> None:
        if source.kind not in self.kinds:
            takes = ", ".join(sorted(kind.value for kind in self.kinds)) or "texts alone"
            raise ClientError(source.place, f"is of kind {source.kind.value}; this model takes {takes}")
