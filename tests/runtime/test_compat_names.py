"""Other servers' names: their labels, buckets and values, and that existing dashboards find what they read."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboards import GATEWAY, QUERIES, labels_of, names_of
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_text

from ramet.ipc.stats import STEP_BOUNDS, Stats, WaitKind
from ramet.ipc.times import SequenceTimes
from ramet.runtime.config import make_args
from ramet.runtime.errors import ConfigError
from ramet.runtime.metrics.compat import TABLES, page_of
from ramet.runtime.metrics.names import ModelLabels
from ramet.runtime.metrics.table import DEVICE, OPEN_METRICS, Metrics

MODEL = 'a "quoted" model'
SERVED = ModelLabels(MODEL, 16, 50, 8, frozenset({"b", "a"}), frozenset({"c"}))


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    made = Metrics()
    made.prompt_tokens.add(30)
    made.cached_tokens.add(12, DEVICE)
    made.ended.add(2, "stop")
    made.timing.observe(SequenceTimes(1, 1.0, 1.5, 2.0, 4.0), num_prompt=30, num_new=5)
    made.timing.first_token_s.observe(0.3)
    waiting = ((WaitKind.MEMORY.value, 3), (WaitKind.PREFIX.value, 1))
    sizes = (1, *[0] * len(STEP_BOUNDS))
    made.take(
        Stats(
            running_requests=2, waiting_requests=4, compiling_requests=1, waiting_by_reason=waiting, used_tokens=25,
            total_tokens=100, evictable_tokens=7, step_sizes=sizes, step_tokens=1, retractions=6,
        )
    )  # fmt: skip
    return made


def families(metrics: Metrics, *names: str) -> list[Metric]:
    return list(read_text(page_of(metrics, names, SERVED).render()[0].decode()))


def samples(metrics: Metrics, *names: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families(metrics, *names):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def values(metrics: Metrics, which: str, name: str, label: str) -> dict[str, float]:
    return {labels[label]: value for labels, value in samples(metrics, which)[name]}


def test_without_the_option_there_are_our_names_alone(metrics: Metrics) -> None:
    assert {name.split(":")[0] for name in samples(metrics)} == {"ramet"}


def test_both_can_be_had_together(metrics: Metrics) -> None:
    assert {name.split(":")[0] for name in samples(metrics, "vllm", "sglang")} == {"ramet", "vllm", "sglang"}


def test_an_unknown_server_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigError, match=r"metrics_compat is \['tgi'\].*sglang, vllm"):
        make_args(metrics_compat=["tgi"])
    assert set(make_args(metrics_compat=list(TABLES)).serve.metrics_compat) == set(TABLES)


@pytest.mark.parametrize("which", TABLES)
def test_every_number_has_the_model_s_name(metrics: Metrics, which: str) -> None:
    for family in families(metrics, which):
        for sample in family.samples:
            assert sample.name.startswith("ramet:") or sample.labels["model_name"] == MODEL


@pytest.mark.parametrize("which", TABLES)
def test_a_type_and_a_text_stand_before_each_family(metrics: Metrics, which: str) -> None:
    for family in families(metrics, which):
        assert family.type in ("counter", "gauge", "histogram") and family.documentation
        for sample in family.samples:
            assert sample.name.endswith("_total") or family.type != "counter"


def published(dashboard: str) -> Iterator[tuple[str, str]]:
    return ((dashboard, query) for query in QUERIES[dashboard])


@pytest.mark.parametrize(("which", "query"), [pair for name in QUERIES for pair in published(name)])
def test_a_published_query_finds_its_names_and_labels(metrics: Metrics, which: str, query: str) -> None:
    found = samples(metrics, which)
    for name in names_of(query):
        assert name in found
        for labels, _ in found[name]:
            assert labels_of(query) - {"instance", "le"} <= labels.keys()


@pytest.mark.parametrize(("which", "name"), [(which, name) for which, names in GATEWAY.items() for name in names])
def test_the_gateway_finds_one_number_for_each_of_its_names(metrics: Metrics, which: str, name: str) -> None:
    assert len(samples(metrics, which)[name]) == 1


def test_vllm_s_reasons_sum_to_what_waits(metrics: Metrics) -> None:
    reasons = values(metrics, "vllm", "vllm:num_requests_waiting_by_reason", "reason")
    assert reasons == {"capacity": 3, "deferred": 2}
    assert samples(metrics, "vllm")["vllm:num_requests_waiting"][0][1] == 5


def test_prompt_tokens_by_source_sum_to_prompt_tokens(metrics: Metrics) -> None:
    by_source = values(metrics, "vllm", "vllm:prompt_tokens_by_source_total", "source")
    assert by_source == {"local_compute": 18, "local_cache_hit": 12, "external_kv_transfer": 0}
    assert values(metrics, "sglang", "sglang:cached_tokens_total", "cache_source") == {"device": 12}


def test_every_finish_reason_is_there_from_the_start() -> None:
    ended = values(Metrics(), "vllm", "vllm:request_success_total", "finished_reason")
    assert ended == {"stop": 0, "length": 0, "abort": 0}


@pytest.mark.parametrize(
    ("which", "name", "first"),
    [
        ("vllm", "time_to_first_token_seconds", ["0.001", "0.005", "0.01"]),
        ("sglang", "time_to_first_token_seconds", ["0.1", "0.2", "0.4"]),
        ("vllm", "iteration_tokens_total", ["1", "8", "16"]),
    ],
)
def test_buckets_are_theirs(metrics: Metrics, which: str, name: str, first: list[str]) -> None:
    rows = samples(metrics, which)[f"{which}:{name}_bucket"]
    bounds = [labels["le"] for labels, _ in rows]
    assert bounds[:3] == first and bounds[-1] == "+Inf"
    counts = [value for _, value in rows]
    assert counts == sorted(counts) and counts[-1] == 1


def test_the_times_of_a_sequence_are_those_of_its_stages(metrics: Metrics) -> None:
    found = samples(metrics, "vllm")
    seconds = {name: found[f"vllm:request_{name}_time_seconds_sum"][0][1] for name in ("queue", "prefill", "decode")}
    assert seconds == {"queue": 0.5, "prefill": 0.5, "decode": 2.0}
    assert found["vllm:request_time_per_output_token_seconds_sum"][0][1] == 0.5


def test_the_gateway_finds_adapters_and_the_size_of_the_pool(metrics: Metrics) -> None:
    found = samples(metrics, "vllm")
    ((pool, one),) = found["vllm:cache_config_info"]
    assert (pool["block_size"], pool["num_gpu_blocks"], one) == ("16", "50", 1.0)
    ((adapters, when),) = found["vllm:lora_requests_info"]
    kept = [adapters[name] for name in ("max_lora", "running_lora_adapters", "waiting_lora_adapters")]
    assert kept == ["8", "a,b", "c"] and abs(when - time.time()) < 60


@pytest.mark.parametrize("which", TABLES)
def test_open_metrics_says_the_same_with_the_same_names(metrics: Metrics, which: str) -> None:
    page, content_type = page_of(metrics, (which,), SERVED).render(f"{OPEN_METRICS};version=1.0.0,text/plain;q=0.5")
    assert content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    said = {sample.name: sample.value for family in read_open(page.decode()) for sample in family.samples}
    plain = {name: rows[-1][1] for name, rows in samples(metrics, which).items()}
    when = "vllm:lora_requests_info"
    assert said | {when: 0} == plain | {when: 0}


def test_a_name_stands_in_one_place_of_a_table() -> None:
    for which in TABLES:
        page = page_of(Metrics(), (which,), SERVED).render()[0].decode()
        names = re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)
        assert len(names) == len(set(names))


def test_every_wait_reason_is_in_the_docs() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
    assert re.findall(r"^\| `([a-z_]+)` \| (?!counter|gauge|histogram)", page, re.MULTILINE) == [
        k.value for k in WaitKind
    ]


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        (OPEN_METRICS, True),
        (f"text/plain;q=0.5, {OPEN_METRICS.upper()} ; version=1.0.0; q=0.5", True),
        (f"{OPEN_METRICS};version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", True),
        (f"{OPEN_METRICS};q=0", False),
        (f"text/plain, {OPEN_METRICS}; q=0.000", False),
        (f"text/plain;q=0.9,{OPEN_METRICS};q=0.8", False),
        (f"{OPEN_METRICS};q=none", False),
        (f"{OPEN_METRICS};q=0.٥", False),
        (f"x{OPEN_METRICS}", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_open_metrics_is_for_those_who_want_it(metrics: Metrics, accept: str, is_open: bool) -> None:
    page, content_type = page_of(metrics, (), SERVED).render(accept)
    assert content_type.startswith(OPEN_METRICS) == is_open == page.endswith(b"# EOF\n")
