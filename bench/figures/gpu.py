"""The tables of docs/gpu.md: what was measured on each CUDA card, the newest whole run of each."""

import re
from collections.abc import Iterator, Sequence

from ramet.bench.figures.records import Record
from ramet.bench.figures.svg import Plot, Row, Value
from ramet.bench.gpu import model
from ramet.bench.loads import SHAPE_8B

PARTS = ("attention", "steps", "shares", "headline")  # of a whole run; some have no others
COLUMNS = {  # of each part: what a figure is called there, and in the table
    "attention": {
        "us": ("µs", "{:,.1f}"), "gb_per_s": ("GB/s", "{:,.0f}"), "of_read": ("of the read bandwidth", "{:.0%}"),
        "of_copy": ("of the copy's", "{:.0%}"), "tflop_per_s": ("TFLOP/s", "{:,.0f}"),
        "of_matmul": ("of the matrix product's", "{:.0%}"), "of_limit": ("of the limit", "{:.0%}"),
    },
    "experts": {
        "us": ("µs", "{:,.1f}"), "torch_us": ("torch's grouped products, µs", "{:,.1f}"),
        "of_limit": ("of the limit", "{:.0%}"),
    },
    "steps": {
        "ms": ("ms", "{:,.2f}"), "predicted": ("predicted, ms", "{:,.2f}"), "tokens_per_s": ("tokens/s", "{:,.0f}"),
        "of_limit": ("of the limit", "{:.0%}"), "s": ("seconds", "{:.1f}"),
    },
    "headline": {
        "output_tokens_per_s": ("output tokens/s", "{:,.0f}"), "seconds": ("seconds", "{:,.1f}"),
        "of_limit": ("of the limit", "{:.0%}"), "itl_ms": ("median between tokens, ms", "{:,.1f}"),
        "steps": ("steps", "{:,.0f}"), "tokens_a_step": ("tokens a step", "{:,.0f}"), "failed": ("failed", "{:.0f}"),
    },
    "peer": {
        "ramet_tokens_per_s": ("ramet, output tokens/s", "{:,.0f}"),
        "transformers_tokens_per_s": ("transformers, output tokens/s", "{:,.0f}"),
        "times": ("its time to ramet's", "{:.2f}"),
    },
}  # fmt: skip
MOST_KERNELS = 10
PREDICTED = "gpu-predicted"  # the plot's files
KERNELS = {"_decode": "decode", "_extend": "extend", "_shared": "shared"}
WARPS = {80: 64, 89: 48, 90: 64, 100: 64}  # that a multiprocessor holds, by its capability
SHOWN_HEADS = ((64, 8), (128, 4), (128, 8), (256, 2))
SHOWN_BATCHES, SHOWN_CONTEXTS = (1, 32, 256), (384, 4096)


def tables(records: Sequence[Record]) -> str:
    """In Markdown, a section for each card."""
    whole = {record["card"]["name"]: record for record in records if all(part in record for part in PARTS)}
    return "\n\n".join("\n".join(_section(record)).rstrip() for _, record in sorted(whole.items()))


def _section(record: Record) -> Iterator[str]:
    card, machine = record["card"], record["machine"]
    yield f"### {card['name']}\n"
    yield (
        f"Measured in this run: a copy moves {card['copy_bytes_per_s'] / 1e12:.2f} TB/s (read and written), reading "
        f"{card['read_bytes_per_s'] / 1e12:.2f} TB/s, a bfloat16 matrix product makes "
        f"{card['flops_per_s'] / 1e12:.0f} TFLOP/s. "
    )
    versions = ", ".join(f"{name} {record['versions'][name]}" for name in ("python", "torch", "triton", "transformers"))
    yield (
        f"{record['time'][:10]}, commit `{record['commit'][:10]}`, driver {machine['gpu'].split(', ')[-1]}, "
        f"{machine['cores']} cores of {machine['cpu']}, {versions}; `{record['command']}`\n"
    )
    for part in ("headline", "peer", "steps", "attention", "experts"):
        for kind in dict.fromkeys(name.split()[0] for name in record.get(part, {})):
            figures = {name: each for name, each in record[part].items() if name.split()[0] == kind}
            yield from _table(part, with_predictions(card["name"], figures) if part == "steps" else figures)
    yield from _shares(record["shares"])


