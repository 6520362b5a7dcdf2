"""Constraints through outlines_core, which knows regular languages alone: no recursion, so no value of any kind.

It drops a state that cannot end when the one before it could: `1` is read and `1.5` is not. So a pattern ends with a
NUL character here, which no text has, and which the tokens that end an output stand for. It also builds states for a
match that begins anywhere, whose number doubles with each repetition: so a pattern begins with that character too.
"""

from collections.abc import Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import repeat

import numpy as np
from outlines_core import Index
from outlines_core import Vocabulary as Pieces

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.arrays import Ints
from ramet.runtime.grammar import json_schema, regex, tags
from ramet.runtime.grammar.base import BackendName, Grammar, GrammarError, Vocabulary, Whitespace
from ramet.runtime.grammar.gbnf import reachable
from ramet.runtime.grammar.json_rules import JsonRules, add_schema
from ramet.runtime.grammar.keywords import SUPPORTED
from ramet.runtime.grammar.messages import short
from ramet.runtime.grammar.pattern_rules import check_size
from ramet.runtime.grammar.tag_rules import TagRules
from ramet.runtime.grammar.token_fsm import ENDED, TokenFsm, explore
from ramet.runtime.grammar.tree import Free, Node, Ref, Rules, Token, inlined, walk
from ramet.runtime.grammar.vocabulary import Tokens

MAX_SIZE = 50_000  # characters of a pattern without references
END = b"\0"
MAX_COMPARED = 64  # tokens whose common beginning is looked for


class OutlinesGrammar:
    """The library's automaton, walked here: its own form of one takes a tenth of a second to load."""

    __slots__ = ("_fsm", "_states", "_tokens")

    def __init__(self, fsm: TokenFsm, tokens: Tokens, states: Sequence[int] = (0,)) -> None:
        self._fsm, self._tokens = fsm, tokens
        self._states = list(states)  # after each token

    def accept(self, token: int) -> bool:
        reached = self._fsm.step(self._states[-1], token)
        if reached is None:
            return False
        self._states.append(reached)
        return True

    def fill_mask(self, bits: Ints) -> None:
        ended = self._states[-1] == ENDED
        bits[:] = self._tokens.end_mask if ended else self._fsm.mask(self._states[-1], self._tokens.words)

    def forced(self) -> list[int]:
        return []

    def forced_text(self) -> bytes:
        if self.may_end:
            return b""
        allowed = self._fsm.tokens(self._states[-1])
        return b"" if len(allowed) > MAX_COMPARED else common([self._tokens.texts[int(token)] for token in allowed])

    def rollback(self, num_tokens: int) -> None:
        del self._states[len(self._states) - num_tokens :]

    def fork(self) -> "OutlinesGrammar":
        return OutlinesGrammar(self._fsm, self._tokens, self._states)

    @property
    def may_end(self) -> bool:
        return self._states[-1] == ENDED or self._fsm.step(self._states[-1], self._tokens.eos_ids[0]) == ENDED

    @property
    def must_end(self) -> bool:
        return self.may_end and len(self._fsm.tokens(self._states[-1])) <= len(self._tokens.eos_ids)


class OutlinesCompiled:
    def __init__(self, fsm: TokenFsm, tokens: Tokens) -> None:
        self._fsm, self._tokens = fsm, tokens

    @property
    def num_bytes(self) -> int:
        return self._fsm.num_bytes

    def start(self) -> OutlinesGrammar:
        return OutlinesGrammar(self._fsm, self._tokens)


class OutlinesBackend:
    name: BackendName = "outlines"
    canonical = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = Tokens(vocabulary)
        ids = {END: self._tokens.eos_ids}
        for token, piece in self._tokens.texts.items():
            if END not in piece:
                ids.setdefault(piece, []).append(token)
        self._pieces = Pieces(vocabulary.size, ids)  # its own end comes after ours, where no output arrives

    def prepare(self, constraint: Constraint, whitespace: Whitespace) -> bytes:
        pattern = f"\\x00(?:{regex.write(self._tree_of(constraint, whitespace))})\\x00"
        try:
            index = Index(pattern, self._pieces)
        except ValueError as error:
            raise GrammarError(f"cannot be compiled: {short(str(error))}") from error
        return self._flat(index).to_bytes()

    def load(self, prepared: bytes | memoryview) -> OutlinesCompiled:
        return OutlinesCompiled(TokenFsm.from_bytes(prepared), self._tokens)

    def _flat(self, index: Index) -> TokenFsm:
        def moves(state: int) -> tuple[Ints, Ints]:
            tokens = index.get_allowed_tokens(state)
            reached = map(index.get_next_state, repeat(state), tokens)
            return np.array(tokens, np.int32), np.fromiter(reached, np.int32, len(tokens))

        first = index.get_next_state(index.get_initial_state(), self._tokens.eos_ids[0])
        return explore(first, moves, frozenset(index.get_final_states()))

    def fill_masks(self, grammars: Sequence[Grammar], rows: Sequence[int], bits: Ints) -> None:
        for grammar, row in zip(grammars, rows, strict=True):
            grammar.fill_mask(bits[row])

    def _tree_of(self, constraint: Constraint, whitespace: Whitespace) -> Node:
        match constraint.kind:
            case ConstraintKind.REGEX:
                pattern = regex.whole(constraint.text)
                check_size(pattern)
                return pattern
            case ConstraintKind.JSON_SCHEMA:
                document = json_schema.read(constraint.text, SUPPORTED[self.name])
                return without_rules(JsonRules(document, whitespace, recursive=False).make())
            case ConstraintKind.EBNF:
                raise GrammarError("is a grammar, which outlines does not enforce", hint="llguidance and xgrammar do")
            case ConstraintKind.STRUCTURAL_TAG:
                schemas = partial(add_schema, self.name, whitespace, False)
                return without_rules(TagRules(self._tokens, schemas).make(tags.read(constraint.text)))


def without_rules(rules: Rules) -> Node:
    for part in (part for node in rules.values() for part in walk(node)):
        if isinstance(part, Free | Token):
            what = "free text" if isinstance(part, Free) else "a control token"
            raise GrammarError(f"has {what}, which outlines does not enforce", hint="llguidance and xgrammar do")
    if refers_to_itself(rules):
        raise GrammarError("refers to itself: outlines enforces only what a regular expression says")
    try:
        node = inlined(rules, "root", MAX_SIZE)
    except RecursionError:  # each property that may be left out has all later ones in it
        node = None
    if node is None:
        fact = f"is too large for outlines: as one regular expression it has more than {MAX_SIZE} characters"
        raise GrammarError(
            fact, hint="properties that may be left out and long strings multiply; llguidance takes them"
        )
    return node


def refers_to_itself(rules: Rules) -> bool:
    """One of the rules that an output may need."""
    targets = {name: {part.name for part in walk(rules[name]) if isinstance(part, Ref)} for name in reachable(rules)}
    try:
        TopologicalSorter(targets).prepare()
    except CycleError:
        return True
    return False


def common(texts: list[bytes]) -> bytes:
    """What all of them begin with."""
    first, last = min(texts), max(texts)
    size = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))
    return first[:size]
