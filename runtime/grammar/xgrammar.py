"""Constraints through xgrammar. Schemas and patterns are given to it as grammars of our own.

Its reading of a schema drops what it does not know, and lets strings hold raw control characters and escapes that
spell the name of another property.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import xgrammar
from xgrammar import CompiledGrammar, GrammarCompiler, GrammarMatcher, TokenizerInfo, VocabType

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.arrays import Ints
from ramet.runtime.grammar import gbnf, json_schema, lark, regex, tags
from ramet.runtime.grammar.base import (
    MAX_FORCED_BYTES,
    BackendName,
    Grammar,
    GrammarError,
    Vocabulary,
    Whitespace,
    short,
)
from ramet.runtime.grammar.ebnf import write_gbnf
from ramet.runtime.grammar.json_rules import JsonRules, add_schema
from ramet.runtime.grammar.pattern_rules import add_pattern
from ramet.runtime.grammar.tag_rules import TagRules
from ramet.runtime.grammar.tree import EMPTY, Node, Rules
from ramet.runtime.grammar.vocabulary import TokenTable


@dataclass(frozen=True, slots=True)
class Legal:
    """What no state of a matcher changes."""

    tokens: frozenset[int]  # that may ever be legal
    texts: Mapping[int, bytes]  # of those that have one
    mask: Ints  # [W] of them; the library leaves the bits of ids beyond the vocabulary set
    end_mask: Ints  # [W]


def read_pattern(pattern: str, rules: Rules) -> Node:
    return add_pattern(regex.whole(pattern), rules, spelled=lambda node: node)


class ForcedAhead:
    """Forced text that was found in one state, and how much of it the tokens since then have. The library finds all of
    it every time: of 250,000 bytes in 12 ms, for a jump of 2,000.
    """

    __slots__ = ("_ends", "_text")

    def __init__(self, text: bytes = b"", ends: Sequence[int] = (0,)) -> None:
        self._text, self._ends = text, [*ends]  # bytes that the first tokens have

    @property
    def left(self) -> bytes:
        """Of one jump."""
        return self._text[self._ends[-1] : self._ends[-1] + MAX_FORCED_BYTES]

    def accept(self, text: bytes) -> bool:
        """False: it is something else that comes next."""
        if not text or not self._text.startswith(text, self._ends[-1]):
            return False
        self._ends.append(self._ends[-1] + len(text))
        return True

    def rollback(self, num_tokens: int) -> bool:
        """False: to before the text was found."""
        if num_tokens >= len(self._ends):
            return False
        del self._ends[len(self._ends) - num_tokens :]
        return True

    def fork(self) -> "ForcedAhead":
        return ForcedAhead(self._text, self._ends)


class XGrammarGrammar:
    __slots__ = ("_ahead", "_known", "_legal", "_matcher")

    def __init__(self, matcher: GrammarMatcher, legal: Legal, ahead: ForcedAhead | None = None) -> None:
        self._matcher, self._legal, self._ahead = matcher, legal, ahead
        self._known: Ints | None = None  # the mask of this state, if it was made

    def accept(self, token: int) -> bool:
        # the library writes a warning for what it never accepts
        if token not in self._legal.tokens or self._matcher.is_terminated() or not self._matcher.accept_token(token):
            return False
        self._known = None
        if self._ahead is not None and not self._ahead.accept(self._legal.texts.get(token, b"")):
            self._ahead = None
        return True

    def fill_mask(self, bits: Ints) -> None:
        bits[:] = self._mask()

    def forced(self) -> list[int]:
        return []

    def forced_text(self) -> bytes:
        if self._matcher.is_terminated():
            return b""
        if self._ahead is None or not self._ahead.left:
            self._ahead = ForcedAhead(self._found())
        return self._ahead.left

    def _found(self) -> bytes:
        try:
            return str(self._matcher.find_jump_forward_string()).encode()
        except UnicodeDecodeError:  # what is forced begins or ends inside a character, and the library wants a str
            return b""

    def rollback(self, num_tokens: int) -> None:
        if num_tokens:
            self._matcher.rollback(num_tokens)
            self._known = None
            if self._ahead is not None and not self._ahead.rollback(num_tokens):
                self._ahead = None

    def fork(self) -> "XGrammarGrammar":
        ahead = None if self._ahead is None else self._ahead.fork()
        return XGrammarGrammar(self._matcher.fork(), self._legal, ahead)

    @property
    def may_end(self) -> bool:
        return self._matcher.is_completed()

    @property
    def must_end(self) -> bool:
        if not self._matcher.is_completed():
            return self._matcher.is_terminated()
        return bool((self._mask() == self._legal.end_mask).all())

    @property
    def matcher(self) -> GrammarMatcher | None:
        """What fills its mask; None where it is known."""
        return self._matcher if self._known is None and not self._matcher.is_terminated() else None

    def _mask(self) -> Ints:
        """Asked for several times in a state that may end; a regular expression's may take milliseconds."""
        if self._matcher.is_terminated():
            return self._legal.end_mask
        if self._known is None:
            self._known = np.empty_like(self._legal.mask)
            self._matcher.fill_next_token_bitmask(self._known[None])
            self._known &= self._legal.mask
        return self._known


