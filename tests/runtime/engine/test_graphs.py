"""Prepared decode steps: what is replayed is what is computed, padded or not, and what cannot be replayed says so."""

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compiled import compiled_kernels
from hypothesis import given
from hypothesis.strategies import integers
from steps import make_batch
from tiny_families import make_family
from tiny_model import make_tiny

from ramet.kernels.cpu.memory import LINE
from ramet.kernels.cpu.ops import CpuOps
from ramet.kernels.draw_params import DrawParams
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.config import Args, CacheArgs, ExecArgs, ModelArgs, ScheduleArgs
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.devices.cpu import CpuDevice
from ramet.runtime.engine.extras import HiddenRows, PositionOffsets
from ramet.runtime.engine.prepared import StepGraphs, sizes_up_to
from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.sampling.columns import LogprobRow, SamplingColumns
from ramet.runtime.sampling.epilogue import RowBuffer

MAX_ROWS = 24
LENGTHS = np.array([3, 150, 7, 64, 65, 1, 90, 33] * 3)
COMMON = np.arange(200, 300)  # slots of a prefix that every long row has


def start(folder: Path, **execute: Any) -> ModelRunner:
    args = Args(
        model=ModelArgs(model_path=str(folder), context_length=256),
        cache=CacheArgs(max_total_tokens=8192),
        schedule=ScheduleArgs(max_running_requests=MAX_ROWS),
        execute=ExecArgs(num_threads=2, **execute),
    )
    return ModelRunner(args, lambda name, seconds: None)


class Rows:
    """Sequences of some lengths, of which long ones share a prefix, on a runner that has computed all of them."""

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        rng = np.random.RandomState(0)
        shared = rng.randint(5, 250, len(COMMON))
        self.tokens, self.slots = {}, {}
        for row in range(1, MAX_ROWS + 1):
            own, slots = rng.randint(5, 250, 200), 1000 + 200 * row + np.arange(200)
            if LENGTHS[row - 1] > len(COMMON):
                own[: len(COMMON)], slots[: len(COMMON)] = shared, COMMON
            self.tokens[row], self.slots[row] = own, slots
        for row in range(1, MAX_ROWS + 1):
            self.runner.forward(self.batch([(row, 0, int(LENGTHS[row - 1]))]))

    def batch(self, parts: list[tuple[int, int, int]], **more: Any) -> Batch:
        return replace(make_batch(parts, self.tokens, self.slots), **more)

    def decoding(self, num: int, first: int = 1, **more: Any) -> Batch:
        rows = range(first, first + num)
        return self.batch([(row, int(LENGTHS[row - 1]), int(LENGTHS[row - 1]) + 1) for row in rows], **more)

    def logits(self, batch: Batch) -> torch.Tensor:
        graphs = self.runner._graphs
        if graphs is None or not graphs.covers(batch):
            drawn = self.runner.forward(batch).drawn()
            assert drawn is not None
            return drawn
        self.runner._run_commands(batch)
        begun = graphs.begin(batch, draws=False)
        assert begun is not None
        return begun.logits().clone()


