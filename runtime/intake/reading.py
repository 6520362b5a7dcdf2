"""What an output says: its text to thoughts, content and tool calls, token by token or whole."""

from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Many
from enum import Enum, auto
from itertools import groupby
from typing import NamedTuple

from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.intake.parsers.division import CallsInText, Division, ThoughtFirst, Untouched
from ramet.runtime.intake.parsers.harmony import HarmonyParser, channels_of
from ramet.runtime.intake.parsers.json_text import is_whole
from ramet.runtime.intake.parsers.reasoning import make_reasoning
from ramet.runtime.intake.parsers.tools import (
    GPT_OSS,
    CallArguments,
    CallStart,
    Part,
    Thought,
    ToolParser,
    tool_parser_class,
)

MAX_AT_ONCE = 256  # tokens of a whole reply that are read before others are served


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
    leading: bool = False  # calls are at the start of the answer or nowhere


class OutputReader:
    """The output of one sequence, read token by token."""

    def __init__(self, reading: Reading) -> None:
        self._tools = _tool_parser(reading)
        self._division = _division(reading, self._tools)
        self._parallel, self._full = reading.parallel, False
        self.plain = isinstance(self._division, Untouched)  # text passes as it is
        self._within = 0  # tokens until the answer began
        self._passes, self._held = reading.thoughts, list[str]()
        self._ended = False
        self._stop_ids = reading.stop_ids
        self._arguments: list[str] = []  # of the newest call
        self._calling = False  # what comes next may be its
        self._broken = False  # what followed a call could not be part of it, but the call was not whole
        self.num_calls = 0

    @property
    def reasoning_tokens(self) -> int:
        """The number of tokens in the thought and its tags; 0 without a thought, or if thoughts are content."""
        return self._within if self._division.begun and self._passes is not Thoughts.IN_TEXT else 0

    @property
    def thinking(self) -> bool:
        """Inside a thought, or it is not yet decided whether there is one."""
        return self._division.thinking

    def push(self, text: str) -> list[Part]:
        """One token's text."""
        self._within += self.thinking
        return self._kept(self._division.push(text)) if text else []

    def close(self, tail: str) -> list[Part]:
        """`tail`: text that only the end made certain."""
        parts = self._kept(self._division.push(tail)) if tail else []
        self._ended = True
        return parts + self._kept(self._division.close())

    def new_call_id(self) -> str:
        return self._tools.new_id() if self._tools is not None else ""

    def reason(self, finish: Finish) -> str:
        """Of its end, in OpenAI's words."""
        called = self.num_calls and finish.kind is FinishKind.STOP and not self._broken and not self.cut(finish)
        return "tool_calls" if called else finish.kind.value

    def cut(self, finish: Finish) -> bool:
        """Whether its end cut something off: the limit came, or a stop of the client's was found inside a call."""
        if finish.kind is FinishKind.LENGTH:
            return True
        stopped = isinstance(finish.matched, str) or finish.matched in self._stop_ids
        return stopped and self.num_calls > 0 and not is_whole("".join(self._arguments), "{")

    def _kept(self, parts: list[Part]) -> list[Part]:
        """What of these the client gets: of thoughts as it asks, of calls the first where it takes one."""
        kept: list[Part] = []
        for part in parts:
            match part:
                case Thought():
                    self._think(part, kept)
                    continue
                case CallStart():
                    self._full = self._full or (self.num_calls > 0 and not self._parallel)
                    self.num_calls += not self._full
            kept += self._whole_thought()
            if self._full:
                continue
            kept.append(part)
            match part:
                case CallArguments(text):
                    self._arguments.append(text)
                case _:
                    self._end_call()
            if isinstance(part, CallStart):
                self._arguments, self._calling = [], True
        if self._ended or not self.thinking:
            kept += self._whole_thought()
        return kept

    def _end_call(self) -> None:
        if self._calling:
            self._calling = False
            self._broken = self._broken or not is_whole("".join(self._arguments), "{")

    def _think(self, thought: Thought, kept: list[Part]) -> None:
        match self._passes:
            case Thoughts.STREAMED:
                kept.append(thought)
            case Thoughts.WHOLE:
                self._held.append(thought.text)

    def _whole_thought(self) -> list[Part]:
        """What waited for the thought's end."""
        held, self._held = "".join(self._held), []
        return [Thought(held)] if held else []


def _tool_parser(reading: Reading) -> ToolParser | None:
    if not (reading.tool_parser and reading.tools):
        return None
    parser = tool_parser_class(reading.tool_parser)(reading.tools)
    parser.leading = reading.leading
    return parser


def _division(reading: Reading, tools: ToolParser | None) -> Division:
    in_text = reading.thoughts is Thoughts.IN_TEXT
    if isinstance(tools, HarmonyParser) or reading.reasoning_parser == GPT_OSS:
        names = tools.tools if isinstance(tools, HarmonyParser) else None
        in_text = in_text or reading.reasoning_parser is None
        told = {"in_text": in_text, "held": reading.leading, "exact": reading.exact}
        return channels_of(names, reading.tail, reading.continued, **told)
    rest: Division = Untouched() if tools is None else CallsInText(tools)
    if reading.reasoning_parser is None:
        return rest
    thoughts = make_reasoning(
        reading.reasoning_parser, reading.tail, reading.continued, reading.exact, with_tags=in_text
    )
    return ThoughtFirst(thoughts, rest, reading.token_opens, in_text)


class ThoughtCount:
    """How many tokens an output's thought has: it begins with the first token and ends with the closing tag.

    `close_ids`: the tag's tokens: it need not show in the text.
    """

    def __init__(self, close_tag: str, close_ids: Many[int]) -> None:
        self._close_tag, self._close_ids = close_tag, list(close_ids)
        self._tail, self._closed = "", False
        self._ids = deque[int](maxlen=len(self._close_ids))  # the newest
        self.total = 0

    def push(self, texts: Iterable[str], tokens: Iterable[int]) -> None:
        for text, token in zip(texts, tokens, strict=True):
            if self._closed:
                return
            self.total += 1
            said = self._tail + text
            self._ids.append(token)
            self._closed = list(self._ids) == self._close_ids != [] or self._close_tag in said
            self._tail = said[-len(self._close_tag) :]
