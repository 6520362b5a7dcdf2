"""The tokens that an automaton of bytes allows are those that outlines_core itself finds, and those of a plain loop."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from grammar_cases.case import Case
from grammar_cases.regexes import regex_cases
from grammar_cases.schemas import schema_cases
from grammar_cases.vocabularies import bundled as vocabulary
from hypothesis import given
from hypothesis import strategies as st
from outlines_core import Index
from outlines_core import Vocabulary as Pieces
from samples import examples, sampled

from ramet.runtime.grammar import token_trie
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.outlines import END, OutlinesBackend
from ramet.runtime.grammar.token_fsm import TokenFsm
from ramet.runtime.grammar.token_trie import ENDED, NOWHERE, TokenTrie
from ramet.runtime.grammar.vocabulary import TokenTable


def tokens_of(mask: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


@st.composite
def tables(draw: st.DrawFn) -> np.ndarray:
    """Automata that read a few bytes, the first of them at the end alone."""
    num = draw(st.integers(1, 5))
    table = np.full((num, 256), NOWHERE, np.int32)
    for row in table:
        for byte in b"abc\xff":
            row[byte] = draw(st.sampled_from([NOWHERE, *range(num)]))
        row[0] = draw(st.sampled_from([NOWHERE, ENDED]))
    return table


TEXTS = st.lists(st.sampled_from([b"a", b"b", b"c", b"\xff", b"x"]), min_size=1, max_size=5).map(b"".join)


@examples(40, 600)
@given(tables(), st.lists(TEXTS, max_size=12), st.integers(1, 3))
def test_a_token_is_allowed_where_its_bytes_lead_somewhere(table: np.ndarray, texts: list[bytes], at_once: int) -> None:
    pieces = [(3 * token + 1, text) for token, text in enumerate([*texts, END, END])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_trie, "AT_ONCE", at_once * 64)  # so that states are read in several parts
        masks = TokenTrie(pieces, 64).masks(table)
    for state, mask in enumerate(masks):
        assert tokens_of(mask) == {token for token, text in pieces if read(table, state, text) != NOWHERE}


def read(table: np.ndarray, state: int, text: bytes) -> int:
    for byte in text:
        state = int(table[state, byte]) if state >= 0 else NOWHERE
    return state


BACKEND = OutlinesBackend(vocabulary())
TOKENS = TokenTable(vocabulary())
MAX_STATES = 60  # that are compared of a pattern


@cache
def own_vocabulary() -> Pieces:
    """What the library is given for the same tokens."""
    ids = {END: TOKENS.eos_ids}
    for token, piece in TOKENS.texts.items():
        if END not in piece:
            ids.setdefault(piece, []).append(token)
    return Pieces(TOKENS.size, ids)


@pytest.mark.parametrize("part", sampled(range(12), 2))
@pytest.mark.parametrize("cases", [regex_cases, schema_cases])
def test_the_library_allows_the_same_tokens(cases: Callable[..., Iterator[Case]], part: int) -> None:
    compared = 0
    for case in cases(seed=part, count=16):
        with suppress(GrammarError):  # what it refuses other tests look at
            data = BACKEND.prepare(case.constraint, "single-space")
            own = Index(BACKEND.pattern(case.constraint, "single-space"), own_vocabulary())
            compare(own, TokenFsm.from_bytes(data), random.Random(part))
            compared += 1
    assert compared >= 2


def compare(own: Index, fsm: TokenFsm, draw: random.Random) -> None:
    first = own.get_next_state(own.get_initial_state(), TOKENS.eos_ids[0])
    pairs = [(first, 0)]
    for theirs, ours in pairs:  # grows meanwhile
        allowed = own.get_allowed_tokens(theirs)
        assert set(allowed) == tokens_of(fsm.mask(ours))
        for token in draw.sample(allowed, min(len(allowed), 40)):
            reached = own.get_next_state(theirs, token), fsm.step(ours, TOKENS.texts.get(token, END))
            assert (reached[0] in own.get_final_states()) == (reached[1] == ENDED)
            if reached not in pairs and reached[1] != ENDED and len(pairs) < MAX_STATES:
                pairs.append(reached)
