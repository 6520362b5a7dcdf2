"""The tables of docs/gpu.md: what was measured on each CUDA card, the newest whole run of each.

A run is all that was measured at one commit, in one call of `ramet bench gpu` or in several.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ramet.bench.figures.records import Record
from ramet.bench.figures.svg import Plot, Row, Value
from ramet.bench.gpu import model
from ramet.bench.loads import SHAPE_8B

PARTS = ("attention", "steps", "shares", "headline")  # of a whole run; some have no others
ATTENTION_PARTS = ("attention", "short-extends", "prompts", "head-sizes", "few-kv-heads", "float8-cache")
COLUMNS = {  # of each part: what a figure is called there, and in the table
    "attention": {
        "us": ("µs", "{:,.1f}"), "gb_per_s": ("GB/s", "{:,.0f}"), "of_read": ("of the read bandwidth", "{:.0%}"),
        "of_copy": ("of the copy's", "{:.0%}"), "tflop_per_s": ("TFLOP/s", "{:,.0f}"),
        "of_matmul": ("of the matrix product's", "{:.0%}"), "of_limit": ("of the limit", "{:.0%}"),
        "cudnn_us": ("cuDNN's µs", "{:,.1f}"), "times_cudnn": ("times cuDNN's", "{:.2f}"),
    },
    "linears": {
        "us": ("µs", "{:,.1f}"), "of_matmul": ("of the matrix product's", "{:.0%}"),
        "of_limit": ("of the limit", "{:.0%}"),
        "qkv_us": ("qkv, µs", "{:,.1f}"), "o_us": ("o, µs", "{:,.1f}"), "gate_up_us": ("gate and up, µs", "{:,.1f}"),
        "down_us": ("down, µs", "{:,.1f}"),
    },
    "sampling": {
        "greedy_ms": ("greedy, ms", "{:,.2f}"), "top_p_ms": ("top-p, ms", "{:,.2f}"),
        "more_ms": ("more, ms", "{:,.2f}"), "mhz": ("MHz", "{:,.0f}"), "watts": ("W", "{:,.0f}"),
    },
    "experts": {
        "us": ("µs", "{:,.1f}"), "torch_us": ("torch's grouped products, µs", "{:,.1f}"),
        "of_limit": ("of the limit", "{:.0%}"),
    },
    "steps": {
        "ms": ("ms", "{:,.2f}"), "predicted": ("predicted, ms", "{:,.2f}"), "tokens_per_s": ("tokens/s", "{:,.0f}"),
        "of_limit": ("of the limit", "{:.0%}"), "s": ("seconds", "{:.1f}"),
        "mhz": ("MHz", "{:,.0f}"), "watts": ("W", "{:,.0f}"),
    },
    "headline": {
        "output_tokens_per_s": ("output tokens/s", "{:,.0f}"), "seconds": ("seconds", "{:,.1f}"),
        "of_limit": ("of the limit", "{:.0%}"), "itl_ms": ("median between tokens, ms", "{:,.1f}"),
        "steps": ("steps", "{:,.0f}"), "tokens_a_step": ("tokens a step", "{:,.0f}"), "failed": ("failed", "{:.0f}"),
        "busy": ("card busy", "{:.0%}"), "step_ms": ("a step, ms", "{:,.2f}"),
        "mhz": ("MHz", "{:,.0f}"), "watts": ("W", "{:,.0f}"),
    },
    "peer": {
        "ramet_tokens_per_s": ("ramet, output tokens/s", "{:,.0f}"),
        "transformers_tokens_per_s": ("transformers, output tokens/s", "{:,.0f}"),
        "times": ("its time to ramet's", "{:.2f}"),
    },
}  # fmt: skip
COLUMNS |= dict.fromkeys(ATTENTION_PARTS, COLUMNS["attention"])
COLUMNS |= {"products": COLUMNS["linears"], "offline-headline": COLUMNS["headline"]}
SHOWN = (
    "headline", "offline-headline", "peer", "steps", "sampling", *ATTENTION_PARTS, "linears", "products", "experts",
)  # fmt: skip
ENGINES = ("headline", "offline-headline", "peer", "steps", "sampling")  # parts whose options are those of an engine
LEFT_OUT = re.compile(r"products of (?!(?:64|128|256|448|512|1024|2048) )")  # of 32 sizes
MAX_KERNELS = 10
PREDICTED = "gpu-predicted"  # the plot's files
KERNELS = {"_decode": "decode", "_extend": "extend", "_shared": "shared"}
WARPS = {80: 64, 89: 48, 90: 64, 100: 64}  # that a multiprocessor holds, by its capability
SHOWN_HEADS = ((64, 8), (128, 4), (128, 8), (256, 2))
SHOWN_BATCHES, SHOWN_CONTEXTS = (1, 32, 256), (384, 4096)


def tables(records: Sequence[Record]) -> str:
    """In Markdown, a section for each card."""
    runs: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        runs.setdefault((record["card"]["name"], record["commit"]), []).append(record)
    whole = {
        card: calls for (card, _), calls in runs.items() if all(any(part in call for call in calls) for part in PARTS)
    }
    return "\n\n".join("\n".join(_section(calls)).rstrip() for _, calls in sorted(whole.items()))


def _section(calls: Sequence[Record]) -> Iterator[str]:
    record = calls[-1]
    card, machine = record["card"], record["machine"]
    yield f"### {card['name']}\n"
    yield (
        f"Measured in {'this run' if len(calls) == 1 else 'each call'}: a copy moves "
        f"{_rates(calls, 'copy_bytes_per_s', 2)} TB/s (read and written), reading "
        f"{_rates(calls, 'read_bytes_per_s', 2)} TB/s, a bfloat16 matrix product makes "
        f"{_rates(calls, 'flops_per_s', 0)} TFLOP/s. "
    )
    versions = ", ".join(f"{name} {record['versions'][name]}" for name in ("python", "torch", "triton", "transformers"))
    yield (
        f"{record['time'][:10]}, commit `{record['commit'][:10]}`, driver {machine['gpu'].split(', ')[-1]}, "
        f"{machine['cores']} cores of {machine['cpu']}, {versions}; {_commands(calls)}\n"
    )
    for part in SHOWN:
        found = _figures(calls, part)
        for kind in dict.fromkeys(_kind(name) for name in found):
            figures = {name: each for name, each in found.items() if _kind(name) == kind}
            yield from _table(part, with_predictions(card["name"], figures) if part == "steps" else figures)
    yield from _shares(next(call["shares"] for call in reversed(calls) if "shares" in call))


def _commands(calls: Sequence[Record]) -> str:
    each = [f"`{call['command']}`" for call in calls]
    return each[0] if len(each) == 1 else "calls:\n" + "".join(f"\n- {one}" for one in each)


def _rates(calls: Sequence[Record], name: str, digits: int) -> str:
    """The least and the most of a run's calls, in tera."""
    found = sorted({f"{call['card'][name] / 1e12:.{digits}f}" for call in calls}, key=float)
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _figures(calls: Sequence[Record], part: str) -> dict[str, dict[str, float]]:
    """Of all calls, with what the sensors showed beside; where the engine had options, the name says so."""
    found = {}
    for call in calls:
        options, sensors = call.get("options", {}), call.get("sensors", {})
        for name, figures in call.get(part, {}).items():
            if not LEFT_OUT.match(name):
                found[name + _options(options) * (part in ENGINES)] = figures | sensors.get(name, {})
    return found


