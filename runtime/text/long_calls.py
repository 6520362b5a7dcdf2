"""Messages with a long text or many ids. They are served on a thread of their own, so that others do not wait.

Decides which messages these are. The libraries release Python's lock while they tokenise and decode.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ramet.ipc import messages

LONG_CHARS = 1 << 15  # tokenised in 15 ms
LONG_IDS_BYTES = 4 << 16  # int32; decoded in 10 ms


def is_long(message: Any) -> bool:
    """Of a message to the tokenizer."""
    if isinstance(message, messages.Detokenize):
        return len(message.ids) > LONG_IDS_BYTES
    return _chars_of(message) > LONG_CHARS


def is_long_text(text: str) -> bool:
    return len(text) > LONG_CHARS


def _chars_of(message: Any) -> int:
    """How many characters are tokenised for it."""
    match message:
        case messages.Tokenize(text=text, pair=pair):
            return len(text) + len(pair or "")
        case messages.Generate(content=content):
            return len(content.text or "")
        case messages.GenerateAll(items=items):
            return sum(map(_chars_of, items))
        case messages.RenderChoices(segments=segments, choices=choices):
            return _num_chars(segments) * (len(choices) + 1) + sum(map(len, choices))
        case messages.RenderPrompt(segments=segments):
            return _num_chars(segments)
    return 0


def _num_chars(segments: Sequence[messages.Segment]) -> int:
    """Characters of all texts of a prompt."""
    return sum(map(len, _texts(segments)))


def _texts(segments: Sequence[messages.Segment]) -> Iterable[str]:
    for segment in segments:
        match segment:
            case str():
                yield segment
            case messages.ContextGroup(contexts=contexts):
                yield from contexts
            case messages.ChatTurn(content=content):
                yield from _texts(content)
