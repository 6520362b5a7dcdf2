"""Python's regular expressions as a tree of what they match. What no automaton can express is refused with its offset.

The tree has no flags, classes, lazy quantifiers or captures: none of them changes which whole texts match.
"""

import re
import string
import unicodedata
import warnings
from dataclasses import dataclass, replace
from typing import NoReturn

from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.charsets import (
    NOT_NEWLINE,
    UNIVERSE,
    Ranges,
    both_cases,
    category,
    complement,
    intersection,
    union,
)
from ramet.runtime.grammar.tree import AnchorNode, Chars, Node, Repeat, Seq, either, size

MAX_PATTERN_BYTES = 65_536
MAX_TEXTS_BYTES = 1 << 18  # of texts with bars between them: what they match is no larger than they are
MAX_GROUP_DEPTH = 100
MAX_SIZE = 200_000  # characters and classes, with repetitions written out
ESCAPES = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_TEXT = r"(?:[^\\.+*?()|\[\]{}^$]|\\[\\.+*?()|\[\]{}^$nrt])*"
TEXTS = re.compile(rf"{_TEXT}(?:\|{_TEXT})+")
HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Flags:
    ignore_case: bool = False
    dot_all: bool = False
    ascii_only: bool = False

    def changed(self, letters: str, to: bool) -> "Flags":
        names = {"i": "ignore_case", "s": "dot_all", "a": "ascii_only"}  # m changes nothing here
        found = {names[letter]: to for letter in letters if letter in names}
        return replace(self, **found | ({"ascii_only": False} if "u" in letters else {}))


