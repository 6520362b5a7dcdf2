"""Constraints through outlines_core, which knows regular languages alone: no recursion, so no value of any kind.

It drops a state that cannot end when the one before it could: `1` is read and `1.5` is not. So a pattern ends with a
NUL character here, which no text has, and which the tokens that end an output stand for. It also builds states for a
match that begins anywhere, whose number doubles with each repetition: so a pattern begins with that character too.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from outlines_core import Guide, Index
from outlines_core import Vocabulary as Pieces

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.arrays import Ints
from ramet.runtime.grammar import json_schema, regex, tags
from ramet.runtime.grammar.base import BackendName, Grammar, GrammarError, Vocabulary, Whitespace
from ramet.runtime.grammar.json_rules import JsonRules, add_schema
from ramet.runtime.grammar.keywords import SUPPORTED
from ramet.runtime.grammar.messages import short
from ramet.runtime.grammar.pattern_rules import check_size
from ramet.runtime.grammar.tag_rules import TagRules
from ramet.runtime.grammar.tree import Free, Node, Rules, Token, inlined, walk
from ramet.runtime.grammar.vocabulary import Tokens

MAX_SIZE = 50_000  # characters of a pattern without references
MAX_ROLLBACK = 64  # states that the library keeps; to go back further the tokens are taken again
END = b"\0"
MAX_COMPARED = 64  # tokens whose common beginning is looked for


class OutlinesGrammar:
    __slots__ = ("_ended", "_guide", "_index", "_taken", "_tokens")

    def __init__(self, index: Index, tokens: Tokens) -> None:
        self._index, self._tokens = index, tokens
        self._taken: list[int] = []
        self._ended = False
        self._guide = Guide(index, MAX_ROLLBACK)
        self._begin()

    def accept(self, token: int) -> bool:
        if self._ended:
            return False
        if token in self._tokens.eos_ids:
            self._ended = self.may_end
            return self._ended
        try:
            self._guide.advance(token, return_tokens=False)
        except (ValueError, OverflowError):
            return False
        self._taken.append(token)
        return True

    def fill_mask(self, bits: Ints) -> None:
        if self._ended:
            bits[:] = self._tokens.end_mask
            return
        self._guide.write_mask_into(bits.ctypes.data, bits.size, bits.itemsize)

    def forced(self) -> list[int]:
        return []

    def forced_text(self) -> bytes:
        if self.may_end:
            return b""
        allowed = self._guide.get_tokens()
        return b"" if len(allowed) > MAX_COMPARED else common([self._tokens.texts[token] for token in allowed])

    def rollback(self, num_tokens: int) -> None:
        if num_tokens and self._ended:
            self._ended = False
            num_tokens -= 1
        if not num_tokens:
            return
        del self._taken[-num_tokens:]
        if num_tokens <= self._guide.get_allowed_rollback():
            self._guide.rollback_state(num_tokens)
        else:
            self._replay()

    def _begin(self) -> None:
        self._guide.advance(self._tokens.eos_ids[0], return_tokens=False)

    def _replay(self) -> None:
        self._guide.reset()
        self._begin()
        for token in self._taken:
            self._guide.advance(token, return_tokens=False)

    def fork(self) -> "OutlinesGrammar":
        other = OutlinesGrammar(self._index, self._tokens)
        other._taken, other._ended = self._taken.copy(), self._ended
        other._replay()
        return other

    @property
    def may_end(self) -> bool:
        return self._ended or bool(self._guide.accepts_tokens(self._tokens.eos_ids[:1]))

    @property
    def must_end(self) -> bool:
        if self._ended or not self.may_end:
            return self._ended
        bits = np.empty_like(self._tokens.end_mask)
        self.fill_mask(bits)
        return bool((bits == self._tokens.end_mask).all())


class OutlinesCompiled:
    def __init__(self, index: Index, tokens: Tokens, num_bytes: int) -> None:
        self._index, self._tokens, self._num_bytes = index, tokens, num_bytes

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def start(self) -> OutlinesGrammar:
        return OutlinesGrammar(self._index, self._tokens)


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
        return bytes(index.__reduce__()[1][0])

    def load(self, prepared: bytes) -> OutlinesCompiled:
        return OutlinesCompiled(Index.from_binary(prepared), self._tokens, 12 * len(prepared))

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
                return without_rules(TagRules(self._tokens.control, schemas).make(tags.read(constraint.text)))


def without_rules(rules: Rules) -> Node:
    for part in (part for node in rules.values() for part in walk(node)):
        if isinstance(part, Free | Token):
            what = "free text" if isinstance(part, Free) else "a control token"
            raise GrammarError(f"has {what}, which outlines does not enforce", hint="llguidance and xgrammar do")
    node = inlined(rules, "root", MAX_SIZE)
    if node is None:
        raise GrammarError("refers to itself, or is too large: outlines enforces only what a regular expression says")
    return node


def common(texts: list[bytes]) -> bytes:
    """What all of them begin with."""
    first, last = min(texts), max(texts)
    size = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))
    return first[:size]