def with_predictions(card: str, figures: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Beside the milliseconds of decode steps those that are predicted, where the card's data sheet is known."""
    sheet = next((sheet for sheet in model.CARDS if sheet.name in card), None)
    found = {}
    for name, values in figures.items():
        decode = re.fullmatch(r"decode (\d+) x (?:\d+|\((\d+) shared \+ (\d+)\))", name)
        found[name] = dict(values)
        if sheet is not None and decode is not None:
            shared, own = int(decode[2] or 0), int(decode[3] or model.PROMPT)
            context = model.MEASURED_CONTEXT - model.PROMPT + shared + own
            step = model.predict(sheet, SHAPE_8B, int(decode[1]), context, shared=shared)
            found[name] = {"ms": values["ms"], "predicted": step.seconds * 1e3, **found[name]}
    return found


def predictions() -> str:
    """In Markdown: the plot, and its numbers with their causes."""
    light, dark = (f"{PREDICTED}.{theme}.svg" for theme in ("light", "dark"))
    plot = predicted_plot()
    return (
        f'<picture>\n<source media="(prefers-color-scheme: dark)" srcset="figures/{dark}">\n'
        f'<img alt="{plot.title}: {plot.axis}" src="figures/{light}">\n</picture>\n\n'
    ) + "\n".join(
        (
            *model.table(SHAPE_8B, SHOWN_BATCHES, SHOWN_CONTEXTS),
            f"\nWhere {model.SHARERS} rows share {model.SHARED:,} tokens and have {model.OWN} of their own:\n",
            *model.shared_table(SHAPE_8B),
        )
    )


def kernels(records: Sequence[Record]) -> str:
    """In Markdown, of the newest run of scripts/compile_kernels.py with `--keep`: what attention takes of a card."""
    record = records[-1]
    lines = [
        "| capability | kernel | head size | heads of a group | registers | shared memory, KiB | programs | warps |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in record["kernels"]:
        changes = each.get("WINDOWED"), each["CAPPED"], each.get("SINKS"), each.get("AHEAD")
        is_plain = not any(changes) and each["cache"] == "bf16"
        if is_plain and (each["D"], each["GROUP"]) in SHOWN_HEADS:
            capability = f"{each['capability'] // 10}.{each['capability'] % 10}"
            warps = each["programs"] * each["warps"] / WARPS[each["capability"]]
            lines.append(
                f"| {capability} | {KERNELS[each['kernel']]} | {each['D']} | {each['GROUP']} | {each['registers']} | "
                f"{each['shared'] / 1024:.0f} | {each['programs']} | {warps:.0%} |"
            )
    versions = f"triton {record['versions']['triton']}"
    return "\n".join([*dict.fromkeys(lines), "", f"{record['time'][:10]}, {versions}; `{record['command']}`"])


def predicted_plot() -> Plot:
    def share(sheet: model.Sheet, num: int, context: int) -> Value | None:
        of = sheet, SHAPE_8B, num, context
        return Value(model.predict(*of).share) if model.fits(*of) else None

    rows = tuple(
        Row(f"{sheet.name}, {context}", tuple(share(sheet, num, context) for num in SHOWN_BATCHES))
        for sheet in model.CARDS
        for context in SHOWN_CONTEXTS
    )
    series = tuple(f"{num} row{'s' * (num > 1)}" for num in SHOWN_BATCHES)
    title = "Predicted decode steps, 8B in bfloat16"
    return Plot(title, "share of the limit, by card and context", series, rows, "{:.0%}")


def _table(part: str, figures: dict[str, dict[str, float]]) -> Iterator[str]:
    columns = {key: COLUMNS[part][key] for key in next(iter(figures.values()))}
    yield "| " + " | ".join(("", *(title for title, _ in columns.values()))) + " |"
    yield "| --- |" + " ---: |" * len(columns)
    for name, values in figures.items():
        yield "| " + " | ".join((name, *(shown.format(values[key]) for key, (_, shown) in columns.items()))) + " |"
    yield ""


def _shares(shares: dict[str, dict[str, float]]) -> Iterator[str]:
    """Of the time that kernels run."""
    for name, values in shares.items():
        kernels = [(kernel, share) for kernel, share in values.items() if kernel != "busy"][:MOST_KERNELS]
        yield f"Kernels while {name} (busy {values['busy']:.0%} of the time, its first step included):\n"
        yield "| kernel | share |"
        yield "| --- | ---: |"
        yield from (f"| `{kernel}` | {share:.1%} |" for kernel, share in kernels)
        yield ""
