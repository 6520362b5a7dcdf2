"""A plot as SVG text: rows of bars, or of points with their intervals. Equal plots give equal bytes.

Colours are those of Okabe and Ito, which people with any colour vision can tell apart. Lengths are pixels; x runs to
the right, y downwards.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

WIDTH = 760
MARGIN = 16
TITLE_HEIGHT = 40
LEGEND_HEIGHT = 24
AXIS_HEIGHT = 48
BAR_HEIGHT = 15
ROW_GAP = 11
VALUE_ROOM = 64  # right of the axis, for the text of the longest bar
CHAR_WIDTH = 7.3  # of the widest usual sans serif at 13 px, on average
MAX_TICKS = 7
MAX_SERIES = 4  # that a theme has a colour for


@dataclass(frozen=True)
class Value:
    middle: float
    low: float | None = None  # of its interval; None: there is none
    high: float | None = None

    @property
    def span(self) -> tuple[float, float]:
        return (self.middle if self.low is None else self.low, self.middle if self.high is None else self.high)


@dataclass(frozen=True)
class Row:
    label: str
    values: tuple[Value | None, ...]  # one of each series; None: not measured


@dataclass(frozen=True)
class Plot:
    title: str
    axis: str  # what is measured, with its unit
    series: tuple[str, ...]
    rows: tuple[Row, ...]
    number: str = "{:,.0f}"  # how a value is written
    mark: tuple[float, str] | None = None  # a line to compare with, and its name
    points: bool = False  # instead of bars: where the interval says more than the length


@dataclass(frozen=True)
class Theme:
    name: str
    background: str
    ink: str
    grid: str
    series: tuple[str, ...]
    mark: str


LIGHT = Theme("light", "#ffffff", "#1f2328", "#d8dee4", ("#0072b2", "#e69f00", "#009e73", "#cc79a7"), "#d55e00")
DARK = Theme("dark", "#0d1117", "#f0f6fc", "#30363d", ("#56b4e9", "#e69f00", "#2bb98f", "#cc79a7"), "#ff8c42")
THEMES = (LIGHT, DARK)


@dataclass(frozen=True)
class Axes:
    """Where they lie, and what value each x stands for."""

    left: float
    right: float
    top: float
    bottom: float
    ticks: tuple[float, ...]

    def x(self, value: float) -> float:
        first, last = self.ticks[0], self.ticks[-1]
        return self.left + (value - first) / (last - first) * (self.right - self.left)


def draw(plot: Plot, theme: Theme) -> str:
    """Of at most MAX_SERIES series."""
    assert len(plot.series) <= len(theme.series), plot.series
    axes = axes_of(plot)
    height = axes.bottom + AXIS_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{_px(height)}" '
        f'viewBox="0 0 {WIDTH} {_px(height)}" role="img" aria-label={quoteattr(plot.title)} '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{_px(height)}" fill="{theme.background}"/>',
        _text(MARGIN, 26, plot.title, theme.ink, 'font-size="15" font-weight="600"'),
        *_legend(plot, theme),
        *_axis(plot, axes, theme),
        *_rows(plot, axes, theme),
        *_mark(plot, axes, theme),
    ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def axes_of(plot: Plot) -> Axes:
    spans = [value.span for row in plot.rows for value in row.values if value]
    most = max([high for _, high in spans] + ([plot.mark[0]] if plot.mark else []))
    top = TITLE_HEIGHT + (LEGEND_HEIGHT if _has_legend(plot) else 0)
    return Axes(
        left=MARGIN + CHAR_WIDTH * max(len(row.label) for row in plot.rows) + 10,
        right=WIDTH - MARGIN - VALUE_ROOM,
        top=top,
        bottom=top + len(plot.rows) * _row_height(plot) + ROW_GAP,
        ticks=ticks(min([0.0] + [low for low, _ in spans]), max(0.0, most)),
    )


def ticks(low: float, high: float) -> tuple[float, ...]:
    """Round numbers at equal distances, the first at most low and the last at least high."""
    wide = (high - low) or 1.0
    size = 10.0 ** math.floor(math.log10(wide / MAX_TICKS))
    step = next(size * factor for factor in (1, 2, 5, 10) if wide / (size * factor) <= MAX_TICKS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(i * step for i in range(first, max(last, first + 1) + 1))


def _has_legend(plot: Plot) -> bool:
    return len(plot.series) > 1 or plot.mark is not None


def _row_height(plot: Plot) -> float:
    return len(plot.series) * BAR_HEIGHT + ROW_GAP


def _legend(plot: Plot, theme: Theme) -> Iterator[str]:
    if not _has_legend(plot):
        return
    x = float(MARGIN)
    entries = list(zip(theme.series, plot.series)) if len(plot.series) > 1 else []
    for colour, name in entries:
        yield f'<rect x="{_px(x)}" y="41" width="11" height="11" fill="{colour}"/>'
        yield _text(x + 17, 51, name, theme.ink)
        x += 17 + CHAR_WIDTH * len(name) + 16
    if plot.mark:
        yield _line(x, 46.5, x + 14, 46.5, theme.mark, 'stroke-width="2" stroke-dasharray="4 3"')
        yield _text(x + 20, 51, plot.mark[1], theme.ink)


def _axis(plot: Plot, axes: Axes, theme: Theme) -> Iterator[str]:
    for tick, label in zip(axes.ticks, _tick_labels(axes.ticks, percent="%" in plot.number)):
        x = axes.x(tick)
        yield _line(x, axes.top, x, axes.bottom, theme.ink if tick == 0 else theme.grid)
        yield _text(x, axes.bottom + 17, label, theme.ink, 'text-anchor="middle" font-size="12"')
    middle = (axes.left + axes.right) / 2
    yield _text(middle, axes.bottom + 37, plot.axis, theme.ink, 'text-anchor="middle" font-size="12"')


def _tick_labels(values: Sequence[float], percent: bool) -> list[str]:
    """With as many digits after the point as the distance of two ticks needs, and no more."""
    step = (values[1] - values[0]) * (100 if percent else 1)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{value:.{digits}%}" if percent else f"{value:,.{digits}f}" for value in values]


def _rows(plot: Plot, axes: Axes, theme: Theme) -> Iterator[str]:
    y = axes.top + ROW_GAP
    for row in plot.rows:
        middle = y + len(plot.series) * BAR_HEIGHT / 2
        yield _text(axes.left - 10, middle + 4.5, row.label, theme.ink, 'text-anchor="end"')
        for value, colour in zip(row.values, theme.series):
            if value is not None:
                yield from _value(plot, value, y, colour, axes, theme)
            y += BAR_HEIGHT
        y += ROW_GAP


def _value(plot: Plot, value: Value, y: float, colour: str, axes: Axes, theme: Theme) -> Iterator[str]:
    middle, zero, at = y + BAR_HEIGHT / 2, axes.x(0), axes.x(value.middle)
    low, high = (axes.x(end) for end in value.span)
    if not plot.points:
        yield (
            f'<rect x="{_px(min(zero, at))}" y="{_px(y + 1)}" width="{_px(abs(at - zero))}" '
            f'height="{BAR_HEIGHT - 2}" fill="{colour}"/>'
        )
    if low < high:
        whisker = colour if plot.points else theme.ink
        yield _line(low, middle, high, middle, whisker, 'stroke-width="1.5"')
        for end in (low, high):
            yield _line(end, middle - 3.5, end, middle + 3.5, whisker, 'stroke-width="1.5"')
    if plot.points:
        yield f'<circle cx="{_px(at)}" cy="{_px(middle)}" r="4.5" fill="{colour}"/>'
    text = plot.number.format(value.middle)
    yield _text(_text_x(plot, max(zero, at, high) + 6, text, axes), middle + 4.5, text, theme.ink, 'font-size="12"')


def _text_x(plot: Plot, x: float, text: str, axes: Axes) -> float:
    """Behind the mark, if the mark's line would run through the text."""
    mark = axes.x(plot.mark[0]) if plot.mark else -1.0
    return mark + 6 if x - 3 < mark < x + CHAR_WIDTH * len(text) + 3 else x


def _mark(plot: Plot, axes: Axes, theme: Theme) -> Iterator[str]:
    if plot.mark:
        x = axes.x(plot.mark[0])
        yield _line(x, axes.top, x, axes.bottom, theme.mark, 'stroke-width="2" stroke-dasharray="4 3"')


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    ends = f'x1="{_px(x1)}" y1="{_px(y1)}" x2="{_px(x2)}" y2="{_px(y2)}"'
    return f'<line {ends} stroke="{colour}"{" " + more if more else ""}/>'


def _text(x: float, y: float, text: str, colour: str, more: str = "") -> str:
    return f'<text x="{_px(x)}" y="{_px(y)}" fill="{colour}"{" " + more if more else ""}>{escape(text)}</text>'


def _px(length: float) -> str:
    return f"{length:.1f}".removesuffix(".0")
