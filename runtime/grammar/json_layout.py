"""JSON of given parts: its brackets, commas, colons and white space, as nodes of a grammar."""

import json
from typing import Any

from ramet.runtime.grammar import json_strings
from ramet.runtime.grammar.base import Whitespace
from ramet.runtime.grammar.tree import (
    EMPTY,
    Chars,
    Node,
    Ref,
    Repeat,
    Rules,
    Seq,
    either,
    literal,
    optional,
)

MAX_SPACES = 20  # at one place of flexible JSON
SPACE = Chars(((9, 10), (13, 13), (32, 32)))


class JsonLayout:
    """Writes values, lists and objects. Parts that are used several times become rules of their own in `rules`."""

    def __init__(self, whitespace: Whitespace) -> None:
        self.rules: Rules = {"root": EMPTY}
        space: Node = EMPTY
        if whitespace == "flexible":
            self.rules["space"] = Repeat(SPACE, 0, MAX_SPACES)
            space = Ref("space")
        after = " " if whitespace == "single-space" else ""
        self.space = space
        self.comma = Seq((space, literal(f",{after}"), space))
        self.colon = Seq((space, literal(f":{after}"), space))

    def rule(self, name: str, node: Node) -> Ref:
        self.rules[name] = node
        return Ref(name)

    def fresh(self, hint: str) -> str:
        return f"{hint}-{len(self.rules)}"

    def constant(self, value: Any) -> Node:
        match value:
            case list():
                return self.list_of([self.constant(inner) for inner in value])
            case dict():
                return self.members(
                    [Seq((json_strings.constant(n), self.colon, self.constant(v))) for n, v in value.items()]
                )
        return literal(json.dumps(value, ensure_ascii=False))

    def list_of(self, items: list[Node]) -> Node:
        return self.enclosed("[", self.joined(items), "]")

    def members(self, members: list[Node]) -> Node:
        return self.enclosed("{", self.joined(members), "}")

    def enclosed(self, first: str, inner: Node, last: str) -> Node:
        if inner == EMPTY:
            return Seq((literal(first), self.space, literal(last)))
        return Seq((literal(first), self.space, inner, self.space, literal(last)))

    def joined(self, parts: list[Node]) -> Node:
        return Seq(tuple(node for part in parts for node in (self.comma, part))[1:])

    def enclosed_items(self, first: list[Node], further: Node | None, least: int, most: int | None) -> Node:
        tail: Node = EMPTY
        if further is not None:
            if not first:
                return self.repeated(further, least, most)
            left = None if most is None else most - len(first)
            tail = Repeat(Seq((self.comma, further)), max(0, least - len(first)), left)
        for i in reversed(range(1, len(first))):
            tail = Seq((self.comma, first[i], tail))
            tail = tail if i < least else optional(tail)
        if not first:
            return self.list_of([])
        whole = self.enclosed("[", Seq((first[0], tail)), "]")
        return whole if least else either(self.list_of([]), whole)

    def repeated(self, item: Node, least: int, most: int | None, brackets: str = "[]") -> Node:
        empty = self.enclosed(brackets[0], EMPTY, brackets[1])
        if most == 0:
            return empty
        item = item if isinstance(item, Ref) else self.rule(self.fresh("item"), item)
        more = Repeat(Seq((self.comma, item)), max(0, least - 1), None if most is None else most - 1)
        whole = self.enclosed(brackets[0], Seq((item, more)), brackets[1])
        return whole if least else either(empty, whole)

    def ordered(self, members: list[tuple[Node, bool]], further: Node | None, may_be_empty: bool) -> Node:
        """Members in their order, those that are not required left out or not."""
        after: Node = EMPTY if further is None else Repeat(Seq((self.comma, further)), 0, None)
        first_required = next((i for i, (_, needed) in enumerate(members) if needed), None)
        if first_required is not None:
            parts: list[Node] = [optional(Seq((member, self.comma))) for member, _ in members[:first_required]]
            parts.append(members[first_required][0])
            for member, needed in members[first_required + 1 :]:
                part = Seq((self.comma, member))
                parts.append(part if needed else optional(part))
            return self.enclosed("{", Seq((*parts, after)), "}")
        beginnings: list[Node] = []
        rest: Node = after if after == EMPTY else self.rule(self.fresh("rest"), after)
        if further is not None:
            beginnings.append(Seq((further, rest)))
        for member, _ in reversed(members):
            shared = self.rule(self.fresh("member"), member)
            beginnings.insert(0, Seq((shared, rest)))
            rest = self.rule(self.fresh("rest"), Seq((optional(Seq((self.comma, shared))), rest)))
        whole = self.enclosed("{", either(*beginnings), "}")
        return either(self.members([]), whole) if may_be_empty else whole
