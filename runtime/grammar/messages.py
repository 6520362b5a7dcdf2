"""The words of a library, fit for a client."""

MAX_MESSAGE = 300  # characters


def short(message: str) -> str:
    """On one line, and cut; without the stack of a library that gave up."""
    words = " ".join(message.partition("<backtrace>")[0].split())
    return words if len(words) <= MAX_MESSAGE else f"{words[:MAX_MESSAGE]}..."
