"""ECMA-262's regular expressions, the dialect of a schema's `pattern`, as the tree of what they match.

Decides what is accepted: the syntax with the flag u, and literal braces and closing brackets as without that flag. A
pattern that does not parse is read as Python's, which also has `(?i)`, `(?P<name>...)` and `\\A`. Whatever an automaton
cannot express is refused with its offset.
"""

import re
import string
from typing import NoReturn

from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.charsets import ASCII_CLASSES, UNIVERSE, Ranges, complement, property_class, union, without
from ramet.runtime.grammar.regex_parser import MAX_GROUP_DEPTH, bounded, check_size, in_class, parse
from ramet.runtime.grammar.tree import AnchorNode, Chars, Node, Repeat, Seq, either

LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))
SPACES: Ranges = union(
    ((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x202F, 0x202F), (0x205F, 0x205F)),
    ((0x3000, 0x3000), (0xFEFF, 0xFEFF)),
    LINE_ENDS,
)
CLASSES = {**ASCII_CLASSES, "s": SPACES}
CONTROLS = {"f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
HEX = re.compile(r"x([0-9a-fA-F]{2})|u\{0*([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})")
LOW_HALF = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
DIGITS = re.compile("[1-9][0-9]{0,3}")
CAPTURES = re.compile(r"(?<!\\)\((?!\?)|\(\?<[^=!]")
PROPERTY = re.compile(r"\{([A-Za-z0-9_=]+)\}")
BRACES = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
NAMED_GROUP = re.compile(r"\?<((?:[^\W\d]|\$)[\w$]*)>")
REFUSED_GROUPS = {"?=": "lookahead", "?!": "lookahead", "?<=": "lookbehind", "?<!": "lookbehind"}


class NotEcma(Exception):
    """The pattern does not follow the syntax of ECMA-262."""


def parse_ecma(pattern: str) -> Node:
    """Raises GrammarError."""
    bounded(pattern)
    try:
        node = EcmaParser(pattern).whole()
    except NotEcma as error:
        try:
            return parse(pattern)
        except GrammarError as of_python:
            if "is not a valid" not in of_python.fact:
                raise
            raise GrammarError(f"is not a valid regular expression: {error}") from error
    check_size(node)
    return node


class EcmaParser:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0

    def refuse(self, what: str, offset: int) -> NoReturn:
        raise GrammarError(f"uses {what} at offset {offset}, which no grammar backend can enforce")

    def wrong(self, what: str, offset: int) -> NoReturn:
        raise NotEcma(f"{what} at offset {offset}")

    def take(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def whole(self) -> Node:
        node = self.alternatives(0)
        if self.at < len(self.pattern):
            self.wrong("unbalanced parenthesis", self.at)
        return node

    def alternatives(self, depth: int) -> Node:
        if depth > MAX_GROUP_DEPTH:
            raise GrammarError(f"nests groups more than {MAX_GROUP_DEPTH} deep at offset {self.at}")
        options = [self.sequence(depth)]
        while self.take("|"):
            options.append(self.sequence(depth))
        return either(*options)

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            parts.append(self.quantified(self.atom(depth)))
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    def atom(self, depth: int) -> Node:
        offset = self.at
        char = self.pattern[offset]
        self.at += 1
        match char:
            case "(":
                return self.group(depth, offset)
            case "[":
                return self.char_class(offset)
            case ".":
                return Chars(without(UNIVERSE, LINE_ENDS))
            case "^" | "$":
                return AnchorNode(char == "^", offset)
            case "*" | "+" | "?":
                self.wrong("nothing to repeat", offset)
            case "{" if BRACES.match(self.pattern, offset):
                self.wrong("nothing to repeat", offset)
            case "\\":
                return Chars(self.escape(offset, inside=False))
        return Chars(self.single(ord(char), offset))

    def single(self, code: int, offset: int) -> Ranges:
        if code == 0:
            self.refuse("a NUL character", offset)
        if 0xD800 <= code <= 0xDFFF:
            self.refuse("half a surrogate pair", offset)
        return ((code, code),)

    def group(self, depth: int, offset: int) -> Node:
        for opening, what in REFUSED_GROUPS.items():
            if self.pattern.startswith(opening, self.at):
                self.refuse(what, offset)
        if found := NAMED_GROUP.match(self.pattern, self.at):
            self.at = found.end()
        elif not self.take("?:") and self.pattern.startswith("?", self.at):
            self.wrong("an unknown kind of group", offset)
        inner = self.alternatives(depth + 1)
        if not self.take(")"):
            self.wrong("missing ), unterminated subpattern", offset)
        return inner

    def escape(self, offset: int, inside: bool) -> Ranges:
        """The characters that an escape matches; the backslash has been read."""
        char = self.pattern[self.at : self.at + 1]
        if char and char in "dDsSwW":
            self.at += 1
            ranges = CLASSES[char.lower()]
            return complement(ranges) if char.isupper() else ranges
        if char and char in "pP":
            return self.property(offset)
        if char and char in "bB" and not inside:
            self.refuse(f"the word boundary \\{char}", offset)
        number = DIGITS.match(self.pattern, self.at)
        if number and not inside and int(number[0]) <= len(CAPTURES.findall(self.pattern)):
            self.refuse("a backreference", offset)
        if char == "k" and not inside and NAMED_GROUP.search(self.pattern):
            self.refuse("a backreference", offset)
        return self.single(self.escaped_char(offset, inside), offset)

    def property(self, offset: int) -> Ranges:
        found = PROPERTY.match(self.pattern, self.at + 1)
        if not found:
            self.wrong("bad escape \\p", offset)
        ranges = property_class(found[1])
        if ranges is None:
            self.refuse(f"the property {found[1]} (general categories are known)", offset)
        negated = self.pattern[self.at] == "P"
        self.at = found.end()
        return in_class([ranges], negated, lambda: offset).ranges

    def escaped_char(self, offset: int, inside: bool) -> int:
        if found := HEX.match(self.pattern, self.at):
            self.at = found.end()
            code = int(found[1] or found[2] or found[3], 16)
            low = LOW_HALF.match(self.pattern, self.at)
            if 0xD800 <= code <= 0xDBFF and found[3] and low:
                self.at = low.end()
                code = 0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00
            if code > 0x10FFFF:
                self.wrong("a code point beyond Unicode", offset)
            return code
        char = self.pattern[self.at : self.at + 1]
        self.at += 1
        if char == "c" and self.pattern[self.at : self.at + 1] in {*string.ascii_letters}:
            self.at += 1
            return ord(self.pattern[self.at - 1]) % 32
        if char == "b" and inside:
            return 8
        if char == "0" and self.pattern[self.at : self.at + 1] not in {*string.digits}:
            return 0
        if char in CONTROLS:
            return CONTROLS[char]
        if not char or (char.isascii() and char.isalnum()):
            self.wrong(f"bad escape \\{char}", offset)
        return ord(char)

    def char_class(self, offset: int) -> Node:
        negated = self.take("^")
        parts: list[Ranges] = []
        while not self.take("]"):
            if self.at >= len(self.pattern):
                self.wrong("unterminated character set", offset)
            parts.append(self.class_item())
        if not parts and not negated:
            self.wrong("an empty character set", offset)
        return in_class(parts, negated, lambda: offset)

    def class_item(self) -> Ranges:
        """A character, a class, or a range. A hyphen beside a class is literal."""
        at = self.at
        low = self.class_part()
        is_range = self.pattern.startswith("-", self.at) and self.pattern[self.at + 1 : self.at + 2] not in ("]", "")
        if not is_range:
            return low
        self.at += 1
        high = self.class_part()
        if any(len(part) > 1 or part[0][0] != part[0][1] for part in (low, high)):
            return union(low, high, ((45, 45),))
        if low[0][0] > high[0][0]:
            self.wrong("a range out of order", at)
        return ((low[0][0], high[0][0]),)

    def class_part(self) -> Ranges:
        offset, char = self.at, self.pattern[self.at : self.at + 1]
        self.at += 1
        return self.escape(offset, inside=True) if char == "\\" else self.single(ord(char), offset)

    def quantified(self, part: Node) -> Node:
        offset = self.at
        sign = self.pattern[offset : offset + 1]
        braces = BRACES.match(self.pattern, offset)
        if braces is None and sign not in ("*", "+", "?"):
            return part
        if isinstance(part, AnchorNode):
            self.wrong("nothing to repeat", offset)
        self.at = offset + 1 if braces is None else braces.end()
        self.take("?")  # a lazy quantifier matches the same whole texts
        if braces is None:
            return Repeat(part, int(sign == "+"), 1 if sign == "?" else None)
        least, comma, high = int(braces[1]), braces[2], braces[3]
        most = least if not comma else int(high) if high else None
        if most is not None and most < least:
            self.wrong("a repetition out of order", offset)
        return Repeat(part, least, most)
