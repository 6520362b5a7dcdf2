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
from ramet.runtime.grammar.charsets import NOT_NEWLINE, UNIVERSE, Ranges, both_cases, category, complement, union
from ramet.runtime.grammar.tree import Alt, AnchorNode, Chars, Node, Repeat, Seq, size

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
    node = parser.alternatives(Flags(), 0)
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


class RegexParser:
    """Reads a pattern that `re` accepts."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0

    def refuse(self, what: str, offset: int) -> NoReturn:
        raise GrammarError(f"uses {what} at offset {offset}, which no grammar backend can enforce")

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def take(self, text: str) -> bool:
        found = self.peek(text)
        if found:
            self.at += len(text)
        return found

    def alternatives(self, flags: Flags, depth: int) -> Node:
        if depth > MAX_GROUP_DEPTH:
            raise GrammarError(f"nests groups more than {MAX_GROUP_DEPTH} deep at offset {self.at}")
        options = [self.sequence(flags, depth)]
        while self.take("|"):
            options.append(self.sequence(flags, depth))
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def sequence(self, flags: Flags, depth: int) -> Node:
        parts: list[Node] = []
        while self.at < len(self.pattern) and not self.peek("|") and not self.peek(")"):
            if self.peek("(?") and (found := GLOBAL_FLAGS.match(self.pattern, self.at)):
                self.at = found.end()
                flags = flags.changed(self.known_flags(found[1], found.start()), True)
                continue
            if self.take_comment():
                continue
            part = self.atom(flags, depth)
            parts.append(self.quantified(part))
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    def take_comment(self) -> bool:
        if not self.peek("(?#"):
            return False
        self.at = self.pattern.index(")", self.at) + 1
        return True

    def known_flags(self, letters: str, offset: int) -> str:
        if "x" in letters:
            self.refuse("the flag x", offset)
        return letters

    def atom(self, flags: Flags, depth: int) -> Node:
        offset = self.at
        char = self.pattern[offset]
        self.at += 1
        match char:
            case "(":
                return self.group(flags, depth, offset)
            case "[":
                return self.char_class(flags, offset)
            case ".":
                return Chars(UNIVERSE if flags.dot_all else NOT_NEWLINE)
            case "^":
                return AnchorNode(True, offset)
            case "$":
                return AnchorNode(False, offset)
            case "\\":
                return self.escape(flags, offset)
            case _:
                return self.literal(ord(char), flags, offset)

    def literal(self, code: int, flags: Flags, offset: int) -> Chars:
        self.check_char(code, offset)
        ranges: Ranges = ((code, code),)
        return Chars((both_cases(ranges, False, flags.ascii_only) or ranges) if flags.ignore_case else ranges)

    def check_char(self, code: int, offset: int) -> None:
        if code == 0:
            self.refuse("a NUL character", offset)
        if 0xD800 <= code <= 0xDFFF:
            self.refuse("half a surrogate pair", offset)

    def group(self, flags: Flags, depth: int, offset: int) -> Node:
        for opening, what in REFUSED_GROUPS.items():
            if self.pattern.startswith(opening, offset):
                self.refuse(what, offset)
        if found := SCOPED_FLAGS.match(self.pattern, offset):
            flags = flags.changed(self.known_flags(found[1], offset), True).changed(found[2] or "", False)
            self.at = found.end()
        elif found := NAMED_GROUP.match(self.pattern, offset):
            self.at = found.end()
        inner = self.alternatives(flags, depth + 1)
        self.at += 1  # the closing one
        return inner

    def escape(self, flags: Flags, offset: int) -> Node:
        char = self.pattern[self.at]
        if char in "dDsSwW":
            self.at += 1
            return Chars(category(char, False, flags.ascii_only))
        if char in "AZz":
            self.at += 1
            return AnchorNode(char == "A", offset)
        if char in "bB":
            self.refuse(f"the word boundary \\{char}", offset)
        if char in "123456789" and not OCTAL.match(self.pattern, self.at):
            self.refuse("a backreference", offset)
        return self.literal(self.escaped_char(), flags, offset)

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

    def char_class(self, flags: Flags, offset: int) -> Node:
        negated = self.take("^")
        parts: list[Ranges] = []
        first = True
        while first or not self.peek("]"):
            first = False
            parts.append(self.class_item(flags, negated, offset))
        self.at += 1  # the closing one
        ranges = union(*parts)
        ranges = complement(ranges) if negated else intersection_with_universe(ranges)
        if not ranges:
            raise GrammarError(f"has a character class at offset {offset} that no character is in")
        return Chars(ranges)

    def class_item(self, flags: Flags, wide: bool, offset: int) -> Ranges:
        at = self.at
        if self.peek("\\") and self.pattern[at + 1] in "dDsSwW":
            self.at += 2
            return category(self.pattern[at + 1], wide, flags.ascii_only)
        low = high = self.class_char()
        if self.peek("-") and not self.pattern.startswith("-]", self.at):
            self.at += 1
            high = self.class_char()
        if low == high:
            self.check_char(low, at)
        ranges: Ranges = ((low, high),)
        if not flags.ignore_case:
            return ranges
        cased = both_cases(ranges, wide, flags.ascii_only)
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


def intersection_with_universe(ranges: Ranges) -> Ranges:
    return complement(complement(ranges))


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
