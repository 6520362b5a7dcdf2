"""Constraints through outlines_core, which knows regular languages alone: no recursion, so no value of any kind.

It is asked for an automaton of bytes, and TokenTrie reads the tokens: the library would take ten times as long for
that, and its automaton of tokens would have to be read before it can be used.

It drops a state that cannot end when the one before it could: `1` is read and `1.5` is not. So a pattern ends with a
NUL character here, which no text has, and which the tokens that end an output stand for. It also builds states for a
match that begins anywhere, whose number doubles with each repetition: so a pattern begins with that character too.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from graphlib import CycleError, TopologicalSorter

import numpy as np
from outlines_core import Index
from outlines_core import Vocabulary as Pieces

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.arrays import Ints
from ramet.runtime.grammar import json_schema, regex, tags
from ramet.runtime.grammar.base import BackendName, Grammar, GrammarError, Vocabulary, Whitespace, short
from ramet.runtime.grammar.gbnf import reachable
from ramet.runtime.grammar.json_rules import JsonRules, add_schema
from ramet.runtime.grammar.pattern_rules import check_size
from ramet.runtime.grammar.tag_rules import TagRules
from ramet.runtime.grammar.token_fsm import TokenFsm
from ramet.runtime.grammar.token_trie import ENDED, NOWHERE, TokenTrie
from ramet.runtime.grammar.tree import Free, Node, Ref, Rules, Token, inlined, walk
from ramet.runtime.grammar.vocabulary import TokenTable

MAX_SIZE = 50_000  # characters of a pattern without references
END = b"\0"
BYTES = Pieces(256, {bytes([byte]): [byte] for byte in range(256)})  # a vocabulary; its own end comes after ours


class OutlinesGrammar:
    __slots__ = ("_fsm", "_states", "_tokens")

    def __init__(self, fsm: TokenFsm, tokens: TokenTable, states: Sequence[int] = (0,)) -> None:
        self._fsm, self._tokens = fsm, tokens
        self._states = list(states)  # after each token

    def accept(self, token: int) -> bool:
        state = self._states[-1]
        if not self._fsm.allows(state, token):
            return False
        self._states.append(self._fsm.step(state, self._tokens.texts.get(token, END)))
        return True

    def fill_mask(self, bits: Ints) -> None:
        state = self._states[-1]
        bits[:] = self._tokens.end_mask if state == ENDED else self._fsm.mask(state)

    def forced(self) -> list[int]:
        return []

    def forced_text(self) -> bytes:
        return self._fsm.forced(self._states[-1])

    def rollback(self, num_tokens: int) -> None:
        del self._states[len(self._states) - num_tokens :]

    def fork(self) -> "OutlinesGrammar":
        return OutlinesGrammar(self._fsm, self._tokens, self._states)

    @property
    def may_end(self) -> bool:
        return self._states[-1] == ENDED or self._fsm.step(self._states[-1], END) == ENDED

    @property
    def must_end(self) -> bool:
        return self.may_end and not (self._fsm.mask(self._states[-1]) & ~self._tokens.end_mask).any()


class OutlinesCompiled:
    def __init__(self, fsm: TokenFsm, tokens: TokenTable) -> None:
        self._fsm, self._tokens = fsm, tokens

    @property
    def num_bytes(self) -> int:
        return self._fsm.num_bytes

    def start(self) -> OutlinesGrammar:
        return OutlinesGrammar(self._fsm, self._tokens)


class OutlinesBackend:
    name: BackendName = "outlines"
    canonical = False
    counts_items = False
    reads_in_place = True
    unbounded = frozenset[ConstraintKind]()  # its automaton is a table

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = TokenTable(vocabulary)

    @cached_property
    def _trie(self) -> TokenTrie:
        texts = ((token, piece) for token, piece in self._tokens.texts.items() if END not in piece)
        return TokenTrie([*texts, *((token, END) for token in self._tokens.eos_ids)], self._tokens.size)

    def prepare(self, constraint: Constraint, whitespace: Whitespace) -> bytes:
        try:
            index = Index(self.pattern(constraint, whitespace), BYTES)
        except ValueError as error:
            raise GrammarError(f"cannot be compiled: {short(str(error))}") from error
        table = table_of(index)
        return TokenFsm(table, self._trie.masks(table)).to_bytes()

    def pattern(self, constraint: Constraint, whitespace: Whitespace) -> str:
        """A regular expression of the library's: what the constraint allows, between two NUL characters."""
        return f"\\x00(?:{regex.write(self._tree_of(constraint, whitespace))})\\x00"

    def load(self, prepared: bytes | memoryview) -> OutlinesCompiled:
        return OutlinesCompiled(TokenFsm.from_bytes(prepared), self._tokens)

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
                document = json_schema.read(constraint.text, self.name)
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


def table_of(index: Index) -> Ints:
    """[S, 256] int32: the state after each byte, from behind the first NUL to the last one."""
    after = index.get_transitions()
    first = after[index.get_initial_state()][END[0]]
    numbers, states = {first: 0, **dict.fromkeys(index.get_final_states(), ENDED)}, [first]
    for state in states:  # grows meanwhile
        for reached in after[state].values():
            if reached not in numbers:
                numbers[reached] = len(states)
                states.append(reached)
    table = np.full((len(states), 256), NOWHERE, np.int32)
    for row, state in zip(table, states, strict=True):
        row[list(after[state])] = [numbers[reached] for reached in after[state].values()]
    return table
