"""How many tokens a prompt or a text to decode may have; the refusal in the words that clients look for."""

from ramet.runtime.errors import ClientError

CONTEXT_EXCEEDED = "context_length_exceeded"
MAX_CALL_IDS = 1 << 20  # ids of one Detokenize call


def longer_than_context(place: str, length: str, context_length: int) -> ClientError:
    """`length`: as "9 tokens"."""
    fact = f"has {length}, must have at most {context_length - 1}"
    why = f"this model's maximum context length is {context_length} tokens, one of them new"
    return ClientError(place, f"{fact}: {why}", code=CONTEXT_EXCEEDED)
