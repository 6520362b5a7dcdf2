"""Memory of tensors that is given back to the system: they are zeros, what is beside them is not."""

import pytest
import torch

from ramet.kernels.cpu.memory import HUGE_PAGE, give_back, huge_zeros
from ramet.runtime.cache.pool import KVPool, KVShape


@pytest.mark.parametrize("num", [0, 1, 127, 4096, 65536, 65537, 100_000, 3 << 20])
def test_a_tensor_is_zeros_and_what_lies_beside_it_is_not(num: int) -> None:
    tensors = [huge_zeros((num,), torch.float32) for _ in range(3)]
    for each in tensors:
        each.fill_(7)
    give_back(tensors[1])
    assert not tensors[1].any()
    assert (tensors[0] == 7).all() and (tensors[2] == 7).all()
    tensors[1].fill_(3)
    assert (tensors[1] == 3).all()


def test_memory_that_a_thread_takes_ahead_is_given_back_too_and_taken_again() -> None:
    shape = {"layers": [KVShape.of(2, 64)] * 2, "dtype": torch.float32, "device": torch.device("cpu")}
    pool = KVPool(max_total_tokens=40_000, page_size=1, **shape)
    for _ in range(3):
        first = pool.reach(0)
        assert 0 < first < 40_000
        pool.give_back()
        (ahead,) = pool._ahead
        assert ahead.thread is None and ahead._taken == 0
        assert pool.reach(0) == first
        while ahead.thread is not None:
            pass
        assert ahead._taken >= HUGE_PAGE
        pool.give_back()
