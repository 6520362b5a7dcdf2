"""Messages with a long text or many ids. They are served on a thread of their own, so that others do not wait.

Decides which messages these are. The libraries release Python's lock while they tokenise and decode.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ramet.ipc import messages

LONG_CHARS = 1 << 15  # tokenised in 15 ms
LONG_IDS_BYTES = 4 << 16  # int32; decoded in 10 ms


def is_long(message: Any) -> bool:
    """Whether a message to the tokenizer is one of these."""
    num_chars = 0  # characters to tokenise
    match message:
        case messages.Detokenize(ids=ids):
            return len(ids) > LONG_IDS_BYTES
        case messages.Tokenize(text=text, pair=pair):
            num_chars = len(text) + len(pair or "")
        case messages.Generate(content=content):
            num_chars = len(content.text or "")
        case messages.GenerateAll(items=items):
            num_chars = sum(len(item.content.text or "") for item in items)
        case messages.RenderChoices(segments=segments, choices=choices):
            num_chars = _num_chars(segments) * (len(choices) + 1) + sum(map(len, choices))
        case messages.RenderPrompt(segments=segments):
            num_chars = _num_chars(segments)
    return num_chars > LONG_CHARS


def is_long_text(text: str) -> bool:
    return len(text) > LONG_CHARS


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
