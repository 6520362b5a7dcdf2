"""With --max-itl-ms no step waits for memory of the KV pool."""

from pathlib import Path

import pytest
from tiny_model import make_tiny

from ramet.runtime.config import make_args
from ramet.runtime.engine.runner import ModelRunner


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("max_itl_ms", [None, 50.0])
def test_the_pool_takes_its_memory_at_the_start_where_steps_have_a_bound(
    tmp_path: Path, max_itl_ms: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ramet")
    options = {"model_path": str(make_tiny(tmp_path)), "dtype": "float32", "max_itl_ms": max_itl_ms}
    runner = ModelRunner(make_args(max_total_tokens=100_000, **options), lambda name, seconds: None)
    before, pool_bytes = resident_bytes(), sum(each.nbytes for each in (*runner.pool.keys, *runner.pool.values))
    assert pool_bytes > 20 << 20
    runner.pool.take_memory()
    taken = resident_bytes() - before
    assert taken < pool_bytes / 4 if max_itl_ms else taken > pool_bytes / 2
    named = [line for line in caplog.messages if "filling the KV pool" in line and "--max-total-tokens" in line]
    assert len(named) == (max_itl_ms is not None)
