"""Proves for llguidance that some text matches all patterns of one string: it has few steps for that, or refuses them.

The proof is a search for such a text through the product of the patterns' automata. Each pattern of a proof may then
match a run of NULs as well, which the library finds in one step. No JSON string that it writes has a NUL, so the
outputs are the same. Lengths beside patterns are proved as patterns. What is not proved stays as it is.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import product
from typing import Any

from ramet.runtime.grammar import regex
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.charsets import UNIVERSE, Ranges, complement, intersection
from ramet.runtime.grammar.code_points import code_points
from ramet.runtime.grammar.json_schema import Schema, SchemaDocument
from ramet.runtime.grammar.merging import Merger, as_list
from ramet.runtime.grammar.tree import Chars, Repeat
from ramet.runtime.text.automaton import ACCEPT, PatternError, read_pattern

MAX_STATES = 10_000  # of a pattern's automaton
MAX_CHARS = 2_000_000  # of all schemas that are looked at, merged ones among them
MAX_PLACES = 50_000  # of all automata together that the proofs of one schema look at
NULS = r"\x00+"
WRITABLE = complement(((0, 7), (11, 11), (14, 31), (127, 127)))  # in a JSON string without \u
PLAIN: Ranges = ((48, 57), (65, 90), (97, 122))


@dataclass(frozen=True, slots=True)
class Nfa:
    starts: tuple[int, ...]
    steps: dict[int, tuple[Ranges, tuple[int, ...]]]  # state -> the characters that it reads, the states after them
    distances: dict[int, int]  # state -> characters of the shortest text that leads to the end


class Unproven(Exception):
    """No text was found that matches all patterns."""


def prove_patterns(document: SchemaDocument, is_writable: Callable[[list[str], str], bool]) -> None:
    """CHANGES the document: the patterns that meet in proofs alone match runs of NULs too.

    `is_writable`: whether the library can follow a text, held to such patterns, without too much work.
    """
    schemas = [schema for schema in document.places.values() if isinstance(schema, dict)]
    schemas += [part for schema in schemas if (part := length_part(schema)) is not None]
    meetings = Meetings(document)
    try:
        meetings.visit(document.root)
    except GrammarError:  # which schemas meet is not known
        return
    proofs, proven, unproven = Proofs(), set[str](), set[str]()
    for patterns in meetings.sets:
        text = proofs.text(patterns)
        is_proven = text is not None and is_writable([*map(with_nuls, patterns)], text)
        (proven if is_proven else unproven).update(patterns)
    for schema in schemas:
        if schema.get("pattern") in proven - unproven:
            schema["pattern"] = with_nuls(schema["pattern"])


def with_nuls(pattern: str) -> str:
    return f"^(?:{regex.write(regex.whole(pattern))}|{NULS})$"


def length_part(schema: dict[str, Any]) -> dict[str, Any] | None:
    """CHANGES the schema: its lengths become a pattern in its `allOf`, which is returned."""
    if schema.keys().isdisjoint(("minLength", "maxLength")):
        return None
    least, most = schema.pop("minLength", 0), schema.pop("maxLength", None)
    part = {"pattern": f"^(?:{regex.write(Repeat(Chars(UNIVERSE), least, most))})$"}
    schema["allOf"] = [*schema.get("allOf", ()), part]
    return part


class Meetings(Merger):
    """`sets`: the patterns that one string must match, for each string of a schema."""

    def __init__(self, document: SchemaDocument) -> None:
        super().__init__(document)
        self.sets: set[tuple[str, ...]] = set()
        self._seen: set[str] = set()

    def visit(self, root: Schema) -> None:
        """Raises GrammarError where it is not known which patterns meet."""
        left, num_chars = [root], 0
        while left:
            schema = left.pop()
            key = json.dumps(schema, sort_keys=True)
            if key not in self._seen:
                self._seen.add(key)
                num_chars += len(key)
                if num_chars > MAX_CHARS:
                    raise GrammarError("has too many schemas that meet")
                for alternative in self.alternatives(schema, "#"):
                    if isinstance(alternative, dict):
                        self._add(alternative)
                        left += inner(alternative)

    def _add(self, schema: dict[str, Any]) -> None:
        patterns = as_list(schema.get("pattern", []))
        if patterns and "string" in as_list(schema.get("type", "string")):
            self.sets.add(tuple(patterns))

    def combined(self, keyword: str, left: Any, right: Any, place: str) -> Any:
        if keyword == "pattern":
            return list(dict.fromkeys([*as_list(left), *as_list(right)]))
        try:
            return super().combined(keyword, left, right, place)
        except GrammarError:  # two numbers, which change nothing about strings
            return left


def inner(schema: dict[str, Any]) -> list[Schema]:
    """Schemas of parts of a value, without references. What may meet is taken together."""
    by_pattern = list(schema.get("patternProperties", {}).values())
    named = [{"allOf": [each, *by_pattern]} for each in schema.get("properties", {}).values()]
    others = [schema[keyword] for keyword in ("items", "additionalProperties") if keyword in schema]
    return [*named, *by_pattern, *others, *schema.get("prefixItems", [])]


class Proofs:
    def __init__(self) -> None:
        self._nfas: dict[str, Nfa] = {}
        self._left = MAX_PLACES

    def text(self, patterns: Sequence[str]) -> str | None:
        """A text that matches all. None: none was found."""
        try:
            return self._search([self._nfa(pattern) for pattern in patterns])
        except Unproven:
            return None

    def _nfa(self, pattern: str) -> Nfa:
        if pattern not in self._nfas:
            self._nfas[pattern] = nfa_of(pattern)
        return self._nfas[pattern]

    def _search(self, nfas: list[Nfa]) -> str:
        """Raises Unproven. Nearest to their ends first: most patterns allow any text between what they need."""
        texts: dict[tuple[int, ...], str] = {}
        heap: list[tuple[int, tuple[int, ...]]] = []

        def add(places: Iterable[tuple[int, ...]], text: str) -> None:
            for states in places:
                if states not in texts:
                    texts[states] = text
                    left = sum(nfa.distances[state] for nfa, state in zip(nfas, states, strict=True))
                    heappush(heap, (left, states))

        add(product(*(nfa.starts for nfa in nfas)), "")
        while heap:
            _, states = heappop(heap)
            if not any(states):
                return texts[states]
            self._left -= 1
            if self._left < 0:
                break
            if ACCEPT in states:
                continue
            steps = [nfa.steps[state] for nfa, state in zip(nfas, states, strict=True)]
            if chars := shared(ranges for ranges, _ in steps):
                (first, _), *_ = intersection(chars, PLAIN) or chars
                add(product(*(targets for _, targets in steps)), texts[states] + chr(first))
        raise Unproven


def shared(sets: Iterable[Ranges]) -> Ranges:
    found = WRITABLE
    for ranges in sets:
        found = intersection(found, ranges)
    return found


def nfa_of(pattern: str) -> Nfa:
    """Raises Unproven for one that matches no text, or that is too large."""
    try:
        automaton = read_pattern(regex.write(regex.whole(pattern)), MAX_STATES)
    except PatternError as error:
        raise Unproven from error
    leaves = [*map(code_points, automaton.leaves)]
    targets = {
        state: automaton.close(automaton.targets[state], set())
        for state in range(automaton.size)
        if automaton.tests[state] >= 0
    }
    distances = distances_of(targets)
    starts = tuple(state for state in automaton.close([automaton.start], set()) if state in distances)
    steps = {
        state: (leaves[automaton.tests[state]], tuple(each for each in after if each in distances))
        for state, after in targets.items()
    }
    if not starts:
        raise Unproven
    return Nfa(starts, steps, distances)


def distances_of(targets: dict[int, tuple[int, ...]]) -> dict[int, int]:
    before: dict[int, list[int]] = {}
    for state, after in targets.items():
        for each in after:
            before.setdefault(each, []).append(state)
    found, wave = {ACCEPT: 0}, [ACCEPT]
    for state in wave:  # which grows meanwhile
        for each in before.get(state, ()):
            if each not in found:
                found[each] = found[state] + 1
                wave.append(each)
    return found
