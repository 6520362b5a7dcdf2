"""Messages on channels, <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>: GPT-OSS.

Decides by its header what a message is: a call if the recipient is functions.NAME or a tool that the request offers; a
thought on the channel analysis; content otherwise. An output begins within a header, whose first word is in the prompt;
an output without a header is content. Any name is accepted. Headers are not shown, except for messages that look like
calls but are content: if calls are text, or if the arguments are not an object. Two consecutive messages of one kind
are joined as paragraphs.

A marker ends a message anywhere except inside arguments. In an output that is constrained to its tools, a thought ends
only with <|end|>, and the final answer with the output, as the constraint requires. Markers that they quote are text.
"""

import re
from enum import Enum
from functools import cached_property

from ramet.runtime.intake.parsers.json_text import value
from ramet.runtime.intake.parsers.pieces import BLANKS, Broken, CallPieces
from ramet.runtime.intake.parsers.structure import ANY_TEXT, either, json_of, literal, row, tag
from ramet.runtime.intake.parsers.structure import Part as Form
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Event, Offer, Part, Thought, ToolParser

START, CHANNEL, MESSAGE, END = "<|start|>", "<|channel|>", "<|message|>", "<|end|>"
ANALYSIS, FINAL = f"{CHANNEL}analysis{MESSAGE}", f"{CHANNEL}final{MESSAGE}"
MAX_HEADER = 512  # characters
BETWEEN = "\n\n"  # stands between paragraphs

_BEGINS = (START, CHANNEL)  # first markers of a message; an output's first message may also begin with "to="
_ENDS = (END, "<|call|>", "<|return|>", *_BEGINS)
_END = re.compile("|".join(map(re.escape, _ENDS)))
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_FUNCTIONS = "functions."


class ChannelState(Enum):
    """What is being read."""

    HEADER = "header"
    THOUGHT = "thought"
    CONTENT = "content"
    LAST = "last"  # content to the output's end
    CALL = "call"  # a call whose arguments have not begun
    ARGUMENTS = "arguments"
    CALLED = "called"  # the text after a call's arguments


