"""Every query of the published dashboards and of our own finds data in a Prometheus that scrapes a server."""

import base64
import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import media_files
import pytest
import requests
from dashboards import GATEWAY, QUERIES, filled_in
from live import Live
from prometheus import Prometheus

pytestmark = pytest.mark.operators
ROOT = Path(__file__).resolve().parents[2]
MODEL = "the model"
INTERVAL = "10s"
SEEDS = count()


def text_of(number: int) -> dict[str, Any]:
    """Prompts that share a beginning."""
    return {"text": f"{'a shared beginning ' * 20} {number}"}


def picture_of(number: int) -> dict[str, Any]:
    """A picture that nobody has sent yet."""
    data = base64.b64encode(media_files.picture(media_files.noise(40, 30, seed=next(SEEDS)))).decode()
    return {"text": f"<image>\nQuestion: What color is it? {number}\nAnswer:", "image_data": data}


class Load:
    """Requests, more of them than run at once, while the block lasts."""

    def __init__(self, url: str, prompt: Callable[[int], dict[str, Any]]) -> None:
        self._url, self._prompt, self._stop = url, prompt, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(i,), daemon=True) for i in range(6)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        while not self._stop.is_set():
            body = {**self._prompt(number), "sampling_params": {"max_new_tokens": 16}}
            requests.post(f"{self._url}/generate", json=body, timeout=60).raise_for_status()


@contextmanager
def scraped(folder: Path, prompt: Callable[[int], dict[str, Any]], **args: Any) -> Iterator[Prometheus]:
    """It has scraped a server of these `args` for as long as the queries look back."""
    more = dict(log_level="warning", metrics_compat="sglang,vllm", served_model_name=MODEL, max_running_requests=4)
    with (
        Live(**more, **args) as live,
        Load(live.url, prompt),
        Prometheus(folder, live.url.removeprefix("http://")) as one,
    ):
        one.wait_for(f"count_over_time(up[{INTERVAL}]) >= 12")
        yield one


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraped(tmp_path_factory.mktemp("prometheus"), text_of, runner="scripted", scripted_step_ms=5) as one:
        yield one


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Of a server that takes pictures."""
    with scraped(tmp_path_factory.mktemp("seeing"), picture_of, model_path="bundled:vision", device="cpu") as one:
        yield one


def found(prometheus: Prometheus, query: str) -> list[float]:
    series = prometheus.query(filled_in(query, MODEL, INTERVAL))
    return [float(each["value"][1]) for each in series]


@pytest.mark.parametrize("query", [query for queries in QUERIES.values() for query in queries])
def test_a_published_query_finds_data(prometheus: Prometheus, query: str) -> None:
    values = found(prometheus, query)
    assert values and all(map(math.isfinite, values))


@pytest.mark.parametrize("name", [name for names in GATEWAY.values() for name in names])
def test_the_gateway_finds_a_number(prometheus: Prometheus, name: str) -> None:
    (value,) = found(prometheus, name)
    assert value >= 0


def own_queries() -> list[str]:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / "ramet.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


@pytest.mark.parametrize("query", [query for query in own_queries() if "media" not in query])
def test_a_query_of_our_dashboard_finds_data(prometheus: Prometheus, query: str) -> None:
    values = found(prometheus, query)
    assert values and all(map(math.isfinite, values))


@pytest.mark.parametrize("query", [query for query in own_queries() if "media" in query])
def test_a_query_about_media_finds_data(seeing: Prometheus, query: str) -> None:
    values = found(seeing, query)
    assert values and all(map(math.isfinite, values))


def test_the_variables_of_the_dashboards_have_values(prometheus: Prometheus) -> None:
    assert prometheus.values("model_name") == [MODEL]
    assert len(prometheus.values("instance")) == 1


def test_the_scrapes_had_no_error(prometheus: Prometheus) -> None:
    (target,) = prometheus.targets()
    assert target["health"] == "up" and target["lastError"] == ""


def test_reasons_sum_to_what_waits_in_every_scrape(prometheus: Prometheus) -> None:
    query = "sum(ramet:num_queue_reqs_by_reason) - sum(ramet:num_queue_reqs)"
    assert found(prometheus, query) == [0.0]
    assert max(found(prometheus, f"max_over_time(ramet:num_queue_reqs[{INTERVAL}])")) > 0
