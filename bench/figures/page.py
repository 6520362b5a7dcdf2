"""docs/performance.md from its frame: what people wrote, with the figures of every machine class filled in.

The frame has a section for each question: its method, then `<!-- view: NAME -->`, then conclusions. A conclusion is a
paragraph under a line `<!-- holds: 1 < single_ratio -->`: it is shown where that is so, and numbers in it stand in
braces, `{single_ratio:.1f}`, so that new lines in bench/results/ never leave a sentence that is wrong. A question
without a line in bench/results/ is left out.
"""

import operator
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ramet.bench.figures.questions import Results, views_of
from ramet.bench.figures.records import MachineClass, Record
from ramet.bench.figures.svg import THEMES, draw
from ramet.bench.figures.view import View

VIEW = re.compile(r"^<!-- view: (\w+) -->\n", re.MULTILINE)
CONCLUSION = re.compile(r"<!-- holds: (.+?) -->\n(.+?)(?=\n\n|\Z)", re.DOTALL)
NO_CONCLUSION = "*Nobody has written a conclusion that holds for these figures.*"
VERSIONS = ("python", "ramet", "torch", "transformers")
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True)
class MadePage:
    page: str
    plots: dict[str, str]  # file name in docs/figures/ -> SVG


def make(frame: str, results: Results) -> MadePage:
    head, *sections = re.split(r"^(?=## )", frame, flags=re.MULTILINE)
    texts, plots = [head.rstrip()], {}
    for section in sections:
        for text, files in _section(section, results):
            texts.append(text)
            plots.update(files)
    return MadePage("\n\n".join(texts) + "\n", plots)


def _section(section: str, results: Results) -> Iterator[tuple[str, dict[str, str]]]:
    """The method, then one part for each machine class; nothing if there is none."""
    found = VIEW.search(section)
    if not found:
        yield section.rstrip(), {}
        return
    views = views_of(found[1], results)
    if views:
        yield section[: found.start()].rstrip(), {}
    for machine, view in views.items():
        yield _part(found[1], machine, view, section[found.end() :])


def _part(name: str, machine: MachineClass, view: View, written: str) -> tuple[str, dict[str, str]]:
    """One question on one machine class."""
    files = {f"{name}-{machine.slug}.{theme.name}.svg": draw(view.plot, theme) for theme in THEMES}
    light, dark = files
    picture = (
        f'<picture>\n<source media="(prefers-color-scheme: dark)" srcset="figures/{dark}">\n'
        f'<img alt="{view.plot.title}: {view.plot.axis}" src="figures/{light}">\n</picture>'
    )
    shown = conclusions(written, view.numbers) or [NO_CONCLUSION]
    return "\n\n".join([f"**{machine.name}**", *shown, picture, table(view), *sources(view)]), files


def conclusions(written: str, numbers: Mapping[str, float]) -> list[str]:
    """Those paragraphs whose numbers are there and whose condition holds, with the numbers filled in."""
    return [
        text.strip().format_map(numbers)
        for condition, text in CONCLUSION.findall(written)
        if cited(text) <= set(numbers) and holds(condition, numbers)
    ]


def cited(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def holds(condition: str, numbers: Mapping[str, float]) -> bool:
    """Of chains like "1 < single_ratio <= shared_ratio", joined by "and"; false if a number is missing."""
    return all(_chain_holds(chain.split(), numbers) for chain in condition.split(" and "))


def _chain_holds(words: list[str], numbers: Mapping[str, float]) -> bool:
    names, signs = words[::2], words[1::2]
    if any(name not in numbers and not _is_number(name) for name in names):
        return False
    values = [float(name) if _is_number(name) else numbers[name] for name in names]
    return all(_COMPARE[sign](a, b) for a, sign, b in zip(values, signs, values[1:]))


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", word) is not None


def table(view: View) -> str:
    lines = [view.header, ("---", *["---:"] * (len(view.header) - 1)), *view.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def sources(view: View) -> list[str]:
    """For each commit and set of versions, the commands; the raw lines have the rest."""
    commands: dict[str, list[str]] = {}
    for record in view.sources:
        commands.setdefault(_source(record), []).append(record["command"])
    return [f"{where}\n\n```\n{chr(10).join(each)}\n```" for where, each in commands.items()]


def _source(record: Record) -> str:
    commit = f"commit `{record['commit'][:10]}`" + (" with changes" if record["commit"].endswith("+") else "")
    versions = [f"{name} {record['versions'][name]}" for name in VERSIONS if name in record["versions"]]
    rounds = [f"{record['rounds']} rounds"] if "rounds" in record else []
    memory = f"{record['machine']['memory_gib']:g} GiB"
    return ", ".join([record["time"][:10], *rounds, commit, memory, *versions]) + ":"
