"""A token automaton is what its transitions say, in one piece of bytes as well."""

import numpy as np
import pytest

from ramet.runtime.grammar import token_fsm
from ramet.runtime.grammar.token_fsm import ENDED, TokenFsm, explore

MOVES = {10: {5: 20, 3: 10, 64: 30}, 20: {0: 99, 1: 10}, 30: {2: 98}, 40: {1: 10}}  # state -> token -> state
ENDS = (98, 99)


@pytest.fixture(params=["built", "read"])
def fsm(request):
    def moves(state):
        return np.array(list(MOVES[state]), np.int32), np.array(list(MOVES[state].values()), np.int32)

    built = explore(10, moves, ENDS)
    return built if request.param == "built" else TokenFsm.from_bytes(memoryview(built.to_bytes()))


def test_its_transitions_are_those_of_the_states_that_can_be_reached(fsm):
    numbers, states = {10: 0, **dict.fromkeys(ENDS, ENDED)}, [10]
    for state in states:
        assert fsm.tokens(numbers[state]).tolist() == sorted(MOVES[state])
        for token, reached in MOVES[state].items():
            after = fsm.step(numbers[state], token)
            if reached not in numbers:
                numbers[reached] = after
                states.append(reached)
            assert after == numbers[reached]
    assert set(numbers) == {10, 20, 30, *ENDS} and len(set(numbers.values())) == 4


@pytest.mark.parametrize("token", [-1, 0, 4, 6, 63, 65, 1 << 20])
def test_other_tokens_lead_nowhere(fsm, token):
    assert fsm.step(0, token) is None
    assert fsm.step(ENDED, token) is None


def test_a_mask_has_a_bit_for_each_token(fsm):
    mask = fsm.mask(0, 3)
    assert mask.dtype == np.int32 and mask.tolist() == [1 << 3 | 1 << 5, 0, 1]
    assert fsm.mask(ENDED, 3).tolist() == [0, 0, 0]
    assert fsm.mask(0, 3) is mask


def test_it_keeps_few_masks(fsm, monkeypatch):
    monkeypatch.setattr(token_fsm, "KEPT_MASKS", 2)
    first, second = fsm.mask(0, 3), fsm.mask(1, 3)
    assert fsm.mask(0, 3) is first
    assert fsm.mask(2, 3) is not None  # the second one was asked for longest ago
    assert fsm.mask(0, 3) is first
    assert fsm.mask(1, 3) is not second and fsm.mask(1, 3).tolist() == second.tolist()


def test_it_counts_its_memory(fsm):
    assert fsm.num_bytes >= len(fsm.to_bytes()) - 4
