"""Prompts as JSON, as files have them: of programs that are done (resume.py), of recorded calls (replay.py)."""

import hashlib
from typing import Any

from ramet.frontend.prompt import EMPTY, Contexts, MediaPiece, Piece, Prompt, TurnBegin, TurnEnd


def written(prompt: Prompt) -> list[Any]:
    """Of media in memory only what tells them from others is written."""
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
        case MediaPiece(kind, bytes() as content):
            return {"media": kind, "sha256": hashlib.sha256(content).hexdigest()}
        case MediaPiece(kind, source):
            return {"media": kind, "source": str(source)}
    return piece


def _piece(written: Any) -> Piece:
    match written:
        case {"begin": role}:
            return TurnBegin(role)
        case {"end": role}:
            return TurnEnd(role)
        case {"contexts": texts}:
            return Contexts(tuple(texts))
        case {"media": kind}:
            return MediaPiece(kind, written.get("source"))
    return str(written)
