"""What texts a constraint allows, as a tree: characters, sequences, alternatives, repetitions, references to rules."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ramet.runtime.grammar.charsets import Ranges


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Seq:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Alt:
    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: "Node"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Ref:
    """What the rule of this name allows."""

    name: str


@dataclass(frozen=True, slots=True)
class Token:
    """A control token."""

    token: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """What only one library reads, in its words."""

    text: str


@dataclass(frozen=True, slots=True)
class Free:
    """Any text. A trigger in it begins what must follow, once or again and again; one of the ends comes after it."""

    triggers: tuple[tuple[str | int, "Node"], ...]  # by text, or by control token
    ends: tuple[tuple[tuple[str | int, ...], "Node"], ...]  # (): the end of the output
    loops: bool
    excluded: tuple[str, ...]  # what the text must not have, beside triggers


@dataclass(frozen=True, slots=True)
class AnchorNode:
    """The start or the end of the text. Only patterns have it, and only until it is dropped."""

    at_start: bool
    offset: int


Node = Chars | Seq | Alt | Repeat | Ref | Token | Embedded | Free | AnchorNode
Rules = dict[str, Node]  # "root" is where an output begins
EMPTY = Seq(())


def literal(text: str) -> Node:
    chars = tuple(Chars(((ord(c), ord(c)),)) for c in text)
    return chars[0] if len(chars) == 1 else Seq(chars)


def either(*options: Node) -> Node:
    return options[0] if len(options) == 1 else Alt(options)


def optional(node: Node) -> Node:
    return Repeat(node, 0, 1)


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Seq(parts) | Alt(parts):
            return parts
        case Repeat(part):
            return (part,)
        case Free(triggers, ends):
            return (*(node for _, node in triggers), *(node for _, node in ends))
        case _:
            return ()


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with what `change` makes of the nodes right below it."""
    match node:
        case Seq(parts):
            return Seq(tuple(map(change, parts)))
        case Alt(options):
            return Alt(tuple(map(change, options)))
        case Repeat(part, least, most):
            return Repeat(change(part), least, most)
        case Free(triggers, ends, loops, excluded):
            begun = tuple((start, change(after)) for start, after in triggers)
            return Free(begun, tuple((pieces, change(after)) for pieces, after in ends), loops, excluded)
        case _:
            return node


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    pending = [node]
    while pending:
        pending.extend(children(found := pending.pop()))
        yield found


def settle(rules: Rules, changes: Callable[[str], bool]) -> None:
    """Call `changes` with each rule until none has something new to say to those that refer to it."""
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, node in rules.items():
        for part in walk(node):
            if isinstance(part, Ref):
                users[part.name].add(name)
    pending = dict.fromkeys(rules)
    while pending:
        name, _ = pending.popitem()
        if changes(name):
            pending.update(dict.fromkeys(users[name]))


def size(node: Node) -> int:
    """Characters and references, with repetitions written out."""
    match node:
        case Repeat(part, least, most):
            return size(part) * max(least, most or 0, 1)
        case Seq() | Alt() | Free():
            return sum(map(size, children(node)))
        case _:
            return 1


def lengths(node: Node) -> tuple[int, int | None] | None:
    """The fewest and the most characters of its texts; None where a reference hides that."""
    match node:
        case Chars():
            return 1, 1
        case Seq(parts) | Alt(parts):
            found = [lengths(part) for part in parts]
            known = [pair for pair in found if pair is not None]
            if len(known) < len(found):
                return None
            tops = [most for _, most in known if most is not None]
            if isinstance(node, Seq):
                return sum(least for least, _ in known), sum(tops) if len(tops) == len(known) else None
            return min(least for least, _ in known), max(tops) if len(tops) == len(known) else None
        case Repeat(part, least, most):
            inner = lengths(part)
            if inner is None:
                return None
            top = 0 if inner[1] == 0 or most == 0 else None if inner[1] is None or most is None else inner[1] * most
            return inner[0] * least, top
        case _:
            return None


def inlined(rules: Rules, name: str, max_size: int, within: tuple[str, ...] = ()) -> Node | None:
    """A rule without references; None where it refers to itself or becomes too large."""
    if name in within:
        return None

    def expand(node: Node) -> Node | None:
        match node:
            case Ref(target):
                return inlined(rules, target, max_size, (*within, name))
            case Seq(parts) | Alt(parts):
                found = [expand(part) for part in parts]
                known = tuple(part for part in found if part is not None)
                if len(known) < len(found):
                    return None
                return Seq(known) if isinstance(node, Seq) else Alt(known)
            case Repeat(part, least, most):
                inner = expand(part)
                return None if inner is None else Repeat(inner, least, most)
            case _:
                return node

    whole = expand(rules[name])
    return None if whole is None or size(whole) > max_size else whole


def renamed(rules: Rules, prefix: str) -> Rules:
    """The same rules under other names."""

    def rename(node: Node) -> Node:
        return Ref(f"{prefix}{node.name}") if isinstance(node, Ref) else mapped(node, rename)

    return {f"{prefix}{name}": rename(node) for name, node in rules.items()}
