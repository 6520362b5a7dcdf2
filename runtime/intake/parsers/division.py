"""Divides an output's text into thoughts, content and calls while it is generated.

Decides in which order parsers see the text: a thought is never read as a call. Knows no client and no format.
"""

from typing import Protocol

from ramet.runtime.intake.parsers.reasoning import ReasoningParser
from ramet.runtime.intake.parsers.tools import Part, Thought, ToolParser


class Division(Protocol):
    """Divides one output. The joined parts do not depend on how the text is cut into pieces."""

    @property
    def thinking(self) -> bool:
        """Whether the text is inside a thought, or may still begin one."""

    @property
    def begun(self) -> bool:
        """Whether a thought has begun."""

    def push(self, text: str) -> list[Part]:
        """The parts that became certain with this text, which is not empty."""

    def close(self) -> list[Part]:
        """The parts that only the end makes certain."""


class Untouched:
    """All text is content."""

    thinking = begun = False

    def push(self, text: str) -> list[Part]:
        return [text]

    def close(self) -> list[Part]:
        return []


class CallsInText:
    """Content and calls, without thoughts."""

    thinking = begun = False

    def __init__(self, tools: ToolParser) -> None:
        self._tools = tools

    def push(self, text: str) -> list[Part]:
        return [*self._tools.push(text)]

    def close(self) -> list[Part]:
        return [*self._tools.close()]


class ThoughtFirst:
    """A thought between tags comes first, if there is one; `rest` divides what follows it."""

    def __init__(
        self, thoughts: ReasoningParser, rest: Division, token_opens: bool = False, in_text: bool = False
    ) -> None:
        """`token_opens`: unless the prompt opens a thought, only a whole tag in the first text does.

        `in_text`: the thought becomes content, as `thoughts` returns it.
        """
        self._thoughts, self._rest = thoughts, rest
        self._token_opens, self._in_text = token_opens, in_text
        self._has_none = False  # it is certain that the output has no thought

    @property
    def thinking(self) -> bool:
        return not self._has_none and self._thoughts.thinking

    @property
    def begun(self) -> bool:
        return not self._has_none and self._thoughts.begun

    def push(self, text: str) -> list[Part]:
        if self._token_opens:
            self._token_opens, self._has_none = False, not self._thoughts.opened_by(text)
        if self._has_none:
            return self._rest.push(text)
        return self._parts(*self._thoughts.push(text))

    def close(self) -> list[Part]:
        last = [] if self._has_none else self._parts(*self._thoughts.close())
        return last + self._rest.close()

    def _parts(self, thought: str, text: str) -> list[Part]:
        parts: list[Part] = []
        if thought:
            parts.append(thought if self._in_text else Thought(thought))
        return parts + self._rest.push(text) if text else parts
