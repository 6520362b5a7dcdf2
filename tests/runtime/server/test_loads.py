"""/v1/loads: what the scheduler said last, in sections, as JSON and for Prometheus; it is not asked for it."""

from typing import Any

import orjson
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from ramet.ipc.control import Control
from ramet.ipc.stats import Stats
from tests.fakes.engine import LIMITS
from tests.fakes.server import Served, served

STATS = Stats(
    running_requests=6, waiting_requests=3, used_tokens=1024, total_tokens=4096, waiting_tokens=700,
    waiting_uncached_tokens=500, prefill_left_tokens=50, retracted_requests=1, compiling_requests=2, prefill_tokens=300,
    cached_tokens=100, leased_tokens=60, owned_tokens=40, last_gen_throughput=12.345, adapters_in_slots=2,
    prefill_seconds=1.5,
)  # fmt: skip
RESOLVED = orjson.dumps({"device": "cpu", "weight_bytes": 1 << 30, "kv_pool_bytes": 1 << 29})
KNOWN = replace(LIMITS, resolved=RESOLVED)


async def load_of(server: Served, query: str = "") -> dict[str, Any]:
    status, reply = await server.get("/v1/loads" + query)
    assert status == 200, reply
    (load,) = reply["loads"]
    return dict(load)


def test_the_numbers_are_those_the_scheduler_said_last() -> None:
    async def check(server: Served) -> None:
        server.engine.tell(STATS)
        load = await load_of(server)
        assert load | {"timestamp": 0} == {
            "timestamp": 0, "dp_rank": 0, "num_running_reqs": 6, "num_waiting_reqs": 3,
            "num_waiting_uncached_tokens": 550, "num_used_tokens": 1024, "num_total_tokens": 1724,
            "num_active_tokens": 100, "max_total_num_tokens": 4096, "max_running_requests": 8, "token_usage": 0.25,
            "gen_throughput": 12.35, "cache_hit_rate": 0.25, "utilization": 0.75,
            "total_prefill_uncached_tokens": 300, "total_prefill_busy_us": 1_500_000,
            "memory": {"weight_gb": 1.0, "kv_cache_gb": 0.5, "graph_gb": 0.0, "token_capacity": 4096},
            "queues": {"waiting": 3, "grammar": 2, "paused": 0, "retracted": 1, "prealloc_ready": 0},
            "lora": {"slots_used": 2, "slots_total": 8, "utilization": 0.25},
            "speculative": None, "disaggregation": None,
        }  # fmt: skip

    served(check, limits=KNOWN)


def test_memory_that_is_released_is_not_counted() -> None:
    async def check(server: Served) -> None:
        assert (await server.post("/release_memory_occupation", {"tags": ["weights"]}))[0] == 200
        memory = (await load_of(server))["memory"]
        assert (memory["weight_gb"], memory["kv_cache_gb"]) == (0.0, 0.5)
        assert (await server.post("/resume_memory_occupation", {}))[0] == 200
        assert (await load_of(server))["memory"]["weight_gb"] == 1.0

    served(check, limits=KNOWN)


def test_a_load_is_dated_by_what_the_scheduler_said() -> None:
    async def check(server: Served) -> None:
        before = (await load_of(server))["timestamp"]
        assert (await load_of(server))["timestamp"] == before
        server.engine.tell(STATS)
        assert (await load_of(server))["timestamp"] >= before

    served(check)


def test_asking_sends_the_engine_nothing() -> None:
    async def check(server: Served) -> None:
        server.engine.auto_answer = False
        await load_of(server)
        assert server.engine.of_type(Control) == []

    served(check)


@pytest.mark.parametrize(
    ("query", "sections"),
    [
        ("?include=core", set()), ("?include=memory,queues", {"memory", "queues"}), ("?include=lora", {"lora"}),
        ("?include=spec&include=disagg", {"speculative", "disaggregation"}),
        ("?include=all,core", {"memory", "queues", "lora", "speculative", "disaggregation"}),
    ],
)  # fmt: skip
def test_only_sections_that_are_asked_for_are_there(query: str, sections: set[str]) -> None:
    async def check(server: Served) -> None:
        load = await load_of(server, query)
        all_sections = {"memory", "queues", "lora", "speculative", "disaggregation"}
        assert load.keys() & all_sections == sections and "num_running_reqs" in load

    served(check)


@pytest.mark.parametrize(
    ("query", "place", "value"),
    [("?include=core,cpu", "include", "'cpu'"), ("?format=xml", "format", "'xml'"), ("?dp_rank=1", "dp_rank", "'1'")],
)
def test_a_wrong_query_is_named(query: str, place: str, value: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.get("/v1/loads" + query)
        assert status == 400 and reply["error"]["param"] == place and value in reply["error"]["message"]

    served(check)


def test_prometheus_reads_the_same_numbers() -> None:
    async def check(server: Served) -> None:
        server.engine.tell(STATS)
        load = await load_of(server)
        async with server.http.get("/v1/loads?format=prometheus&include=core,memory") as response:
            text = await response.text()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        read = {sample.name.removeprefix("ramet:"): sample.value for sample in samples}
        assert all(sample.labels == {"dp_rank": "0"} for sample in samples)
        core = {name: value for name, value in load.items() if isinstance(value, int | float) and name != "dp_rank"}
        assert read == core | {f"memory_{name}": value for name, value in load["memory"].items()}

    served(check, limits=KNOWN)
