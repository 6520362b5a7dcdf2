"""Forced text to tokens, tokenised anew with the tokens before it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ramet.runtime.text.tokenizer import Tokenizer

RETOKENIZE_WINDOW = 8  # of the last tokens at most that give way to others


@dataclass(frozen=True, slots=True)
class Retokenized:
    """The last `num_dropped` tokens of the window give way to `tokens`; none where it cannot be spelled exactly."""

    num_dropped: int
    tokens: list[int]


def retokenize(tokenizer: Tokenizer, window: Sequence[int], forced: bytes) -> Retokenized:
    pieces = [tokenizer.token_bytes(token) for token in window]
    data = b"".join(piece or b"" for piece in pieces) + forced.decode("utf-8", "ignore").encode()
    ids = tokenizer.encode(data.decode("utf-8", "ignore"), add_special_tokens=False)
    if b"".join(tokenizer.token_bytes(token) or b"" for token in ids) != data:
        return Retokenized(0, [])
    same = 0
    while same < min(len(window), len(ids)) and window[same] == ids[same]:
        same += 1
    return Retokenized(len(window) - same, ids[same:])
