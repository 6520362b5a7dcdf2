"""One dialect for every backend: a pattern in a normal form that all of them read alike.

The normal form has characters, classes of ranges, `|`, `(?:...)`, `*`, `+`, `?` and `{m,n}`, and matches whole texts.
Every text that matches it matches the pattern in Python's `re`, or a schema's pattern in ECMA-262.
"""

from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.charsets import UNIVERSE, Ranges
from ramet.runtime.grammar.ecma_parser import parse_ecma
from ramet.runtime.grammar.regex_parser import MAX_TEXTS_BYTES, parse
from ramet.runtime.grammar.tree import Alt, AnchorNode, Chars, Node, Repeat, Seq

ANYTHING = Repeat(Chars(UNIVERSE), 0, None)


def normal_form(pattern: str) -> str:
    """Of a pattern that a whole text must match."""
    return write(whole(pattern))


def whole(pattern: str) -> Node:
    """The tree of a pattern that a whole text must match, as by `re.fullmatch`."""
    return checked(_open(_open(parse(pattern, MAX_TEXTS_BYTES), True, None), False, None))


def found_within(pattern: str) -> Node:
    """The tree of the whole texts that a pattern of ECMA-262 is found in."""
    return checked(_open(_open(parse_ecma(pattern), True, ANYTHING), False, ANYTHING))


def checked(node: Node) -> Node:
    """Raises GrammarError for an anchor that is left: one that stands inside."""
    match node:
        case AnchorNode(at_start, offset):
            sign = "^" if at_start else "$"
            raise GrammarError(f"has {sign} at offset {offset}, not at its {'start' if at_start else 'end'}")
        case Seq(parts) | Alt(parts):
            for part in parts:
                checked(part)
        case Repeat(part):
            checked(part)
        case _:
            pass
    return node


def _open(node: Node, at_start: bool, filler: Node | None) -> Node:
    """Drops the anchors at one end; where there is none, `filler` may match there."""
    match node:
        case Alt(options):
            return Alt(tuple(_open(option, at_start, filler) for option in options))
        case Seq(parts):
            ordered = list(parts if at_start else parts[::-1])
            anchored = bool(ordered) and _is_anchor(ordered[0], at_start)
            while ordered and _is_anchor(ordered[0], at_start):
                del ordered[0]
            if ordered and not anchored and _has_anchor(ordered[0], at_start):
                ordered[0] = _open(ordered[0], at_start, filler)
            elif filler is not None and not anchored:
                ordered.insert(0, filler)
            return Seq(tuple(ordered if at_start else ordered[::-1]))
        case AnchorNode(start) if start == at_start:
            return Seq(())
        case _:
            return node if filler is None else Seq((filler, node) if at_start else (node, filler))


def _is_anchor(node: Node, at_start: bool) -> bool:
    return isinstance(node, AnchorNode) and node.at_start == at_start


def _has_anchor(node: Node, at_start: bool) -> bool:
    match node:
        case Seq(parts) | Alt(parts):
            return any(_has_anchor(part, at_start) for part in parts)
        case _:
            return _is_anchor(node, at_start)


def write(node: Node) -> str:
    match node:
        case Chars(ranges):
            return write_chars(ranges)
        case Seq(parts):
            return "".join(f"(?:{write(part)})" if isinstance(part, Alt) else write(part) for part in parts)
        case Alt(options):
            return "|".join(map(write, options))
        case Repeat(part, least, most):
            inner = write(part)
            return (inner if isinstance(part, Chars) else f"(?:{inner})") + quantifier(least, most)
        case _:
            raise AssertionError(f"{node} cannot stand in a regular expression")


def quantifier(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _:
            return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


def write_chars(ranges: Ranges) -> str:
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return write_char(ranges[0][0])
    parts = (write_char(a) if a == b else f"{write_char(a)}-{write_char(b)}" for a, b in ranges)
    return f"[{''.join(parts)}]"


def write_char(code: int) -> str:
    char = chr(code)
    if (char.isalnum() and code < 128) or char in " _\"',;:<>=@!%`":
        return char
    if code < 128:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
