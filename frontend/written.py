"""Prompts as JSON, as files have them: of programs that are done (resume.py), of recorded calls (replay.py)."""

import hashlib
import os
from typing import Any

from ramet.frontend.errors import ProgramError
from ramet.frontend.prompt import EMPTY, Contexts, MediaPiece, Piece, Prompt, TurnBegin, TurnEnd


def written(prompt: Prompt) -> list[Any]:
    """Of media in memory only what tells them from others is written, and in any process. Raises ProgramError."""
    return [_written(piece) for piece in prompt.pieces()]


def read(pieces: list[Any]) -> Prompt:
    prompt = EMPTY
    for piece in pieces:
        prompt = prompt.extended(_piece(piece))
    return prompt


def _written(piece: Piece) -> Any:
    match piece:
        case TurnBegin(role):
            return {"begin": role}
        case TurnEnd(role):
            return {"end": role}
        case Contexts(texts):
            return {"contexts": texts}
        case MediaPiece(kind, source, options):
            return {"media": kind, **_source(kind, source), **({"options": dict(options)} if options else {})}
    return piece


def _source(kind: str, source: Any) -> dict[str, str]:
    if isinstance(source, str | os.PathLike) or source is None:
        return {"source": str(source)}
    return {"sha256": hashlib.sha256(_content(kind, source)).hexdigest()}


def _content(kind: str, source: Any) -> bytes:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if all(hasattr(source, name) for name in ("mode", "size", "getpalette", "tobytes")):  # an image of Pillow
        form = f"{source.mode} {source.size} {source.getpalette()} "
        return form.encode() + bytes(source.tobytes())
    fact = f"a {type(source).__name__} cannot be told from others in a file"
    raise ProgramError(f"{kind}: {fact}: give a path, a URL, bytes, or an image of Pillow")


def as_json(value: Any) -> Any:
    """Of a number or text with a class of its own, as values of variables have. Raises TypeError."""
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _piece(written: Any) -> Piece:
    match written:
        case {"begin": role}:
            return TurnBegin(role)
        case {"end": role}:
            return TurnEnd(role)
        case {"contexts": texts}:
            return Contexts(tuple(texts))
        case {"media": kind}:
            return MediaPiece(kind, written.get("source"), written.get("options", {}))
    return str(written)
