"""Converts a Python literal to JSON, keeping the digits of its numbers. No code is run.

Decides what counts as a literal: what ast.literal_eval accepts, and true, false and null, which models write as well. A
line break inside a one-line string and a NUL inside any, which Python refuses, are kept.
"""

import ast
import json
import re
import warnings
from functools import cached_property

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NUMBER = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")  # JSON's, without a sign
_STRING = re.compile(
    r"(?P<raw>(?<!\w)[rR])?"
    r"(?P<open>\"\"\"|'''|[\"'])(?P<inside>(?:[^\\]|\\.)*?)(?P=open)",
    re.DOTALL,
)
_ESCAPED_OR_REFUSED = re.compile(r"\\.|[\r\n\0]", re.DOTALL)
_REFUSED = {"\n": "\\n", "\r": "\\r", "\0": "\\x00"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_WORDS = {"true": "true", "false": "false", "null": "null"}


class NoLiteral(Exception):
    """The source needs code to be run, or has a value that JSON cannot hold: a set, bytes, a complex number."""


def written(source: str) -> str:
    """The JSON of a literal. Raises NoLiteral. Its time and memory grow with the depth of its brackets."""
    if "\n" in source or "\r" in source or "\0" in source:
        source = _STRING.sub(_with_escapes, source)
    source = f"({source}\n)"  # parentheses let a literal have several lines, as in a call
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes such as \d, which stay what they are
            return _ValueWriter(source).value(ast.parse(source, mode="eval").body)
    except (ValueError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError):
        raise NoLiteral from None


def as_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return json.dumps(value) if _SURROGATE.search(text) else text


def _with_escapes(string: re.Match[str]) -> str:
    if string["raw"]:
        return repr(string["inside"])
    if len(string["open"]) == 3:
        return string[0].replace("\0", _REFUSED["\0"])  # a triple-quoted string may have several lines
    return _ESCAPED_OR_REFUSED.sub(lambda found: _REFUSED.get(found[0], found[0]), string[0])


class _ValueWriter:
    def __init__(self, source: str) -> None:
        self._source = source

    def value(self, node: ast.expr) -> str:
        """The JSON of a node. Raises ValueError for a node that is not a literal, and the errors of json.dumps."""
        match node:
            case ast.Constant(str() | bool() | None as value):
                return as_json(value)
            case ast.Constant(int() | float()):
                return self._number(node)
            case ast.UnaryOp(ast.USub() | ast.UAdd() as sign, ast.Constant(int() | float() as number)) if (
                type(number) is not bool
            ):
                return "-" * isinstance(sign, ast.USub) + self._number(node.operand)
            case ast.Name(name) if name in _WORDS:
                return _WORDS[name]
            case ast.Tuple(items) | ast.List(items):
                return f"[{', '.join(map(self.value, items))}]"
            case ast.Dict(keys, values):
                members = {self._key(key): self.value(value) for key, value in zip(keys, values, strict=True)}
                return f"{{{', '.join(f'{key}: {value}' for key, value in members.items())}}}"
        raise ValueError("no literal")

    def _key(self, node: ast.expr | None) -> str:
        if isinstance(node, ast.Dict | ast.List | ast.Tuple | None):
            raise ValueError("no key of JSON")
        text = self.value(node)
        return text if text.startswith('"') else as_json(text)

    def _number(self, node: ast.expr) -> str:
        """The number as written, if that is valid JSON, because a float keeps at most 17 digits."""
        assert isinstance(node, ast.Constant) and node.end_col_offset is not None
        written = self._lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
        return written if _NUMBER.fullmatch(written) else as_json(node.value)

    @cached_property
    def _lines(self) -> list[bytes]:
        """The source's lines as bytes, because the columns of the syntax tree count bytes."""
        return [line.encode() for line in _LINE_END.split(self._source)]
