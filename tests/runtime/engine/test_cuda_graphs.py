"""Steps of a GPU, recorded and replayed: kernels in the interpreter, on a device that records."""

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from recording_device import CUDA, recording_device
from toy_gpu_model import LENGTHS, ROWS, Toy

from ramet.kernels.draw_params import neutral
from ramet.runtime.engine.inputs import place
from ramet.runtime.engine.prepared import few_sizes_up_to, prepare_all
from ramet.runtime.sampling.columns import Penalties, PenaltyReset, SamplingColumns


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch, recording_device(monkeypatch), torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def both() -> tuple[Toy, Toy]:
    return Toy(), Toy()


@pytest.mark.parametrize("num", [1, 3, 12])
def test_a_replayed_step_computes_what_a_plain_one_does(both: tuple[Toy, Toy], num: int) -> None:
    replayed, plain = both
    first = ROWS - num + 1
    expected = plain.plain(plain.decoding(num, first))
    for _ in range(2):  # the second time, for sure, it is a replay
        found = replayed.replayed(replayed.decoding(num, first))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_second_plan_attends_for_rows_that_draw_alone() -> None:
    """As a model's last layer does: keys and values are there by then."""
    toy = Toy()
    batch = toy.batch([(1, 3, 10), (2, 40, 41), (4, 33, 34), (5, 17, 30)], draws=np.array([0, 1, 3], np.int32))
    of_all = toy.plain(batch)
    inputs = place(batch, toy.table, toy.row_buffer, CUDA)
    wanted = inputs.drawing(batch.draws)
    toy.attention.plan(wanted)
    torch.testing.assert_close(toy.forward(wanted), of_all, rtol=1e-5, atol=1e-5)


def test_a_relayed_row_reads_what_it_drew_last(both: tuple[Toy, Toy]) -> None:
    """Four steps behind one another, of which the host knows no token; the plain ones read what was drawn."""
    replayed, plain = both
    rows = np.arange(4, dtype=np.int32)
    expected, found = [plain.drawn_plainly(plain.decoding(4, 2))], [replayed.replayed(replayed.decoding(4, 2), True)]
    for later in range(1, 4):
        for row, token in enumerate(expected[-1], 2):
            plain.tokens[row] = plain.tokens[row].copy()
            plain.tokens[row][LENGTHS[row - 1] + later] = token
        expected.append(plain.drawn_plainly(plain.decoding(4, 2, later)))
        unknown = replayed.decoding(4, 2, later, relayed=rows)
        found.append(replayed.replayed(replace(unknown, token_ids=np.zeros(4, np.int32)), True))
    assert found == expected


def test_drawn_and_penalised_as_plain_steps_are(both: tuple[Toy, Toy]) -> None:
    replayed, plain = both
    rng, num = np.random.default_rng(5), 4
    penalties = Penalties(
        rows=np.array([1, 3], np.int32), slots=np.array([3, 1], np.int32), frequency=np.array([0.7, 0.1], np.float32),
        presence=np.array([0.3, 2.0], np.float32), repetition=np.array([1.5, 1.0], np.float32),
    )  # fmt: skip
    resets = tuple(PenaltyReset(slot, rng.integers(0, 300, 40).astype(np.int32), np.arange(9)) for slot in (1, 3))
    temperature, seeds = rng.choice([0.0, 0.7, 1.5], num).astype(np.float32), rng.integers(0, 1 << 64, num, np.uint64)
    params = replace(neutral(num), temperature=temperature, seeds=seeds)
    sampling = SamplingColumns(params, rng.integers(0, 500, num))
    for columns in (replace(sampling, penalties=penalties), sampling, replace(sampling, penalties=penalties)):
        of = {"sampling": columns, "before": resets}
        expected = plain.drawn_plainly(plain.decoding(num, **of))
        assert replayed.replayed(replayed.decoding(num, **of), draws=True) == expected
        counts = [toy.epilogue._penalties.counts for toy in both]
        assert torch.equal(*counts)


def test_logits_of_a_step_stay_when_the_next_one_is_begun(both: tuple[Toy, Toy]) -> None:
    """Its draw may still look at them, and write there what a mask forbids."""
    replayed, _ = both
    replayed.table.update(replayed.decoding(3), prepared=True)
    first = replayed.graphs.begin(replayed.decoding(3), draws=False)
    assert first is not None
    logits = first.logits()
    kept = logits.clone()
    second = replayed.graphs.begin(replayed.decoding(3, 5), draws=False)
    assert second is not None and torch.equal(logits, kept)
    logits.fill_(-torch.inf)
    assert torch.isfinite(second.logits()).all()


def test_all_are_prepared_the_largest_first(caplog: pytest.LogCaptureFixture) -> None:
    toy = Toy()
    with caplog.at_level(logging.INFO, "ramet"):
        prepare_all(toy.device, toy.graphs, None, 0)
    sizes = list(toy.graphs._prepared)
    assert sizes == few_sizes_up_to(ROWS)[::-1]
    said = f"prepared in .* s, with .* MiB: steps of {len(sizes)} numbers of rows, none with prompts"
    assert re.fullmatch(said, caplog.messages[-1])


@pytest.mark.parametrize("most", [1, 3, 8, 100, 256, 300, 513, 4096])
def test_few_sizes_reach_the_largest(most: int) -> None:
    sizes = few_sizes_up_to(most)
    assert sizes == sorted(set(sizes)) and sizes[-1] == most and sizes[0] == 1
    assert len(sizes) <= 25 + most // 128


def test_sizes_that_cannot_be_captured_are_launched_and_the_others_replayed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    toy, whole = Toy(), torch.cuda.graph
    sizes = few_sizes_up_to(ROWS)

    def graph(*args: Any, **kwargs: Any) -> Any:
        if toy.graphs.num_prepared == len(sizes) - 2:
            raise RuntimeError("no more graphs")
        return whole(*args, **kwargs)

    monkeypatch.setattr(torch.cuda, "graph", graph)
    with caplog.at_level(logging.WARNING, "ramet"):
        toy.graphs.prepare_all()
    assert f"steps of {sizes[1]} rows are not prepared, which costs time: CUDA captures no graph" in caplog.text
    assert toy.graphs.num_prepared == len(sizes) - 2 and toy.graphs.max_rows == ROWS
    begun = toy.graphs.begin(toy.decoding(1), True)  # by one with more rows
    assert begun is not None and len(begun.drawn()[0]) == 1


def test_too_little_memory_for_a_graph_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy()

    def graph(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.cuda, "graph", graph)
    with pytest.raises(torch.OutOfMemoryError):
        toy.graphs.prepare_all()
