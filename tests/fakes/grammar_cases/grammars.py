"""Seeded grammars in GBNF, each made together with its productions for the Earley recogniser and its shortest text.

Every rule derives some text: the first alternative of each names later rules only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random

from grammar_cases.case import Case
from grammar_cases.earley import Earley, Symbol
from ramet.ipc.spec import Constraint, ConstraintKind

LITERALS = (
    "a",
    "if",
    "(",
    ")",
    "+",
    "x = ",
    '"',
    "\\",
    "é",
    "日本",
    "🙂",
    "[",
    "]",
    "\n",
    "\t",
    "::=",
    "| #",
    "<|im_end|>",
)
CLASSES = (  # as written, its ranges, negated, a character of it
    ("[a-z]", "az", False, "a"), ("[0-9]", "09", False, "0"), ("[A-Za-z_]", "AZaz__", False, "A"),
    ('[^"\\\\]', '""\\\\', True, "a"), ("[^a-z\\n]", "az\n\n", True, "A"), ("[а-я]", "ая", False, "а"),
    ("[ \\t]", "  \t\t", False, " "), ("[+*/-]", "++**//--", False, "+"), ("[\\]\\[]", "]][[", False, "["),
)  # fmt: skip

MIN_SHORTEST = 3  # characters: a budget of a few tokens would show little


@dataclass(frozen=True, slots=True)
class Chars:
    """One character inside the ranges, or outside of them."""

    ranges: str
    negated: bool = False

    def __call__(self, character: str) -> bool:
        inside = any(low <= character <= high for low, high in zip(self.ranges[::2], self.ranges[1::2]))
        return inside != self.negated


@dataclass(slots=True)
class GrammarMaker:
    draw: Random
    num_rules: int
    rules: dict[str, list[list[Symbol]]] = field(default_factory=dict)

    def gbnf(self) -> str:
        lines = [f"{self.name(index)} ::= {self._alternatives(index)}" for index in range(self.num_rules)]
        comment = ["# made by a seed"] if self.draw.random() < 0.3 else []
        return "\n".join(comment + lines) + "\n"

    def name(self, index: int) -> str:
        return "root" if index == 0 else f"rule-{index}"

    def _alternatives(self, index: int) -> str:
        options: list[list[Symbol]] = []
        written = []
        for number in range(self.draw.randint(1, 3)):
            texts, symbols = self._sequence(index, depth=1, later_only=number == 0 or self.draw.random() < 0.6)
            options.append(symbols)
            written.append(texts)
        self.rules[self.name(index)] = options
        return " | ".join(written)

    def _sequence(self, index: int, depth: int, later_only: bool) -> tuple[str, list[Symbol]]:
        parts = [self._repeated(index, depth, later_only) for _ in range(self.draw.randint(1, 3))]
        return " ".join(text for text, _ in parts), [symbol for _, symbols in parts for symbol in symbols]

    def _repeated(self, index: int, depth: int, later_only: bool) -> tuple[str, list[Symbol]]:
        text, symbols = self._atom(index, depth, later_only)
        low = self.draw.randint(0, 2)
        high = low + self.draw.randint(0, 2) or 1
        match self.draw.choice(("", "", "", "?", "*", "+", "{}", "{,}")):
            case "?":
                return f"{text}?", [self._new([], symbols)]
            case "*":
                return f"{text}*", [self._star(symbols)]
            case "+":
                return f"{text}+", [*symbols, self._star(symbols)]
            case "{}" if low > 0:
                return f"{text}{{{low}}}", symbols * low
            case "{,}":
                maybe: list[Symbol] = [self._new([], symbols)]
                return f"{text}{{{low},{high}}}", symbols * low + maybe * (high - low)
        return text, symbols

    def _atom(self, index: int, depth: int, later_only: bool) -> tuple[str, list[Symbol]]:
        match self.draw.choice(("literal", "literal", "class", "rule", "rule", "group")):
            case "class":
                text, ranges, negated, _ = self.draw.choice(CLASSES)
                return text, [Chars(ranges, negated)]
            case "rule" if index + 1 < self.num_rules or not later_only:
                first = index + 1 if later_only else 0
                name = self.name(self.draw.randrange(first, self.num_rules))
                return name, [name]
            case "group" if depth > 0:
                options = [self._sequence(index, depth - 1, later_only) for _ in range(self.draw.randint(1, 3))]
                text = " | ".join(text for text, _ in options)
                return f"({text})", [self._new(*(symbols for _, symbols in options))]
        text = self.draw.choice(LITERALS)
        return quoted(text), [Chars(character * 2) for character in text]

    def _new(self, *options: list[Symbol]) -> str:
        name = f"({len(self.rules)})"  # no name that a grammar can spell
        self.rules[name] = list(options)
        return name

    def _star(self, symbols: list[Symbol]) -> str:
        name = self._new([])
        self.rules[name].append([*symbols, name])
        return name


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


def shortest_text(rules: dict[str, list[list[Symbol]]], start: str) -> str:
    """The fixed point of the shortest text of each rule."""
    shortest: dict[str, str] = {}
    changed = True
    while changed:
        changed = False
        for name, options in rules.items():
            for option in options:
                if not all(callable(symbol) or symbol in shortest for symbol in option):
                    continue
                text = "".join(_example(symbol) if callable(symbol) else shortest[symbol] for symbol in option)
                if name not in shortest or len(text) < len(shortest[name]):
                    shortest[name], changed = text, True
    return shortest[start]


def _example(chars: Symbol) -> str:
    assert isinstance(chars, Chars)
    return next(c for c in (chars.ranges[0], "a", "A", "0") if chars(c))


def grammar_cases(seed: int, count: int) -> Iterator[Case]:
    for number in range(count):
        draw = Random(f"grammar {seed} {number}")
        shortest = ""
        while len(shortest) < MIN_SHORTEST:
            maker = GrammarMaker(draw, num_rules=draw.randint(1, 5))
            text = maker.gbnf()
            shortest = shortest_text(maker.rules, "root")
        earley = Earley(maker.rules, "root")
        constraint = Constraint(ConstraintKind.EBNF, text)
        yield Case(f"grammar {seed}/{number}", constraint, shortest, partial(_fault, earley), earley.begins)


def _fault(earley: Earley, text: str) -> str | None:
    return None if earley.accepts(text) else "no sentence"
