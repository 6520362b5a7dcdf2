"""Grammars as text: the GBNF of llama.cpp is read, and written in the two dialects that backends read.

Both are written character by character. llguidance's lexemes are greedy, so a longer one would hide what may follow:
`[a-z]* "b"` would never end.
"""

from ramet.runtime.grammar.charsets import Ranges
from ramet.runtime.grammar.regex import quantifier, write_chars
from ramet.runtime.grammar.tree import Alt, Anchor, Chars, Node, Ref, Repeat, Rules, Seq


def write_gbnf(rules: Rules) -> str:
    return "".join(f"{name} ::= {gbnf(node)}\n" for name, node in rules.items())


def gbnf(node: Node) -> str:
    match node:
        case Chars(ranges):
            single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
            return f'"{escaped(ranges[0][0])}"' if single else f"[{class_of(ranges)}]"
        case Seq(()):
            return '""'
        case Seq(parts):
            return " ".join(f"({gbnf(part)})" if isinstance(part, Alt) else gbnf(part) for part in parts)
        case Alt(options):
            return " | ".join(map(gbnf, options))
        case Repeat(part, least, most):
            inner = gbnf(part)
            return (inner if isinstance(part, Chars | Ref) else f"({inner})") + quantifier(least, most)
        case Ref(name):
            return name
        case Anchor():
            raise AssertionError("an anchor cannot stand in a grammar")


def class_of(ranges: Ranges) -> str:
    return "".join(escaped(a) if a == b else f"{escaped(a)}-{escaped(b)}" for a, b in ranges)


def escaped(code: int) -> str:
    char = chr(code)
    if code < 128 and (char.isalnum() or char in " _,;:<>=@!%&'`(){}*+.?|/#~$"):
        return char
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"  # \\x takes all hexadecimal digits that follow


def write_lark(rules: Rules, start: str = "root") -> str:
    """For llguidance. Rules are named anew, for its names may not have capital letters."""
    names = {name: "start" if name == start else f"r{i}" for i, name in enumerate(rules)}
    return "".join(f"{names[name]}: {lark(node, names)}\n" for name, node in rules.items())


def lark(node: Node, names: dict[str, str]) -> str:
    match node:
        case Chars(ranges):
            return f"/{write_chars(ranges)}/"
        case Seq(()):
            return '""'
        case Seq(parts):
            return " ".join(f"({lark(part, names)})" if isinstance(part, Alt) else lark(part, names) for part in parts)
        case Alt(options):
            return " | ".join(lark(option, names) for option in options)
        case Repeat(part, least, most):
            inner = lark(part, names)
            return (inner if isinstance(part, Chars | Ref) else f"({inner})") + quantifier(least, most)
        case Ref(name):
            return names[name]
        case Anchor():
            raise AssertionError("an anchor cannot stand in a grammar")
