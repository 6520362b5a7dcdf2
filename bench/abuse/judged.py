"""What a run is judged by: each criterion with its worst figure. Knows no server.

Two rows compare the CPU time of a body: as it is, and without the time of the tokenizers library, which a text takes on
whatever route it is tokenised. Rows without a bound are for comparison.

A ratio that was measured in several rounds has an interval (ratios.py) and holds unless the whole of it lies above the
bound. After one round there is no interval: whether a ratio beyond the bound holds is not known then.

A time between tokens beyond its bound is *at its limit* if it is at most MAX_OVER_LIMIT times that of the limit, which
--limit measures: the machine has not enough cores for the streams and as much work, whoever does it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

MIB = 1 << 20
MAX_GAP = 1.3  # the 99th percentile of the time between tokens, over the control's
MAX_OVER_LIMIT = 1.1  # the same, over that of the limit of the same run
MAX_HEALTH_S = 1.0  # /health beside bodies of up to a MiB
MAX_HEALTH = 3.0  # /health beside larger bodies, over the control's
MAX_COST = 4.0  # CPU time per MiB, over that of plain text
MAX_LEFT_MIB = 150.0  # memory after the floods, above that of the idle server
MAX_LEFT_GROWTH = 1.02  # memory after the third flood over that after the first
# how a body may be answered: accepted, refused, given up by its client; a 5xx other than these is a fault
ANSWERS = frozenset({"200", "400", "404", "408", "413", "415", "422", "429", "503", "504", "late"})

PARTS = "cost", "beside", "flood"
Line = Mapping[str, Any]


class Criterion(NamedTuple):
    part: str
    name: str
    value: Callable[[Line], float | None]  # None: the line is none of its
    most: float | None  # None: for comparison
    unit: str = "x"
    interval: str = ""  # the line's key for it; empty: of a figure that is no ratio of rounds
    has_limit: bool = False  # whether the line's limit is one of this figure


class JudgedVerdict(NamedTuple):
    """The worst figure of a criterion."""

    name: str
    most: float | None
    unit: str
    shape: str
    size: int
    value: float
    has_rounds: bool = False
    interval: Sequence[float] | None = None
    over_limit: tuple[float, Sequence[float] | None] | None = None  # and its interval; None: no limit was measured

    @property
    def held(self) -> bool | None:
        """None if there is no bound, or if it is not known."""
        if self.most is None:
            return None
        if self.interval is not None:
            return self.interval[0] <= self.most
        return self.value <= self.most or (None if self.has_rounds else False)

    @property
    def is_open(self) -> bool:
        """A ratio beyond its bound, without an interval that could tell."""
        return self.held is None and self.most is not None

    @property
    def is_at_limit(self) -> bool:
        """A ratio beyond its bound that is not far above what the machine allows."""
        if self.held is not False or self.over_limit is None:
            return False
        over, interval = self.over_limit
        return (interval[0] if interval else over) <= MAX_OVER_LIMIT

    @property
    def is_missed(self) -> bool:
        return self.held is False and not self.is_at_limit

    @property
    def in_words(self) -> str:
        if self.is_open:
            return "one round"
        if self.is_at_limit:
            return "at limit"
        return {None: "no bound", True: "held", False: "NOT HELD"}[self.held]

    @property
    def sentence(self) -> str:
        measured = f"{self.value} {self.unit}{_brackets(self.interval)}"
        limit = ""
        if self.over_limit is not None:
            over, interval = self.over_limit
            limit = f"; {over} times its limit{_brackets(interval)}"
        return f"{self.name}: {self.shape}, {self.size} bytes: {measured}, at most {self.most}{limit}"


def _brackets(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:g}, {interval[1]:g}]"


def _over_limit(line: Line) -> float | None:
    return line["limit"]["over"] if "limit" in line else None


def _with_rendering(line: Line) -> float | None:
    rendering = line.get("rendering_ms_per_mib")
    return (line["ms_per_mib"] + rendering) / line["control_ms_per_mib"] if rendering else None


def _unanswered(line: Line) -> float | None:
    """The share of bodies that were answered by a fault or not at all."""
    statuses = line.get("statuses")
    if not statuses:
        return None
    return sum(num for status, num in statuses.items() if status not in ANSWERS) / sum(statuses.values())


CRITERIA = (
    Criterion("beside", "p99 between tokens, over the control's", lambda line: line["gap_ratio"], MAX_GAP,
              interval="gap_interval", has_limit=True),
    Criterion("beside", "p99 between tokens, over the limit of the same run", _over_limit, None),
    Criterion(
        "beside", "p99 between tokens, over that of plain text on its route", lambda x: x.get("route_gap_ratio"), None
    ),
    Criterion(
        "beside", "/health beside bodies of 1 MiB", lambda x: x["health_s"] if x["size"] <= MIB else None,
        MAX_HEALTH_S, "s",
    ),
    Criterion(
        "beside", "/health beside larger bodies, over the control's",
        lambda x: x["health_ratio"] if x["size"] > MIB else None, MAX_HEALTH, interval="health_interval",
    ),
    Criterion("cost", "CPU of a MiB, over plain text's", lambda x: x.get("ratio"), MAX_COST),
    Criterion(
        "cost", "the same without the tokenizers library's own time", lambda x: x.get("net_ratio", x.get("ratio"))
        if "ratio" in x else None, MAX_COST,
    ),
    Criterion("cost", "the same with what renders its chat", _with_rendering, None),
    Criterion("cost", "CPU of a MiB, over that of plain text on its route", lambda x: x.get("route_ratio"), MAX_COST),
    Criterion("cost", "CPU of much work, over the same in many requests", lambda x: x.get("alone_ratio"), MAX_COST),
    Criterion(
        "flood", "memory after the third flood, over the first", lambda x: x["left_mib"][-1] / x["left_mib"][0],
        MAX_LEFT_GROWTH,
    ),
    Criterion(
        "flood", "memory after floods, above the idle server", lambda x: max(x["left_mib"]) - x["idle_mib"],
        MAX_LEFT_MIB, "MiB",
    ),
    *(Criterion(part, f"bodies without an answer, {part}", _unanswered, 0.0, "") for part in PARTS),
)  # fmt: skip


def verdicts(record: Mapping[str, Any]) -> list[JudgedVerdict]:
    """The worst of each criterion that has a figure."""
    return [max(found, key=_badness) for each in CRITERIA if (found := list(_of(each, record)))]


def _badness(one: JudgedVerdict) -> tuple[bool, bool, float]:
    return one.is_missed, one.is_open, one.value


def _of(criterion: Criterion, record: Mapping[str, Any]) -> Iterable[JudgedVerdict]:
    for line in record.get(criterion.part, ()):
        value = criterion.value(line)
        if value is not None:
            name, most, unit, key = criterion.name, criterion.most, criterion.unit, criterion.interval
            figure, interval = round(value, 3), line.get(key) if key else None
            limit = line.get("limit") if criterion.has_limit else None
            over = (limit["over"], limit["over_interval"]) if limit else None
            yield JudgedVerdict(name, most, unit, line["shape"], line.get("size", 0), figure, bool(key), interval, over)


def misses(record: Mapping[str, Any]) -> list[str]:
    """One sentence for each figure beyond its bound and its limit."""
    return [one.sentence for each in CRITERIA for one in _of(each, record) if one.is_missed]


def at_limit(record: Mapping[str, Any]) -> list[str]:
    """One sentence for each figure beyond its bound that is at its limit."""
    return [f"{one.sentence}: at its limit" for each in CRITERIA for one in _of(each, record) if one.is_at_limit]


def not_known(record: Mapping[str, Any]) -> list[str]:
    """One sentence for each ratio beyond its bound that has one round."""
    found = (one.sentence for each in CRITERIA for one in _of(each, record) if one.is_open)
    return [f"{sentence}; one round has no interval: see --rounds" for sentence in found]


def table(found: Sequence[JudgedVerdict]) -> str:
    head = f"{'criterion':<58}{'bound':>10}{'worst':>26}   {'':<10}shape"
    return "\n".join([head, *map(_row, found)])


def _row(each: JudgedVerdict) -> str:
    bound = "" if each.most is None else f"{each.most:g} {each.unit}"
    size = f", {each.size} bytes" if each.size else ""
    worst = f"{each.value:g} {each.unit}{_brackets(each.interval)}"
    return f"{each.name:<58}{bound:>10}{worst:>26}   {each.in_words:<10}{each.shape}{size}"


def as_record(found: Sequence[JudgedVerdict]) -> list[dict[str, Any]]:
    return [{**each._asdict(), "held": each.held, "at_limit": each.is_at_limit} for each in found]
