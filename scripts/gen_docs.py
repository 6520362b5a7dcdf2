"""Write the tables of docs/ from the code and from bench/results/, so that they cannot drift. `--check` only compares.

Decides what a generated page looks like; knows no figure and no option by name.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import fields

from ramet.ipc.params import NEUTRAL, SamplingParams
from ramet.runtime.config import BUNDLED_MODEL, Args
from ramet.runtime.metrics import Metrics
from ramet.runtime.options import options_of
from ramet.runtime.server import native, openai_completions
from ramet.runtime.server.app import NAMED, ROUTES
from ramet.runtime.server.native import GenerateBody
from ramet.runtime.server.openai_types import CompletionBody
from ramet.runtime.text.defaults import TAKEN, sampling_defaults

ROOT = Path(__file__).resolve().parent.parent
MADE = "<!-- made by scripts/gen_docs.py: change the code, then run `make docs` -->\n\n"


def options() -> str:
    lines = [
        "# Options of `ramet serve`\n",
        "Flag, environment variable (`RAMET_PORT`) and YAML key (`port:`) of each.",
    ]
    lines.append("A flag goes before a variable, a variable before the file given with `--config`.\n")
    group = ""
    for option in options_of(Args):
        if option.group != group:
            group = option.group
            lines += [f"\n## {group}\n", "| option | valid | default | |", "|---|---|---|---|"]
        default = "" if option.default is None else f"`{option.default}`"
        lines.append(f"| `{option.flag}` | {option.valid} | {default} | {option.about} |")
    return "\n".join(lines).replace("`` |", "empty |") + "\n"


def http_api() -> str:
    lines = [
        "# HTTP endpoints\n",
        "Doubled slashes in a path do no harm. With `--api-key` every request but `/health` and",
    ]
    lines += ["`/metrics` needs the header `Authorization: Bearer KEY`.\n", "| path | methods | |", "|---|---|---|"]
    for path, (methods, handler) in ROUTES.items():
        lines.append(f"| `{path}` | {', '.join(methods)} | {handler.__doc__.splitlines()[0]} |")
    lines += [f"| `{path}{{id}}` | GET | {handler.__doc__.splitlines()[0]} |" for path, handler in NAMED.items()]
    completions = {*openai_completions.UNBUILT, *NEUTRAL}
    bodies = (("/generate", GenerateBody, native.UNBUILT), ("/v1/completions", CompletionBody, completions))
    for path, struct, unbuilt in bodies:
        lines += [
            f"\n## Fields of `POST {path}`\n",
            "A field that is not built yet is refused unless it asks for nothing.\n",
        ]
        lines += ["| field | type | |", "|---|---|---|"]
        marks = ("not built yet" if f.name in unbuilt else "" for f in fields(struct))
        lines += [f"| `{f.name}` | {spelled(f.type)} | {mark} |" for f, mark in zip(fields(struct), marks, strict=True)]
    return "\n".join(lines) + "\n"


def spelled(kind: Any) -> str:
    names = getattr(kind, "__args__", None) or (kind,)
    shown_names = [str(n) if "[" in str(n) else n.__name__ for n in names if n is not type(None)]
    return " or ".join(n.replace("typing.", "").replace("|", "\\|") for n in shown_names)


def metrics() -> str:
    lines = ["# Metrics at `/metrics`\n", "| name | kind | |", "|---|---|---|"]
    for m in Metrics().collect():
        name = f"{m.name}_total" if m.type == "counter" else m.name
        lines.append(f"| `{name}` | {m.type} | {m.documentation} |")
    return "\n".join(lines) + "\n"


def sampling() -> str:
    defaults = SamplingParams()
    lines = ["# Sampling parameters of `/generate`\n", "| name | default |", "|---|---|"]
    lines += [f"| `{name}` | `{json.dumps(getattr(defaults, name))}` |" for name in SamplingParams.__struct_fields__]
    taken = ", ".join(f"`{name}`" for name in TAKEN)
    lines.append(
        f"\nThe model's generation_config.json goes before the table for {taken}, unless `--sampling-defaults openai`."
    )
    bundled = sampling_defaults(BUNDLED_MODEL, "model")
    changed = (name for name in TAKEN if getattr(bundled, name) != getattr(defaults, name))
    lines.append("The bundled model's has " + ", ".join(f"`{n}` {getattr(bundled, n)}" for n in changed) + ".")
    refused = ", ".join(f"`{name}`" for name in NEUTRAL)
    lines.append(f"\nKnown but not built yet, and refused unless neutral: {refused}.")
    lines.append("Values out of range are refused with a 400 that names the parameter, the value and the range.")
    return "\n".join(lines) + "\n"


def performance() -> str:
    lines = [
        "# Figures\n",
        "The newest line of every bench in `bench/results/`, as measured. Machines are shared and noisy:",
    ]
    lines.append(
        "compare what was measured in one run. Each line of the files holds machine, versions, commit and command.\n"
    )
    for path in sorted((ROOT / "bench" / "results").glob("*.jsonl")):
        for record in newest(path):
            lines += section(path.stem, record)
    return "\n".join(lines) + "\n"


def newest(path: Path) -> list[dict[str, Any]]:
    """The last record of each command in a file, in order of appearance."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        found[record["command"]] = record
    return list(found.values())


def section(name: str, record: dict[str, Any]) -> list[str]:
    stamp = ("bench", "time", "command", "commit", "machine", "versions")
    machine = record.get("machine", {})
    made = f"{record.get('time', '')}, commit `{record.get('commit', '')}`"
    head = f"{made}, {machine.get('cores')} cores, {machine.get('cpu')}"
    rows = flat({k: v for k, v in record.items() if k not in stamp})
    return [f"\n## {name}\n", f"`{record.get('command', '')}`  ", f"{head}\n", "| | |", "|---|---|"] + [
        f"| {key} | {shown(value)} |" for key, value in rows
    ]


def flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """(path, leaf) rows; objects in a list go by their "load", else by number."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = {str(item.get("load", i + 1)): item for i, item in enumerate(value)}
    if not isinstance(value, dict):
        return [(prefix, value)]
    return [row for key, inner in value.items() if key != "load" for row in flat(inner, f"{prefix} {key}".strip())]


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 1000 else f"{value:,.0f}"
    return ", ".join(map(shown, value)) if isinstance(value, list) else str(value)


PAGES: dict[str, Callable[[], str]] = {
    "options.md": options,
    "http-api.md": http_api,
    "metrics.md": metrics,
    "sampling-parameters.md": sampling,
    "performance.md": performance,
}


def main(argv: list[str]) -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = ROOT / "docs" / name, MADE + make()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in argv:
                path.write_text(text)
    print("up to date" if not stale else f"{'stale' if '--check' in argv else 'written'}: {', '.join(stale)}")
    return 1 if stale and "--check" in argv else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
