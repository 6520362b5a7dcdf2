"""How much one call may bring to the tokenizer, and how many tokens a prompt may have.

A prompt that is too long is refused in the words that clients look for. Bytes of a text are those of UTF-8.
"""

from ramet.runtime.errors import ClientError

CONTEXT_EXCEEDED = "context_length_exceeded"
MAX_CALL_BYTES = 4 << 20  # text that one call tokenises: seconds of work that other requests wait for
MAX_CALL_IDS = 1 << 20  # ids of one Detokenize call


class TooManyBytes(Exception):
    """A text has more bytes than it may have, so nobody needs it, or its end."""


def num_bytes(text: str) -> int:
    """Half a surrogate pair, which has no bytes, counts as 3. An ASCII text is not copied."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def longer_than_context(place: str, length: str, context_length: int, new: int | None = 1) -> ClientError:
    """`length`: as "9 tokens". `new`: 0 or 1 tokens of the context that the output needs; None: not known yet."""
    most = f"{context_length - 1}, or {context_length} if nothing is generated" if new is None else context_length - new
    why = f"this model's maximum context length is {context_length} tokens{', one of them new' if new else ''}"
    return ClientError(place, f"has {length}, must have at most {most}: {why}", code=CONTEXT_EXCEEDED)
