"""Grammars as text: the GBNF of llama.cpp is read, and written in the two dialects that backends read.

Both are written character by character. llguidance's lexemes are greedy, so a longer one would hide what may follow:
`[a-z]* "b"` would never end.
"""

from ramet.runtime.grammar.charsets import Ranges
from ramet.runtime.grammar.regex import quantifier
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