class XGrammarCompiled:
    def __init__(self, compiled: CompiledGrammar, legal: Legal) -> None:
        self._compiled, self._legal = compiled, legal

    @property
    def num_bytes(self) -> int:
        return self._compiled.memory_size_bytes

    def start(self) -> XGrammarGrammar:
        return XGrammarGrammar(GrammarMatcher(self._compiled), self._legal)


class XGrammarBackend:
    name: BackendName = "xgrammar"
    canonical = False
    counts_items = False
    reads_in_place = False
    unbounded = frozenset({ConstraintKind.EBNF, ConstraintKind.STRUCTURAL_TAG})  # the others are made unambiguous here

    def __init__(self, vocabulary: Vocabulary, num_threads: int = 1) -> None:
        tokens = TokenTable(vocabulary)
        # what has no bytes is never legal, even where a grammar names it; what is no UTF-8 is legal only there
        named = {token: b"\xff%d" % token for token in tokens.control.values()}
        pieces = [tokens.texts.get(token, named.get(token, b"")) for token in range(vocabulary.size)]
        self._info = TokenizerInfo(pieces, VocabType.RAW, vocab_size=vocabulary.size, stop_token_ids=tokens.eos_ids)
        self._compiler = GrammarCompiler(self._info, max_threads=num_threads, cache_enabled=False)
        self._batch = xgrammar.BatchGrammarMatcher(max_threads=num_threads)
        self._tokens = tokens
        legal = [*tokens.texts, *tokens.eos_ids, *tokens.control.values()]
        self._legal = Legal(frozenset(legal), tokens.texts, tokens.mask_of(legal), tokens.end_mask)

    def prepare(self, constraint: Constraint, whitespace: Whitespace) -> bytes:
        try:
            compiled = self._compiler.compile_grammar(self._grammar_of(constraint, whitespace))
        except RecursionError:
            raise
        except RuntimeError as error:  # the library raises it
            raise GrammarError(f"cannot be compiled: {short(str(error))}") from error
        return zlib.compress(compiled.serialize_json().encode(), 1)

    def load(self, prepared: bytes | memoryview) -> XGrammarCompiled:
        text = str(zlib.decompress(prepared), "utf-8")
        return XGrammarCompiled(CompiledGrammar.deserialize_json(text, self._info), self._legal)

    def fill_masks(self, grammars: Sequence[Grammar], rows: Sequence[int], bits: Ints) -> None:
        matchers, indices = [], []
        for grammar, row in zip(grammars, rows, strict=True):
            assert isinstance(grammar, XGrammarGrammar)
            if grammar.matcher is None:
                grammar.fill_mask(bits[row])
            else:
                matchers.append(grammar.matcher)
                indices.append(row)
        if matchers:
            self._batch.batch_fill_next_token_bitmask(matchers, bits, indices)
            bits[indices] &= self._legal.mask

    def _grammar_of(self, constraint: Constraint, whitespace: Whitespace) -> str:
        match constraint.kind:
            case ConstraintKind.REGEX:
                rules: Rules = {"root": EMPTY}
                rules["root"] = read_pattern(constraint.text, rules)
                return write_gbnf(rules)
            case ConstraintKind.JSON_SCHEMA:
                document = json_schema.read(constraint.text, self.name)
                return write_gbnf(JsonRules(document, whitespace).make())
            case ConstraintKind.EBNF:
                if not lark.is_gbnf(constraint.text):
                    raise GrammarError("has no rule `root ::= ...`: xgrammar reads GBNF", hint="llguidance reads Lark")
                return write_gbnf(gbnf.read(constraint.text))
            case ConstraintKind.STRUCTURAL_TAG:
                schemas = partial(add_schema, self.name, whitespace, True)
                return write_gbnf(TagRules(self._tokens, schemas, read_pattern).make(tags.read(constraint.text)))
