"""Checks a client's Lark grammar before llguidance reads it.

What stands between names and strings is the library's. Schemas in it are read as all schemas are; options, limits on
tokens and temperatures, which nobody would enforce, are refused; a control token is meant by its text.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from ramet.runtime.grammar.base import GrammarError, short
from ramet.runtime.grammar.rounded import number_of
from ramet.runtime.grammar.vocabulary import TokenTable

MAX_GRAMMAR_BYTES = 262_144
GBNF_RULE = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)
START = re.compile(r"^\s*\??start\b[^\n]*:", re.MULTILINE)
# what may hold the signs that are looked for: comments, strings, patterns
OPAQUE = r"""(?://|\#)[^\n]*|"(?:\\.|[^"\\\n])*"i?|/(?!/)(?:\\.|[^/\\\n])+/[imslux]*"""
PART = re.compile(
    rf"(?P<opaque>{OPAQUE})|%(?P<directive>[a-z_]+)|(?P<token><[^>\n]*>)|\[(?P<attributes>[a-z_][^\]\n]*)\]\s*:",
    re.DOTALL,
)
# of the library's messages: where, what, and the grammar's lines with a caret below the place
LOCATED = re.compile(
    r"(?:at )?(?P<line>[0-9]+)\((?P<column>[0-9]+)\): (?P<what>.*?)(?P<shown>(?:\n +[0-9]+ \|.*)?)", re.DOTALL
)
REGEX_ERROR = re.compile(r" \(in regex\): regex parse error:.*\nerror: ", re.DOTALL)
MAX_SHOWN = 60  # characters of a line of the grammar
REFUSED_ATTRIBUTES = ("max_tokens", "temperature", "stop")
SchemaReader = Callable[[Any], dict[str, Any]]


def is_gbnf(text: str) -> bool:
    return bool(GBNF_RULE.search(text))


def in_one_line(message: str) -> str:
    """What the library says of a grammar, and of its lines only the part that it is about."""
    found = LOCATED.fullmatch(message)
    if found is None:
        return short(message)
    line, column = found["line"], int(found["column"])
    excerpt = re.search(rf"^ +{line} \| (.*)$", found["shown"], re.MULTILINE)
    first = max(column - 1 - MAX_SHOWN // 2, 0)
    near = excerpt[1][first : first + MAX_SHOWN].strip() if excerpt else ""
    what = REGEX_ERROR.sub(": ", found["what"])
    return short(f"{what} at line {line}, column {column}" + (f", near {near}" if near else ""))


def checked(text: str, tokens: TokenTable, read_schema: SchemaReader) -> str:
    """The grammar with its schemas read and its control tokens by number. Raises GrammarError."""
    num_bytes = len(text.encode("utf-8", "surrogatepass"))
    if num_bytes > MAX_GRAMMAR_BYTES:
        raise GrammarError(f"is a grammar of {num_bytes} bytes, at most {MAX_GRAMMAR_BYTES} are allowed")
    if not START.search(text):
        raise GrammarError("has neither a rule `root ::= ...`, as GBNF, nor a rule `start: ...`, as Lark")
    parts, at = [], 0
    while found := PART.search(text, at):
        parts.append(text[at : found.start()])
        replaced, at = replacement(text, found, tokens, read_schema)
        parts.append(replaced)
    return "".join([*parts, text[at:]])


def replacement(text: str, found: re.Match[str], tokens: TokenTable, read_schema: SchemaReader) -> tuple[str, int]:
    """What takes the place of one part, and where the text goes on."""
    line = text.count("\n", 0, found.start()) + 1
    if (attributes := found["attributes"]) is not None:
        for name in REFUSED_ATTRIBUTES:
            if re.search(rf"\b{name}\b", attributes):
                raise GrammarError(f"has {name!r} at line {line}, which is not enforced")
    if (token := found["token"]) is not None:
        if token not in tokens.control:
            raise GrammarError(f"names {token} at line {line}, which is not a control token of this model")
        return f"<[{tokens.named(token, f' at line {line}')}]>", found.end()
    if found["directive"] == "json":
        try:
            start = re.compile(r"\s*").match(text, found.end()).end()  # type: ignore[union-attr]
            schema, end = json.JSONDecoder(parse_float=number_of).raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            raise GrammarError(f"has no valid JSON after %json at line {line}") from error
        return f"%json {json.dumps(read_schema(schema))}", end
    if found["directive"] not in (None, "ignore", "regex"):
        raise GrammarError(f"has %{found['directive']} at line {line}, which is not allowed")
    return found[0], found.end()
