"""Media as a client wrote them to what a prompt takes: fetches each piece, and has a worker prepare it.

A few pieces of a request are fetched and prepared at once; where one fails, the others end with it. What is prepared
stands in files, which are there until `release`: engine_client calls it when the last sequence of a request has ended.
A few stay behind it (kept.py), for those who send the same.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from ramet.ipc.media import Prepared
from ramet.runtime.access.owner import NOBODY, Owner
from ramet.runtime.media.fetch import Fetcher
from ramet.runtime.media.kept import KeptMedia
from ramet.runtime.media.pool import MediaPool
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.metrics.table import Metrics
from ramet.runtime.options.media_options import MediaArgs

KEPT_SHARE = 8  # of the room for files, that those which no request needs may take: one in so many
AT_ONCE = 4  # pieces of one request, so that those of others are fetched between them


class MediaIntake:
    """Of one model. Everything runs on one event loop, that of the engine client."""

    def __init__(self, model_folder: Path, files: Path, args: MediaArgs, share: float = 1.0) -> None:
        """`files`: an empty folder of this user alone; whoever made it removes it after `close`. `share`: see Turns."""
        self._fetcher = Fetcher(args, share=share)
        self.pool = MediaPool(model_folder, files, args, share)
        self._kept = KeptMedia(self.pool, int(args.media_files_mb * (1 << 20)) // KEPT_SHARE)

    async def prepare(self, sources: Sequence[GivenMedia], owner: Owner = NOBODY) -> tuple[Prepared, ...]:
        """One for each, in order. Cancelled, or where one fails, it keeps none. Raises ClientError and ServerError."""
        request = asyncio.Semaphore(AT_ONCE)
        tasks = [asyncio.ensure_future(self._prepare_one(source, request, owner)) for source in sources]
        try:
            return tuple(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            self.release(each for each in ended if isinstance(each, Prepared))
            raise

    def release(self, prepared: Iterable[Prepared]) -> None:
        """Nobody reads them any more."""
        for each in prepared:
            self._kept.release(each)

    def count(self, metrics: Metrics) -> None:
        """What was prepared, what waits, and what is kept."""
        for kind, num in self.pool.num_prepared.items():
            metrics.media.pieces.set(num, kind.value)
        for kind, seconds in self.pool.busy_s.items():
            metrics.media.seconds.set(seconds, kind.value)
        metrics.media.waiting.set(self.pool.num_waiting)
        metrics.media.in_use.set(self._kept.num_used)
        metrics.media.file_bytes.set(self.pool.num_bytes)

    def warm(self) -> None:
        """Start the workers, so that no piece need wait for one to begin."""
        self.pool.warm()

    async def close(self) -> None:
        """The processes and files are gone when this returns."""
        await self.pool.close()

    async def _prepare_one(self, source: GivenMedia, request: asyncio.Semaphore, owner: Owner) -> Prepared:
        async with request, self._fetcher.fetched(source, owner.bounded) as data:
            return await self._kept.prepare(source, data, request, owner)
