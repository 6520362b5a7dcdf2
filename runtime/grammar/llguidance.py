"""Constraints through llguidance: the default. Its masks leave only the canonical tokenisation of what is forced."""

import codecs
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.arrays import Ints
from ramet.runtime.errors import ConfigError
from ramet.runtime.grammar import gbnf, joined_patterns, json_schema, lark, meeting_patterns, regex, tags
from ramet.runtime.grammar.base import BackendName, Grammar, GrammarError, TooComplex, Vocabulary, Whitespace, short
from ramet.runtime.grammar.ebnf import write_lark
from ramet.runtime.grammar.json_schema import SchemaDocument
from ramet.runtime.grammar.llguidance_schema import check_places, refusal, written
from ramet.runtime.grammar.tag_rules import TagRules
from ramet.runtime.grammar.tree import Embedded, Node, Rules
from ramet.runtime.grammar.vocabulary import TokenTable


def limits(step_items: int) -> LLParserLimits:
    """`step_items`: Earley items that one mask may make; a row of the parser may hold a fifth, at most 2,000."""
    return LLParserLimits(
        max_items_in_row=min(step_items // 5, 2_000),  # the work of a row grows with the cube of its items
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


MAX_TOKENISED = 4096  # bytes of forced text that are made tokens at once, under 1 ms; the library would take them all
INSIDE = bytes(range(0x80, 0xC0))  # bytes of a character that are not its first one
UNSURE = 4  # one of so many of these tokens, at their end, might be another one if more of the text was known


@dataclass(frozen=True, slots=True)
class LlguidanceShared:
    """What all outputs of a backend have in common."""

    tokenizer: LLTokenizer
    eos: frozenset[int]
    end_mask: Ints  # [W]


class LLGuidanceGrammar:
    """The end is kept here: the library refuses it where nothing else may follow, and would not take it back.

    So are the tokens that are forced: the library would find all of them again for each of their masks.
    """

    __slots__ = ("_ended", "_forced", "_matcher", "_num_followed", "_shared", "_tokens")

    def __init__(self, matcher: LLMatcher, shared: LlguidanceShared, forced: list[int] | None = None) -> None:
        self._matcher, self._shared = matcher, shared
        self._tokens: list[int] = []  # that were accepted, without the end
        self._forced = forced  # what was forced some tokens ago; None: not known. It is never written
        self._num_followed = 0  # of these, tokens that were accepted
        self._ended = False

    def accept(self, token: int) -> bool:
        if self._ended:
            return False
        if token in self._shared.eos and self._matcher.is_accepting():
            self._ended = True
            return True
        taken: bool = self._matcher.try_consume_tokens([token]) == 1
        if not taken:
            self._check()
            return False
        self._tokens.append(token)
        self._follow(token)
        return True

    def _follow(self, token: int) -> None:
        """What was forced stays known until its last token is accepted: more may be forced behind that."""
        if self._forced is None or self._forced[self._num_followed : self._num_followed + 1] != [token]:
            self._forced = None
            return
        self._num_followed += 1
        if self._num_followed == len(self._forced):
            self._forced = None

    def fill_mask(self, bits: Ints) -> None:
        if self._ended:
            bits[:] = self._shared.end_mask
        elif (token := self._next) is not None:
            bits[:] = 0
            bits.view(np.uint32)[token >> 5] = 1 << (token & 31)
        else:
            self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
            self._check()

    def warm(self, bits: Ints) -> None:
        """WRITES bits [W] int32. The first mask may take a second; the library lets other threads run meanwhile."""
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        self._check()

    def forced(self) -> list[int]:
        return [] if self.must_end else self._known()[self._num_followed :]

    @property
    def _next(self) -> int | None:
        """The only token that may come next. None: there is a choice, or nothing may follow."""
        if self._matcher.is_stopped():
            return None
        forced = self._known()
        return forced[self._num_followed] if forced else None

    def _known(self) -> list[int]:
        """What is forced, of which `_num_followed` tokens are accepted."""
        if self._forced is None:
            self._forced, self._num_followed = self._look(), 0
            self._check()
        return self._forced

    def _look(self) -> list[int]:
        text = self._matcher.compute_ff_bytes()
        found = self._first_of(text) if len(text) > MAX_TOKENISED else None
        if found is None:
            found = self._matcher.compute_ff_tokens() if text else []
        return list(takewhile(lambda token: token not in self._shared.eos, found))

    def _first_of(self, text: bytes) -> list[int] | None:
        """The first tokens of a long text. None: it has a control token, or other bytes that are no UTF-8."""
        begin = text[:MAX_TOKENISED]
        rest = begin.lstrip(INSIDE)  # the last token may have ended inside a character
        try:
            whole = len(begin) - len(rest) + len(codecs.getincrementaldecoder("utf-8")().decode(rest).encode())
        except UnicodeDecodeError:
            return None
        found, _ = self._shared.tokenizer.tokenize_partial(begin[:whole], recent_tokens=self._tokens[-1:])
        return found[: len(found) - len(found) // UNSURE]

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
        if num_tokens:
            del self._tokens[-num_tokens:]
            self._num_followed -= num_tokens
            if self._num_followed < 0:
                self._forced = None

    def fork(self) -> "LLGuidanceGrammar":
        other = LLGuidanceGrammar(self._matcher.deep_copy(), self._shared, self._forced)
        other._tokens, other._num_followed = self._tokens.copy(), self._num_followed
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
        """What fills its mask; None where that is known."""
        return None if self._ended or self._next is not None else self._matcher


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
        self._tokens = TokenTable(vocabulary)
        self._limits = LIMITS if step_items is None else limits(step_items)  # for what `load` returns
        plain = self._tokens.plain_tokenizer()
        try:
            self._tokenizer = LLTokenizer(plain, n_vocab=vocabulary.size, eos_token=self._tokens.eos_ids)
        except ValueError as error:
            raise ConfigError(f"llguidance cannot read {vocabulary.folder}: {short(str(error))}") from error
        self._shared = LlguidanceShared(self._tokenizer, frozenset(self._tokens.eos_ids), self._tokens.end_mask)
        self._executor = LLExecutor(num_threads) if num_threads > 1 else None

    def prepare(self, constraint: Constraint, whitespace: Whitespace) -> bytes:
        grammar = self._grammar_of(constraint, partial(self._read_schema, whitespace))
        message = LLMatcher.validate_grammar(grammar, self._tokenizer, limits=LIMITS)
        for made_easy in (joined_patterns.join_patterns, self._prove_patterns):
            if UNDECIDED in message:
                grammar = self._grammar_of(constraint, partial(self._read_schema, whitespace, made_easy=made_easy))
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
            while forced := grammar.forced():
                for token in forced:
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
        first = LLGuidanceGrammar(matcher.deep_copy(), self._shared)
        first.warm(np.empty_like(self._shared.end_mask))  # outputs share its automata
        prototype = LLGuidanceGrammar(matcher, self._shared, first.forced() or None)
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

    def _read_schema(
        self, whitespace: Whitespace, schema: Any, made_easy: Callable[[SchemaDocument], None] | None = None
    ) -> dict[str, Any]:
        document = json_schema.read_value(schema, self.name)
        if made_easy is not None:
            made_easy(document)
        return written(document, self._is_possible) | {"x-guidance": WHITESPACE[whitespace]}

    def _check_schema(self, schema: Any) -> dict[str, Any]:
        """Raises GrammarError with the place of what the library refuses in it."""
        document = json_schema.read_value(schema, self.name)
        whole = written(document, self._is_possible)
        check_places(document, self._message)
        return whole

    def _prove_patterns(self, document: SchemaDocument) -> None:
        meeting_patterns.prove_patterns(document, self._is_writable)

    def _is_writable(self, patterns: list[str], text: str) -> bool:
        """Whether the text can be written as a JSON string that matches the patterns, without too much work."""
        schema = {"type": "string", "allOf": [{"pattern": pattern} for pattern in patterns]}
        prepared = json.dumps({"grammars": [{"json_schema": schema | {"x-guidance": WHITESPACE["single-space"]}}]})
        bits = np.empty(self._tokens.words, np.int32)
        try:
            grammar = self._load(prepared.encode(), LIMITS).start()
            for token in self._tokenizer.tokenize_str(json.dumps(text, ensure_ascii=False)):
                grammar.fill_mask(bits)
                if not grammar.accept(token):
                    return False
        except GrammarError:
            return False
        return grammar.may_end

    def _is_possible(self, schema: dict[str, Any]) -> bool:
        return "Unsatisfiable" not in self._message(schema)

    def _message(self, schema: dict[str, Any]) -> str:
        return LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema), self._tokenizer, limits=LIMITS)


def embedded(read_schema: lark.SchemaReader, schema: Any, rules: Rules) -> Node:
    return Embedded(f"%json {json.dumps(read_schema(schema))}")
