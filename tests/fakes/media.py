"""A service of media that fetches and decodes nothing: every piece becomes three tokens."""

import asyncio
import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from ramet.ipc.media import MediaKind, MediaToken, Prepared
from ramet.runtime.access.owner import NOBODY, Owner
from ramet.runtime.errors import ClientError
from ramet.runtime.media.source import GivenMedia
from tests.fakes.engine import LIMITS

TOKENS = {
    MediaKind.IMAGE: MediaToken("<image>", "<image>", 500),
    MediaKind.VIDEO: MediaToken("<video>", "<video>", 501),
    MediaKind.AUDIO: MediaToken("<audio>", "<audio>", 502),
}
TAKES_MEDIA = replace(LIMITS, media=TOKENS)
TAKES_IMAGES = replace(LIMITS, media={MediaKind.IMAGE: TOKENS[MediaKind.IMAGE]})


class FakeMedia:
    """A piece that was written with the word BROKEN is refused."""

    def __init__(self) -> None:
        self.asked: list[list[GivenMedia]] = []  # of each call
        self.owners: list[Owner] = []
        self.released: list[Prepared] = []
        self.waits = False  # for ever

    async def prepare(self, sources: Sequence[GivenMedia], owner: Owner = NOBODY) -> tuple[Prepared, ...]:
        self.asked.append(list(sources))
        self.owners.append(owner)
        if self.waits:
            await asyncio.Event().wait()
        for source in sources:
            if "BROKEN" in str(source.written):
                raise ClientError(source.place, "is no picture")
        return tuple(map(prepared, sources))

    def release(self, prepared: Sequence[Prepared]) -> None:
        self.released += prepared

    @property
    def written(self) -> list[object]:
        """What came, in order."""
        return [source.written for sources in self.asked for source in sources]

    @property
    def places(self) -> list[str]:
        return [source.place for sources in self.asked for source in sources]


def prepared(source: GivenMedia) -> Prepared:
    key = hashlib.sha256(repr((source.written, source.arrays)).encode()).digest()
    return Prepared(source.kind, key, (3,), (), "", source.place)
