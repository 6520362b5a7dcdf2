"""An automaton of bytes and its masks are what they say, in one piece of bytes as well."""

import numpy as np
import pytest

from ramet.runtime.grammar.base import MAX_FORCED_BYTES
from ramet.runtime.grammar.token_fsm import TokenFsm
from ramet.runtime.grammar.token_trie import ENDED, NOWHERE, TokenTrie

PIECES = [(3, b"a"), (5, b"ab"), (64, b"b"), (1, b"c"), (9, b"\0"), (10, b"\0"), (30, b"bb"), (31, b"ba")]
MOVES = [{"a": 1, "b": 2}, {"b": 2}, {"\0": ENDED, "b": 0}]  # (ab|b) b (ab|b) b ...


@pytest.fixture(params=["built", "read"])
def fsm(request: pytest.FixtureRequest) -> TokenFsm:
    table = np.full((3, 256), NOWHERE, np.int32)
    for row, moves in zip(table, MOVES, strict=True):
        for character, reached in moves.items():
            row[ord(character)] = reached
    built = TokenFsm(table, TokenTrie(PIECES, 65).masks(table))
    return built if request.param == "built" else TokenFsm.from_bytes(memoryview(built.to_bytes()))


def tokens(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def test_a_mask_has_a_bit_for_each_token_that_leads_somewhere(fsm: TokenFsm):
    assert [tokens(fsm.mask(state)) for state in (0, 1, 2)] == [[3, 5, 30, 64], [30, 64], [9, 10, 30, 31, 64]]
    assert tokens(fsm.mask(ENDED)) == []
    assert fsm.mask(0).dtype == np.int32 and len(fsm.mask(0)) == len(fsm.mask(ENDED)) == 3
    for state in (0, 1, 2, ENDED):
        assert [token for token in range(-40, 200) if fsm.allows(state, token)] == tokens(fsm.mask(state))


@pytest.mark.parametrize(
    ("state", "text", "reached"),
    [
        (0, b"", 0), (0, b"a", 1), (0, b"ab", 2), (0, b"bb", 0), (1, b"a", NOWHERE), (0, b"aab", NOWHERE),
        (2, b"\0", ENDED), (2, b"\0b", NOWHERE), (ENDED, b"", ENDED), (ENDED, b"\0", NOWHERE), (0, b"\xff", NOWHERE),
    ],
)  # fmt: skip
def test_a_text_leads_to_a_state(fsm: TokenFsm, state: int, text: bytes, reached: int):
    assert fsm.step(state, text) == reached


def test_what_leaves_no_choice_is_forced(fsm: TokenFsm):
    assert fsm.forced(1) == b"b"
    assert fsm.forced(0) == fsm.forced(2) == fsm.forced(ENDED) == b""


def test_the_end_is_not_forced_text():
    table = np.full((3, 256), NOWHERE, np.int32)
    table[0, 97], table[1, 98], table[2, 0] = 1, 2, ENDED
    assert TokenFsm(table, TokenTrie(PIECES, 65).masks(table)).forced(0) == b"ab"


def test_of_a_long_text_the_first_bytes_are_forced():
    num = MAX_FORCED_BYTES + 10
    table = np.full((num, 256), NOWHERE, np.int32)
    table[:, 97] = [*range(1, num), ENDED]
    long = TokenFsm(table, TokenTrie(PIECES, 65).masks(table))
    assert long.forced(0) == b"a" * MAX_FORCED_BYTES and long.forced(20) == b"a" * (num - 21)


def test_it_counts_its_memory(fsm: TokenFsm):
    assert fsm.num_bytes == len(fsm.to_bytes()) - 4 == 3 * 1024 + 3 * 12
