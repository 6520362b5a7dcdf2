"""Long texts that a constraint leaves no choice about: found in pieces, shared by outputs that have not begun."""

import json
import random
from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pytest
from constrained import SIZE, allowed, backend, compiled, ids_of, vocabulary

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.base import MAX_FORCED_BYTES
from ramet.runtime.grammar.llguidance import MAX_TOKENISED, LLGuidanceCompiled, LLGuidanceGrammar
from ramet.runtime.grammar.xgrammar import XGrammarGrammar

TOKENIZER = vocabulary().tokenizer
WORDS = ["the", "quick", "año", "日本", "123456", "  ", "-", "\t", "Foo", "barBaz", "a", "aaaa", "\u200d", "😀"]
TEXTS = {
    "words": "".join(random.Random(1).choices([*WORDS, *(f"{word} " for word in WORDS)], k=9000)),
    "one letter": "a" * 30_000,
    "spaces": " " * 30_000,
}


def load(schema: dict[str, Any]) -> LLGuidanceCompiled:
    found = backend("llguidance")
    made = found.load(found.prepare(Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema)), "single-space"))
    assert isinstance(made, LLGuidanceCompiled)
    return made


class Asked:
    """A matcher of the library that counts what it is asked, and the tokens that it makes of forced text."""

    def __init__(self, matcher: Any, counts: Counter[str]) -> None:
        self._matcher, self.counts = matcher, counts

    def __getattr__(self, name: str) -> Any:
        self.counts[name] += 1
        return getattr(self._matcher, name)

    def deep_copy(self) -> "Asked":
        return Asked(self._matcher.deep_copy(), self.counts)

    def unsafe_compute_mask_ptr(self, pointer: int, num_bytes: int) -> None:
        self.counts["tokens"] += len(self._matcher.compute_ff_tokens())  # as the library does for each mask
        self._matcher.unsafe_compute_mask_ptr(pointer, num_bytes)

    def compute_ff_tokens(self) -> list[int]:
        found: list[int] = self._matcher.compute_ff_tokens()
        self.counts["tokens"] += len(found)
        return found


def asked(grammar: LLGuidanceGrammar, counts: Counter[str]) -> LLGuidanceGrammar:
    grammar._matcher = Asked(grammar._matcher, counts)
    return grammar


def test_outputs_of_a_long_constant_begin_without_looking_for_what_is_forced() -> None:
    compiled, counts = load({"const": "a" * 50_000}), Counter[str]()
    asked(compiled._prototype, counts)
    for grammar in [compiled.start() for _ in range(64)]:
        first = grammar.forced()[0]
        assert allowed(grammar) == {first} and grammar.accept(first)
    assert counts["compute_ff_bytes"] == counts["tokens"] == 0


@pytest.mark.parametrize("looks", [True, False], ids=["forced", "masks"])
def test_a_long_constant_is_made_tokens_in_pieces(looks: bool) -> None:
    """Behind a choice, where nothing of it is known before."""
    compiled, counts = load({"enum": [f"{first}{'a' * 20_000}" for first in "bc"]}), Counter[str]()
    grammar = asked(compiled.start(), counts)
    bits = np.zeros(-(-SIZE // 32), np.int32)
    for _ in range(600):
        if looks:
            grammar.forced()
        grammar.fill_mask(bits)
        token = int(np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))[0])
        assert grammar.accept(token)
    assert counts["tokens"] <= MAX_TOKENISED
    assert counts["compute_ff_bytes"] < 10


@pytest.mark.parametrize("name", TEXTS)
def test_a_long_constant_has_the_tokens_that_the_library_finds_for_the_whole(name: str) -> None:
    grammar = load({"const": TEXTS[name]}).start()
    whole = grammar._matcher.deep_copy().compute_ff_tokens()
    found = list[int]()
    while forced := grammar.forced():
        found += forced
        assert all(map(grammar.accept, forced))
    assert found == whole and grammar.must_end


def test_what_is_forced_is_known_anew_after_tokens_are_taken_back() -> None:
    grammar = load({"const": TEXTS["words"]}).start()
    tokens = list(islice(iter_forced(grammar.fork()), 2000))
    for num_taken, num_back in ((1500, 700), (300, 300), (900, 1), (1, 1)):
        assert all(map(grammar.accept, tokens[:num_taken]))
        grammar.rollback(num_back)
        left = num_taken - num_back
        assert grammar.forced()[:50] == tokens[left : left + 50] and allowed(grammar) == {tokens[left]}
        assert not grammar.accept(tokens[left] ^ 1) and grammar.forced()[0] == tokens[left]
        grammar.rollback(left)


def iter_forced(grammar: LLGuidanceGrammar) -> Any:
    while forced := grammar.forced():
        yield from forced
        assert all(map(grammar.accept, forced))


class Found:
    """A matcher of xgrammar that counts how much forced text it finds."""

    def __init__(self, matcher: Any, counts: Counter[str]) -> None:
        self._matcher, self.counts = matcher, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._matcher, name)

    def fork(self) -> "Found":
        return Found(self._matcher.fork(), self.counts)

    def find_jump_forward_string(self) -> str:
        found: str = self._matcher.find_jump_forward_string()
        self.counts["bytes"] += len(found.encode())
        return found


def xgrammar_of(text: str) -> XGrammarGrammar:
    made = compiled("xgrammar", ConstraintKind.EBNF, text).start()
    assert isinstance(made, XGrammarGrammar)
    return made


@pytest.mark.parametrize("name", TEXTS)
def test_xgrammar_finds_a_long_text_once(name: str) -> None:
    text = TEXTS[name].replace("\t", " ")[:20_000]
    grammar, counts, left = xgrammar_of(f'root ::= [bc] "{text}" [0-9]'), Counter[str](), text.encode()
    grammar._matcher = Found(grammar._matcher, counts)  # type: ignore[assignment]
    assert grammar.forced_text() == b"" and grammar.accept(ids_of("b")[0])
    ids = ids_of(text)
    for begin in range(0, len(ids), 100):
        assert grammar.forced_text() == left[:MAX_FORCED_BYTES]
        for token in ids[begin : begin + 100]:
            assert grammar.accept(token)
            left = left[len(TOKENIZER.token_bytes(token) or b"") :]
    assert left == b"" == grammar.forced_text() and counts["bytes"] == len(text.encode())


@pytest.mark.parametrize("seed", range(8))
def test_xgrammar_knows_what_is_forced_after_tokens_are_taken_back(seed: int) -> None:
    draw, rules = random.Random(seed), 'root ::= ("abcabcab" | "xyzzy") " and so on, " ("1" | "2") root?'
    grammar, output, others = xgrammar_of(rules), list[int](), list[tuple[XGrammarGrammar, list[int]]]()
    letters = [ids_of(each)[0] for each in "abcxyz, 12dnso"] + ids_of("abcabcab and so on, 1xyzzy and so on")
    for _ in range(400):
        act = draw.choice(["accept", "accept", "accept", "look", "look", "back", "fork", "other"])
        if act == "accept" and grammar.accept(token := draw.choice(letters)):
            output.append(token)
        elif act == "back":
            num = draw.randint(0, min(len(output), 5))
            grammar.rollback(num)
            del output[len(output) - num :]
        elif act == "fork":
            others.append((grammar.fork(), [*output]))
        elif act == "other" and others:
            grammar, output = others.pop(draw.randrange(len(others)))
        fresh = xgrammar_of(rules)
        assert all(map(fresh.accept, output))
        if act == "look":
            assert grammar.forced_text() == fresh.forced_text(), output
