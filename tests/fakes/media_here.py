"""Media for an LLM of this process, prepared by the worker's own code without a process of its own."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from ramet.ipc.media import Prepared
from ramet.runtime.access.owner import NOBODY, Owner
from ramet.runtime.config import MediaArgs
from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM
from ramet.runtime.media.objects import encoded
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.media.worker import MediaJob, MediaRefused, Preparer

MAX_BYTES = 1 << 28  # of a file


class MediaHere:
    """A MediaService. `files`: those that are there, which are in `folder`."""

    def __init__(self, model_folder: Path, folder: Path) -> None:
        self._preparer, self._folder, self._numbers = Preparer(model_folder, MediaArgs()), folder, count()
        self.files: set[str] = set()

    async def prepare(self, sources: Sequence[GivenMedia], owner: Owner = NOBODY) -> tuple[Prepared, ...]:
        return tuple(map(self._prepared, sources))

    def release(self, prepared: Sequence[Prepared]) -> None:
        for each in prepared:
            self.files.remove(each.file)
            Path(each.file).unlink()

    def _prepared(self, source: GivenMedia) -> Prepared:
        file = str(self._folder / f"{next(self._numbers)}")
        of = None if source.arrays is None else source.arrays.of
        are_features = source.arrays is not None and source.arrays.are_features
        data = source.written if isinstance(source.written, bytes) else encoded(source.kind, source.written)
        job = MediaJob(source.kind, file, MAX_BYTES, data, source.options, of, are_features)
        done = self._preparer.run(job)
        if isinstance(done, MediaRefused):
            raise ClientError(source.place, done.fact, done.hint, done.status)
        self.files.add(file)
        return Prepared(
            source.kind, done.key, done.expansion, done.arrays, file, source.place, done.grids, are_features,
            is_given=source.arrays is not None, is_expanded=done.is_expanded,
        )  # fmt: skip


def with_media_here(llm: LLM, folder: Path) -> LLM:
    """The same LLM, which starts no worker processes for its media."""
    llm._handle.media = MediaHere(llm.args.model_folder, folder)
    return llm
