"""Reads GBNF, the grammars of llama.cpp: `root ::= "yes" | "no " reason`, one rule after the other."""

import re

from ramet.ipc.params import quoted
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.charsets import UNIVERSE, Ranges, complement, intersection, union
from ramet.runtime.grammar.tree import (
    EMPTY,
    Alt,
    Chars,
    Node,
    Ref,
    Repeat,
    Rules,
    Seq,
    either,
    literal,
    settle,
    size,
    walk,
)

MAX_GRAMMAR_BYTES = 262_144
MAX_DEPTH = 100
MAX_SIZE = 200_000  # characters and references, with repetitions written out
SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
RULE = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)[ \t]*::=")
MAX_DIGITS = 6  # of a bound of a repetition
QUANTIFIER = re.compile(r"[*+?]|\{\s*([0-9]+)\s*(?:(,)\s*([0-9]*)\s*)?\}")
NO_LEAST = re.compile(r"\{\s*,\s*[0-9]*\s*\}")
ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([^xuU]))", re.DOTALL)
ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-", "^": "^", "'": "'"}


def read(text: str) -> Rules:
    """Raises GrammarError."""
    num_bytes = len(text.encode("utf-8", "surrogatepass"))
    if num_bytes > MAX_GRAMMAR_BYTES:
        raise GrammarError(f"is a grammar of {num_bytes} bytes, at most {MAX_GRAMMAR_BYTES} are allowed")
    rules = GbnfReader(text).rules()
    check(rules)
    return rules


def check(rules: Rules) -> None:
    """Raises GrammarError for a grammar that is too large, has no root, or from which an output would not come back."""
    if "root" not in rules:
        raise GrammarError("has no rule named root")
    if sum(map(size, rules.values())) > MAX_SIZE:
        raise GrammarError(f"is too large: with its repetitions written out it has more than {MAX_SIZE} parts")
    for name, node in rules.items():
        missing = next((part.name for part in walk(node) if isinstance(part, Ref) and part.name not in rules), None)
        if missing is not None:
            raise GrammarError(f"has no rule named {missing!r}, which the rule {name!r} refers to")
    ends: set[str] = set()

    def changes(name: str) -> bool:
        if name in ends or not can_end(rules[name], ends):
            return False
        ends.add(name)
        return True

    settle(rules, changes)
    endless = next((name for name in reachable(rules) if name not in ends), None)
    if endless is not None:
        raise GrammarError(f"has the rule {endless!r}, which no finite text keeps to")


def can_end(node: Node, ends: set[str]) -> bool:
    match node:
        case Ref(name):
            return name in ends
        case Seq(parts):
            return all(can_end(part, ends) for part in parts)
        case Repeat(part, least):
            return least == 0 or can_end(part, ends)
        case Chars():
            return True
        case Alt(options):
            return any(can_end(option, ends) for option in options)
        case _:
            raise AssertionError(f"{node} cannot stand in GBNF")


def reachable(rules: Rules) -> list[str]:
    found = {"root": None}
    pending = ["root"]
    while pending:
        for part in walk(rules[pending.pop()]):
            if isinstance(part, Ref) and part.name not in found:
                found[part.name] = None
                pending.append(part.name)
    return [*found]


class GbnfReader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, fact: str) -> GrammarError:
        line = self.text.count("\n", 0, self.at) + 1
        return GrammarError(f"is not a GBNF grammar: {fact} at line {line}, offset {self.at}")

    def skip(self) -> None:
        found = SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def rules(self) -> Rules:
        found: Rules = {}
        self.skip()
        while self.at < len(self.text):
            head = RULE.match(self.text, self.at)
            if not head:
                raise self.fail("a rule must begin with its name and ::=")
            if head[1] in found:
                raise self.fail(f"a second rule named {head[1]!r}")
            self.at = head.end()
            found[head[1]] = self.alternatives(0)
        return found

    def alternatives(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.fail(f"groups nested more than {MAX_DEPTH} deep")
        options = [self.sequence(depth)]
        while self.text.startswith("|", self.at):
            self.at += 1
            options.append(self.sequence(depth))
        return either(*options)

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        self.skip()
        while self.at < len(self.text) and self.text[self.at] not in "|)" and not RULE.match(self.text, self.at):
            part = self.element(depth)
            parts.append(self.quantified(part))
            self.skip()
        return parts[0] if len(parts) == 1 else Seq(tuple(parts)) if parts else EMPTY

    def element(self, depth: int) -> Node:
        char = self.text[self.at]
        if char == '"':
            return self.string()
        if char == "[":
            return self.char_class()
        if char == ".":
            self.at += 1
            return Chars(UNIVERSE)
        if char == "(":
            self.at += 1
            inner = self.alternatives(depth + 1)
            if not self.text.startswith(")", self.at):
                raise self.fail("a group that is not closed")
            self.at += 1
            return inner
        if found := NAME.match(self.text, self.at):
            self.at = found.end()
            return Ref(found[0])
        raise self.fail(f"{quoted(char)} is not part of a rule")

    def quantified(self, part: Node) -> Node:
        self_end = SPACE.match(self.text, self.at)
        assert self_end is not None
        found = QUANTIFIER.match(self.text, self_end.end())
        if NO_LEAST.match(self.text, self_end.end()):
            raise self.fail("a repetition without a lower bound, such as the 0 of {0,2},")
        while found:
            self.at = found.end()
            match found[0][0]:
                case "*":
                    part = Repeat(part, 0, None)
                case "+":
                    part = Repeat(part, 1, None)
                case "?":
                    part = Repeat(part, 0, 1)
                case _:
                    if max(len(found[1]), len(found[3] or "")) > MAX_DIGITS:
                        raise self.fail(f"a repetition that is too large, at most {MAX_SIZE} are allowed,")
                    least = int(found[1])
                    most = least if not found[2] else int(found[3]) if found[3] else None
                    if most is not None and most < least:
                        raise self.fail("a repetition whose bounds are the wrong way round")
                    part = Repeat(part, least, most)
            found = QUANTIFIER.match(self.text, self.at)
        return part

    def string(self) -> Node:
        self.at += 1
        chars = []
        while not self.text.startswith('"', self.at):
            chars.append(self.known(self.char("a string that is not closed")))
        self.at += 1
        return literal("".join(map(chr, chars)))

    def char_class(self) -> Node:
        start = self.at
        self.at += 1
        negated = self.text.startswith("^", self.at)
        self.at += negated
        parts: list[Ranges] = []
        while not self.text.startswith("]", self.at):
            low = high = self.char("a character class that is not closed")
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                high = self.char("a character class that is not closed")
            if high < low:
                raise self.fail("a range whose ends are the wrong way round")
            if high == low:
                self.known(low)
            parts.append(((low, high),))
        self.at += 1
        ranges = complement(union(*parts)) if negated else intersection(UNIVERSE, union(*parts))
        if not ranges:
            self.at = start
            raise self.fail("a character class that no character is in")
        return Chars(ranges)

    def char(self, unclosed: str) -> int:
        if self.at >= len(self.text):
            raise self.fail(unclosed)
        start = self.at
        if self.text[start] != "\\":
            self.at += 1
            code = ord(self.text[start])
        else:
            found = ESCAPE.match(self.text, start)
            if not found or (found[4] and found[4] not in ESCAPED):
                raise self.fail("an unknown escape")
            self.at = found.end()
            digits = found[1] or found[2] or found[3]
            code = int(digits, 16) if digits else ord(ESCAPED[found[4]])
        return code

    def known(self, code: int) -> int:
        if code == 0 or 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            raise self.fail("a character that no output has")
        return code
