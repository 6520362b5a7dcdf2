"""Rules as text, in the two dialects that backends read.

Both are written character by character, but for runs that are certain. llguidance's lexemes are greedy, so a longer one
would hide what may follow: `[a-z]* "b"` would never end.
"""

from ramet.runtime.grammar.charsets import Ranges
from ramet.runtime.grammar.free_text import piece, without_free_text
from ramet.runtime.grammar.lexemes import with_runs
from ramet.runtime.grammar.regex import quantifier, write_char, write_chars
from ramet.runtime.grammar.tree import Alt, Chars, Embedded, Free, Node, Ref, Repeat, Rules, Seq, Token, renamed, walk

ANY = "/(?s:.*)/"
INNER = "in-"  # before the names of rules that refer to root


def write_gbnf(rules: Rules) -> str:
    """Return GBNF for xgrammar, which allows no token that goes beyond the end of a `root` inside another rule."""
    rules = without_free_text(rules)
    if any(Ref("root") in walk(node) for node in rules.values()):
        rules = {"root": Ref(f"{INNER}root"), **renamed(rules, INNER)}
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
        case Token(token):
            return f"Token({token})"
        case _:
            raise AssertionError(f"{node} cannot stand in GBNF")


def write_lark(rules: Rules) -> str:
    """For llguidance."""
    return LarkWriter(with_runs(rules)).write()


class LarkWriter:
    """Rules are named anew: the names of Lark's have no capital letters, and those of terminals no small ones."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.names = {name: "start" if name == "root" else f"r{i}" for i, name in enumerate(rules)}
        self.lines: list[str] = []
        self.texts: dict[tuple[str, ...], str] = {}

    def write(self) -> str:
        for name, node in self.rules.items():
            self.lines.append(f"{self.names[name]}: {self.node(node)}")
        return "\n".join(self.lines) + "\n"

    def rule(self, body: str, options: str = "") -> str:
        name = f"x{len(self.lines)}"
        self.lines.append(f"{name}{options}: {body}")
        return name

    def node(self, node: Node) -> str:
        match node:
            case Chars(ranges):
                return f"/{write_chars(ranges)}/"
            case Seq(()):
                return '""'
            case Seq(parts):
                return " ".join(map(self.part, parts))
            case Alt(options):
                return " | ".join(map(self.node, options))
            case Repeat(part, least, most):
                inner = self.node(part)
                return (inner if isinstance(part, Chars | Ref) else f"({inner})") + quantifier(least, most)
            case Ref(name):
                return self.names[name]
            case Token(token):
                return f"<[{token}]>"
            case Embedded(text):
                return text
            case Free():
                return self.free(node)
            case _:
                raise AssertionError(f"{node} cannot stand in Lark")

    def part(self, node: Node) -> str:
        return f"({self.node(node)})" if isinstance(node, Alt | Free) else self.node(node)

    def free(self, node: Free) -> str:
        triggers = [text for text, _ in node.triggers if isinstance(text, str)]
        text = self.text_without((*node.excluded, *triggers))
        begun = [f"{self.up_to(text, start)} {self.part(after)}" for start, after in node.triggers]
        ended = [f"{self.end(text, pieces)} {self.part(after)}" for pieces, after in node.ends]
        if node.loops and begun:
            return f"({' | '.join(begun)})* ({' | '.join(ended)})"
        if not begun:
            return " | ".join(ended)
        at_once = [self.node(Seq((*map(piece, pieces), after))) for pieces, after in node.ends]
        return f"({' | '.join(begun)}) ({' | '.join(at_once)}) | {' | '.join(ended)}"

    def text_without(self, excluded: tuple[str, ...]) -> str:
        """The terminal of any text that has none of these."""
        if excluded not in self.texts:
            self.texts[excluded] = f"T{len(self.texts)}"
            found = "|".join("".join(map(write_char, map(ord, text))) for text in excluded)
            without = f" & ~/(?s:.*)(?:{found})(?s:.*)/" if excluded else ""
            self.lines.append(f"{self.texts[excluded]}: {ANY}{without}")
        return self.texts[excluded]

    def up_to(self, text: str, start: str | int) -> str:
        """Text and what begins something in it. Lazy: it ends where that comes first."""
        return f"{text} <[{start}]>" if isinstance(start, int) else self.rule(f"{text} {string(start)}", "[lazy]")

    def end(self, text: str, pieces: tuple[str | int, ...]) -> str:
        if not pieces:
            return text
        first, rest = pieces[0], " ".join(self.part(piece(part)) for part in pieces[1:])
        if isinstance(first, int) or not rest:
            return f"{self.up_to(text, first)} {rest}"
        # the text may have `first` many times, before the control token comes
        terminal = f"E{len(self.lines)}"
        self.lines.append(f"{terminal}: {text} {string(first)}")
        return f"{terminal} {rest}"


def string(text: str) -> str:
    """A literal in Lark."""
    return f"/{''.join(map(write_char, map(ord, text)))}/"


def class_of(ranges: Ranges) -> str:
    return "".join(escaped(a) if a == b else f"{escaped(a)}-{escaped(b)}" for a, b in ranges)


def escaped(code: int) -> str:
    char = chr(code)
    if code < 128 and (char.isalnum() or char in " _,;:<>=@!%&'`(){}*+.?|/#~$"):
        return char
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"  # \x takes all hexadecimal digits that follow