class Channels:
    """Divides one output. `tools`: the offered names; None: calls are content.

    `state`: the state at the end of the prompt. `in_text`: thoughts are content, with their headers. `held`: the output
    is constrained to its tools. `exact`: its final answer is constrained to a form, in which markers are plain text.
    """

    def __init__(
        self,
        tools: frozenset[str] | None,
        state: ChannelState = ChannelState.HEADER,
        in_text: bool = False,
        held: bool = False,
        exact: bool = False,
    ) -> None:
        self._tools, self._state = tools, state
        self._in_text, self._held, self._exact = in_text, held, held or exact
        self._first = state is ChannelState.HEADER  # nothing has been read
        self._waits = ""  # text whose meaning is not certain yet
        self._header = self._name = ""  # the open message's header, and the name of its call
        self._json = CallPieces()
        self._fresh = True  # the open message has had no text so far
        self._parts: list[Part] = []
        self._newest: type[Part] | None = None
        self.begun = state is ChannelState.THOUGHT

    @property
    def thinking(self) -> bool:
        return self._state in (ChannelState.HEADER, ChannelState.THOUGHT)

    def push(self, text: str) -> list[Part]:
        self._waits += text
        while self._waits and self._step():
            pass
        return self._taken()

    def close(self) -> list[Part]:
        text, self._waits = self._waits, ""
        match self._state:
            case ChannelState.HEADER if not self._first or text.lstrip(BLANKS).startswith(_BEGINS):
                pass  # an incomplete header is not shown
            case ChannelState.CALL:
                self._start("{}")
            case ChannelState.CALLED:
                pass  # white space, or an incomplete marker
            case ChannelState.ARGUMENTS:
                self._say(self._json.rest())
                self._steps.close()  # breaks a reference cycle, which only a collection would free
            case _:
                self._body(text)
        return self._taken()

    def _taken(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    # -- reading; False: more text is needed ---------------------------------------------------------------------------

    def _step(self) -> bool:
        match self._state:
            case ChannelState.HEADER:
                return self._read_header()
            case ChannelState.CALL | ChannelState.CALLED:
                return self._read_around()
            case ChannelState.ARGUMENTS:
                return self._read_arguments()
        return self._read_body()

    def _read_header(self) -> bool:
        known, firsts = self._waits.lstrip(BLANKS), (*_ENDS, "to=") if self._first else _ENDS
        if (end := _END.match(known)) is not None and end[0] not in _BEGINS:
            self._waits, self._first = known[end.end() :], False
            return True
        may_be_one = any(first.startswith(known[: len(first)]) for first in firsts)
        begin = self._waits.find(MESSAGE, 0, MAX_HEADER) if may_be_one else -1
        if begin >= 0:
            header, self._waits = self._waits[: begin + len(MESSAGE)], self._waits[begin + len(MESSAGE) :]
            self._open(self._state_after(header), header)
            return True
        if may_be_one and len(self._waits) < MAX_HEADER:
            return False
        self._open(ChannelState.CONTENT, "")
        # what follows is read again; the part before it is emitted, so that it is not read as a header again
        begin = len(self._waits) - len(known) + 1
        self._say(self._waits[:begin])
        self._waits = self._waits[begin:]
        return True

    def _state_after(self, header: str) -> ChannelState:
        channel, recipient = _CHANNEL_NAME.search(header), _RECIPIENT.search(header)
        name = recipient[1] if recipient else ""
        if name.startswith(_FUNCTIONS) or name in (self._tools or ()):
            self._name = name.removeprefix(_FUNCTIONS)
            return ChannelState.CALL
        match channel[1] if channel else "":
            case "analysis":
                return ChannelState.THOUGHT
            case "final" if self._exact:
                return ChannelState.LAST
        return ChannelState.CONTENT

    def _open(self, state: ChannelState, header: str) -> None:
        self._state, self._header, self._fresh, self._first = state, header, True, False
        if state is ChannelState.THOUGHT:
            self.begun = True
            if self._in_text:
                self._give(header)
        elif state is ChannelState.CALL and self._tools is None:
            self._state = ChannelState.CONTENT
            self._give(header)

    def _read_body(self) -> bool:
        ends = _END.finditer(self._waits)
        by_end = self._held and self._state is ChannelState.THOUGHT  # only END ends it
        end = (
            None
            if self._state is ChannelState.LAST
            else next((each for each in ends if not by_end or each[0] == END), None)
        )
        if end is None:
            known = len(self._waits) if self._state is ChannelState.LAST else self._num_known()
            self._body(self._waits[:known])
            self._waits = self._waits[known:]
            return False
        self._body(self._waits[: end.start()])
        self._waits = self._waits[end.start() :]
        self._end(end[0])
        return True

    def _num_known(self) -> int:
        """How many of the waiting characters cannot be part of a marker."""
        begin = self._waits.rfind("<")
        return begin if begin >= 0 and self._may_end(self._waits[begin:]) else len(self._waits)

    def _body(self, text: str) -> None:
        if self._state is ChannelState.THOUGHT:
            self._think(text)
        else:
            self._say(text)

    def _end(self, marker: str) -> None:
        """End the open message at this marker, which is the next text."""
        if marker not in _BEGINS:
            self._waits = self._waits.removeprefix(marker)
            if self._state is ChannelState.THOUGHT and self._in_text:
                self._give(marker)
                self._newest = None
        self._state = ChannelState.HEADER

    def _read_around(self) -> bool:
        """Read the text before or after a call's arguments: white space, or the marker that ends the message."""
        known = self._waits.lstrip(BLANKS)
        self._header += self._waits[: len(self._waits) - len(known)]
        self._waits = known
        if (end := _END.match(known)) is not None:
            if self._state is ChannelState.CALL:
                self._start("{}")
            self._end(end[0])
        elif not known or self._may_end(known):
            return False
        elif self._state is ChannelState.CALL and known[0] == "{":
            self._state, self._json = ChannelState.ARGUMENTS, CallPieces()
            self._steps = self._json.passing(value(self._json, "{"), self._argue)
            self._start("")
        else:
            if self._state is ChannelState.CALL:
                self._give(self._header)
            self._state = ChannelState.CONTENT
        return True

    def _read_arguments(self) -> bool:
        self._json.add(self._waits)
        self._waits = ""
        try:
            next(self._steps)
            return False
        except StopIteration:
            self._state = ChannelState.CALLED
        except Broken:
            self._state = ChannelState.CONTENT
        self._waits = self._json.rest()
        return True

    @staticmethod
    def _may_end(text: str) -> bool:
        """Whether it is the beginning of a marker that ends a message."""
        return any(end.startswith(text) for end in _ENDS)

    # -- making parts -------------------------------------------------------------------------------------------------

    def _start(self, arguments: str) -> None:
        self._parts.append(CallStart(self._name))
        self._newest = CallStart
        self._argue(arguments)

    def _argue(self, arguments: str) -> None:
        if arguments:
            self._parts.append(CallArguments(arguments))

    def _think(self, text: str) -> None:
        if self._in_text:
            self._give(text)
        elif text:
            self._parts.append(Thought(self._as_paragraph(text, Thought)))

    def _say(self, text: str) -> None:
        if text:
            self._parts.append(self._as_paragraph(text, str))

    def _as_paragraph(self, text: str, kind: type[Part]) -> str:
        follows = self._fresh and self._newest is kind
        self._fresh, self._newest = False, kind
        return BETWEEN + text if follows else text

    def _give(self, text: str) -> None:
        """Add the text to the content unchanged."""
        self._fresh = False
        self._say(text)


class HarmonyParser(ToolParser):
    """Messages on channels, <|channel|>commentary to=functions.f<|message|>{...}<|call|>: GPT-OSS.

    If it is used alone, thoughts are content. A call ends the output, so an output has at most one.
    """

    shows_special = True

    @cached_property
    def _channels(self) -> Channels:
        return Channels(self.tools, in_text=True, held=self.leading)

    def push(self, text: str) -> list[Event]:
        return _events(self._channels.push(text))

    def close(self) -> list[Event]:
        return _events(self._channels.close())

    @classmethod
    def calls_form(cls, offers: list[Offer], single: bool) -> Form:
        return _thought_first(cls._calls(offers))

    @classmethod
    def text_form(cls, offers: list[Offer], single: bool) -> Form:
        return _thought_first([*cls._calls(offers), row(literal(FINAL), ANY_TEXT)])

    @classmethod
    def answer_form(cls, offers: list[Offer], single: bool, answer: Form) -> Form:
        return _thought_first([*cls._calls(offers), row(literal(FINAL), answer)])

    @classmethod
    def _calls(cls, offers: list[Offer]) -> list[Form]:
        return [
            tag(f"{CHANNEL}commentary to={_FUNCTIONS}{name} <|constrain|>json{MESSAGE}", json_of(schema), "")
            for name, schema in offers
        ]


def _thought_first(messages: list[Form]) -> Form:
    """One of these messages, optionally after a thought."""
    return either([*messages, row(tag(ANALYSIS, ANY_TEXT, END), literal(f"{START}assistant"), either(messages))])


def _events(parts: list[Part]) -> list[Event]:
    return [part for part in parts if not isinstance(part, Thought)]


def channels_of(
    tools: frozenset[str] | None, tail: str, continued: str | None, *, in_text: bool, held: bool, exact: bool
) -> Channels:
    """`tail`: the prompt's end. `continued`: the text of the turn that the output continues; None: it begins a turn."""
    end = (tail if continued is None else continued).rstrip()
    if continued is not None or end.endswith(FINAL):
        thinks = continued is not None and continued.rfind(ANALYSIS) > max(continued.rfind(END), continued.rfind(FINAL))
        state = ChannelState.THOUGHT if thinks else ChannelState.LAST if held or exact else ChannelState.CONTENT
    else:
        state = ChannelState.THOUGHT if end.endswith(ANALYSIS) else ChannelState.HEADER
    return Channels(tools, state, in_text, held, exact)
