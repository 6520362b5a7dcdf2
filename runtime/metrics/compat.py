"""Which servers' names there are, by what --metrics-compat calls them."""

from collections.abc import Iterable

from ramet.runtime.metrics import sglang, vllm
from ramet.runtime.metrics.names import ModelLabels
from ramet.runtime.metrics.table import Metrics, MetricsPage

TABLES = {"sglang": sglang.table, "vllm": vllm.table}


def page_of(metrics: Metrics, names: Iterable[str], served: ModelLabels) -> MetricsPage:
    """Our own names, and those of the servers that are named."""
    return MetricsPage(metrics, *(TABLES[name](metrics, served) for name in dict.fromkeys(names)))
