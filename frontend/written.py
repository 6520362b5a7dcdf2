"""Prompts as JSON, as files have them: of programs that are done (resume.py), of recorded calls (replay.py)."""

from typing import Any

from ramet.frontend.media import Source, digest
from ramet.frontend.prompt import EMPTY, Contexts, MediaPiece, Piece, Prompt, TurnBegin, TurnEnd


def written(prompt: Prompt) -> list[Any]:
    """Of media what tells them from others is written, and in any process; paths and URLs as well."""
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
            return {"media": kind, **_source(source), **({"options": dict(options)} if options else {})}
    return piece


def _source(source: Source) -> dict[str, str]:
    """The content of a file is written where there is one."""
    place = {"source": source} if isinstance(source, str) and source[:5].lower() != "data:" else {}
    found = digest(source)
    return place | ({"sha256": found} if found else {})


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
            return MediaPiece(kind, written.get("source", b""), written.get("options", {}))
    return str(written)
