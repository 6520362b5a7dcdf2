"""Write the tables of docs/ from the code and from bench/results/, so that they cannot drift. `--check` only compares.

Some pages are made whole; in others what stands between `<!-- made: NAME -->` and `<!-- end -->` is. Decides what a
page and a table of options look like; bench/figures/ makes docs/performance.md and its plots.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from dashboard import as_json
from msgspec.inspect import TupleType
from msgspec.json import schema_components
from prometheus_client import Metric

from ramet.bench.figures import gpu, page, records, svg
from ramet.bench.figures.questions import views_of
from ramet.frontend.backends import table
from ramet.ipc.params import CHECKS, SamplingParams
from ramet.runtime.config import BUNDLED_MODEL, Args, ServeArgs
from ramet.runtime.flags import aliases_of
from ramet.runtime.intake.calls import GenerateBody, SessionParams
from ramet.runtime.intake.limits import KEYS_SHARE, OPENED_SHARE
from ramet.runtime.intake.misspelt import MAX_COMPARED
from ramet.runtime.intake.parsers.reasoning import reasoning_names, reasoning_style
from ramet.runtime.intake.parsers.tools import detect_tools, tool_parser_class, tool_parser_names
from ramet.runtime.intake.specs import ConstraintFields
from ramet.runtime.metrics.compat import TABLES as COMPAT
from ramet.runtime.metrics.names import ModelLabels
from ramet.runtime.metrics.table import Metrics
from ramet.runtime.models.composite import COMPOSITES, TEXTS
from ramet.runtime.models.composite import HARMLESS as COMPOSITE_KEYS
from ramet.runtime.models.config_json import HARMLESS, ConfigObject
from ramet.runtime.models.config_json import NEUTRAL as NEUTRAL_KEYS
from ramet.runtime.models.registry import FAMILIES, family_of
from ramet.runtime.options.option import Option, options_of
from ramet.runtime.sampling.processors import LogitProcessor
from ramet.runtime.server.http.accepting import MAX_CONNECTIONS, MIN_IDLE_S
from ramet.runtime.server.http.connections import MAX_HEADER, MAX_TARGET
from ramet.runtime.server.http.held_bodies import FREE_BYTES as BODY_FREE_BYTES
from ramet.runtime.server.http.held_bodies import MIN_AGE_S, OF_SMALL
from ramet.runtime.server.http.held_bodies import MIN_BYTES_PER_S as MIN_HELD_BYTES_PER_S
from ramet.runtime.server.http.held_bodies import SMALL as SMALL_BODY
from ramet.runtime.server.http.inflating import FREE_BYTES, MAX_RATIO
from ramet.runtime.server.http.receiving import MIN_BYTES_PER_S
from ramet.runtime.server.http.service import Access
from ramet.runtime.server.routes import NAMED, ROUTES
from ramet.runtime.text.defaults import TAKEN, sampling_defaults
from ramet.runtime.text.template_files import built_in_names, read_templates
from ramet.runtime.workers.offload import LARGE, SMALL

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"
OPENAI_PATHS = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
    "/v1/embeddings",
)  # fmt: skip
LANGUAGE_PATHS = ("/language/generate", "/language/select")
KEYS = {
    Access.OPEN: "none", Access.SCRAPE: "none, or admin beside a file of keys", Access.READ: "API", Access.USE: "API",
    Access.WATCH: "admin", Access.ADMIN: "admin",
}  # fmt: skip
MADE = "<!-- made by scripts/gen_docs.py: change the code, then run `make docs` -->\n\n"


def options() -> str:
    lines = [
        "# Options of `ramet serve`\n",
        "Every option is a flag (`--port`), an environment variable (`RAMET_PORT`) and a key (`port:`) of the YAML",
        "file that `--config` names. A flag counts before a variable, and a variable before the file. Names in",
        "brackets are those of other servers for the same option.\n",
    ]
    group = ""
    for option in options_of(Args):
        if option.group != group:
            group = option.group
            lines += [f"\n## {group}\n", "| option | valid | default | |", "|---|---|---|---|"]
        also = "".join(f" (`{alias}`)" for alias in aliases_of(option))
        lines.append(f"| `{option.flag}`{also} | {option.valid} | {default_of(option)} | {option.about} |")
    return "\n".join(lines).replace("`` |", "empty |") + "\n"


def http_api() -> str:
    lines = [
        "# HTTP endpoints\n",
        "Doubled slashes in a path do no harm. A key is sent in the header `Authorization: Bearer KEY`, or in",
        "Anthropic's `X-Api-Key: KEY`. The table says which key a path needs if the server has that key.",
        "[access.md](access.md) has more on keys, on web pages and on the names by which a server is reached.",
    ]
    lines.append(
        "Every reply has the header `X-Request-Id`: the one that was sent, or else the request's id. Reply, log,"
    )
    lines.append(
        "`/abort_request` and `/v1/requests/{id}` call a request by its id: the body's `rid`, or one made here, which"
    )
    lines.append("ends with the header's value. `/openapi.json` describes all of this for programs.\n")
    lines += ["| path | methods | key | |", "|---|---|---|---|"]
    rows = [(path, route) for path, route in ROUTES.items()] + [(path + "{id}", named) for path, named in NAMED.items()]
    for path, route in rows:
        about = route.handler.__doc__.splitlines()[0]
        lines.append(f"| `{path}` | {', '.join(route.methods)} | {KEYS[route.access]} | {about} |")
    lines.append(
        "\n[native-api.md](native-api.md) describes `/generate`, [openai.md](openai.md) chats and completions,"
    )
    lines.append("[embeddings.md](embeddings.md) the endpoints that turn texts into numbers,")
    lines.append("[language-calls.md](language-calls.md) what programs of the language ask for.")
    lines += [*connections(), *bodies()]
    for path in (
        "/v1/score",
        "/v1/rerank",
        "/v1/classify",
        "/pooling",
        "/encode",
        "/v1/tokenize",
        "/v1/detokenize",
        "/open_session",
        "/close_session",
        "/abort_request",
        "/configure_logging",
    ):
        lines += [f"\n## Fields of `POST {path}`\n", *fields_table(ROUTES[path].body)]
    return "\n".join(lines) + "\n"


def connections() -> list[str]:
    """What ends a connection, and the reasons."""
    serve, rate = ServeArgs(), MIN_BYTES_PER_S >> 10
    transfer = f"{serve.transfer_timeout_s:g} s, and one more for each {rate} KiB (`--transfer-timeout-s`)"
    return [
        "\n## Connections\n",
        "Whatever a client does with a connection, or fails to do, it ends:\n",
        "| a client | is given | then |",
        "|---|---|---|",
        f"| sends no request, or half a header | {serve.header_timeout_s:g} s (`--header-timeout-s`) "
        "| 408 if any of it came, close |",
        f"| sends half a body | {transfer} | 408 that names `body`, close |",
        f"| does not read its reply | {transfer} | close; what still runs is aborted |",
        f"| keeps a connection for its next request | {serve.keep_alive_timeout_s:g} s (`--keep-alive-timeout-s`) "
        "| close |",
        f"| sends a target of more than {MAX_TARGET >> 10} KiB | | 414, close |",
        f"| sends a header of more than {MAX_HEADER >> 10} KiB, or more than 128 headers | | 431, close |",
        "| sends bytes that are no HTTP | | 400, close |",
        "| ends its side of the connection before its reply is whole | | close; what still runs is aborted |\n",
        "These errors are JSON, in the native shape where no path is known. The time for a body grows with what has",
        f"come, so that this timeout cuts no upload of {rate} KiB/s or more, whatever its size, and none that takes",
        "less than a minute. Only where bodies wait for memory must an upload be faster ([Bodies](#bodies)). Progress",
        "alone does not count: a client that sends a byte now and then would hold its connection for ever. The same",
        "holds for a reply that is read slowly. A running request has no deadline but `--request-timeout-s`.\n",
        "A client that only stops sending (`nc -N`, `shutdown(SHUT_WR)`) gets no reply: what it sends is what a client",
        "sends that goes away, and a request that nobody waits for must not run to its end. Keep both sides open until",
        "the reply has come. With `nc`, leave out `-N` and send the header `Connection: close`.\n",
        f"At most `--max-connections` are open at once: {MAX_CONNECTIONS} by default, or as many as the limit of open",
        "files leaves, which is raised to its hard value at start (the log says both). At the limit, connections that",
        f"have waited for their next request for {MIN_IDLE_S:g} s or more make room, those that wait longest first;",
        "where there is none, a new connection gets a 503 and is closed. If descriptors run out nevertheless, the log",
        "says so, new connections wait, and are accepted when a file is closed.",
    ]


def bodies() -> list[str]:
    """What a body may be, and what the unusual ones come to."""
    serve = ServeArgs()
    most, codings = serve.max_body_items, "`gzip` (or `x-gzip`) and `deflate`"
    keys, opened = most // KEYS_SHARE, most // OPENED_SHARE
    return [
        "\n## Bodies\n",
        "A body is a JSON object in UTF-8. These answers hold on every path:\n",
        "| a body | gets |",
        "|---|---|",
        "| with a key twice | the last of its values counts, also in a schema that is sent as a text |",
        "| with `NaN` or `Infinity` | 400: it is not valid JSON |",
        "| with a number beyond float64, such as `1e400` | 400, in every field, with number, field and position |",
        "| with a whole number beyond 64 bits | a float64, but in messages, tools and schemas, which keep its digits |",
        "| with a key that means nothing | it is ignored, unless it seems to be a constraint's name: 400 |",
        f"| with more than {MAX_COMPARED} such keys | only other servers' names of constraints are still refused |",
        f"| of more than `--max-body-mb` ({serve.max_body_mb:g} MiB), inflated | 413 |",
        f"| with more than `--max-body-items` ({most:,}) entries of lists and objects | 400 |",
        f"| with more than {keys:,} keys, or {opened:,} lists and objects | 400: shares of `--max-body-items` |",
        f"| with more than {opened:,} numbers in fields that keep all digits (messages, tools, schemas, arguments of "
        "calls) where one of them has 16 digits or more | 400: a share of `--max-body-items` |",
        f"| with `Content-Encoding` {codings} | it is inflated; `br` and `zstd` with the Python packages for them |",
        "| that ends before its compressed data do | 400 |",
        "| with several codings, an unknown one, or one without its package | 415; `identity` and `utf-8` are none |",
        f"| that inflates to more than {MAX_RATIO} times its bytes, and to more than {FREE_BYTES >> 20} MiB | 413 |\n",
        "A text inside a body, such as a schema in a string or the arguments of a tool call, has the rules of its own",
        "field. Arguments of a chat's calls that are JSON in a text have together the default bounds of a body's",
        "entries, keys, lists and objects. Names that a client chose are cut where an error or the log repeats them.\n",
        "A body is counted and inflated as it comes, in pieces between which others are served. One process parses",
        f"and checks the bodies of more than {SMALL >> 10} KiB, another one those of more than {LARGE >> 20} MiB, each",
        "one body after the other; keys take turns, and of one key small bodies do not wait for all larger ones.",
        "The first such body starts the process. Until they are parsed,",
        f"all bodies share a memory of `--max-bodies-mb` ({Args().max_bodies_bytes >> 20} MiB):\n",
        f"- The first {BODY_FREE_BYTES >> 10} KiB of a body do not count and never wait.",
        "- A body that finds no room is not read until another has been parsed. This time does not count for its 408.",
        "- The oldest body never waits, so that one can always be completed. It may exceed the bound.",
        f"- Bodies whose `Content-Length` is at most {SMALL_BODY >> 20} MiB may hold memory beyond the bound,",
        f"  all of them together 1/{OF_SMALL} of it. So they do not wait while large ones fill the memory.",
        "- With `--api-key-file`, the bodies of one key hold at most `--max-share-per-key` of the memory. A key's",
        "  oldest body does not wait for this share.",
        f"- A body that others wait for must arrive at {MIN_HELD_BYTES_PER_S >> 20} MiB/s or more. Each second that",
        f"  one waits, the largest body that has been slower for {MIN_AGE_S:g} to {2 * MIN_AGE_S:g} s and has",
        f"  more than {BODY_FREE_BYTES >> 10} KiB is ended with a 408, even if it is the oldest. A body that waits",
        "  for its key's share ends only bodies of that key.",
    ]


def fields_table(struct: Any) -> list[str]:
    return ["| field | type | |", "|---|---|---|", *body_rows(struct)]


def table_of(path: str) -> str:
    return "\n".join(fields_table(ROUTES[path].body))


def parsers_table() -> str:
    by_class: dict[Any, list[str]] = {}
    for name in tool_parser_names():
        by_class.setdefault(tool_parser_class(name), []).append(name)
    lines = ["| `--tool-call-parser` | reads |", "|---|---|"]
    for parser, names in by_class.items():
        doc = parser.__doc__ or sys.modules[parser.__module__].__doc__ or ""
        said = doc.splitlines()[0].replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {said} |")
    lines += ["", "| `--reasoning-parser` | thoughts stand between |", "|---|---|"]
    for name in reasoning_names():
        style = reasoning_style(name)
        where = "; every output begins inside one" if style.always else ""
        marks = "the headers of the channels `analysis` and `final`" if style.channels else ""
        lines.append(f"| `{name}` | {marks or f'`{style.open_tag}` and `{style.close_tag}`'}{where} |")
    lines += ["", "| `--chat-template` | takes tools |", "|---|---|"]
    for name in built_in_names():
        takes = detect_tools(read_templates(BUNDLED_MODEL, name).default or "")
        lines.append(f"| `{name}` | {f'as `{takes}`' if takes else 'no'} |")
    return "\n".join(lines)


def body_rows(struct: Any) -> list[str]:
    """A row for each field: those of the struct itself before its bases', then those that are accepted without effect,
    and last those that are not built.
    """
    (shape,), components = schema_components([struct], ref_template="{name}")
    fields = components[shape["$ref"]]["properties"]

    def place(name: str) -> tuple[bool, bool, int]:
        declared = next(i for i, base in enumerate(struct.__mro__) if name in base.__annotations__)
        return "x-unbuilt" in fields[name], fields[name].get("description", "").startswith("accepted"), declared

    return [
        f"| `{name}` | {kind_of(fields[name])} | {fields[name].get('description', '')} |"
        for name in sorted(fields, key=place)
    ]


MAX_KINDS = 12  # more of them are in /openapi.json alone


def kind_of(schema: dict[str, Any]) -> str:
    """A schema's kinds in JSON's words; null goes without saying."""
    kinds = list(dict.fromkeys(kind for kind in kinds_of(schema) if kind != "null"))
    return " or ".join(kinds) if len(kinds) <= MAX_KINDS else "object, by its `type`"


def kinds_of(schema: dict[str, Any]) -> list[str]:
    if "$ref" in schema:
        return [schema["$ref"]]
    if "anyOf" in schema:
        return [kind for each in schema["anyOf"] for kind in kinds_of(each)]
    if "enum" in schema or "const" in schema:
        return [f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")])]
    types = schema.get("type", [])
    kinds = [types] if isinstance(types, str) else types
    inside = kind_of(schema["items"]) if isinstance(schema.get("items"), dict) else ""
    inside = f"({inside})" if " or " in inside or "," in inside else inside
    return [f"array of {inside}" if kind == "array" and inside else kind for kind in kinds]


def compat_table(server: str) -> str:
    """What --metrics-compat adds."""
    return "\n".join(names_table(COMPAT[server](Metrics(), ModelLabels("")).collect()))


def names_table(families: Iterable[Metric]) -> list[str]:
    lines = ["| name | kind | |", "|---|---|---|"]
    for m in families:
        name = f"{m.name}_total" if m.type == "counter" else m.name
        lines.append(f"| `{name}` | {m.type} | {m.documentation} |")
    return lines


def sampling_table() -> str:
    lines = ["| name | default | valid | |", "|---|---|---|---|"]
    for option in options_of(SamplingParams):
        empty = {} if isinstance(getattr(option.type, "item_type", None), TupleType) else []
        default = json.dumps(option.default if option.default != () else empty)
        lines.append(f"| `{option.name}` | `{default}` | {CHECKS[option.name].valid} | {option.about} |")
    return "\n".join(lines)


def sampling_defaults_note() -> str:
    taken = ", ".join(f"`{name}`" for name in TAKEN)
    bundled, table = sampling_defaults(BUNDLED_MODEL, "model"), SamplingParams()
    changed = [f"`{name}` {getattr(bundled, name)}" for name in TAKEN if getattr(bundled, name) != getattr(table, name)]
    return (
        f"The model's generation_config.json overrides the table for {taken}, unless the server runs with\n"
        f"`--sampling-defaults openai`. The bundled model's has {', '.join(changed)}."
    )


def families_table() -> str:
    """What each family reads of a config.json, found by letting it read an empty one."""
    read: dict[str, frozenset[str]] = {}
    for architecture in FAMILIES:
        config = ConfigObject({}, architecture)
        family_of(architecture).read_shape(config)
        read[architecture] = config.understood
    common = frozenset.intersection(*read.values())
    lines = [f"All of them understand {ticked(common)}. Beside these:", "", "| architecture | keys |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {ticked(keys - common)} |" for name, keys in read.items())])


def composites_table() -> str:
    """With the class of the text decoder, where the file names none, and how tied heads are said."""
    lines = ["| architecture | `text_config` without a `model_type` | tied |", "|---|---|---|"]
    for name, composite in COMPOSITES.items():
        tied = "unless it says no" if composite.tied else "if it says so"
        also = ", or `text_config` does" if composite.tied_as_text else ""
        lines.append(f"| `{name}` | `{composite.text}` | {tied}{also} |")
    others = f"`model_type` may be {ticked(TEXTS)}. Harmless to all of them: {ticked(COMPOSITE_KEYS)}."
    return "\n".join([*lines, "", others])


def others_table() -> str:
    """The classes that tests/differential/test_transformers_models.py serves, and those that are refused."""
    sys.path.insert(0, str(ROOT / "scripts"))
    from tiny_others import REFUSED, SERVED
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    served = {CLASSES[model_type] for model_type, _ in SERVED.values()}
    refused: dict[str, list[str]] = {}
    for name, (model_type, _, word) in REFUSED.items():
        refused.setdefault(word, []).append(f"`{CLASSES.get(model_type, name)}`")
    lines = [f"{len(served)} classes: {ticked(served)}.", "", "| refused | what the error names |", "|---|---|"]
    return "\n".join([*lines, *(f"| {', '.join(names)} | {word} |" for word, names in refused.items())])


def compared_table() -> str:
    """The registry, and the seeded checkpoints of each family that tests/differential compares."""
    from tiny_families import FAMILIES as CHECKPOINTS  # loads torch
    from tiny_media import FAMILIES as WITH_TOWERS
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    compared: dict[str, list[str]] = {}  # by module
    for name, (model_type, *_) in CHECKPOINTS.items():
        compared.setdefault(FAMILIES[CLASSES[model_type]], []).append(name)
    lines = ["| architecture | what it is | checkpoints that are compared |", "|---|---|---|"]
    for architecture, module in FAMILIES.items():
        about = " ".join((import_module(f"ramet.runtime.models.{module}").__doc__ or "").split())
        stem = _letters(architecture.removesuffix("ForConditionalGeneration"))
        own = [name for name in WITH_TOWERS if _letters(name) == stem]
        seeded = ", ".join(f"`{name}`" for name in compared.get(module, own)) or "none"
        lines.append(f"| `{architecture}` | {re.split(r'[.] (?=[A-Z])', about)[0].rstrip('.')} | {seeded} |")
    return "\n".join(lines)


def _letters(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def harmless_keys() -> str:
    neutral = ", ".join(f"`{name}` of {value:g}" for name, value in NEUTRAL_KEYS.items())
    return f"Harmless in every family: {ticked(HARMLESS)}. Neutral: {neutral}."


def ticked(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def processors_table() -> str:
    lines = ["| name | |", "|---|---|"]
    built_in = (kind for kind in LogitProcessor.registry.values() if kind.__module__ == LogitProcessor.__module__)
    lines += [f"| `{kind.to_str()}` | {' '.join((kind.__doc__ or '').split())} |" for kind in built_in]
    return "\n".join(lines)


def generate_table() -> str:
    return "\n".join(fields_table(GenerateBody))


def tuning_table() -> str:
    """The newest run of `ramet bench tuning` on each class of machine."""
    parts = []
    for machine, view in views_of("tuning", results()).items():
        parts += [f"**{machine.name}**", page.table(view), *page.sources(view)]
    return "\n\n".join(parts)


def options_table(group: str) -> str:
    """One group of the server's options."""
    lines = ["| option | default | |", "|---|---|---|"]
    for option in options_of(Args):
        if option.group == group:
            lines.append(f"| `{option.flag}` | {default_of(option)} | {option.about} |")
    return "\n".join(lines)