def _options(options: dict[str, Any]) -> str:
    said = {
        f"{options.get('max_running', 512):,} rows": options.get("max_running", 512) != 512,
        f"{options.get('quantization')} weights": bool(options.get("quantization")),
        f"{options.get('kv_cache_dtype')} keys and values": options.get("kv_cache_dtype", "auto") != "auto",
    }
    return "".join(f", {each}" for each, is_so in said.items() if is_so)


def _kind(name: str) -> str:
    return name.split()[0].rstrip(",")


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
    """In Markdown, what attention takes of a card: of each capability the newest run of scripts/compile_kernels.py with
    `--keep` that had it.
    """
    newest = {each["capability"]: record for record in records for each in record["kernels"]}
    lines = [
        "| capability | kernel | head size | heads of a group | registers | shared memory, KiB | programs | warps |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in (
        each for of, record in sorted(newest.items()) for each in record["kernels"] if each["capability"] == of
    ):
        changes = each.get("WINDOWED"), each["CAPPED"], each.get("SINKS"), each.get("AHEAD")
        is_plain = not any(changes) and each["cache"] == "bf16"
        if is_plain and (each["D"], each["GROUP"]) in SHOWN_HEADS:
            capability = f"{each['capability'] // 10}.{each['capability'] % 10}"
            warps = each["programs"] * each["warps"] / WARPS[each["capability"]]
            lines.append(
                f"| {capability} | {KERNELS[each['kernel']]} | {each['D']} | {each['GROUP']} | {each['registers']} | "
                f"{each['shared'] / 1024:.0f} | {each['programs']} | {warps:.0%} |"
            )
    runs = [record for record in records if record in newest.values()]
    said = (f"{run['time'][:10]}, triton {run['versions']['triton']}; `{run['command']}`" for run in runs)
    return "\n".join([*dict.fromkeys(lines), "", "  \n".join(said)])


def predicted_plot() -> Plot:
    def share(sheet: model.Sheet, num: int, context: int) -> Value | None:
        if not model.fits(sheet, SHAPE_8B, num, context):
            return None
        return Value(model.predict(sheet, SHAPE_8B, num, context).share)

    rows = tuple(
        Row(f"{sheet.name}, {context}", tuple(share(sheet, num, context) for num in SHOWN_BATCHES))
        for sheet in model.CARDS
        for context in SHOWN_CONTEXTS
    )
    series = tuple(f"{num} row{'s' * (num > 1)}" for num in SHOWN_BATCHES)
    title = "Predicted decode steps, 8B in bfloat16"
    return Plot(title, "share of the limit, by card and context", series, rows, "{:.0%}")


def _table(part: str, figures: dict[str, dict[str, float]]) -> Iterator[str]:
    """A figure that has no number of a column leaves it empty."""
    columns = {key: each for key, each in COLUMNS[part].items() if any(key in values for values in figures.values())}
    yield "| " + " | ".join(("", *(title for title, _ in columns.values()))) + " |"
    yield "| --- |" + " ---: |" * len(columns)
    for name, values in figures.items():
        told = (shown.format(values[key]) if key in values else "" for key, (_, shown) in columns.items())
        yield "| " + " | ".join((name, *told)) + " |"
    yield ""


def _shares(shares: dict[str, dict[str, float]]) -> Iterator[str]:
    """Of the time that kernels run."""
    for name, values in shares.items():
        kernels = [(kernel, share) for kernel, share in values.items() if kernel != "busy"][:MAX_KERNELS]
        yield f"Kernels while {name} (busy {values['busy']:.0%} of the time, its first step included):\n"
        yield "| kernel | share |"
        yield "| --- | ---: |"
        yield from (f"| `{kernel}` | {share:.1%} |" for kernel, share in kernels)
        yield ""
