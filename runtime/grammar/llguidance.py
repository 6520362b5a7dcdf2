"""Constraints through llguidance: the default. Its masks leave only the canonical tokenisation of what is forced."""

import json
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.arrays import Ints
from ramet.runtime.errors import ConfigError
from ramet.runtime.grammar import gbnf, joined_patterns, json_schema, lark, regex, tags
from ramet.runtime.grammar.base import BackendName, Grammar, GrammarError, TooComplex, Vocabulary, Whitespace
from ramet.runtime.grammar.ebnf import write_lark
from ramet.runtime.grammar.keywords import SUPPORTED
from ramet.runtime.grammar.llguidance_schema import check_places, refusal, written
from ramet.runtime.grammar.messages import short
from ramet.runtime.grammar.tag_rules import TagRules
from ramet.runtime.grammar.tree import Embedded, Node, Rules
from ramet.runtime.grammar.vocabulary import Tokens


def limits(step_items: int) -> LLParserLimits:
    """`step_items`: Earley items that one mask may make; a row of the parser may hold a tenth, at most 2,000."""
    return LLParserLimits(
        max_items_in_row=min(step_items // 10, 2_000),  # the work of a row grows with the cube of its items
        initial_lexer_fuel=1_000_000,  # about 20 ms of compiling
        step_lexer_fuel=200_000,  # about 14 ms of a mask
        step_max_items=step_items,
        max_lexer_states=50_000,  # at most 100 MB for a matcher
        max_grammar_size=500_000,
        verbose_errors=False,
    )


LIMITS = limits(50_000)  # the default; an ambiguous constraint may still take seconds for a token
UNDECIDED = "Unable to determine if regex is empty"  # of patterns that one string must match
SPACES = r"[\x20\x0A\x0D\x09]{1,40}"  # bounded: a model may otherwise write spaces until its tokens are spent
# without \u: it could spell the name of a property once more, with a value that its schema refuses
ESCAPES = {"json_allowed_escapes": 'nrbtf\\"'}
WHITESPACE: dict[Whitespace, dict[str, Any]] = {
    "single-space": {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False} | ESCAPES,
    "compact": {"item_separator": ",", "key_separator": ":", "whitespace_flexible": False} | ESCAPES,
    "flexible": {"item_separator": ",", "key_separator": ":", "whitespace_pattern": SPACES} | ESCAPES,
}


class LLGuidanceGrammar:
    """The end is kept here: the library refuses it where nothing else may follow, and would not take it back."""

    __slots__ = ("_end_mask", "_ended", "_eos", "_matcher")

    def __init__(self, matcher: LLMatcher, eos: frozenset[int], end_mask: Ints) -> None:
        self._matcher, self._eos, self._end_mask = matcher, eos, end_mask
        self._ended = False

    def accept(self, token: int) -> bool:
        if self._ended:
            return False
        if token in self._eos and self._matcher.is_accepting():
            self._ended = True
            return True
        taken: bool = self._matcher.try_consume_tokens([token]) == 1
        if not taken:
            self._check()
        return taken

    def fill_mask(self, bits: Ints) -> None:
        if self._ended:
            bits[:] = self._end_mask
            return
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        self._check()

    def forced(self) -> list[int]:
        if self.must_end:
            return []
        forced = list(takewhile(lambda token: token not in self._eos, self._matcher.compute_ff_tokens()))
        self._check()
        return forced

    def forced_text(self) -> bytes:
        forced = b"" if self.must_end else self._matcher.compute_ff_bytes()
        self._check()
        return forced

    def rollback(self, num_tokens: int) -> None:
        if num_tokens and self._ended:
            self._ended = False
            num_tokens -= 1
        done = self._matcher.rollback(num_tokens)
        assert done, f"rollback of {num_tokens} tokens: {self._matcher.get_error()}"

    def fork(self) -> "LLGuidanceGrammar":
        other = LLGuidanceGrammar(self._matcher.deep_copy(), self._eos, self._end_mask)
        other._ended = self._ended
        return other

    @property
    def may_end(self) -> bool:
        return self._matcher.is_accepting()

    @property
    def must_end(self) -> bool:
        return self._ended or (self._matcher.is_stopped() and not self._matcher.is_error())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise TooComplex(f"became too complex: {short(self._matcher.get_error())}")

    @property
    def matcher(self) -> LLMatcher | None:
        """What fills its mask; None once it has ended."""
        return None if self._ended else self._matcher


class LLGuidanceCompiled:
    def __init__(self, prototype: LLGuidanceGrammar, num_bytes: int) -> None:
        self._prototype, self._num_bytes = prototype, num_bytes

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def start(self) -> LLGuidanceGrammar:
        return self._prototype.fork()


class LLGuidanceBackend:
    name: BackendName = "llguidance"
    canonical = True
    counts_items = True
    reads_in_place = False
    unbounded = frozenset[ConstraintKind]()  # it counts its items

    def __init__(self, vocabulary: Vocabulary, num_threads: int = 1, step_items: int | None = None) -> None:
        self._tokens = Tokens(vocabulary)
        self._limits = LIMITS if step_items is None else limits(step_items)  # for what `load` returns
        self._eos = frozenset(self._tokens.eos_ids)
        self._end_mask = self._tokens.end_mask
        plain = self._tokens.plain_tokenizer()
        try:
            self._tokenizer = LLTokenizer(plain, n_vocab=vocabulary.size, eos_token=self._tokens.eos_ids)
        except ValueError as error:
            raise ConfigError(f"llguidance cannot read {vocabulary.folder}: {short(str(error))}") from error
        self._executor = LLExecutor(num_threads) if num_threads > 1 else None

    def prepare(self, constraint: Constraint, whitespace: Whitespace) -> bytes:
        grammar = self._grammar_of(constraint, partial(self._read_schema, whitespace))
        message = LLMatcher.validate_grammar(grammar, self._tokenizer, limits=LIMITS)
        if UNDECIDED in message:
            grammar = self._grammar_of(constraint, partial(self._read_schema, whitespace, joins=True))
            message = LLMatcher.validate_grammar(grammar, self._tokenizer, limits=LIMITS)
        refused = refusal(message)
        if refused is not None:
            self._grammar_of(constraint, self._check_schema)
            raise refused
        prepared = grammar.encode()
        self._check_beginning(prepared)
        return prepared

    def _check_beginning(self, prepared: bytes) -> None:
        """Raises GrammarError for what becomes too complex in each of its outputs: before anything is chosen."""
        try:
            grammar, bits = self._load(prepared, LIMITS).start(), np.empty(self._tokens.words, np.int32)
            grammar.fill_mask(bits)
            for token in grammar.forced():
                grammar.accept(token)
            grammar.fill_mask(bits)
        except GrammarError as error:
            fact = f"cannot be begun: before anything is chosen it {error.fact}"
            raise GrammarError(fact, hint="give it fewer repetitions and alternatives") from error

    def load(self, prepared: bytes | memoryview) -> LLGuidanceCompiled:
        return self._load(prepared, self._limits)

    def _load(self, prepared: bytes | memoryview, limits: LLParserLimits) -> LLGuidanceCompiled:
        matcher = LLMatcher(self._tokenizer, str(prepared, "utf-8"), log_level=0, limits=limits)
        if matcher.is_error():
            raise GrammarError(f"cannot be compiled: {lark.in_one_line(matcher.get_error())}")
        prototype = LLGuidanceGrammar(matcher, self._eos, self._end_mask)
        prototype.fill_mask(np.empty_like(self._end_mask))  # outputs share its automata; the first mask may take 0.3 s
        return LLGuidanceCompiled(prototype, 32_768 + 64 * len(prepared))

    def fill_masks(self, grammars: Sequence[Grammar], rows: Sequence[int], bits: Ints) -> None:
        pairs = []
        for grammar, row in zip(grammars, rows, strict=True):
            assert isinstance(grammar, LLGuidanceGrammar)
            if grammar.matcher is None:
                grammar.fill_mask(bits[row])
            else:
                pairs.append((grammar.matcher, row))
        start, width = bits.ctypes.data, bits.shape[1] * bits.itemsize
        if self._executor is None:  # a pool of one thread would cost a switch to it and back
            for matcher, row in pairs:
                matcher.unsafe_compute_mask_ptr(start + row * width, width)
        else:
            self._executor.unsafe_compute_mask_ptr(pairs, start, width, bits.shape[0])
        for matcher, _ in pairs:
            if matcher.is_error():
                raise TooComplex(f"became too complex: {short(matcher.get_error())}")

    def _grammar_of(self, constraint: Constraint, read_schema: lark.SchemaReader) -> str:
        match constraint.kind:
            case ConstraintKind.REGEX:
                return LLMatcher.grammar_from_regex(regex.normal_form(constraint.text))
            case ConstraintKind.JSON_SCHEMA:
                schema = read_schema(json_schema.parse(constraint.text))
                return json.dumps({"grammars": [{"json_schema": schema}]})
            case ConstraintKind.EBNF if lark.is_gbnf(constraint.text):
                return LLMatcher.grammar_from_lark(write_lark(gbnf.read(constraint.text)))
            case ConstraintKind.EBNF:
                return LLMatcher.grammar_from_lark(lark.checked(constraint.text, self._tokens, read_schema))
            case ConstraintKind.STRUCTURAL_TAG:
                rules = TagRules(self._tokens, partial(embedded, read_schema)).make(tags.read(constraint.text))
                return LLMatcher.grammar_from_lark(write_lark(rules))

    def _read_schema(self, whitespace: Whitespace, schema: Any, joins: bool = False) -> dict[str, Any]:
        document = json_schema.read_value(schema, SUPPORTED[self.name])
        if joins:
            joined_patterns.join_patterns(document)
        return written(document, self._is_possible) | {"x-guidance": WHITESPACE[whitespace]}

    def _check_schema(self, schema: Any) -> dict[str, Any]:
        """Raises GrammarError with the place of what the library refuses in it."""
        document = json_schema.read_value(schema, SUPPORTED[self.name])
        whole = written(document, self._is_possible)
        check_places(document, self._message)
        return whole

    def _is_possible(self, schema: dict[str, Any]) -> bool:
        return "Unsatisfiable" not in self._message(schema)

    def _message(self, schema: dict[str, Any]) -> str:
        return LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema), self._tokenizer, limits=LIMITS)


def embedded(read_schema: lark.SchemaReader, schema: Any, rules: Rules) -> Node:
    return Embedded(f"%json {json.dumps(read_schema(schema))}")
