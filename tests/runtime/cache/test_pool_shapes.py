"""The pool of a model whose layers keep keys and values of several shapes."""

import torch

from ramet.runtime.cache.pool import KVPool, KVShape, bytes_per_token

LAYERS = [KVShape(2, 24, 16), KVShape(0, 0, 0), KVShape.of(1, 32)]


def test_layers_keep_what_they_ask_for() -> None:
    pool = KVPool(max_total_tokens=12, page_size=4, layers=LAYERS, dtype=torch.float32, device=torch.device("cpu"))
    assert [tuple(keys.shape) for keys in pool.keys] == [(16, 2, 24), (16, 0, 0), (16, 1, 32)]
    assert [tuple(values.shape) for values in pool.values] == [(16, 2, 16), (16, 0, 0), (16, 1, 32)]
    taken = sum(each.nbytes for each in (*pool.keys, *pool.values))
    assert taken == 16 * bytes_per_token(LAYERS, torch.float32) == 16 * 4 * (2 * (24 + 16) + 2 * 32)
    assert pool.shapes == (LAYERS[0], LAYERS[2]) and pool.heads_are == "head sizes 24/16, 32"


def test_slots_of_every_layer_are_copied() -> None:
    pool = KVPool(max_total_tokens=12, page_size=4, layers=LAYERS, dtype=torch.float32, device=torch.device("cpu"))
    for each in (*pool.keys, *pool.values):
        each[5] = torch.rand(each.shape[1:])
    pool.copy(torch.tensor([5], dtype=torch.int32), torch.tensor([9], dtype=torch.int32))
    assert all(torch.equal(each[9], each[5]) for each in (*pool.keys, *pool.values))


def test_memory_is_taken_ahead_in_tensors_of_each_size() -> None:
    large = [KVShape.of(4, 128), KVShape.of(2, 64)]
    pool = KVPool(max_total_tokens=65536, page_size=1, layers=large, dtype=torch.float32, device=torch.device("cpu"))
    first = pool.reach(1)
    assert 1 < first < 65536
    for ahead in pool._ahead:
        if (thread := ahead.thread) is not None:
            thread.join()
    assert pool.reach(first) > first
