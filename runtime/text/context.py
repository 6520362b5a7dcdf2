"""How much one call may bring to the tokenizer, and how many tokens a prompt may have.

A prompt that is too long is refused in the words that clients look for.
"""

from ramet.runtime.errors import ClientError

CONTEXT_EXCEEDED = "context_length_exceeded"
MAX_CALL_BYTES = 4 << 20  # text that one call tokenises: seconds of work that other requests wait for
MAX_CALL_IDS = 1 << 20  # ids of one Detokenize call


def longer_than_context(place: str, length: str, context_length: int) -> ClientError:
    """`length`: as "9 tokens"."""
    fact = f"has {length}, must have at most {context_length - 1}"
    why = f"this model's maximum context length is {context_length} tokens, one of them new"
    return ClientError(place, f"{fact}: {why}", code=CONTEXT_EXCEEDED)
