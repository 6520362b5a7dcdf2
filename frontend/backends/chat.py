"""A prompt as the messages of a chat API, which knows turns only, and what ended an output, as /generate says it."""

from typing import Any, NamedTuple

from ramet.frontend.errors import Unsupported
from ramet.frontend.prompt import MediaPiece, Prompt


class Message(NamedTuple):
    role: str
    text: str


class Chat(NamedTuple):
    """`messages`: the turns that have ended. `words`: what the assistant's open turn has already."""

    messages: tuple[Message, ...]
    words: str

    def divided(self, name: str) -> tuple[str, tuple[Message, ...]]:
        """The system's turns, which come first, as one text, and the others. Raises Unsupported."""
        num = next((i for i, message in enumerate(self.messages) if message.role != "system"), len(self.messages))
        if any(message.role == "system" for message in self.messages[num:]):
            raise Unsupported(name, "a turn of system", "reads turns of the system at the beginning of a chat only")
        return "\n\n".join(message.text for message in self.messages[:num]), self.messages[num:]


def read_chat(name: str, prompt: Prompt) -> Chat:
    """Raises Unsupported for what messages cannot hold. `name`: of the backend."""
    for piece in prompt.media():
        raise Unsupported(name, piece.kind, f"takes no {piece.kind} input")
    messages: list[Message] = []
    words: str | None = None
    for turn in prompt.turns():
        if not turn.role:
            if turn.text.strip():
                raise Unsupported(name, "text outside of turns", "takes chats only: put it inside system() or user()")
        elif turn.open and turn.role == "assistant":
            words = turn.text
        else:
            messages.append(Message(turn.role, turn.text))
    if words is None:
        raise Unsupported(name, "a call outside of the assistant's turn", "writes turns of the assistant only")
    return Chat(tuple(messages), words)


def plain_text(name: str, prompt: Prompt) -> str:
    """Of a prompt without turns. Raises Unsupported."""
    if any(isinstance(piece, MediaPiece) for piece in prompt.pieces()):
        raise Unsupported(name, "media", "takes text only")
    return prompt.text()


def stopped(matched: Any = None) -> dict[str, Any]:
    return {"finish_reason": {"type": "stop", "matched": matched}}


def at_length(num_tokens: Any = None) -> dict[str, Any]:
    return {"finish_reason": {"type": "length", "length": num_tokens}}
