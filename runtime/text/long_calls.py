"""Calls with a long text or many ids. They run on a thread of their own, so that other clients' prompts do not wait.

Decides which calls these are. The libraries release Python's lock while they tokenise and decode. Only calls that the
server answers are here: a prompt stays in the tokenizer's own order, so that no Abort can overtake it.
"""

from collections.abc import Sequence

from ramet.ipc.messages import (
    ContextGroup,
    Detokenize,
    RenderChoices,
    RenderPrompt,
    Segment,
    Tokenize,
    ToTokenizer,
    Turn,
)

LONG_CHARS = 1 << 15  # tokenised in 15 ms
LONG_IDS_BYTES = 4 << 16  # int32; decoded in 10 ms


def is_long(message: ToTokenizer) -> bool:
    match message:
        case Tokenize(text=text, pair=pair):
            return len(text) + len(pair or "") > LONG_CHARS
        case Detokenize(ids=ids):
            return len(ids) > LONG_IDS_BYTES
        case RenderPrompt(segments=segments):
            return _num_chars(segments) > LONG_CHARS
        case RenderChoices(segments=segments, choices=choices):
            return _num_chars(segments) * (len(choices) + 1) + sum(map(len, choices)) > LONG_CHARS
        case _:
            return False


def _num_chars(segments: Sequence[Segment]) -> int:
    """Characters of all texts of a prompt."""
    total = 0
    for segment in segments:
        match segment:
            case str():
                total += len(segment)
            case ContextGroup(contexts=contexts):
                total += sum(map(len, contexts))
            case Turn(content=content):
                total += _num_chars(content)
    return total
