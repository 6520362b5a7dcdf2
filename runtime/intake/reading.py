"""What an output says: its text to thoughts, content and tool calls, token by token or whole."""

from collections.abc import Iterable
from enum import Enum, auto
from itertools import groupby
from typing import NamedTuple

from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.intake.parsers.json_text import is_whole
from ramet.runtime.intake.parsers.reasoning import make_reasoning
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Event, tool_parser_class

MAX_AT_ONCE = 256  # tokens of a whole reply that are read before others are served


class Thought(NamedTuple):
    text: str


Part = Event | Thought


class Thoughts(Enum):
    """What a client gets of them."""

    STREAMED = auto()
    WHOLE = auto()  # in one piece, when they end
    LEFT_OUT = auto()
    IN_TEXT = auto()  # they are not separated from it


def merged(parts: list[Part]) -> list[Part]:
    """Neighbours of one kind as one part; each call begins a new one."""
    together: list[Part] = []
    for kind, group in groupby(parts, type):
        if kind is CallStart:
            together += group
        elif kind is str:
            together.append("".join(map(str, group)))
        else:
            together.append(kind("".join(part.text for part in group if not isinstance(part, str | CallStart))))
    return together


class Reading(NamedTuple):
    """How the outputs of one chat are read. Parsers are names; None: nothing is looked for."""

    tool_parser: str | None
    reasoning_parser: str | None
    tail: str = ""  # of the prompt
    continued: str | None = None  # the text of the turn that the output goes on with; None: it begins a turn
    tools: frozenset[str] = frozenset()  # names; empty: calls are text
    parallel: bool = True  # more than one call is passed on
    thoughts: Thoughts = Thoughts.STREAMED
    stop_ids: frozenset[int] = frozenset()  # that the client named, beside those that end every output
    exact: bool = False  # all that follows a thought is content, its white space as well
    token_opens: bool = False  # a thought is opened by the tag's token alone, and not by one that other tokens spell


class Reader:
    """The output of one sequence, read token by token."""

    def __init__(self, reading: Reading) -> None:
        reasoning, tools = reading.reasoning_parser, reading.tool_parser
        self._thoughts = None
        if reasoning:
            self._thoughts = make_reasoning(reasoning, reading.tail, reading.continued, reading.exact)
        self._token_opens = reading.token_opens
        self._tools = tool_parser_class(tools)(reading.tools) if tools and reading.tools else None
        self._parallel, self._full = reading.parallel, False
        self.plain = self._thoughts is None and self._tools is None  # text passes as it is
        self._within = 0  # tokens until the answer began
        self._passes, self._held = reading.thoughts, list[str]()
        self._ended = False
        self._stop_ids = reading.stop_ids
        self._arguments: list[str] = []  # of the newest call
        self.num_calls = 0

    @property
    def reasoning_tokens(self) -> int:
        """Those of the thought and its tags; none where there was no thought."""
        return self._within if self._thoughts is not None and self._thoughts.begun else 0

    @property
    def thinking(self) -> bool:
        """Inside a thought, or it is not yet decided whether there is one."""
        return self._thoughts is not None and self._thoughts.thinking

    def push(self, text: str) -> list[Part]:
        """One token's text."""
        self._look_for_token(text)
        thoughts = self._thoughts
        if thoughts is None:
            return self._read(text) if text else []
        if thoughts.thinking:
            self._within += 1
        return self._divided(*thoughts.push(text)) if text else []

    def close(self, tail: str) -> list[Part]:
        """`tail`: text that only the end made certain."""
        parts: list[Part] = []
        self._look_for_token(tail)
        if self._thoughts is not None:
            parts += self._divided(*self._thoughts.push(tail)) if tail else []
            self._ended = True
            parts += self._divided(*self._thoughts.close())
        elif tail:
            parts += self._read(tail)
        if self._tools is not None:
            parts += self._kept(self._tools.close())
        return parts

    def _look_for_token(self, text: str) -> None:
        """The first text has the whole tag, or nothing opens a thought that the prompt has not opened."""
        if self._token_opens and text and self._thoughts is not None:
            self._token_opens = False
            if not self._thoughts.opened_by(text):
                self._thoughts = None

    def new_call_id(self) -> str:
        return self._tools.new_id() if self._tools is not None else ""

    def reason(self, finish: Finish) -> str:
        """Of its end, in OpenAI's words."""
        called = self.num_calls and finish.kind is FinishKind.STOP and not self.cut(finish)
        return "tool_calls" if called else finish.kind.value

    def cut(self, finish: Finish) -> bool:
        """Whether its end cut something off: the limit came, or a stop of the client's was found inside a call."""
        if finish.kind is FinishKind.LENGTH:
            return True
        stopped = isinstance(finish.matched, str) or finish.matched in self._stop_ids
        return stopped and self.num_calls > 0 and not is_whole("".join(self._arguments), "{")

    def _divided(self, thought: str, text: str) -> list[Part]:
        passed = self._passed(thought)
        return [*([Thought(passed)] if passed else []), *(self._read(text) if text else [])]

    def _passed(self, thought: str) -> str:
        """What the client gets of it now."""
        match self._passes:
            case Thoughts.STREAMED:
                return thought
            case Thoughts.LEFT_OUT:
                return ""
        self._held.append(thought)
        if self.thinking and not self._ended:
            return ""
        held, self._held = "".join(self._held), []
        return held

    def _read(self, text: str) -> list[Part]:
        return [text] if self._tools is None else self._kept(self._tools.push(text))

    def _kept(self, events: list[Event]) -> list[Part]:
        """Without all that comes from a second call on, where the client takes one."""
        kept: list[Part] = []
        for event in events:
            if isinstance(event, CallStart):
                self._full = self._full or (self.num_calls > 0 and not self._parallel)
                self.num_calls += not self._full
            if self._full:
                continue
            kept.append(event)
            match event:
                case CallStart():
                    self._arguments = []
                case CallArguments(text):
                    self._arguments.append(text)
        return kept


class ThoughtCount:
    """How many tokens an output's thought has: it begins with the first token and ends with the closing tag.

    `close_id`: the tag's token, where it is one: such a tag need not show in the text.
    """

    def __init__(self, close_tag: str, close_id: int | None) -> None:
        self._close_tag, self._close_id = close_tag, close_id
        self._tail, self._closed = "", False
        self.total = 0

    def push(self, texts: Iterable[str], tokens: Iterable[int]) -> None:
        for text, token in zip(texts, tokens, strict=True):
            if self._closed:
                return
            self.total += 1
            said = self._tail + text
            self._closed = token == self._close_id or self._close_tag in said
            self._tail = said[-len(self._close_tag) :]
