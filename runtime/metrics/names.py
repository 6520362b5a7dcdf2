"""Rows of tables of other servers' names: how a family is made of our numbers, with their labels and buckets."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ramet.runtime.metrics.buckets import Bounds
from ramet.runtime.metrics.table import Histogram, Metrics, family_of

Values = Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class ModelLabels:
    """What other servers say of the model beside their numbers. The adapters are those of sequences, by their names."""

    model_name: str
    page_size: int = 1  # tokens
    num_pages: int = 0
    max_adapters: int = 0  # in one step
    running_adapters: frozenset[str] = frozenset()
    waiting_adapters: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Level:
    """A gauge. `labels` names what `of`'s values are split by."""

    name: str
    about: str
    of: Callable[[Metrics], Values]
    labels: tuple[str, ...] = ()


class Total(Level):
    """A counter."""


@dataclass(frozen=True)
class Spread:
    """A histogram."""

    name: str
    about: str
    of: Callable[[Metrics], Histogram]
    bounds: Bounds


Row = Level | Spread


def one(value: float) -> Values:
    """What is not split by labels of its own."""
    return {(): value}


class Names(Collector):
    """A table with the labels that every number of it has."""

    def __init__(self, prefix: str, rows: tuple[Row, ...], labels: Mapping[str, str], metrics: Metrics) -> None:
        self._prefix, self._rows, self._metrics = prefix, rows, metrics
        self._names, self._values = tuple(labels), tuple(labels.values())

    def collect(self) -> Iterator[Metric]:
        return map(self._family, self._rows)

    def _family(self, row: Row) -> Metric:
        name = self._prefix + row.name
        if isinstance(row, Spread):
            histogram = row.of(self._metrics)
            spread = HistogramMetricFamily(name, row.about, labels=self._names)
            spread.add_metric(self._values, list(histogram.buckets(row.bounds)), histogram.sum)
            return spread
        kind = CounterMetricFamily if isinstance(row, Total) else GaugeMetricFamily
        values = {(*self._values, *own): value for own, value in row.of(self._metrics).items()}
        return family_of(kind, name, row.about, (*self._names, *row.labels), values)
