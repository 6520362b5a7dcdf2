"""A media worker: `python -m ramet.runtime.media.worker FOLDER LIMITS NICENESS`, ended by its parent.

Decodes a piece, runs the model's own processor on it and writes the arrays to a file. A process of its own, because
what is decoded comes from anybody: it is of low priority, and bounded in memory once its libraries are loaded.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from ramet.ipc.media import ArrayAt, Grid, MediaKind
from ramet.runtime.errors import ClientError, RametError, describe
from ramet.runtime.media.formats.base import Decoded, Frames, MediaFormat, Processed, Sound
from ramet.runtime.media.formats.registry import format_of
from ramet.runtime.media.source import Arrays
from ramet.runtime.options.media_options import MediaArgs
from ramet.runtime.workers.subordinate import be_subordinate, limit_memory, private_stdout, read_frame, write_frame

DECODES = frozenset({"fps", "max_frames", "num_frames"})  # options that say what is decoded: the frames' times show it
HINTS = frozenset({"detail", "num_pictures"})  # which every model takes, though few are changed by them


class MediaJob(msgspec.Struct, frozen=True, array_like=True):
    kind: MediaKind
    file: str  # to be made
    max_bytes: int  # of it
    data: bytes | list[bytes]  # of a film as pictures: one for each
    options: Mapping[str, Any]
    arrays: Mapping[str, tuple[str, tuple[int, ...], bytes]] | None = None  # in the place of data
    are_features: bool = False


class MediaReady(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The first frame: the libraries are loaded."""


