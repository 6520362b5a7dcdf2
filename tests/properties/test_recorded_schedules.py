"""The scheduler and a model on a GPU that is none: no access is out of order, and overlap changes nothing.

Random schedules run step after step without graphs, then overlapped with and without them, by the oracles of the
kernels and, some, by the kernels in the interpreter (recording_device.py, oracle_kernels.py). The schedules are those
of test_overlap.py and test_constrained_schedules.py.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from bench_top import BenchTop
from grammars import Grammars
from happens_before import Race
from oracle_kernels import use_oracles
from recording_device import RecordingDevice, recording_device
from schedules import TOKENIZER, Schedule, make_schedule, run, what_clients_see
from test_constrained_schedules import constrained
from tiny_families import make_family
from tiny_model import make_tiny

from ramet.ipc.messages import FinishKind
from ramet.kernels import reference
from ramet.runtime.config import make_args
from ramet.runtime.engine.devices.copies import Copies, Readback
from ramet.runtime.engine.devices.cuda_graphs import GraphReplay
from ramet.runtime.engine.prepared import BegunStep, StepGraphs
from ramet.runtime.engine.runner import ModelRunner

END = 0
NEAR = 1e-4  # rows computed with other neighbours
BOUNDARY = 1e-6  # of the probability of all tokens, between which rows that are so differ
ALL_GRAPHS = {"cuda_graph_max_tokens": 24}
WAYS: list[dict[str, Any]] = [ALL_GRAPHS, {"disable_cuda_graph": True}]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the tokenizer's vocabulary, over which masks are."""
    sizes = dict(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, vocab=TOKENIZER.vocab_size)
    return make_tiny(tmp_path_factory.mktemp("tiny"), **sizes)