def default_of(option: Option) -> str:
    return "" if option.default in (None, ()) else f"`{option.default}`"


@cache
def results() -> dict[str, list[records.Record]]:
    return records.read(ROOT / "bench" / "results")


@cache
def performance() -> page.MadePage:
    return page.make((ROOT / "bench" / "figures" / "frame.md").read_text(), results())


PAGES: dict[str, Callable[[], str]] = {
    "options.md": options,
    "http-api.md": http_api,
    "performance.md": lambda: performance().page,
}


def backends_tables() -> str:
    """What the tests of the grammar backends see of them."""
    sys.path.insert(0, str(ROOT / "tests" / "fakes"))
    from grammar_cases.capabilities import table as enforced

    return enforced()


TABLES: dict[str, Callable[[], str]] = {
    "metrics": lambda: "\n".join(names_table(Metrics().collect())),
    **{f"metrics of {server}": partial(compat_table, server) for server in COMPAT},
    "sampling parameters": sampling_table,
    "sampling defaults": sampling_defaults_note,
    "constraints": lambda: "\n".join(fields_table(ConstraintFields)),
    "logit processors": processors_table,
    "families and their tests": compared_table,
    "model families": families_table,
    "composite models": composites_table,
    "harmless keys": harmless_keys,
    "models of transformers' modules": others_table,
    "fields of /generate": generate_table,
    "fields of session_params": lambda: "\n".join(fields_table(SessionParams)),
    **{f"fields of {path}": partial(table_of, path) for path in (*OPENAI_PATHS, *LANGUAGE_PATHS)},
    "parsers and templates": parsers_table,
    "tuning figures": tuning_table,
    "gpu figures": lambda: gpu.tables(records.read(ROOT / "bench" / "results")["gpu"]),
    "gpu predictions": gpu.predictions,
    "gpu kernels": lambda: gpu.kernels(records.read(ROOT / "bench" / "results")["gpu_kernels"]),
    "what backends enforce": backends_tables,
    "what each backend of the language can do": table.as_markdown,
    "sampling parameters of each backend": table.sampling_table,
    **{f"options: {group}": partial(options_table, group) for group in ("cache", "schedule", "execute")},
}
BETWEEN = re.compile(r"(<!-- made: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def made() -> Iterator[tuple[Path, str]]:
    """Each page and plot, and what it should hold."""
    for name, make in PAGES.items():
        yield ROOT / "docs" / name, MADE + make()
    for name, plot in performance().plots.items():
        yield FIGURES / name, plot
    yield ROOT / "deploy" / "grafana" / "dashboards" / "ramet.json", as_json()
    for theme in svg.THEMES:
        yield FIGURES / f"{gpu.PREDICTED}.{theme.name}.svg", svg.draw(gpu.predicted_plot(), theme)
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text()
        if path.name not in PAGES and BETWEEN.search(text):
            yield path, BETWEEN.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)


def main(argv: list[str]) -> int:
    wanted = dict(made())
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    left = [path for path in FIGURES.glob("*") if path not in wanted]
    if "--check" not in argv:
        for path in stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
        for path in left:
            path.unlink()
    names = ", ".join(path.name for path in [*stale, *left])
    print("up to date" if not names else f"{'stale' if '--check' in argv else 'written or deleted'}: {names}")
    return 1 if names and "--check" in argv else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
