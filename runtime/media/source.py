"""A piece of media as a client sent it: only its form was checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ramet.ipc.media import MediaKind


@dataclass(frozen=True, slots=True)
class Arrays:
    """Numbers that stand for media, as a client computed them: buffers with a type and a shape, never pickles."""

    of: Mapping[str, tuple[str, tuple[int, ...], bytes]]  # name: dtype, shape and numbers
    are_features: bool  # what a tower would make of it; else what a processor makes


@dataclass(frozen=True, slots=True)
class GivenMedia:
    """`written` is an http(s), file or data URL, a path, base64, the encoded bytes, or a program's own object: a
    picture of Pillow, an array. `arrays` in its place: numbers by name.
    """

    kind: MediaKind
    place: str  # the field that it was written in, for errors
    written: str | bytes | Any = b""
    options: Mapping[str, Any] = field(default_factory=dict)  # detail, fps, max_frames, ... as far as they are given
    arrays: Arrays | None = None
