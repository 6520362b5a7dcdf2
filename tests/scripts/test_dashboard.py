"""Our dashboard reads names that exist, and is what Grafana takes."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import dashboard
import pytest
from dashboards import labels_of, names_of

from ramet.runtime.metrics.table import Counter, Gauge, Histogram, Metrics

FILE = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "dashboards" / "ramet.json"


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(FILE.read_text())
    return read


def queries() -> list[str]:
    return [query for section in dashboard.SECTIONS for panel in section.panels for query in panel.queries.values()]


def published() -> dict[str, set[str]]:
    """By name of a sample: its labels."""
    found: dict[str, set[str]] = {}
    for row in Metrics().rows():
        match row:
            case Counter():
                found[f"ramet:{row.name}_total"] = set(row.labels)
            case Gauge():
                found[f"ramet:{row.name}"] = set(row.labels)
            case Histogram():
                found |= {f"ramet:{row.name}_{part}": set() for part in ("sum", "count")}
                found[f"ramet:{row.name}_bucket"] = {"le"}
    return found


@pytest.mark.parametrize("query", queries())
def test_a_query_reads_names_and_labels_that_exist(query: str) -> None:
    known = published()
    assert names_of(query) <= known.keys()
    for name in names_of(query):
        assert labels_of(query) - {"instance"} <= set().union(*(known[each] for each in names_of(query))), name


def test_every_metric_but_sums_of_shown_ones_has_a_panel() -> None:
    read = {name for query in queries() for name in names_of(query)}
    left = {name for name in published() if not any(name.rsplit("_", 1)[0] in each for each in read)}
    assert left <= {
        "ramet:num_requests_total", "ramet:discarded_tokens_total", "ramet:jump_forward_tokens_total",
        "ramet:num_paused_reqs", "ramet:inference_time_seconds_sum", "ramet:inference_time_seconds_count",
        "ramet:inference_time_seconds_bucket", "ramet:max_generation_tokens_histogram_sum",
        "ramet:max_generation_tokens_histogram_count", "ramet:max_generation_tokens_histogram_bucket",
    }  # fmt: skip


def test_panels_have_ids_of_their_own_and_do_not_overlap(made: dict[str, Any]) -> None:
    panels = made["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for first, second in combinations([panel["gridPos"] for panel in panels], 2):
        apart_x = first["x"] + first["w"] <= second["x"] or second["x"] + second["w"] <= first["x"]
        apart_y = first["y"] + first["h"] <= second["y"] or second["y"] + second["h"] <= first["y"]
        assert apart_x or apart_y
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_it_can_be_shared(made: dict[str, Any]) -> None:
    assert made["id"] is None and made["uid"] == "ramet-server" and made["schemaVersion"] >= 39
    assert [variable["name"] for variable in made["templating"]["list"]] == ["DS_PROMETHEUS", "instance"]
    for panel in made["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
            assert "rate(" not in target["expr"] or "[$__rate_interval]" in target["expr"]
