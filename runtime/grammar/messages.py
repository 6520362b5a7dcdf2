"""The words of a library, fit for a client."""

MAX_MESSAGE = 300  # characters


def short(message: str) -> str:
    """On one line, and cut."""
    words = " ".join(message.split())
    return words if len(words) <= MAX_MESSAGE else f"{words[:MAX_MESSAGE]}..."
