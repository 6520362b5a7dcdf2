"""Seeded regexes, each made together with a shortest text that matches it.

Only what all common dialects read alike: no lookaround, no references, no boundaries.
"""

import re
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import regex

from grammar_cases.case import Case
from ramet.ipc.spec import Constraint, ConstraintKind

LITERALS = (
    "a",
    "b",
    "xy",
    "foo",
    "Z",
    "0",
    "42",
    " ",
    "-",
    "_",
    ",",
    ":",
    "é",
    "日本",
    "я",
    "🙂",
    '"',
    "'",
    "/",
    "%",
    "</s>",
)
CONTROL = "<|im_end|>"  # text that a control token also has: the token is no way to write it
ESCAPED = (r"\.", r"\*", r"\+", r"\?", r"\(", r"\)", r"\[", r"\]", r"\{", r"\}", r"\|", r"\\", r"\^", r"\$")
CLASSES = (  # a class, and one character of it
    ("[a-z]", "a"), ("[A-Za-z0-9_]", "A"), ("[0-9a-f]", "0"), ("[^a-z]", "A"), ('[^"\\\\]', "a"), ("[abc]", "a"),
    ("[à-ÿ]", "é"), ("[а-яё]", "я"), ("[一-龥]", "日"), ("[ -~]", "a"), (r"[\-.]", "."), (r"[\]\[]", "["),
    (r"\d", "0"), (r"\w", "a"), (r"[\d.]", "0"), (r"\D", "a"), (r"[^\d]", "a"), (r"\s", " "), (r"\S", "a"), (".", "a"),
)  # fmt: skip


class Pattern(NamedTuple):
    text: str
    shortest: str
    ways: tuple[str, ...] = ()  # the shortest of each alternative inside: one of them ends any other match


def make_pattern(draw: Random, depth: int = 2) -> Pattern:
    return _alternatives(draw, depth) if draw.random() < 0.3 else _sequence(draw, depth)


def _alternatives(draw: Random, depth: int) -> Pattern:
    options = [_sequence(draw, depth) for _ in range(draw.randint(2, 4))]
    shortest = min((option.shortest for option in options), key=len)
    ways = tuple(way for option in options for way in (option.shortest, *option.ways))
    return Pattern("|".join(option.text for option in options), shortest, ways)


def _sequence(draw: Random, depth: int) -> Pattern:
    parts = [_quantified(draw, depth) for _ in range(draw.randint(1, 4))]
    ways = tuple(way for part in parts for way in part.ways)
    return Pattern("".join(part.text for part in parts), "".join(part.shortest for part in parts), ways)


def _quantified(draw: Random, depth: int) -> Pattern:
    atom = _atom(draw, depth)
    low = draw.randint(0, 3)
    quantifier, least = draw.choice(
        [("", 1), ("", 1), ("", 1), ("?", 0), ("*", 0), ("+", 1), (f"{{{low}}}", low), (f"{{{low},}}", low),
         (f"{{{low},{low + draw.randint(0, 4)}}}", low)]
    )  # fmt: skip
    return Pattern(atom.text + quantifier, atom.shortest * least, atom.ways or (atom.shortest,))


def _atom(draw: Random, depth: int) -> Pattern:
    match draw.choice(("literal", "literal", "escaped", "class", "class", "group")):
        case "group" if depth > 0:
            inside = make_pattern(draw, depth - 1)
            return inside._replace(text=draw.choice(("(", "(?:")) + inside.text + ")")
        case "escaped":
            text = draw.choice(ESCAPED)
            return Pattern(text, text[1:])
        case "class":
            return Pattern(*draw.choice(CLASSES))
    text = draw.choice(LITERALS)
    if draw.random() < 0.02:
        return Pattern("(?:" + CONTROL.replace("|", "\\|") + ")", CONTROL)
    return Pattern(text if len(text) == 1 else f"(?:{text})", text)


def regex_cases(seed: int, count: int) -> Iterator[Case]:
    for number in range(count):
        draw = Random(f"regex {seed} {number}")
        pattern = make_pattern(draw)
        while not pattern.shortest and draw.random() < 0.9:
            pattern = make_pattern(draw)
        yield regex_case(f"regex {seed}/{number}", pattern)


def regex_case(name: str, pattern: Pattern) -> Case:
    matcher, partial_matcher = re.compile(pattern.text), regex.compile(pattern.text)

    def fault(text: str) -> str | None:
        return None if matcher.fullmatch(text) else "no match"

    def begins(text: str) -> bool:
        return partial_matcher.fullmatch(text, partial=True) is not None

    return Case(name, Constraint(ConstraintKind.REGEX, pattern.text), pattern.shortest, fault, begins)