@pytest.fixture(scope="module", params=["llama", "gemma2", "gemma3", "qwen3"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Rows, Rows]:
    """The same model with and without prepared steps."""
    compiled_kernels()
    folder = tmp_path_factory.mktemp("model")
    folder = make_tiny(folder) if request.param == "llama" else make_family(folder, request.param)
    return Rows(start(folder)), Rows(start(folder, disable_cuda_graph=True))


@pytest.mark.parametrize("num", [1, 2, 15, 16, 17, 18, 21, 24])
def test_a_replayed_step_computes_what_a_plain_one_does(both: tuple[Rows, Rows], num: int) -> None:
    replayed, plain = both
    for first in {1, MAX_ROWS - num + 1}:  # the second time, for sure, it is a replay
        batch = replayed.decoding(num, first)
        replayed.logits(batch)
        assert torch.equal(replayed.logits(batch), plain.logits(plain.decoding(num, first)))


def test_a_replay_after_other_steps_and_larger_ones(both: tuple[Rows, Rows]) -> None:
    replayed, plain = both
    for num, first in ((5, 1), (20, 3), (5, 7), (1, 2), (20, 5), (5, 1)):
        for rows in both:  # its keys are computed in another number of queries than before, which rounds in another way
            rows.runner.forward(rows.batch([(9, 0, 40)]))  # a step that is no decode step plans attention anew
        assert torch.equal(replayed.logits(replayed.decoding(num, first)), plain.logits(plain.decoding(num, first)))


def test_rows_with_parallel_contexts_are_replayed_at_their_positions(both: tuple[Rows, Rows]) -> None:
    replayed, plain = both
    shifts = np.array([0, 30, 2], np.int32)
    for rows in both:
        rows.logits(rows.decoding(3))
    shifted = replayed.logits(replayed.decoding(3, inputs=(PositionOffsets(shifts),)))
    assert torch.equal(shifted, plain.logits(plain.decoding(3, inputs=(PositionOffsets(shifts),))))
    assert not torch.equal(shifted[1], replayed.logits(replayed.decoding(3))[1])


def test_a_relayed_row_reads_what_it_drew_last(both: tuple[Rows, Rows]) -> None:
    found = []
    for rows in both:
        rows.runner.launch(rows.decoding(4)).result()
        following = rows.batch([(row, int(LENGTHS[row - 1]) + 1, int(LENGTHS[row - 1]) + 2) for row in range(1, 5)])
        known = rows.logits(following)
        rows.runner.launch(rows.decoding(4)).result()
        unknown = replace(following, token_ids=np.zeros(4, np.int32), relayed=np.array([1, 3], np.int32))
        found += [known, rows.logits(unknown)]
    replayed_known, replayed, plain_known, plain = found
    assert torch.equal(replayed_known, plain_known) and torch.equal(replayed, plain)


def sampling_of(num: int, seed: int, **more: Any) -> SamplingColumns:
    rng = np.random.default_rng(seed)
    params = DrawParams(
        rng.choice([0.0, 0.7, 1.5], num).astype(np.float32),
        rng.choice([0, 3, 40], num),
        rng.choice([1.0, 0.8], num).astype(np.float32),
        rng.choice([0.0, 0.05], num).astype(np.float32),
        rng.integers(0, 1 << 64, num, dtype=np.uint64),
    )
    return SamplingColumns(params, rng.integers(0, 500, num), **more)


def test_a_replayed_step_draws_what_a_plain_one_does(both: tuple[Rows, Rows]) -> None:
    """Every row by its own parameters, whatever the steps before it drew by; what needs more than a draw as well."""
    replayed, plain = both
    logprobs = {"logprobs": (LogprobRow(1, 2, np.zeros(0, np.int32)),)}
    for seed, (num, more) in enumerate([(20, {}), (21, {}), (3, {}), (20, {}), (20, logprobs), (20, {}), (3, {})]):
        first = sampling_of(num, seed, **more)
        then = replace(first, positions=first.positions + 1)  # shares its other columns, as steps do
        for sampling in (first, then):
            results = [rows.runner.launch(rows.decoding(num, sampling=sampling)).result() for rows in both]
            assert np.array_equal(results[0].tokens, results[1].tokens) and not results[0].broken
            for ours, theirs in zip(results[0].drawn_logprobs, results[1].drawn_logprobs, strict=True):
                assert np.array_equal(ours.values, theirs.values)
            ours, theirs = replayed.runner._row_buffer, plain.runner._row_buffer
            assert torch.equal(ours.next_ids[1 : num + 1], theirs.next_ids[1 : num + 1])
            assert torch.equal(ours.lengths[1 : num + 1], theirs.lengths[1 : num + 1])


def test_steps_begun_behind_one_another_keep_their_results(both: tuple[Rows, Rows]) -> None:
    replayed, plain = both
    for sizes in ((3, 3, 3, 3), (24, 24, 3, 24), (3, 24, 20, 3)):
        samplings = [sampling_of(num, seed) for seed, num in enumerate(sizes)]
        launched, wanted = [], []
        for at, (num, sampling) in enumerate(zip(sizes, samplings, strict=True), 1):
            first = min(at, MAX_ROWS + 1 - num)
            launched.append(replayed.runner.launch(replayed.decoding(num, first, sampling=sampling)))
            wanted.append(plain.runner.launch(plain.decoding(num, first, sampling=sampling)).result().tokens)
        assert all(step.runs for step in launched)
        for step, tokens in zip(launched, wanted, strict=True):
            assert np.array_equal(step.result().tokens, tokens)
            assert not step.runs


def test_a_step_that_the_host_draws_from_is_done_before_the_next_one_begins(both: tuple[Rows, Rows]) -> None:
    replayed, plain = both
    logprobs = LogprobRow(1, 2, np.zeros(0, np.int32))
    samplings = sampling_of(3, 1), sampling_of(3, 2, logprobs=(logprobs,)), sampling_of(3, 3)
    steps = [replayed.runner.launch(replayed.decoding(3, at, sampling=each)) for at, each in enumerate(samplings, 1)]
    assert [step.runs for step in steps] == [True, False, True]
    for at, (step, sampling) in enumerate(zip(steps, samplings, strict=True), 1):
        assert np.array_equal(
            step.result().tokens, plain.runner.launch(plain.decoding(3, at, sampling=sampling)).result().tokens
        )


def test_a_step_that_is_not_prepared_is_computed_when_it_is_asked_for(both: tuple[Rows, Rows]) -> None:
    replayed, plain = both
    batches = [rows.batch([(1, 2, 3), (2, 20, 30)]) for rows in both]
    computed = replayed.runner.launch(batches[0])
    assert not computed.runs
    following = replayed.runner.launch(replayed.decoding(5, 3))  # which asks for the one before
    assert np.array_equal(computed.result().tokens, plain.runner.launch(batches[1]).result().tokens)
    assert np.array_equal(following.result().tokens, plain.runner.launch(plain.decoding(5, 3)).result().tokens)


def test_a_replayed_step_says_how_long_it_was_computed_whenever_it_is_asked_for(both: tuple[Rows, Rows]) -> None:
    runner, waited_s, told = both[0].runner, 0.05, []
    for _ in range(21):
        launched = runner.launch(both[0].decoding(24))
        time.sleep(waited_s)
        told.append(launched.result().phases["forward"])
    assert 0 < min(told) < waited_s  # a step that was computed in less, as any of so few rows is once in 21 times


def test_closing_waits_for_the_step_that_runs(both: tuple[Rows, Rows]) -> None:
    replayed, plain = both
    launched = replayed.runner.launch(replayed.decoding(24))
    replayed.runner.close()
    assert np.array_equal(launched.result().tokens, plain.runner.launch(plain.decoding(24)).result().tokens)


def test_steps_of_fewer_rows_or_tokens_take_no_memory_of_their_own(tmp_path: Path) -> None:
    runner = start(make_tiny(tmp_path))
    rows = Rows(runner)
    assert isinstance(runner.device.ops, CpuOps)
    arenas = runner.device.ops._arena, runner.device.ops._tape_arena

    def prompt(tokens: int) -> None:
        runner.launch(rows.batch([(1, 0, tokens)])).result()

    def decoding(num: int) -> None:
        runner.launch(rows.decoding(num)).result()

    prompt(200)
    decoding(MAX_ROWS)
    of_largest = [arena.num_bytes for arena in arenas]
    for num in range(1, MAX_ROWS):
        decoding(num)
        prompt(8 * num)
    assert runner._graphs is not None and runner._graphs.num_prepared == len(sizes_up_to(MAX_ROWS))
    kept = runner._graphs.num_prepared * 2 * LINE  # tokens, and which logits are finite
    assert arenas[0].num_bytes == of_largest[0] and arenas[1].num_bytes <= of_largest[1] + kept


def test_what_asks_for_more_than_logits_is_no_replay(both: tuple[Rows, Rows]) -> None:
    replayed, _ = both
    graphs = replayed.runner._graphs
    assert graphs is not None and graphs.covers(replayed.decoding(3))
    hidden = replayed.decoding(3, asks=(HiddenRows(0, 1),), only_decodes=False)
    for batch in (
        hidden,
        replayed.batch([(1, 3, 4), (2, 20, 30)]),
        make_batch([(1, 3, 4)], replayed.tokens, replayed.slots, []),
    ):
        assert not graphs.covers(batch)


@given(integers(1, 600))
def test_sizes_reach_the_largest_and_padding_stays_small(most: int) -> None:
    sizes = sizes_up_to(most)
    assert sizes == sorted(set(sizes)) and sizes[-1] == most and sizes[0] == 1
    for num in range(1, most + 1):
        assert min(size for size in sizes if size >= num) <= max(num + 3, num * 1.2)


def test_a_forward_pass_that_calls_torch_is_not_prepared(caplog: pytest.LogCaptureFixture) -> None:
    ops = compiled_kernels()
    weight, table = torch.randn(7, 16), torch.zeros((3, 8), dtype=torch.int32)

    def forward(inputs: ForwardInputs) -> torch.Tensor:
        return ops.gather(weight, inputs.token_ids, 1.0) + 1

    row_buffer = RowBuffer(3, torch.device("cpu"))
    device = CpuDevice()
    device.start(2)
    epilogue = device.epilogue(1, row_buffer, 7, device.torch, device.ops)
    graphs = StepGraphs(device, forward, epilogue, row_buffer, table, 4)
    batch = make_batch([(1, 0, 1)], {1: np.zeros(1, int)}, {1: np.zeros(1, int)})
    with caplog.at_level(logging.WARNING, "ramet"):
        assert graphs.covers(batch) and graphs.begin(batch, draws=True) is None
    assert "aten::add" in caplog.text and not graphs.covers(batch)
