"""What a person types, message by message: line editing, multi-line text, a history that later chats find.

a line that ends in a backslash       goes on in the next
three double quotes                   open and close a text of several lines
a paste of several lines              is one text (where the terminal marks pastes, as nearly all do)
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ramet.runtime.terminal.visible import note

FIRST, FURTHER = ">>> ", "... "
QUOTES = '"""'
MAX_LINES = 1000  # of the history
MAX_KEPT = 4096  # characters of a line of the history


def read_message(read: Callable[[str], str] = input) -> str:
    """The next message. Raises EOFError at the end, also inside of a text that is not closed."""
    line = read(FIRST)
    if line.lstrip().startswith(QUOTES):
        return _quoted(line.lstrip().removeprefix(QUOTES), read)
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(read(FURTHER))
    return "\n".join(lines)


def _quoted(line: str, read: Callable[[str], str]) -> str:
    lines = [line]
    while not lines[-1].rstrip().endswith(QUOTES):
        lines.append(read(FURTHER))
    lines[-1] = lines[-1].rstrip().removesuffix(QUOTES)
    return "\n".join(lines).strip("\n")


def history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local" / "state") / "ramet" / "chat_history"


class Lines:
    """A terminal's lines. `history`: the file that they are kept in, None for none; `words` are completed by Tab."""

    def __init__(self, history: Path | None, words: Sequence[str]) -> None:
        self._history, self._words, self._added = history, words, 0
        self._readline = readline = _readline()
        if readline is None:
            return
        readline.set_auto_history(False)  # `_read` decides what is kept
        readline.set_history_length(MAX_LINES)
        readline.parse_and_bind("set enable-bracketed-paste on")  # Python turns it off
        readline.set_completer_delims(" ")
        readline.set_completer(self._completed)
        readline.parse_and_bind("tab: complete")
        if history is not None:
            with suppress(OSError):  # there is none yet
                readline.read_history_file(history)

    def read(self) -> str:
        """The next message, without surrogates, which no JSON may have. Raises EOFError and KeyboardInterrupt."""
        return read_message(self._read).encode(errors="replace").decode()

    def close(self) -> None:
        """Write the lines of this chat behind those of others."""
        if self._history is None or self._readline is None or not self._added:
            return
        try:
            self._history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._history, os.O_WRONLY | os.O_CREAT, 0o600)
            os.fchmod(file, 0o600)
            os.close(file)
            self._readline.append_history_file(self._added, self._history)
        except OSError as error:
            note(f"the history is not kept: {error}")

    def _read(self, prompt: str) -> str:
        line = input(prompt)
        if self._readline is not None and line.strip() and len(line) <= MAX_KEPT:
            self._readline.add_history(line)
            self._added = min(self._added + 1, MAX_LINES)
        return line

    def _completed(self, begun: str, number: int) -> str | None:
        found = [word for word in self._words if begun and word.startswith(begun)]
        return found[number] if number < len(found) else None


def _readline() -> Any:
    """None where Python was built without it: lines are read as the terminal gives them."""
    try:
        return import_module("readline")
    except ImportError:
        return None
