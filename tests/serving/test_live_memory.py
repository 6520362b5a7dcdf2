"""A real server gives its memory back: its scheduler's process is small meanwhile, and who waits gets an output."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
from live import Live
from tiny_model import make_tiny

BODY = {"input_ids": [5, 9, 200, 31], "sampling_params": {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}}
RELEASE, RESUME = "/release_memory_occupation", "/resume_memory_occupation"


def test_a_server_gives_its_memory_back_and_takes_it_again_also_when_it_ends(tmp_path: Path) -> None:
    folder = make_tiny(tmp_path / "m", hidden=512, intermediate=2048, vocab=8192, tied=False)
    options = {"model_path": folder, "weights_cache_gb": 0, "max_total_tokens": 4096, "drain_timeout_s": 20}
    with Live(**options) as live, ThreadPoolExecutor(4) as pool:
        scheduler = live.children()["scheduler"]
        expected = live.generate(**BODY).json()["output_ids"]
        weight_bytes = (folder / "model.safetensors").stat().st_size
        before = scheduler.memory_info().rss
        assert post(live, RELEASE).json() is None
        assert before - scheduler.memory_info().rss > 0.8 * weight_bytes > 40 << 20
        assert requests.get(live.url + "/health", timeout=10).status_code == 200
        assert requests.get(live.url + "/ready", timeout=10).status_code == 503
        call = waiting(live, pool)
        assert post(live, RESUME).status_code == 200
        assert call.result().json()["output_ids"] == expected
        for seconds in (0.001, None):
            assert (
                requests.post(live.url + "/slow_down", json={"forward_sleep_time": seconds}, timeout=10).json() is None
            )
            assert live.generate(**BODY).json()["output_ids"] == expected
        assert post(live, RELEASE).status_code == 200
        call = waiting(live, pool)
        assert live.stop() == 0
        assert call.result().json()["output_ids"] == expected


def post(live: Live, path: str) -> requests.Response:
    return requests.post(live.url + path, timeout=30)


def waiting(live: Live, pool: ThreadPoolExecutor) -> Any:
    call = pool.submit(lambda: live.generate(**BODY, rid="job"))
    while not live.state()["waiting_requests"]:
        pass
    where = requests.get(live.url + "/v1/requests/job", timeout=10).json()
    assert where["reason"] == "memory is released: waits for /resume_memory_occupation"
    return call
