"""JSON strings as trees of characters. Each character has one spelling, so two names are equal exactly when their
texts are."""

import json
from collections.abc import Iterable

from ramet.runtime.grammar.charsets import UNIVERSE, Ranges, intersection, of_text, without
from ramet.runtime.grammar.tree import Chars, Node, Repeat, Seq, either, literal, mapped

SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}
ESCAPED: Ranges = ((1, 31), (34, 34), (92, 92))
PLAIN = without(UNIVERSE, ESCAPED)
QUOTE = literal('"')


def character(ranges: Ranges) -> Node:
    """One character of a set, as it is written inside a string."""
    options: list[Node] = []
    if plain := intersection(ranges, PLAIN):
        options.append(Chars(plain))
    codes = [code for a, b in intersection(ranges, ESCAPED) for code in range(a, b + 1)]
    if short := "".join(SHORT[code] for code in codes if code in SHORT):
        options.append(Seq((literal("\\"), Chars(of_text(short)))))
    for high in (0, 1):
        digits = "".join(f"{code & 15:x}" for code in codes if code not in SHORT and code >> 4 == high)
        if digits:
            options.append(Seq((literal(f"\\u00{high}"), Chars(of_text(digits)))))
    return either(*options)


CHARACTER = character(UNIVERSE)
CONTENT = Repeat(CHARACTER, 0, None)
STRING = Seq((QUOTE, CONTENT, QUOTE))


def quoted(node: Node) -> Node:
    """A pattern of a string's value as one of its text, without the quotes."""
    return character(node.ranges) if isinstance(node, Chars) else mapped(node, quoted)


def string(node: Node) -> Node:
    return Seq((QUOTE, quoted(node), QUOTE))


def constant(text: str) -> Node:
    """The string with this value."""
    return literal(json.dumps(text, ensure_ascii=False))


def other_than(names: Iterable[str]) -> Node:
    """Any string whose value is not among `names`."""
    return Seq((QUOTE, _other_than([*names]), QUOTE))


def _other_than(names: list[str]) -> Node:
    if not names:
        return CONTENT
    branches: dict[str, list[str]] = {}
    for name in names:
        if name:
            branches.setdefault(name[0], []).append(name[1:])
    others = without(UNIVERSE, of_text("".join(branches)))
    options: list[Node] = [] if "" in names else [Seq(())]
    options.append(Seq((character(others), CONTENT)))
    options += [Seq((character(of_text(first)), _other_than(rests))) for first, rests in branches.items()]
    return either(*options)
