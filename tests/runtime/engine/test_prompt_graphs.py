"""Steps with prompts that a GPU replays: what they compute, which they are, and which sizes are worth it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from happens_before import Race
from recording_device import RecordingDevice, recording_device
from torch import Tensor
from toy_gpu_model import LENGTHS, Toy

from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.devices import prompt_graphs
from ramet.runtime.engine.devices.prompt_graphs import LONGEST, SIZES, PromptGraphs, sizes_up_to
from ramet.runtime.engine.extras import PositionOffsets

SIZE = 40
Parts = list[tuple[int, int, int]]
STEPS: list[Parts] = [
    [(1, 3, 10)],
    [(2, 40, 41), (4, 33, 34), (1, 3, 12), (5, 17, 20)],  # two that decode
    [(3, 0, 7)],
    [(6, 1, 30), (7, 9, 20)],  # one token more than fits
    [(8, 33, 60), (9, 20, 21), (10, 5, 15)],
]


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[RecordingDevice]:
    with pytest.MonkeyPatch.context() as monkeypatch, recording_device(monkeypatch) as made, torch.inference_mode():
        yield made


@pytest.fixture(scope="module")
def toy() -> Toy:
    return Toy()


@pytest.fixture(scope="module")
def plain() -> Toy:
    return Toy()


@pytest.fixture(scope="module")
def made(toy: Toy) -> PromptGraphs:
    return graphs(toy)


def graphs(toy: Toy) -> PromptGraphs:
    def states(inputs: ForwardInputs) -> tuple[Tensor, Tensor]:
        logits = toy.decode(inputs)
        return logits, -logits

    made = toy.device.capture_prompts(states, toy.attention, toy.table.device)
    assert made is not None
    made.prepare(SIZE)
    return made


def states_of(made: PromptGraphs, toy: Toy, batch: Batch) -> Tensor | None:
    found = made.run(toy.placed(batch))
    if found is None:
        return None
    x, residual = (states[: len(batch.token_ids)] for states in found)
    assert torch.equal(x, -residual)
    return x.clone()


def test_steps_of_any_rows_compute_what_plain_ones_do(toy: Toy, plain: Toy, made: PromptGraphs) -> None:
    assert made.sizes == [16, 32, SIZE]
    for parts in STEPS:
        found = states_of(made, toy, toy.batch(parts))
        expected = plain.decode(plain.placed(plain.batch(parts)))
        if len(expected) > SIZE:
            assert found is None
        else:
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_row_reads_what_it_drew_and_its_shifted_position(toy: Toy, plain: Toy, made: PromptGraphs) -> None:
    parts = [(2, 40, 41), (1, 3, 12)]
    for each in (toy, plain):
        each.row_buffer.next_ids[2], each.row_buffer.lengths[2] = 123, 41
    more: dict[str, Any] = dict(relayed=np.array([0], np.int32), inputs=(PositionOffsets(np.array([4, 0], np.int32)),))
    unknown = [replace(each.batch(parts, **more), token_ids=_without_first(each.batch(parts))) for each in (toy, plain)]
    found = states_of(made, toy, unknown[0])
    expected = plain.decode(plain.placed(unknown[1]))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not torch.equal(expected, plain.decode(plain.placed(plain.batch(parts))))


def _without_first(batch: Batch) -> np.ndarray[Any, Any]:
    ids = batch.token_ids.copy()
    ids[0] = 0
    return ids


def test_it_is_replayed(toy: Toy, made: PromptGraphs, device: RecordingDevice) -> None:
    before = device.num_replays
    states_of(made, toy, toy.batch([(1, 3, 10)]))
    assert device.num_replays == before + 1


def test_it_waits_for_tokens_that_are_copied_from_memory_that_it_uses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that was captured later may have its draws where this one has something on the way."""
    toy = Toy()
    prompts = graphs(toy)
    toy.graphs.prepare_all()

    def decode_then_prompt() -> None:
        begun = toy.graphs.begin(toy.decoding(2), True)
        assert begun is not None
        try:
            assert prompts.run(toy.placed(toy.batch([(6, 1, 10)]))) is not None
        finally:
            begun.drawn()

    decode_then_prompt()
    monkeypatch.setattr(prompts, "_precede", lambda: None)
    with pytest.raises(Race, match=r"stream 0 writes in memory .* what stream [1-9] read in aten.copy_"):
        decode_then_prompt()


def test_a_row_that_decodes_far_in_its_context_is_computed_anew(toy: Toy, made: PromptGraphs) -> None:
    inputs = toy.placed(toy.batch([(2, 40, 41), (1, 3, 12)]))
    far = replace(inputs, seq_lens=np.array([LONGEST + 1, 12], np.int32))
    assert made.run(far) is None and made.run(inputs) is not None
    embedded = replace(inputs, embeds=((0, torch.zeros(1, 4)),))
    assert made.run(embedded) is None


def test_more_rows_than_a_graph_has_are_computed_anew(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_graphs, "MAX_ROWS", 2)
    small = graphs(toy)
    parts = [(row, int(LENGTHS[row - 1]), int(LENGTHS[row - 1]) + 2) for row in (1, 2, 3)]
    assert states_of(small, toy, toy.batch(parts)) is None
    assert states_of(small, toy, toy.batch(parts[:2])) is not None


@pytest.mark.parametrize("launches", [0.001, 0.003, 0.1])
def test_sizes_are_worth_it_where_launches_take_longer_than_the_card(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, launches: float
) -> None:
    """The card takes 2 ms and 10 us more for each token; it begins with the first launch."""
    clock, ends = 0.0, 0.0

    def states(inputs: ForwardInputs) -> tuple[Tensor, Tensor]:
        nonlocal clock, ends
        ends = clock + 0.002 + 1e-5 * inputs.num_tokens
        clock += launches
        return inputs.positions, inputs.positions

    def waited(*_: Any) -> None:
        nonlocal clock
        clock = max(clock, ends)

    table = torch.zeros(4, 2 * SIZES[-1], dtype=torch.int32, device="cuda")
    made = toy.device.capture_prompts(states, toy.attention, table)
    assert made is not None
    monkeypatch.setattr(prompt_graphs.time, "perf_counter", lambda: clock)
    monkeypatch.setattr(torch.cuda, "synchronize", waited)
    made.prepare(None)
    assert made.sizes == [size for size in SIZES if 0.002 + 1e-5 * size < 1.2 * launches]


def test_sizes_up_to_the_largest() -> None:
    assert sizes_up_to(0) == [] and sizes_up_to(5) == [5] and sizes_up_to(64) == [16, 32, 64]
    assert sizes_up_to(2000) == [*SIZES[:7], 2000] and sizes_up_to(SIZES[-1]) == [*SIZES]
