"""Tool calls in the text of an output: which parser reads them, and what a parser says.

Decides the events and the names. Knows no format: those are in deepseek.py, hermes.py, llama.py, mistral.py
and pythonic.py, and in installed packages that name a class in the entry point group `ramet.tool_parsers`.
A call that turns out not to be one before its name is known is content, byte for byte, with its marker. One that turns
out wrong later stays: its arguments end there, and what comes next is content again. What had not become part of a call
when the output ends is content.
"""

import importlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, TypeVar

import msgspec

from ramet.runtime.errors import ConfigError, describe

GROUP = "ramet.tool_parsers"
OWN = ("deepseek", "hermes", "llama", "mistral", "pythonic")


class CallStart(msgspec.Struct, frozen=True):
    """A call begins; the arguments that follow are its."""

    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """A fragment, never empty, of the JSON text of the newest call's arguments."""

    text: str


Event = str | CallStart | CallArguments  # str: content


class ToolParser(ABC):
    """One output. `tools`: the names that the request offers. Any pieces of a text give the same calls and content."""

    shows_special: ClassVar[bool] = False  # its markers are special tokens: they must be shown in the text

    def __init__(self, tools: frozenset[str]) -> None:
        self.tools = tools

    def new_id(self) -> str:
        """An id for a call, in a form that the model's template takes back."""
        return f"call_{os.urandom(12).hex()}"

    @abstractmethod
    def push(self, text: str) -> list[Event]:
        """What became certain with this piece."""

    @abstractmethod
    def close(self) -> list[Event]:
        """What only the end makes certain."""


_PARSERS: dict[str, type[ToolParser]] = {}
P = TypeVar("P", bound=type[ToolParser])


def tool_parser(*names: str) -> Callable[[P], P]:
    """Makes a parser known under these names."""

    def register(parser: P) -> P:
        _PARSERS.update(dict.fromkeys(names, parser))
        return parser

    return register


def tool_parser_names() -> list[str]:
    return sorted({*_own(), *(point.name for point in entry_points(group=GROUP))})


def tool_parser_class(name: str) -> type[ToolParser]:
    own = _own()
    if name in own:
        return own[name]
    for point in entry_points(group=GROUP, name=name):
        return _loaded(point)
    raise ConfigError(f"no tool parser is called {name!r}, known are {', '.join(tool_parser_names())}")


def make_tool_parser(name: str, tools: frozenset[str]) -> ToolParser:
    return tool_parser_class(name)(tools)


def detect_tools(template: str) -> str | None:
    """The format that a chat template's source asks for, or None."""
    if "<function=" in template:
        return None  # calls in XML: no parser here reads them
    for name, sign in _SIGNS:
        if sign.search(template):
            return name
    return None


_SIGNS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("hermes", r"<tool_call>(?:\\n|\s)*\{+\s*\\?[\"']"),
        ("mistral", r"\[TOOL_CALLS\]"),
        ("deepseek", r"<｜tool▁calls▁begin｜>"),
        ("pythonic", r"<\|python_start\|>|\[func_name1\("),
        ("llama3-json", r"<\|python_tag\|>|\\?\"name\\?\": function name, \\?\"parameters\\?\":"),
    )
)


def _own() -> dict[str, type[ToolParser]]:
    for module in OWN:
        importlib.import_module(f"ramet.runtime.intake.parsers.{module}")
    return _PARSERS


def _loaded(point: EntryPoint) -> type[ToolParser]:
    try:
        parser = point.load()
    except Exception as error:  # noqa: BLE001 - the package is somebody else's code
        raise ConfigError(
            f"the tool parser {point.name!r} cannot be loaded from {point.value}: {describe(error)}"
        ) from None
    if not (isinstance(parser, type) and issubclass(parser, ToolParser)):
        raise ConfigError(f"the tool parser {point.name!r} of {point.value} is no ToolParser")
    return parser