class Unusable(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The first frame, and the last: this model's media cannot be prepared."""

    fact: str


class MediaDone(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """As `Prepared` has it."""

    key: bytes
    expansion: tuple[str | int, ...]
    arrays: tuple[ArrayAt, ...]
    grids: tuple[Grid, ...]
    num_bytes: int  # of the file
    is_expanded: bool = False


class MediaRefused(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """There is no file."""

    fact: str
    hint: str = ""
    status: int = 400


Outcome = MediaDone | MediaRefused
Frame = MediaReady | Unusable | Outcome


def main(argv: list[str]) -> None:
    be_subordinate(int(argv[3]))
    stdin, stdout = sys.stdin.buffer, private_stdout()
    limits = msgspec.json.decode(argv[2], type=MediaArgs)
    try:
        preparer = Preparer(Path(argv[1]), limits)
        preparer.go_without_torch()
        preparer.rehearse()
    except Exception as error:  # noqa: BLE001 - of transformers, of files; its words go to the log
        write_frame(stdout, msgspec.msgpack.encode(Unusable(describe(error) or type(error).__name__)))
        return
    limit_memory(int(limits.media_memory_mb * (1 << 20)))
    write_frame(stdout, msgspec.msgpack.encode(MediaReady()))
    while (data := read_frame(stdin)) is not None:
        job = msgspec.msgpack.decode(data, type=MediaJob)
        del data
        write_frame(stdout, msgspec.msgpack.encode(preparer.run(job)))


class Preparer:
    """Raises ConfigError for a folder whose model takes no media."""

    def __init__(self, folder: Path, limits: MediaArgs) -> None:
        found = format_of(folder)
        assert found is not None, f"{folder} takes no media"
        self._media, self._limits = found, limits

    def go_without_torch(self) -> None:
        """transformers imports it wherever it is installed, which is three quarters of a worker's start."""
        if not self._media.needs_torch:
            sys.modules["torch"] = None  # type: ignore[assignment]  # to Python: it is not there

    def rehearse(self) -> None:
        """Whatever is loaded once is loaded now."""
        from PIL import Image

        grey = Image.new("RGB", (64, 64), "grey")
        pieces: dict[MediaKind, Decoded] = {
            MediaKind.IMAGE: grey,
            MediaKind.VIDEO: Frames([grey] * 2, [0.0, 0.5]),
        }
        for kind in self._media.tokens:
            if kind is MediaKind.AUDIO:
                pieces[kind] = _silence(self._media.sample_rate)
            if kind is not MediaKind.IMAGE:
                _import_ffmpeg()
            try:
                self._media.prepare(kind, pieces[kind], {})
            except ClientError:  # it takes others
                continue

    def run(self, job: MediaJob) -> Outcome:
        try:
            return self._prepared(job)
        except ClientError as error:
            return MediaRefused(error.fact, error.hint, error.status)
        except MemoryError:
            most = f"the {self._limits.media_memory_mb:g} MiB of --media-memory-mb"
            return MediaRefused(f"needs more memory to decode than {most}", "send a smaller one", 413)
        except RametError as error:
            return MediaRefused(str(error), status=500)
        except Exception as error:  # noqa: BLE001 - a processor raises anything; its words go to the client
            return MediaRefused(f"cannot be prepared for this model: {type(error).__name__}: {describe(error)}")

    def _prepared(self, job: MediaJob) -> Outcome:
        from ramet.runtime.media.arrays import TooLarge, kept, received_arrays, write_arrays

        if job.arrays is not None:
            given = received_arrays(Arrays(job.arrays, job.are_features))
            made = self._media.received(job.kind, given, job.are_features)
            form = {"are_features": job.are_features}
            key = _key(
                job.kind, self._media, form, chain.from_iterable(_named(*each) for each in sorted(given.items()))
            )
        else:
            options = _chosen(job.options, job.kind, self._media)
            decoded = self._decode(job)
            made = self._media.prepare(job.kind, decoded, options)
            key = _key(job.kind, self._media, options, _pieces(decoded))
        arrays = {name: kept(array) for name, array in made.arrays.items()}
        try:
            places, num_bytes = write_arrays(job.file, arrays, job.max_bytes)
        except TooLarge as error:
            return self._too_large(error.num_bytes)
        except OSError as error:  # the disk is full
            return MediaRefused(f"its file cannot be written: {describe(error)}", status=503)
        return MediaDone(key, _expansion(made), places, made.grids, num_bytes, made.is_expanded)

    def _too_large(self, num_bytes: int) -> MediaRefused:
        """For what is left, or for all that there is."""
        size, whole = num_bytes / (1 << 20), self._limits.media_files_mb
        fact = f"takes {size:.3g} MiB once it is prepared"
        if size <= whole:
            return MediaRefused(
                f"{fact}, and others leave less than that of the {whole:g} of --media-files-mb", status=503
            )
        return MediaRefused(f"{fact}, must be at most the {whole:g} of --media-files-mb", "send a smaller one", 413)

    def _decode(self, job: MediaJob) -> Decoded:
        if job.kind is MediaKind.VIDEO:
            from ramet.runtime.media.video import decode_film

            return decode_film(job.data, job.options, self._media, self._limits)
        if not isinstance(job.data, bytes):
            raise ClientError("", f"is a list of pictures, must be one {job.kind.value}")
        if job.kind is MediaKind.AUDIO:
            from ramet.runtime.media.audio import decode_sound

            return decode_sound(job.data, self._media.sample_rate, self._limits)
        from ramet.runtime.media.image import decode_picture

        return decode_picture(job.data, self._limits.max_image_pixels)


def _silence(rate: int) -> Sound:
    import numpy as np

    return Sound(np.zeros(rate, np.float32), rate)


def _import_ffmpeg() -> None:
    import ramet.runtime.media.audio
    import ramet.runtime.media.video  # noqa: F401 - before memory is bounded


def _chosen(options: Mapping[str, Any], kind: MediaKind, media: MediaFormat) -> dict[str, Any]:
    """Those that change what this model is given of a piece. Raises ClientError for one that none of its kind has."""
    of_kinds = {MediaKind.IMAGE: media.picture_options, MediaKind.VIDEO: media.film_options}
    own = of_kinds.get(kind, ())
    for name, value in options.items():
        if value is not None and name not in (*own, *DECODES, *HINTS):
            takes = ", ".join(sorted({*own, *(DECODES if kind is MediaKind.VIDEO else ())} - {"num_pictures"}))
            hint = f"it has {takes}" if takes else "it has no options"
            raise ClientError("", f"has the option {name}, which this model's {kind.value}s do not have", hint)
    low = options.get("detail") == "low"
    return {name: options[name] for name in own if options.get(name) is not None and (name != "detail" or low)}


def _expansion(made: Processed) -> tuple[str | int, ...]:
    return tuple(part if isinstance(part, str) else int(part) for part in made.expansion)


def _pieces(decoded: Decoded) -> Iterator[bytes]:
    """What was decoded."""
    if isinstance(decoded, Sound):
        yield from (str(decoded.rate).encode(), decoded.samples.tobytes())
    elif isinstance(decoded, Frames):
        yield msgspec.json.encode(decoded.times)
        for image in decoded.images:
            yield from _pieces(image)
    else:
        yield from (f"{decoded.size}".encode(), decoded.tobytes())


def _named(name: str, array: Any) -> Iterator[bytes]:
    yield from (f"{name} {array.dtype} {array.shape}".encode(), array.tobytes())


def _key(kind: MediaKind, media: MediaFormat, options: Mapping[str, Any], pieces: Iterable[bytes]) -> bytes:
    """Of parts whose ends are known, so that no two lists of them are alike."""
    digest = hashlib.sha256()
    settings = kind.value.encode(), media.settings, msgspec.json.encode(options, order="sorted")
    for part in chain(settings, pieces):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


if __name__ == "__main__":
    main(sys.argv)
