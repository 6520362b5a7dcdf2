"""Messages with a long text or many ids. They are served on a thread of their own, so that others do not wait.

Decides which messages these are. The libraries release Python's lock while they tokenise and decode.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ramet.ipc.messages import (
    ChatTurn,
    ContextGroup,
    Detokenize,
    Generate,
    GenerateAll,
    RenderChoices,
    RenderPrompt,
    Segment,
    Tokenize,
)

LONG_CHARS = 1 << 15  # tokenised in 15 ms
LONG_IDS_BYTES = 4 << 16  # int32; decoded in 10 ms


def is_long(message: Any) -> bool:
    """Of a message to the tokenizer."""
    found = _IS_LONG.get(type(message))
    return found is not None and found(message)


def is_long_text(text: str) -> bool:
    return len(text) > LONG_CHARS


def _in_tokenize(call: Tokenize) -> bool:
    return len(call.text) + len(call.pair or "") > LONG_CHARS


def _in_detokenize(call: Detokenize) -> bool:
    return len(call.ids) > LONG_IDS_BYTES


def _in_prompt(prompt: Generate) -> bool:
    return len(prompt.content.text or "") > LONG_CHARS


def _in_batch(batch: GenerateAll) -> bool:
    return sum(len(item.content.text or "") for item in batch.items) > LONG_CHARS


def _in_segments(call: RenderPrompt) -> bool:
    return _num_chars(call.segments) > LONG_CHARS


def _in_choices(call: RenderChoices) -> bool:
    return _num_chars(call.segments) * (len(call.choices) + 1) + sum(map(len, call.choices)) > LONG_CHARS


_IS_LONG: dict[type, Callable[[Any], bool]] = {
    Tokenize: _in_tokenize,
    Detokenize: _in_detokenize,
    Generate: _in_prompt,
    GenerateAll: _in_batch,
    RenderPrompt: _in_segments,
    RenderChoices: _in_choices,
}


def _num_chars(segments: Sequence[Segment]) -> int:
    """Characters of all texts of a prompt."""
    return sum(map(len, _texts(segments)))


def _texts(segments: Sequence[Segment]) -> Iterable[str]:
    for segment in segments:
        match segment:
            case str():
                yield segment
            case ContextGroup(contexts=contexts):
                yield from contexts
            case ChatTurn(content=content):
                yield from _texts(content)
