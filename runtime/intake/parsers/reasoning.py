"""The thought in front of an answer, separated while the text arrives.

Decides which characters are reasoning and which are content; the same whatever pieces they come in. Knows no HTTP and
no tool calls. A thought is at the start of the output or nowhere: a tag that opens later is content. White space after
the open tag and on both sides of the close tag belongs to neither (MAX_BLANKS of it, before a tag); open tags repeated
at the start of a thought are dropped. A thought that is never closed takes the whole output.
"""

from collections.abc import Callable

import msgspec

from ramet.runtime.errors import ConfigError
from ramet.runtime.intake.parsers.markers import (
    BLANKS,
    MAX_BLANKS,
    after_blanks,
    before_blanks,
    certain_until,
    may_begin,
)


class ReasoningStyle(msgspec.Struct, frozen=True):
    """How a family of models marks its thoughts."""

    open_tag: str
    close_tag: str
    always: bool = False  # every output starts inside a thought, whether or not it opens the tag
    shows_special: bool = False  # the tags are special tokens: they must be shown in the text


class ReasoningParser:
    """Feed it the output; it gives back (reasoning, content) as they become certain.

    undecided -> opened -> inside -> closed -> answer, or undecided -> answer
    """

    def __init__(self, open_tag: str, close_tag: str, thinking: bool) -> None:
        self._open_tag, self._close_tag = open_tag, close_tag
        self._pending = ""  # read again when more has come: the beginning of a tag, white space before it
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._state: Callable[[str, int], int] = self._opened if thinking else self._undecided
        self._in_answer = False
        self._calm = False  # inside, and nothing is pending

    @property
    def starts_inside(self) -> bool:
        """Of one that has read nothing yet: the output begins inside a thought."""
        return self._state == self._opened

    @property
    def thinking(self) -> bool:
        """Inside the thought, or it is not yet decided whether there is one."""
        return not self._in_answer

    def push(self, text: str) -> tuple[str, str]:
        if self._in_answer and self._state == self._answer:
            return "", text
        if self._calm and self._close_tag[0] not in text and text[-1:] not in BLANKS:
            return text, ""
        text = self._pending + text
        self._pending = text[self._read(text) :]
        self._calm = not self._pending and self._state == self._inside
        return self._take()

    def close(self) -> tuple[str, str]:
        """What only the end makes certain."""
        held, self._pending = self._pending, ""
        undecided = self._state == self._undecided
        return ("", held) if undecided or self._in_answer else (held, "")

    def _read(self, text: str) -> int:
        at = 0
        while at < len(text):
            state = self._state
            end = state(text, at)
            if end == at and state == self._state:
                break  # it waits for more
            at = end
        return at

    def _take(self) -> tuple[str, str]:
        taken = "".join(self._reasoning), "".join(self._content)
        self._reasoning.clear()
        self._content.clear()
        return taken

    def _undecided(self, text: str, at: int) -> int:
        first = after_blanks(text, at)
        if first - at <= MAX_BLANKS:
            if text.startswith(self._open_tag, first):
                self._state = self._opened
                return first + len(self._open_tag)
            if may_begin(text, first, self._open_tag):
                return at
        self._in_answer = True
        self._state = self._answer
        return at

    def _opened(self, text: str, at: int) -> int:
        at = after_blanks(text, at)
        if text.startswith(self._open_tag, at):
            return at + len(self._open_tag)
        if not may_begin(text, at, self._open_tag):
            self._state = self._inside
        return at

    def _inside(self, text: str, at: int) -> int:
        found = text.find(self._close_tag, at)
        end = certain_until(text, at, self._close_tag) if found < 0 else before_blanks(text, at, found)
        self._reasoning.append(text[at:end])
        if found < 0:
            return end
        self._in_answer = True
        self._state = self._closed
        return found + len(self._close_tag)

    def _closed(self, text: str, at: int) -> int:
        first = after_blanks(text, at)
        if first < len(text):
            self._state = self._answer
        return first

    def _answer(self, text: str, at: int) -> int:
        self._content.append(text[at:])
        return len(text)


_STYLES: dict[str, ReasoningStyle] = {}


def register_reasoning(name: str, style: ReasoningStyle) -> None:
    """Makes a style known under a name; a later one of the same name replaces it."""
    _STYLES[name] = style


register_reasoning("qwen3", ReasoningStyle("<think>", "</think>"))
register_reasoning("deepseek-r1", ReasoningStyle("<think>", "</think>", always=True))
register_reasoning("mistral", ReasoningStyle("[THINK]", "[/THINK]", shows_special=True))


def reasoning_names() -> list[str]:
    return sorted(_STYLES)


def reasoning_style(name: str) -> ReasoningStyle:
    if name not in _STYLES:
        raise ConfigError(f"no reasoning style is called {name!r}, known are {', '.join(reasoning_names())}")
    return _STYLES[name]


def make_reasoning(name: str, prompt_tail: str, continued: str | None = None) -> ReasoningParser:
    """Where the output starts: inside a thought if the rendered prompt ends with the tag that opens one.

    `continued`: the text of the turn that the output goes on with, which may have opened a thought and not closed it.
    """
    style, tail = reasoning_style(name), prompt_tail.rstrip()
    if continued is not None:
        thinking = continued.rfind(style.open_tag) > continued.rfind(style.close_tag)
    else:
        thinking = tail.endswith(style.open_tag) or (style.always and not tail.endswith(style.close_tag))
    return ReasoningParser(style.open_tag, style.close_tag, thinking)


def detect_reasoning(template: str) -> str | None:
    """The style that a chat template's source writes, or None."""
    if "[THINK]" in template:
        return "mistral"
    return "qwen3" if "<think>" in template or "</think>" in template else None
