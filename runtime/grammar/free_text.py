"""Free text as rules: an Aho-Corasick automaton of what the text waits for, and of what it must not have.

One rule is one state: the longest beginning of these strings that the text ends with.
"""

from ramet.runtime.grammar.charsets import UNIVERSE, of_text, without
from ramet.runtime.grammar.tree import (
    EMPTY,
    Alt,
    Chars,
    Free,
    Node,
    Ref,
    Repeat,
    Rules,
    Seq,
    Token,
    either,
    literal,
    mapped,
)


def without_free_text(rules: Rules) -> Rules:
    """The same rules, with those of automata in place of free text."""
    found: Rules = {}

    def replace(node: Node) -> Node:
        node = mapped(node, replace)
        if not isinstance(node, Free):
            return node
        ended = either(*(Seq((*map(piece, pieces), after)) for pieces, after in node.ends))
        return Seq((free(node.triggers, node.loops, node.excluded, found), ended))

    for name, node in rules.items():
        found[name] = EMPTY  # keeps its place: the root comes first
        found[name] = replace(node)
    return found


def piece(part: str | int) -> Node:
    return Token(part) if isinstance(part, int) else literal(part)


def free(triggers: tuple[tuple[str | int, Node], ...], loops: bool, excluded: tuple[str, ...], rules: Rules) -> Node:
    texts = {start: after for start, after in triggers if isinstance(start, str)}
    begun = [Seq((Token(start), after)) for start, after in triggers if isinstance(start, int)]
    text = automaton(texts, loops, excluded, rules)
    if not begun:
        return text
    if loops:
        return Seq((text, Repeat(Seq((either(*begun), text)), 0, None)))
    bare = automaton({}, False, (*excluded, *texts), rules)
    return either(text, Seq((bare, either(*begun))))


def automaton(triggers: dict[str, Node], loops: bool, excluded: tuple[str, ...], rules: Rules) -> Ref:
    """Adds its rules; the first one is returned."""
    words = [*triggers, *excluded]
    states = dict.fromkeys(["", *(word[:n] for word in words for n in range(len(word)))])
    prefix = f"f{len(rules)}-"
    names = {state: f"{prefix}{i}" for i, state in enumerate(states)}
    rules |= dict.fromkeys(names.values(), EMPTY)
    alphabet = sorted({char for word in words for char in word})
    others = Chars(without(UNIVERSE, of_text("".join(alphabet))))
    first = Ref(names[""])
    for state, name in names.items():
        options: list[Node] = [EMPTY, Seq((others, first))]
        for char in alphabet:
            text = state + char
            if any(text.endswith(word) for word in excluded):
                continue
            trigger = next((word for word in triggers if text.endswith(word)), None)
            if trigger is not None:
                options.append(Seq((literal(char), triggers[trigger], first if loops else EMPTY)))
                continue
            following = next(text[n:] for n in range(len(text) + 1) if text[n:] in names)
            options.append(Seq((literal(char), Ref(names[following]))))
        rules[name] = Alt(tuple(options))
    return first
