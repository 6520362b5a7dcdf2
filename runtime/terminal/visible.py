"""Text of others on a terminal: whatever a terminal would obey instead of showing is written out."""

import re
import sys

# C0 but tab and newline, DEL, C1, and what turns the direction of the text around it
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """An escape is shown as \\x1b. Each character by itself, so that a stream may be cut anywhere."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def write(text: str) -> None:
    """Of others, to stdout, at once."""
    sys.stdout.write(visible(text))
    sys.stdout.flush()


def note(text: str) -> None:
    """A line about the chat, to stderr, which may have words of others in it."""
    sys.stdout.flush()
    print(visible(text), file=sys.stderr, flush=True)