@pytest.fixture(scope="module")
def stateful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3.5 with that vocabulary: two layers with states to one that attends."""
    sizes = dict(hidden_size=32, num_hidden_layers=3, intermediate_size=48, linear_num_key_heads=2)
    kinds = ["linear_attention", "full_attention", "linear_attention"]
    folder = tmp_path_factory.mktemp("stateful")
    return make_family(folder, "qwen3.5", vocab_size=TOKENIZER.vocab_size, layer_types=kinds, **sizes)


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(TOKENIZER, frozenset([END]))


class Bench:
    """A scheduler with a model of a recording device. Without grammars it has no tokenizer."""

    def __init__(self, folder: Path, grammars: Grammars | None = None, *, oracles: bool) -> None:
        self._folder, self._grammars, self._oracles = folder, grammars, oracles
        self.on_boundaries: list[tuple[int, int]] = []  # schedule and sequence

    def device(self, monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[RecordingDevice]:
        if self._oracles:
            use_oracles(monkeypatch)
        return recording_device(monkeypatch)

    def play(self, schedule: Schedule, overlap: str, **options: Any) -> tuple[BenchTop, RecordingDevice]:
        with pytest.MonkeyPatch.context() as monkeypatch, self.device(monkeypatch) as device:
            return run(schedule, self.top(overlap, schedule.options, **options)), device

    def top(self, overlap: str, of_scheduler: dict[str, Any], **options: Any) -> BenchTop:
        def runner(total: int, rows: int, context: int, page: int) -> ModelRunner:
            sizes = dict(max_total_tokens=total, max_running_requests=rows, context_length=context, page_size=page)
            args = make_args(
                model_path=str(self._folder), device="cuda", dtype="float32", random_seed=0, **sizes, **options
            )
            return ModelRunner(args, lambda *_: None)

        tokenizer = None if self._grammars is None else TOKENIZER
        return BenchTop(
            tokenizer=tokenizer, grammars=self._grammars, overlap=overlap, runners=(runner, runner), **of_scheduler
        )

    def check(self, seed: int) -> None:
        schedule = constrained(seed)[0] if seed % 2 else make_schedule(seed)
        near = set[tuple[int, int]]()
        with near_draws(near):
            plain, _ = self.play(schedule, "off", disable_cuda_graph=True)
        for way in WAYS:
            overlapped, device = self.play(schedule, "on", **way)
            assert bool(device.num_replays) == (way is ALL_GRAPHS), seed
            assert plain.finish.keys() == overlapped.finish.keys()
            for uid in plain.finish:
                if parted_within(near, plain.tokens[uid], overlapped.tokens[uid]):
                    self.on_boundaries.append((seed, uid))
                else:
                    same(plain, overlapped, uid, seed)
            state = overlapped.reporter.state()
            assert state["leased_tokens"] == state["owned_tokens"] == state["penalty_slots"] == 0, seed


@contextmanager
def near_draws(found: set[tuple[int, int]]) -> Iterator[None]:
    """Adds to `found` the first and last token that a number may mean which is drawn near a boundary.

    A draw compares a number with the probability of all tokens up to each. Rows that are computed with other neighbours
    differ in the last bits, and once in some hundred thousand draws the number lies between both: in schedule 72 it is
    0.44378977, and tokens up to 1883 have 0.44378959 or 0.44378983.
    """
    invert = reference.invert

    def noted(weights: torch.Tensor, random: torch.Tensor) -> torch.Tensor:
        below, above = (invert(weights, (random + by).clamp(0, 1)) for by in (-BOUNDARY, BOUNDARY))
        found.update(pair for pair in zip(below.tolist(), above.tolist(), strict=True) if pair[0] != pair[1])
        return invert(weights, random)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(reference, "invert", noted)
        yield


def parted_within(near: set[tuple[int, int]], one: list[int], other: list[int]) -> bool:
    """Whether the first difference is of two tokens that one number that was drawn may mean."""
    pair = next((pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]), None)
    return pair is not None and any(first <= min(pair) and max(pair) <= last for first, last in near)


def same(plain: BenchTop, overlapped: BenchTop, uid: int, seed: int) -> None:
    one, other = plain.tokens[uid], overlapped.tokens[uid]
    if FinishKind.ABORT in (plain.finish[uid].kind, overlapped.finish[uid].kind):  # it comes when it comes
        shorter = min(len(one), len(other))
        assert one[:shorter] == other[:shorter], (seed, uid)
    else:
        assert_near(what_clients_see(plain, uid), what_clients_see(overlapped, uid), (seed, uid))


def assert_near(one: Any, other: Any, where: tuple[object, ...]) -> None:
    match one:
        case float():
            assert math.isclose(one, other, rel_tol=NEAR, abs_tol=NEAR), (where, one, other)
        case dict():
            assert one.keys() == other.keys(), where
            for name in one:
                assert_near(one[name], other[name], (*where, name))
        case list() | tuple():
            assert len(one) == len(other), where
            for i, (a, b) in enumerate(zip(one, other, strict=True)):
                assert_near(a, b, (*where, i))
        case _:
            assert one == other, (where, one, other)


@pytest.mark.parametrize("seed", [3, 6])
def test_overlapped_steps_of_a_gpu_are_ordered_and_give_what_plain_ones_do(
    folder: Path, grammars: Grammars, seed: int
) -> None:
    bench = Bench(folder, grammars, oracles=True)
    bench.check(seed)
    assert not bench.on_boundaries


@pytest.mark.parametrize("seed", [3, 6])
def test_steps_of_a_model_with_states_are_ordered_and_give_what_plain_ones_do(
    stateful: Path, grammars: Grammars, seed: int
) -> None:
    bench = Bench(stateful, grammars, oracles=True)
    bench.check(seed)
    assert not bench.on_boundaries


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, 1000, 25))
def test_a_thousand_schedules_by_the_oracles(folder: Path, grammars: Grammars, first: int) -> None:
    bench = Bench(folder, grammars, oracles=True)
    for seed in range(first, first + 25):
        bench.check(seed)
    assert len(bench.on_boundaries) <= 1, bench.on_boundaries


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", ["folder", "stateful"])
@pytest.mark.parametrize("seed", range(20))
def test_schedules_by_the_kernels_themselves(
    request: pytest.FixtureRequest, model: str, grammars: Grammars, seed: int
) -> None:
    bench = Bench(request.getfixturevalue(model), grammars, oracles=False)
    bench.check(seed)
    assert not bench.on_boundaries


def one_after_the_other(bench: Bench) -> None:
    """Two requests, overlapped, by graphs."""
    with pytest.MonkeyPatch.context() as monkeypatch, bench.device(monkeypatch) as device:
        top = bench.top("on", dict(total=256, rows=2, context=64))
        before = device.num_replays
        for uid in (1, 2):
            top.add(uid, [uid, 7, 9], 8, temperature=0.5 * (uid - 1))
        top.run()
        assert device.num_replays > before + 2 * 6, "steps are no graphs"


def not_waited(readback: Readback) -> Any:
    return readback._host


def copied_at_once(copies: Copies, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], ended: Any) -> None:
    """Beside what makes the tensors."""
    with torch.cuda.stream(copies._stream):
        for host, device in pairs:
            host.copy_(device, non_blocking=True)
        ended.record()


@pytest.mark.parametrize(
    ("owner", "name", "left_out", "found"),
    [
        (Readback, "wait", not_waited, r"host (reads|writes) in .* what stream \d wrote in aten.copy_"),
        (GraphReplay, "join", lambda *_: None, r"host (reads|writes) in .* what stream \d (wrote|read)"),
        (BegunStep, "join", lambda *_: None, r"host (reads|writes) in .* what stream \d (wrote|read)"),
        (Copies, "begin", copied_at_once, r"stream [1-9] reads in aten.copy_.* what stream 0 wrote"),
        (Copies, "precede", lambda *_: None, r"stream 0 writes in .* what stream [1-9] read in aten.copy_"),
    ],
)
def test_an_event_that_is_left_out_is_found(
    folder: Path, grammars: Grammars, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, left_out: Any, found: str
) -> None:
    bench = Bench(folder, grammars, oracles=True)
    one_after_the_other(bench)
    monkeypatch.setattr(owner, name, left_out)
    with pytest.raises(Race, match=found):
        one_after_the_other(bench)


def test_a_buffer_that_is_written_again_too_early_is_found(
    folder: Path, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both steps that are on their way have one place for their inputs."""
    monkeypatch.setattr(BegunStep, "leave", lambda _: None)
    monkeypatch.setattr(StepGraphs, "_place", property(lambda _: 0, lambda *_: None), raising=False)
    with pytest.raises(Race, match=r"host writes in Columns.fill what stream 0 read in aten.copy_"):
        one_after_the_other(Bench(folder, grammars, oracles=True))
