"""States of rows and snapshots: what they take, to the byte, and what a copy is."""

import pytest
import torch

from ramet.kernels.reference_delta import DeltaShape
from ramet.runtime.cache.state_pool import StatePool, bytes_per_state

SHAPE = DeltaShape(key_heads=2, value_heads=4, key=16, value=24, taps=4)
LAYERS = (SHAPE, None, SHAPE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_place_takes_what_the_plan_counts(dtype: torch.dtype) -> None:
    pool = StatePool(LAYERS, max_running=3, num_snapshots=5, dtype=dtype, device=torch.device("cpu"))
    channels = 2 * 2 * 16 + 4 * 24
    of_layer = channels * 3 * dtype.itemsize + 4 * 16 * 24 * 4
    assert bytes_per_state(LAYERS, dtype) == 2 * of_layer
    assert pool.nbytes == (3 + 1 + 5) * 2 * of_layer


def test_a_copy_is_of_every_layer_and_of_nothing_else() -> None:
    pool = StatePool(LAYERS, max_running=1, num_snapshots=1, dtype=torch.float32, device=torch.device("cpu"))
    kept = [states for states in pool.layers if states is not None]
    for number, states in enumerate(kept, 1):
        states.last[1], states.matrix[1] = number, -number
    pool.copy(1, 2)
    for number, states in enumerate(kept, 1):
        assert (states.last[2] == number).all() and (states.matrix[2] == -number).all()
        assert not states.last[0].any() and not states.matrix[0].any()
