"""The memory plan: pure numbers, and a table that names the flags."""

import logging
from dataclasses import replace

import pytest
import torch

from ramet.runtime.cache.pool import KVPool, KVShape
from ramet.runtime.engine.devices.choice import choose_threads
from ramet.runtime.engine.memory import CUDA_SHARE, Needs, default_share, plan_memory
from ramet.runtime.errors import ConfigError
from ramet.runtime.machine import usable_cores

MIB, GIB = 1 << 20, 1 << 30
NEEDS = Needs(
    weights=100 * MIB, bytes_per_token=1024, max_running=256, context_length=4096, page_size=1, activations=10 * MIB
)


def test_weights_and_pool_share_what_is_given() -> None:
    plan = plan_memory(NEEDS, available=1000 * MIB, share=0.4)
    assert plan.max_total_tokens == 300 * 1024 - 1  # 300 MiB of 1 KiB tokens, one page of padding


@pytest.mark.parametrize(("max_running", "contexts"), [(2, 256), (256, 256), (512, 512)])
def test_the_pool_is_never_larger_than_so_many_requests_need(max_running: int, contexts: int) -> None:
    plan = plan_memory(replace(NEEDS, max_running=max_running, context_length=256), available=1000 * MIB, share=0.4)
    assert plan.max_total_tokens == contexts * 256


def test_few_running_requests_leave_the_pool_to_prefixes() -> None:
    plan = plan_memory(replace(NEEDS, max_running=2), available=1000 * MIB, share=0.4)
    assert (
        plan.max_total_tokens == plan_memory(NEEDS, available=1000 * MIB, share=0.4).max_total_tokens == 300 * 1024 - 1
    )


def test_a_pool_that_is_filled_at_the_start_holds_those_that_may_run() -> None:
    plan = plan_memory(replace(NEEDS, max_running=2, is_filled=True), available=1000 * MIB, share=0.4)
    assert plan.max_total_tokens == 2 * 4096


def test_whole_pages_only() -> None:
    plan = plan_memory(replace(NEEDS, page_size=16, max_total_tokens=1000), available=1000 * MIB, share=0.4)
    assert plan.max_total_tokens == 992


def test_a_pool_smaller_than_the_context_bounds_it() -> None:
    assert plan_memory(replace(NEEDS, max_total_tokens=100), 1000 * MIB, 0.4).context_length == 100
    assert plan_memory(NEEDS, 1000 * MIB, 0.4).context_length == 4096


def test_rows_add_up_to_what_is_available() -> None:
    plan = plan_memory(NEEDS, available=1000 * MIB, share=0.4)
    assert sum(size for _, size, _ in plan.rows) == 1000 * MIB
    assert all(flag.startswith("--") for _, _, flag in plan.rows)
    for word in ("weights", "KV pool", "slot table", "activations", "penalty counts", "reserve", "--max-total-tokens"):
        assert word in plan.table()


def test_a_pool_that_the_system_does_not_give_is_refused_with_its_flags() -> None:
    sizes = {"max_total_tokens": 1 << 40, "page_size": 1, "layers": [KVShape.of(1, 64)]}
    with pytest.raises(ConfigError, match=r"no room.* lower --max-total-tokens or --mem-fraction-static"):
        KVPool(**sizes, dtype=torch.float32, device=torch.device("cpu"))


def test_too_many_tokens_are_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"--max-total-tokens 2000000 needs 1\.91 GiB.*1000\.00 MiB are available"):
        plan_memory(replace(NEEDS, max_total_tokens=2_000_000), available=1000 * MIB, share=0.4)


def test_weights_that_leave_no_room_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"the model takes 100\.00 MiB of 200\.00 MiB"):
        plan_memory(NEEDS, available=200 * MIB, share=0.4)


def test_by_default_the_pool_of_a_cpu_has_its_share_of_what_the_weights_leave() -> None:
    """An 8B model in two bytes starts with 30 GiB free."""
    needs = replace(NEEDS, weights=15 * GIB, max_running=256)
    share = default_share(needs.weights, 30 * GIB, shared=True)
    assert plan_memory(needs, 30 * GIB, share).max_total_tokens == pytest.approx(256 * 4096)
    assert plan_memory(replace(needs, max_running=4096), 30 * GIB, share).max_total_tokens == pytest.approx(
        6 << 20, abs=2
    )
    assert default_share(15 * GIB, 30 * GIB, shared=False) == CUDA_SHARE
    with pytest.raises(ConfigError, match="no room for a KV pool"):
        plan_memory(replace(needs, weights=31 * GIB), 30 * GIB, default_share(31 * GIB, 30 * GIB, shared=True))


def test_a_small_model_runs_on_one_thread() -> None:
    assert choose_threads(None, 2 * MIB, None) == choose_threads(None, 2 * MIB, (0, 1)) == 1
    assert choose_threads(None, 200 * MIB, None) == usable_cores()
    assert choose_threads(None, 200 * MIB, (0,)) == 1


def test_more_threads_than_cores_are_allowed_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ramet"):
        assert choose_threads(1, 200 * MIB, (0,)) == 1 and not caplog.messages
        assert choose_threads(2, 200 * MIB, (0,)) == 2
    assert "--num-threads is 2, of 1 core:" in caplog.text
