"""States in the memory plan: how many rows and snapshots there are, and that the table says what is taken."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_families import make_family

from ramet.runtime.cache.state_pool import bytes_per_state
from ramet.runtime.config import make_args
from ramet.runtime.engine.memory import Needs, plan_memory, rows_with_states, snapshots_of
from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.errors import ConfigError

MIB = 1 << 20
NEEDS = Needs(
    weights=100 * MIB, bytes_per_token=1024, max_running=7, context_length=40960, page_size=1, activations=10 * MIB,
    state_bytes=2 * MIB, num_snapshots=12,
)  # fmt: skip


def test_states_come_out_of_what_weights_and_pool_share() -> None:
    plan = plan_memory(NEEDS, available=1000 * MIB, share=0.4)
    assert plan.max_total_tokens == (300 - 2 * (7 + 1 + 12)) * 1024 - 1
    assert sum(size for _, size, _ in plan.rows) == 1000 * MIB
    assert ("7 + 12 states", 40 * MIB, "--max-running-requests, --max-state-snapshots") in plan.rows
    assert "states" not in plan_memory(replace(NEEDS, state_bytes=0), 1000 * MIB, 0.4).table()


def test_states_that_leave_no_room_are_refused_with_their_flags() -> None:
    with pytest.raises(ConfigError, match=r"no room.*500 states of running requests and 12 snapshots take 1\.00 GiB"):
        plan_memory(replace(NEEDS, max_running=500), available=1000 * MIB, share=0.4)


@pytest.mark.parametrize(("room", "rows"), [(1000, 124), (100, 11), (8, 1), (0, 1), (100_000, 256)])
def test_as_many_run_as_a_quarter_of_the_room_has_states_for(room: int, rows: int) -> None:
    assert rows_with_states(256, room * MIB, 2 * MIB) == rows


@pytest.mark.parametrize(
    ("asked", "room", "num"), [(None, 1000, 16), (None, 60, 5), (None, 10, 0), (3, 10, 3), (0, 1000, 0)]
)
def test_two_snapshots_for_each_row_as_far_as_there_is_room(asked: int | None, room: int, num: int) -> None:
    assert snapshots_of(asked, 8, room * MIB, 2 * MIB) == num


def test_a_runner_takes_what_its_plan_says(tmp_path: Path) -> None:
    options = {"max_total_tokens": 256, "max_running_requests": 5, "dtype": "bfloat16", "page_size": 16}
    options |= {"model_path": str(make_family(tmp_path, "qwen3-next")), "max_state_snapshots": 9}
    runner = ModelRunner(make_args(**options), lambda *_: None)
    sizes = {what: size for what, size, _ in runner.plan.rows}
    assert runner.states.nbytes == sizes["5 + 9 states"]
    assert runner.states.nbytes == (5 + 1 + 9) * bytes_per_state(runner.shape.deltas, runner.dtype)
    assert sum(each.nbytes for each in (*runner.pool.keys, *runner.pool.values)) == sizes["KV pool, 256 tokens"]
    with pytest.raises(ConfigError, match="--prefix-cache is list, which copies no states"):
        ModelRunner(make_args(**options, prefix_cache="list"), lambda *_: None)
