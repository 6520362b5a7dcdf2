"""Which servers' names there are, by what --metrics-compat calls them."""

from collections.abc import Iterable

from ramet.runtime.metrics import Metrics, Page
from ramet.runtime.metrics_compat import sglang, vllm

TABLES = {"sglang": sglang.table, "vllm": vllm.table}


def page_of(metrics: Metrics, names: Iterable[str], model_name: str) -> Page:
    """Our own names, and those of the servers that are named."""
    return Page(metrics, *(TABLES[name](metrics, model_name) for name in dict.fromkeys(names)))
