"""Python's regular expressions as a tree of what they match. What no automaton can express is refused with its offset.

The tree has no flags, classes, lazy quantifiers or captures: none of them changes which whole texts match. It is made
of the standard library's, so an expression means what it means to `re`.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from itertools import accumulate
from re import _parser  # type: ignore[attr-defined]  # nothing public parses the syntax
from typing import Any, NoReturn

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
from ramet.runtime.text.automaton import CATEGORIES, flags_inside, places_of

MAX_PATTERN_BYTES = 65_536
MAX_TEXTS_BYTES = 1 << 18  # of texts with bars between them: what they match is no larger than they are
MAX_GROUP_DEPTH = 100
MAX_SIZE = 200_000  # characters and classes, with repetitions written out
_TEXT = r"(?:[^\\.+*?()|\[\]{}^$]|\\[\\.+*?()|\[\]{}^$nrt])*"
TEXTS = re.compile(rf"{_TEXT}(?:\|{_TEXT})+")
REFUSED = {  # node of the library's tree -> what it is called, how it is written
    "ASSERT": ("lookahead", r"\(\?[=!]"),
    "ASSERT_NOT": ("lookahead", r"\(\?[=!]"),
    "FAILURE": ("lookahead", r"\(\?!"),
    "GROUPREF": ("a backreference", r"\\[1-9]|\(\?P="),
    "GROUPREF_EXISTS": ("a conditional group", r"\(\?\("),
    "ATOMIC_GROUP": ("an atomic group", r"\(\?>"),
    "POSSESSIVE_REPEAT": ("a possessive quantifier", r"[*+?}]\+"),
    "AT_BOUNDARY": ("the word boundary \\b", r"\\b"),
    "AT_NON_BOUNDARY": ("the word boundary \\B", r"\\B"),
}
LOOKBEHIND = "lookbehind", r"\(\?<[=!]"
VERBOSE = "the flag x", r"\(\?[a-z]*x"
NUL = "a NUL character", r"\x00|\\x00|\\0{1,3}(?![0-7])|\\u0000|\\U0{8}"
HALF = "half a surrogate pair", "[\ud800-\udfff]|\\\\(?:u|U0000)[dD][89a-fA-F][0-9a-fA-F]{2}"
BEYOND_ASCII = "a negated class of letters beyond ASCII without regard to case", r"\[\^[^]]*(?:[^\x00-\x7f]|\\[uUxN])"
ANCHORS = r"\^|\$|\\[AZz]"


def parse(pattern: str, max_texts_bytes: int = MAX_PATTERN_BYTES) -> Node:
    """Raises GrammarError. `max_texts_bytes`: bound of a pattern that is only texts with bars between them."""
    only_texts = bounded(pattern, max_texts_bytes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sets in sets, which Python may have one day
            tree = _parser.parse(pattern)
        node = RegexReader(pattern).sequence(tree, tree.state.flags, 0)
    except re.error as error:
        at = "" if error.pos is None else f" at offset {error.pos}"
        raise GrammarError(f"is not a valid regular expression: {error.msg}{at}") from error
    except (RecursionError, OverflowError) as error:
        raise GrammarError("is not a valid regular expression: it is too complex") from error
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


def in_class(parts: list[Ranges], negated: bool, offset: Callable[[], int]) -> Chars:
    """What a class of characters matches. `offset`: where it is, which is asked for if nothing does."""
    ranges = complement(union(*parts)) if negated else intersection(UNIVERSE, union(*parts))
    if not ranges:
        raise GrammarError(f"has a character class at offset {offset()} that no character is in")
    return Chars(ranges)


class RegexReader:
    """Makes our tree of the library's. That does not know where its nodes are from, so offsets are found again."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._anchors: Iterator[int] = places_of(ANCHORS, pattern)

    def refuse(self, what: str, spelled: str) -> NoReturn:
        raise GrammarError(f"uses {what} at offset {self.offset(spelled)}, which no grammar backend can enforce")

    def offset(self, spelled: str) -> int:
        """Of the first construct that is written so; of the first character, if it stands in classes alone."""
        inside = re.search(spelled, self.pattern)
        return next(places_of(spelled, self.pattern), inside.start() if inside else 0)

    def too_deep(self) -> int:
        """The offset inside of the first group that stands in MAX_GROUP_DEPTH others."""
        places = list(places_of(r"\((?!\?#)|\)", self.pattern))
        depths = accumulate(1 if self.pattern[at] == "(" else -1 for at in places)
        return next(at + 1 for at, depth in zip(places, depths, strict=True) if depth > MAX_GROUP_DEPTH)

    def sequence(self, tree: Any, flags: int, depth: int) -> Node:
        if flags & re.VERBOSE:
            self.refuse(*VERBOSE)
        if depth > MAX_GROUP_DEPTH:
            raise GrammarError(f"nests groups more than {MAX_GROUP_DEPTH} deep at offset {self.too_deep()}")
        parts = [self.node(str(op), value, flags, depth) for op, value in tree]
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    def node(self, op: str, value: Any, flags: int, depth: int) -> Node:
        match op:
            case "LITERAL":
                return Chars(self.cased(self.single(value), False, flags))
            case "NOT_LITERAL":
                return self.char_class([("LITERAL", value)], True, flags)
            case "IN":
                items = [(str(kind), item) for kind, item in value]
                negated = items[0][0] == "NEGATE"
                return self.char_class(items[negated:], negated, flags)
            case "ANY":
                return Chars(UNIVERSE if flags & re.DOTALL else NOT_NEWLINE)
            case "BRANCH":
                return either(*(self.sequence(way, flags, depth) for way in value[1]))
            case "SUBPATTERN":
                _, on, off, body = value
                return self.sequence(body, flags_inside(flags, on, off), depth + 1)
            case "MAX_REPEAT" | "MIN_REPEAT":  # a lazy one matches the same whole texts
                low, high, body = value
                return Repeat(self.sequence(body, flags, depth), low, None if high is _parser.MAXREPEAT else high)
            case "AT" if str(value) not in REFUSED:
                return AnchorNode(str(value).startswith("AT_BEGINNING"), next(self._anchors, 0))
        behind = op.startswith("ASSERT") and value[0] < 0
        self.refuse(*(LOOKBEHIND if behind else REFUSED[str(value) if op == "AT" else op]))

    def single(self, code: int) -> Ranges:
        if code == 0:
            self.refuse(*NUL)
        if 0xD800 <= code <= 0xDFFF:
            self.refuse(*HALF)
        return ((code, code),)

    def cased(self, ranges: Ranges, wide: bool, flags: int) -> Ranges:
        """`wide`: too many characters do less harm than too few."""
        if not flags & re.IGNORECASE:
            return ranges
        found = both_cases(ranges, wide, bool(flags & re.ASCII))
        if found is None:
            self.refuse(*BEYOND_ASCII)
        return found

    def char_class(self, items: list[tuple[str, Any]], negated: bool, flags: int) -> Chars:
        parts = [self.class_item(kind, item, negated, flags) for kind, item in items]
        return in_class(parts, negated, lambda: self.offset(r"\["))

    def class_item(self, kind: str, item: Any, wide: bool, flags: int) -> Ranges:
        match kind:
            case "CATEGORY":
                return category(CATEGORIES[str(item)][1], wide, bool(flags & re.ASCII))
            case "RANGE" if item[0] != item[1]:
                return self.cased((item,), wide, flags)
            case "RANGE":
                item = item[0]
        return self.cased(self.single(item), wide, flags)
