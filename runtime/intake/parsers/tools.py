"""Tool calls in the text of an output: which parser reads them, and what a parser says.

Formats are in deepseek.py, json_calls.py and pythonic.py, and in installed packages that name a class in the entry
point group `ramet.tool_parsers`.
A call that turns out not to be one before its name is known is content, byte for byte, with its marker. One that turns
out wrong later stays: its arguments end there, and what comes next is content again. What had not become part of a call
when the output ends is content.
"""

import os
import re
from abc import ABC, abstractmethod
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, NamedTuple

import msgspec

from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.intake.parsers.structure import Part as Form
from ramet.runtime.intake.parsers.structure import either

GROUP = "ramet.tool_parsers"
GPT_OSS = "gpt-oss"  # reads calls and thoughts at once, so it is the name of a style of reasoning as well
OWN = {  # class -> names
    "harmony:HarmonyParser": (GPT_OSS,),
    "deepseek:DeepseekParser": ("deepseek", "deepseek-v3"),
    "json_calls:HermesParser": ("hermes", "qwen", "qwen25"),
    "json_calls:LlamaParser": ("llama3", "llama3-json", "llama3_json"),
    "json_calls:MistralParser": ("mistral",),
    "pythonic:PythonicParser": ("pythonic",),
}


class CallStart(msgspec.Struct, frozen=True):
    """A call begins; the arguments that follow are its."""

    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """A fragment, never empty, of the JSON text of the newest call's arguments."""

    text: str


Event = str | CallStart | CallArguments  # str: content


class Thought(NamedTuple):
    """A fragment of what the model thinks before, or between, what it says and calls."""

    text: str


Part = Event | Thought


class Offer(NamedTuple):
    """A tool that may be called."""

    name: str
    schema: dict[str, Any]  # of its arguments, which are an object; some of its members may be JSON (unread_json.py)


class Unwritable(Exception):
    """What calls in a format cannot be held to. `name`: of the tool; `fact`: what of it, in words for the client."""

    def __init__(self, fact: str, name: str = "") -> None:
        super().__init__(fact)
        self.fact, self.name = fact, name


class ToolParser(ABC):
    """One output. `tools`: the names that the request offers. Any pieces of a text give the same calls and content."""

    shows_special: ClassVar[bool] = False  # its markers are special tokens: they must be shown in the text
    leading = False  # set: calls are at the start of the output or nowhere, because an answer may hold their markers

    def __init__(self, tools: frozenset[str]) -> None:
        self.tools = tools

    def new_id(self) -> str:
        """An id for a call, in a form that the model's template takes back."""
        return f"call_{os.urandom(12).hex()}"

    @classmethod
    def calls_form(cls, offers: list[Offer], single: bool) -> Form:
        """The outputs that are nothing but calls of these, at least one. Raises Unwritable."""
        raise Unwritable("cannot be forced: this parser does not say how calls are written")

    @classmethod
    def text_form(cls, offers: list[Offer], single: bool) -> Form:
        """The outputs in which whatever is read as a call is one of these. Raises Unwritable."""
        raise Unwritable("cannot be held to a schema: this parser does not say how calls are written")

    @classmethod
    def answer_form(cls, offers: list[Offer], single: bool, answer: Form) -> Form:
        """The outputs that are calls of these, or this answer, which is JSON. Raises Unwritable."""
        return either([cls.calls_form(offers, single), answer])

    @abstractmethod
    def push(self, text: str) -> list[Event]:
        """What became certain with this piece."""

    @abstractmethod
    def close(self) -> list[Event]:
        """What only the end makes certain."""


def _points() -> dict[str, EntryPoint]:
    own = [EntryPoint(name, f"{__package__}.{path}", GROUP) for path, names in OWN.items() for name in names]
    return {point.name: point for point in [*entry_points(group=GROUP), *own]}


def tool_parser_names() -> list[str]:
    return sorted(_points())


@cache
def tool_parser_class(name: str) -> type[ToolParser]:
    point = _points().get(name)
    if point is None:
        raise ConfigError(f"no tool parser is called {name!r}, known are {', '.join(tool_parser_names())}")
    try:
        parser = point.load()
    except Exception as error:  # noqa: BLE001 - the package is somebody else's code
        fact = f"the tool parser {name!r} cannot be loaded from {point.value}: {describe(error)}"
        raise ConfigError(fact) from None
    if not (isinstance(parser, type) and issubclass(parser, ToolParser)):
        raise ConfigError(f"the tool parser {name!r} of {point.value} is not a ToolParser")
    return parser


def detect_tools(template: str) -> str | None:
    """The format that a chat template's source asks for, or None."""
    if "<function=" in template:
        return None  # calls in XML: no parser here reads them
    return next((name for name, sign in _SIGNS.items() if sign.search(template)), None)


_LITERAL_ENDS = r"""["']\s*-?\}\}\s*\{\{-?\s*["']"""  # one text of the template, and the next one
_SIGNS = {
    GPT_OSS: re.compile(r"<\|channel\|>commentary"),
    "hermes": re.compile(
        rf"<tool_call>(?:\\n|\s|{_LITERAL_ENDS})*\{{+\s*\\?[\"']|json object[^<]{{,99}}<tool_call></tool_call>"
    ),
    "mistral": re.compile(r"\[TOOL_CALLS\]"),
    "deepseek": re.compile(r"<｜tool▁calls▁begin｜>"),
    "pythonic": re.compile(r"<\|python_start\|>|\[func_name1\("),
    "llama3-json": re.compile(r"<\|python_tag\|>|\\?\"name\\?\": function name, \\?\"parameters\\?\":"),
}