def parse(pattern: str, max_texts_bytes: int = MAX_PATTERN_BYTES) -> Node:
    """Raises GrammarError. `max_texts_bytes`: bound of a pattern that is only texts with bars between them."""
    only_texts = bounded(pattern, max_texts_bytes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sets in sets, which Python may have one day
            re.compile(pattern)
    except re.error as error:
        at = "" if error.pos is None else f" at offset {error.pos}"
        raise GrammarError(f"is not a valid regular expression: {error.msg}{at}") from error
    except (RecursionError, OverflowError) as error:
        raise GrammarError("is not a valid regular expression: it is too complex") from error
    parser = RegexParser(pattern)
    node = parser.alternatives(0)
    if not only_texts:
        check_size(node)
    return node


def bounded(pattern: str, max_texts_bytes: int = MAX_PATTERN_BYTES) -> bool:
    """Whether it is only texts with bars between them. Raises GrammarError for what is too long."""
    num_bytes = len(pattern.encode("utf-8", "surrogatepass"))
    only_texts = TEXTS.fullmatch(pattern) is not None
    what, most = ("texts", max_texts_bytes) if only_texts else ("a pattern", MAX_PATTERN_BYTES)
    if num_bytes > most:
        raise GrammarError(f"has {what} of {num_bytes} bytes, at most {most} are allowed")
    return only_texts


def check_size(node: Node) -> None:
    if size(node) > MAX_SIZE:
        raise GrammarError(f"is too large: with its repetitions written out it has more than {MAX_SIZE} characters")


class PatternReader:
    """What both dialects have: alternatives of sequences of atoms, each maybe repeated."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0

    def atom(self, depth: int) -> Node | None:
        """None: what was read matches nothing of its own."""
        raise NotImplementedError

    def quantified(self, part: Node) -> Node:
        raise NotImplementedError

    def refuse(self, what: str, offset: int) -> NoReturn:
        raise GrammarError(f"uses {what} at offset {offset}, which no grammar backend can enforce")

    def take(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

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
            if (part := self.atom(depth)) is not None:
                parts.append(self.quantified(part))
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    def single(self, code: int, offset: int) -> Ranges:
        """One character, which an output may have."""
        if code == 0:
            self.refuse("a NUL character", offset)
        if 0xD800 <= code <= 0xDFFF:
            self.refuse("half a surrogate pair", offset)
        return ((code, code),)


def in_class(parts: list[Ranges], negated: bool, offset: int) -> Chars:
    """What a class of characters matches."""
    ranges = complement(union(*parts)) if negated else intersection(UNIVERSE, union(*parts))
    if not ranges:
        raise GrammarError(f"has a character class at offset {offset} that no character is in")
    return Chars(ranges)


class RegexParser(PatternReader):
    """Reads a pattern that `re` accepts."""

    flags = Flags()  # of what is read

    def known_flags(self, letters: str, offset: int) -> str:
        if "x" in letters:
            self.refuse("the flag x", offset)
        return letters

    def atom(self, depth: int) -> Node | None:
        offset = self.at
        if found := GLOBAL_FLAGS.match(self.pattern, offset):
            self.at = found.end()
            self.flags = self.flags.changed(self.known_flags(found[1], offset), True)
            return None
        if self.pattern.startswith("(?#", offset):
            self.at = self.pattern.index(")", offset) + 1
            return None
        char = self.pattern[offset]
        self.at += 1
        match char:
            case "(":
                return self.group(depth, offset)
            case "[":
                return self.char_class(offset)
            case ".":
                return Chars(UNIVERSE if self.flags.dot_all else NOT_NEWLINE)
            case "^":
                return AnchorNode(True, offset)
            case "$":
                return AnchorNode(False, offset)
            case "\\":
                return self.escape(offset)
            case _:
                return self.literal(ord(char), offset)

    def literal(self, code: int, offset: int) -> Chars:
        ranges, flags = self.single(code, offset), self.flags
        return Chars((both_cases(ranges, False, flags.ascii_only) or ranges) if flags.ignore_case else ranges)

    def group(self, depth: int, offset: int) -> Node:
        around = self.flags
        for opening, what in REFUSED_GROUPS.items():
            if self.pattern.startswith(opening, offset):
                self.refuse(what, offset)
        if found := SCOPED_FLAGS.match(self.pattern, offset):
            on = self.known_flags(found[1], offset)
            self.flags = around.changed(on, True).changed(found[2] or "", False)
            self.at = found.end()
        elif found := NAMED_GROUP.match(self.pattern, offset):
            self.at = found.end()
        inner = self.alternatives(depth + 1)
        self.at, self.flags = self.at + 1, around  # behind the closing one
        return inner

    def escape(self, offset: int) -> Node:
        char = self.pattern[self.at]
        if char in "dDsSwW":
            self.at += 1
            return Chars(category(char, False, self.flags.ascii_only))
        if char in "AZz":
            self.at += 1
            return AnchorNode(char == "A", offset)
        if char in "bB":
            self.refuse(f"the word boundary \\{char}", offset)
        if char in "123456789" and not OCTAL.match(self.pattern, self.at):
            self.refuse("a backreference", offset)
        return self.literal(self.escaped_char(), offset)

    def escaped_char(self) -> int:
        """The character after a backslash."""
        char = self.pattern[self.at]
        self.at += 1
        if char in ESCAPES:
            return ESCAPES[char]
        if char in HEX_DIGITS:
            digits = self.pattern[self.at : self.at + HEX_DIGITS[char]]
            self.at += len(digits)
            return int(digits, 16)
        if char == "N":
            end = self.pattern.index("}", self.at)
            name = self.pattern[self.at + 1 : end]
            self.at = end + 1
            return ord(unicodedata.lookup(name))
        if char in string.octdigits:
            start = self.at - 1
            while self.at < start + 3 and self.pattern[self.at : self.at + 1] in OCTAL_DIGITS:
                self.at += 1
            return int(self.pattern[start : self.at], 8)
        return ord(char)

    def char_class(self, offset: int) -> Node:
        negated = self.take("^")
        parts = [self.class_item(negated, offset)]  # the first may be a closing bracket
        while not self.take("]"):
            parts.append(self.class_item(negated, offset))
        return in_class(parts, negated, offset)

    def class_item(self, wide: bool, offset: int) -> Ranges:
        at = self.at
        if self.pattern[at] == "\\" and self.pattern[at + 1] in "dDsSwW":
            self.at += 2
            return category(self.pattern[at + 1], wide, self.flags.ascii_only)
        low = high = self.class_char()
        if not self.pattern.startswith("-]", self.at) and self.take("-"):
            high = self.class_char()
        ranges: Ranges = self.single(low, at) if low == high else ((low, high),)
        if not self.flags.ignore_case:
            return ranges
        cased = both_cases(ranges, wide, self.flags.ascii_only)
        if cased is None:
            self.refuse("a negated class of letters beyond ASCII without regard to case", offset)
        return cased

    def class_char(self) -> int:
        char = self.pattern[self.at]
        self.at += 1
        if char != "\\":
            return ord(char)
        if self.take("b"):
            return 8
        return self.escaped_char()

    def quantified(self, part: Node) -> Node:
        offset = self.at
        found = QUANTIFIER.match(self.pattern, self.at)
        if not found:
            return part
        self.at = found.end()
        if self.take("+"):
            self.refuse("a possessive quantifier", offset)
        self.take("?")  # a lazy one matches the same whole texts
        sign, low, comma, high = found.groups()
        if sign:
            return Repeat(part, int(sign == "+"), 1 if sign == "?" else None)
        least = int(low or 0)
        return Repeat(part, least, least if not comma else int(high) if high else None)


OCTAL_DIGITS = frozenset(string.octdigits)
OCTAL = re.compile(r"[0-3][0-7][0-7]|[4-7][0-7][0-7]")
QUANTIFIER = re.compile(r"([*+?])|\{(?=[0-9]|,)([0-9]*)(,?)([0-9]*)\}")
GLOBAL_FLAGS = re.compile(r"\(\?([aimsux]+)\)")
SCOPED_FLAGS = re.compile(r"\(\?([aimsux]*)(?:-([imsx]+))?:")
NAMED_GROUP = re.compile(r"\(\?P<\w+>")
REFUSED_GROUPS = {
    "(?=": "lookahead",
    "(?!": "lookahead",
    "(?<=": "lookbehind",
    "(?<!": "lookbehind",
    "(?P=": "a backreference",
    "(?>": "an atomic group",
    "(?(": "a conditional group",
}
