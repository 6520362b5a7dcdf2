"""Structural tags as the rules of a grammar.

Where a text has that of a control token, exactly that token is meant: elsewhere the token is not legal, and free text
may not spell what it waits for, because readers of the text could not tell the two apart.
"""

import re
from collections.abc import Callable
from typing import Any

from ramet.ipc.params import quoted
from ramet.runtime.grammar import gbnf, regex
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.tags import AnyText, Const, Format, Gbnf, Json, Or, Pattern, Separated, Tag, TagSequence
from ramet.runtime.grammar.tags import Triggered as TriggeredTags
from ramet.runtime.grammar.tree import EMPTY, Free, Node, Ref, Repeat, Rules, Seq, Token, either, literal, renamed
from ramet.runtime.grammar.vocabulary import TokenTable

End = tuple[str, Node]  # the text that follows, and what comes after it
Schemas = Callable[[Any, Rules], Node]  # adds the rules of a schema
Patterns = Callable[[str, Rules], Node]  # and those of a pattern, if it has any
NOTHING: tuple[End, ...] = (("", EMPTY),)


def in_place(pattern: str, rules: Rules) -> Node:
    return regex.whole(pattern)


class TagRules:
    def __init__(self, tokens: TokenTable, schemas: Schemas, patterns: Patterns = in_place) -> None:
        self.tokens, self.schemas, self.patterns = tokens, schemas, patterns
        longest_first = sorted(tokens.control, key=len, reverse=True)
        self.names = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self.rules: Rules = {"root": EMPTY}

    def make(self, whole: Format) -> Rules:
        self.rules["root"] = self.followed(whole, NOTHING)
        return self.rules

    def followed(self, part: Format, ends: tuple[End, ...]) -> Node:
        """What the part allows, and one of `ends` after it."""
        match part:
            case AnyText():
                return self.free((), ends, loops=False)
            case TriggeredTags():
                return self.triggered(part, ends)
            case TagSequence(elements):
                return self.sequence(elements, ends)
            case Or(elements):
                return either(*(self.followed(element, ends) for element in elements))
            case Tag():
                return Seq((self.text(part.begin), self.rest_of(part), self.one_of(ends)))
            case _:
                return Seq((self.content(part), self.one_of(ends)))

    def one_of(self, ends: tuple[End, ...]) -> Node:
        return either(*(Seq((self.text(text), after)) for text, after in ends))

    def rest_of(self, tag: Tag) -> Node:
        """A tag after its beginning."""
        return self.followed(tag.content, tuple((end, EMPTY) for end in tag.ends))

    def sequence(self, elements: tuple[Format, ...], ends: tuple[End, ...]) -> Node:
        first, rest = elements[0], elements[1:]
        if not rest:
            return self.followed(first, ends)
        if not isinstance(first, AnyText | TriggeredTags):
            return self.followed(first, (("", self.sequence(rest, ends)),))
        match rest[0]:
            case Const(text) if text:
                after = self.sequence(rest[1:], ends) if rest[1:] else self.one_of(ends)
                return self.followed(first, ((text, after),))
            case Tag() as tag if tag.begin:
                after = self.sequence(rest[1:], ends) if rest[1:] else self.one_of(ends)
                return self.followed(first, ((tag.begin, Seq((self.rest_of(tag), after))),))
        raise GrammarError(f"{first.place} is free text: only a const_string, a tag or the end may follow it")

    def content(self, part: Format) -> Node:
        match part:
            case Const(text):
                return self.text(text)
            case Json(schema, place):
                return self.at(place, lambda: self.schemas(schema, self.rules))
            case Pattern(pattern, place):
                return self.at(place, lambda: self.patterns(pattern, self.rules))
            case Gbnf(grammar, place):
                return self.at(place, lambda: self.grammar(grammar))
            case Separated():
                return self.separated(part)
            case _:
                raise AssertionError(part)

    @staticmethod
    def at(place: str, make: Callable[[], Node]) -> Node:
        try:
            return make()
        except GrammarError as error:
            raise GrammarError(f"{place}: {error.fact}", error.hint) from error

    def grammar(self, text: str) -> Node:
        prefix = f"g{len(self.rules)}-"
        self.rules |= renamed(gbnf.read(text), prefix)
        return Ref(f"{prefix}root")

    def separated(self, part: Separated) -> Node:
        tags = either(*(Seq((self.text(tag.begin), self.rest_of(tag))) for tag in part.tags))
        more = Repeat(Seq((self.text(part.separator), tags)), 0, 0 if part.stop_after_first else None)
        whole = tags if part.stop_after_first else Seq((tags, more))
        return whole if part.at_least_one else Repeat(whole, 0, 1)

    def triggered(self, part: TriggeredTags, ends: tuple[End, ...]) -> Node:
        by_trigger: dict[str, list[Tag]] = {trigger: [] for trigger in part.triggers}
        for tag in part.tags:
            found = [trigger for trigger in part.triggers if tag.begin.startswith(trigger)]
            if len(found) != 1:
                raise GrammarError(f"{tag.place}/begin must begin with exactly one of the triggers")
            by_trigger[found[0]].append(tag)
        begun = {start: self.begun(start, tags) for start, tags in self.starts(by_trigger, part.place).items()}
        if not part.at_least_one:
            return self.free(tuple(begun.items()), ends, loops=not part.stop_after_first)
        first = either(*(Seq((self.text(tag.begin), self.rest_of(tag))) for tag in part.tags))
        if part.stop_after_first:
            return Seq((first, self.one_of(ends)))
        return Seq((first, self.free(tuple(begun.items()), ends, loops=True)))

    def starts(self, by_trigger: dict[str, list[Tag]], place: str) -> dict[str, list[Tag]]:
        """Triggers as one control token each, or as text without any."""
        found: dict[str, list[Tag]] = {}
        for trigger, tags in by_trigger.items():
            token = self.names.match(trigger)
            if token is None and self.names.search(trigger):
                raise GrammarError(
                    f"{place}/triggers: {quoted(trigger)} has a control token that it does not begin with"
                )
            found.setdefault(token[0] if token else trigger, []).extend(tags)
        for one in found:
            if any(one != other and one in other for other in found):
                raise GrammarError(f"{place}/triggers: {quoted(one)} is a part of another trigger")
        return {start: tags for start, tags in found.items() if tags}

    def begun(self, start: str, tags: list[Tag]) -> Node:
        rests = (Seq((self.text(tag.begin[len(start) :]), self.rest_of(tag))) for tag in tags)
        return either(*rests)

    def free(self, begun: tuple[tuple[str, Node], ...], ends: tuple[End, ...], loops: bool) -> Node:
        """Any text in which one of `begun` may begin, up to one of `ends`."""
        triggers = tuple((self.start_of(text), node) for text, node in begun)
        stops = []
        excluded = [text for text, _ in begun if text in self.tokens.control]
        for text, after in ends:
            pieces = self.pieces(text)
            stops.append((pieces, after))
            excluded += self.names.findall(text)
            if pieces and all(isinstance(piece, str) for piece in pieces):
                excluded.append(text)
        if any(not pieces for pieces, _ in stops) and ends is not NOTHING:
            raise GrammarError("has free text that ends where its content may go on: give the tag an end")
        for text, _ in begun:
            other = next(
                (other for other in excluded if text not in self.tokens.control and overlap(other, text)), None
            )
            if other is not None:
                raise GrammarError(
                    f"has the trigger {quoted(text)}, which overlaps with {quoted(other)}: what begins first is unclear"
                )
        return Free(triggers, tuple(stops), loops, tuple(dict.fromkeys(excluded)))

    def start_of(self, text: str) -> str | int:
        return self.tokens.named(text) if text in self.tokens.control else text

    def pieces(self, text: str) -> tuple[str | int, ...]:
        """Texts, and control tokens by their ids."""
        if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
            raise GrammarError(f"has the text {quoted(text)}, which no output has")
        found: list[str | int] = []
        at = 0
        for match in self.names.finditer(text):
            found += [text[at : match.start()], self.tokens.named(match[0])]
            at = match.end()
        return tuple(piece for piece in [*found, text[at:]] if piece != "")

    def text(self, text: str) -> Node:
        parts = [Token(piece) if isinstance(piece, int) else literal(piece) for piece in self.pieces(text)]
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))


def overlap(first: str, second: str) -> bool:
    """One is a part of the other, or the end of one is the beginning of the other."""
    if first in second or second in first:
        return True
    return any(a.endswith(b[:n]) for a, b in ((first, second), (second, first)) for n in range(1, len(b)))
