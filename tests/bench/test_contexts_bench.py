"""bench/contexts.py sends the same documents both ways, and counts what each way computes."""

from argparse import Namespace
from pathlib import Path

import pytest

from ramet.bench.contexts import QUESTION, measure, operations
from ramet.bench.loads import SHAPE

TINY = SHAPE | {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
                "intermediate_size": 64}  # fmt: skip


def test_contexts_are_cached_in_another_order_and_a_sequence_is_not(tmp_path: Path):
    record = measure(tmp_path, Namespace(documents=3, tokens=40, rounds=2, num_threads=1), TINY)
    assert all(len(values) == 2 for values in record["seconds"].values())
    assert record["cached_tokens"] == {
        "new contexts": 0,
        "new sequence": 0,
        "turned contexts": QUESTION + 3 * 40,
        "turned sequence": QUESTION,
    }


def test_operations_are_those_of_every_pair_that_is_seen():
    apart, whole = (operations(SHAPE, side, 2, 1200) for side in ("contexts", "sequence"))
    each = 4 * 12 * 768 / 1e9  # of a pair, in every layer
    skipped = 1200 * 1200  # each token of the second document and each of the first
    tokens = 2 * 1200 + 2 * QUESTION
    assert whole["attention"] == pytest.approx(each * tokens * (tokens + 1) / 2, abs=0.1)
    assert whole["attention"] - apart["attention"] == pytest.approx(each * skipped, abs=0.2)
    assert whole["all"] - apart["all"] == pytest.approx(each * skipped, abs=0.2)
