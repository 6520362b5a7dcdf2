"""A prompt as far as it is known: an immutable chain of pieces, so that a thousand forks of a long one cost nothing.

Knows roles and contexts, no template: a backend makes text or messages of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from ramet.frontend.media import Source, sent

MEDIA_CHARS = 1024  # that a piece counts beside the characters of texts
TAIL = 60  # characters of a prompt that an error message shows


class TurnBegin(NamedTuple):
    role: str


class TurnEnd(NamedTuple):
    role: str


class Contexts(NamedTuple):
    """Texts that are read beside each other: each sees what comes before all of them, and itself (section 6.2.5)."""

    texts: tuple[str, ...]


class MediaPiece(NamedTuple):
    kind: str
    source: Source
    options: Mapping[str, Any] = {}  # num_frames of a film


Piece: TypeAlias = str | TurnBegin | TurnEnd | Contexts | MediaPiece


class PromptTurn(NamedTuple):
    """A run of pieces inside one role; role "" is outside of every turn. `open`: the turn has not ended."""

    role: str
    content: tuple[Any, ...]  # str, Contexts, MediaPiece; neighbouring texts are one
    open: bool

    @property
    def text(self) -> str:
        return "".join(map(plain, self.content))

    @property
    def has_media(self) -> bool:
        return any(isinstance(piece, MediaPiece) for piece in self.content)


class Prompt:
    """`num_chars`: how long it is, of texts in characters."""

    __slots__ = ("before", "num_chars", "piece")

    num_chars: int

    def __init__(self, before: "Prompt | None" = None, piece: Piece = "") -> None:
        self.before, self.piece = before, piece
        self.num_chars = (before.num_chars if before else 0) + _length(piece)

    def __reduce__(self) -> Any:
        """As a list, for pickle would follow the chain by recursion."""
        return chained, (self.pieces(),)

    def extended(self, piece: Piece) -> "Prompt":
        return Prompt(self, piece) if piece != "" else self

    def pieces(self, since: "Prompt | None" = None) -> list[Piece]:
        """In order; those after `since`, an earlier state of this prompt. Neighbouring texts are one."""
        found: list[Piece] = []
        at: Prompt | None = self
        while at is not None and at is not since:
            found.append(at.piece)
            at = at.before
        found.reverse()
        merged: list[Piece] = []
        for is_text, group in groupby(found, lambda piece: isinstance(piece, str)):
            together = list(group)
            merged += ["".join(map(str, together))] if is_text else together
        return [piece for piece in merged if piece != ""]

    def turns(self) -> list[PromptTurn]:
        """Its pieces by the turns they are in."""
        turns: list[PromptTurn] = []
        role, content = "", list[Any]()
        for piece in self.pieces():
            if isinstance(piece, TurnBegin | TurnEnd):
                if content or role:
                    turns.append(PromptTurn(role, tuple(content), open=False))
                role, content = piece.role if isinstance(piece, TurnBegin) else "", []
            else:
                content.append(piece)
        if content or role:
            turns.append(PromptTurn(role, tuple(content), open=role != ""))
        return turns

    def text(self, since: "Prompt | None" = None) -> str:
        """Its texts, without any sign of turns and media."""
        return "".join(plain(piece) for piece in self.pieces(since))

    def shown(self) -> str:
        """Its texts, and <image>, <video> or <audio> where media stand."""
        return "".join(map(_shown, self.pieces()))

    def messages(self) -> list[dict[str, Any]]:
        """Its turns as OpenAI's messages; what is outside of every turn is left out."""
        return [{"role": turn.role, "content": content_of(turn)} for turn in self.turns() if turn.role]

    def media(self) -> Iterator[MediaPiece]:
        """In order."""
        at: Prompt | None = self
        found: list[MediaPiece] = []
        while at is not None:
            if isinstance(at.piece, MediaPiece):
                found.append(at.piece)
            at = at.before
        found.reverse()
        return iter(found)

    @property
    def has_media(self) -> bool:
        return any(self.media())

    @property
    def has_turns(self) -> bool:
        at: Prompt | None = self
        while at is not None and not isinstance(at.piece, TurnBegin):
            at = at.before
        return at is not None

    def tail(self) -> str:
        """The last characters, for an error message."""
        found, at = "", self
        while at is not None and len(found) <= TAIL:
            found = _shown(at.piece) + found
            at = at.before  # type: ignore[assignment]
        return found if len(found) <= TAIL else "..." + found[-TAIL:]


def plain(piece: Any) -> str:
    """The text of a piece."""
    if isinstance(piece, str):
        return piece
    return "".join(piece.texts) if isinstance(piece, Contexts) else ""


def content_of(turn: PromptTurn) -> str | list[dict[str, Any]]:
    """Of a turn, as OpenAI's messages have it: a text, or parts. Reads the files of its media."""
    if not turn.has_media:
        return turn.text
    return [_part(piece) for piece in turn.content]


def _part(piece: Any) -> dict[str, Any]:
    if not isinstance(piece, MediaPiece):
        return {"type": "text", "text": plain(piece)}
    name = f"{piece.kind}_url"
    return {"type": name, name: {"url": sent(piece.kind, piece.source).as_url}}


def _shown(piece: Any) -> str:
    return f"<{piece.kind}>" if isinstance(piece, MediaPiece) else plain(piece)


def _length(piece: Any) -> int:
    return MEDIA_CHARS if isinstance(piece, MediaPiece) else len(plain(piece))


EMPTY = Prompt()


def chained(pieces: Iterable[Piece]) -> Prompt:
    return reduce(Prompt.extended, pieces, EMPTY)


def common_prefix(one: Prompt, other: Prompt) -> Prompt:
    """What both begin with."""
    found = EMPTY
    for mine, theirs in zip(one.pieces(), other.pieces(), strict=False):
        if mine == theirs:
            found = found.extended(mine)
            continue
        if isinstance(mine, str) and isinstance(theirs, str):
            found = found.extended(mine[: _num_common(mine, theirs)])
        break
    return found


def _num_common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))  # they agree in the first `low` characters, and not in more than `high`
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
