"""A prompt as the messages of a chat API, which knows turns only, and what ended an output, as /generate says it."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from ramet.frontend.errors import Unsupported
from ramet.frontend.prompt import MediaPiece, Prompt, TurnBegin, TurnEnd, plain

T = TypeVar("T")


class TurnMessage(NamedTuple):
    """`content`: its texts, and media between them."""

    role: str
    content: tuple[str | MediaPiece, ...]

    @property
    def text(self) -> str:
        return "".join(map(plain, self.content))

    @property
    def has_media(self) -> bool:
        return any(isinstance(piece, MediaPiece) for piece in self.content)


class ChatMessages(NamedTuple):
    """`messages`: the turns that have ended. `words`: what the assistant's open turn has already."""

    messages: tuple[TurnMessage, ...]
    words: str

    def divided(self, name: str) -> tuple[str, tuple[TurnMessage, ...]]:
        """The system's turns, which come first, as one text, and the others. Raises Unsupported."""
        num = next((i for i, message in enumerate(self.messages) if message.role != "system"), len(self.messages))
        if any(message.role == "system" for message in self.messages[num:]):
            raise Unsupported(name, "a turn of system", "reads turns of the system at the beginning of a chat only")
        return "\n\n".join(message.text for message in self.messages[:num]), self.messages[num:]


def read_chat(name: str, prompt: Prompt, joins_turns: bool = False) -> ChatMessages:
    """Raises Unsupported for what messages cannot hold. `name`: of the backend.

    `joins_turns`: a last message of the assistant is gone on with, so no turn of its own can follow it.
    """
    messages: list[TurnMessage] = []
    words: str | None = None
    for turn in prompt.turns():
        if turn.has_media and turn.role != "user":
            raise Unsupported(name, "media", "takes media in turns of the user only")
        if not turn.role:
            if turn.text.strip():
                raise Unsupported(name, "text outside of turns", "takes chats only: put it inside system() or user()")
        elif turn.open and turn.role == "assistant":
            words = turn.text
        else:
            messages.append(TurnMessage(turn.role, _content(turn.content)))
    if words is None:
        raise Unsupported(name, "a call outside of the assistant's turn", "writes turns of the assistant only")
    if joins_turns and messages and messages[-1].role == "assistant":
        why = "would go on inside the assistant's turn before it: put a turn of the user between them"
        raise Unsupported(name, "two turns of the assistant", why)
    return ChatMessages(tuple(messages), words)


def _content(pieces: Iterable[Any]) -> tuple[str | MediaPiece, ...]:
    """Neighbouring texts are one; of none there is an empty one."""
    found: list[str | MediaPiece] = []
    for piece in pieces:
        if isinstance(piece, MediaPiece):
            found.append(piece)
        elif found and isinstance(found[-1], str):
            found[-1] += plain(piece)
        else:
            found.append(plain(piece))
    return tuple(found or [""])


async def made(prompt: Prompt, make: Callable[[], T]) -> T:
    """A body of a prompt; where files are read and pictures are packed for it, on another thread."""
    return await asyncio.to_thread(make) if prompt.has_media else make()


def media_refused(name: str, piece: MediaPiece, mime: str, takes: Iterable[str]) -> Unsupported:
    return Unsupported(name, piece.kind, f"takes {', '.join(takes)}, and this one is {mime}")


def turn_has_text(prompt: Prompt) -> bool:
    """Whether a turn is open at the prompt's end, and has text."""
    at: Prompt | None = prompt
    found = False
    while at is not None and not isinstance(at.piece, TurnBegin | TurnEnd):
        found = found or plain(at.piece) != ""
        at = at.before
    return found and at is not None and isinstance(at.piece, TurnBegin)


def plain_text(name: str, prompt: Prompt) -> str:
    """Of a prompt without turns. Raises Unsupported."""
    if any(isinstance(piece, MediaPiece) for piece in prompt.pieces()):
        raise Unsupported(name, "media", "takes text only")
    return prompt.text()


def stopped(matched: Any = None) -> dict[str, Any]:
    return {"finish_reason": {"type": "stop", "matched": matched}}


def at_length(num_tokens: Any = None) -> dict[str, Any]:
    return {"finish_reason": {"type": "length", "length": num_tokens}}
