"""The house in figures: `python tests/rules/house.py` prints them, test_house.py holds them.

What tells whether the core is small and features stand beside it: lines of the core that name an optional feature,
attributes of classes, parameters of functions, calls that splat a local tuple, class names that stand twice, fragments
of sentences, questions for the device's type. Sizes of rooms are printed and never bounded: features may come, the core
may not grow.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("ipc", "runtime", "frontend", "kernels", "bench")
SCHEDULER = "runtime/scheduler/"
ASIDE = {"process", "profiling", "report", "view", "watchdog", "invariants", "step_events", "slowing", "__init__"}
TABLES = re.compile(  # tables of options, wire messages, and what only shapes bodies or measures
    r"runtime/config\.py|ipc/(messages|params|stats|spec)\.py|runtime/(server|intake)/|runtime/models/shape\.py|bench/"
)
FEATURE = re.compile(
    r"states\b|snapshot|groups?\b|first_group|assembl|\bparts?\b|\bbase\b|PART_ROWS|\bmedia\b|towers?\b|features\b"
    r"|\bturns\b|heal|\btail|constrain|\bmask|adapter|\blora|follow_up|prefix_lease|self\.leases|hidden|pooled"
    r"|returns_mean|logprob|routes|longrope_limit|is_long|outgrown|\bweights\b|_pace\b|penal|processor|forgotten|embeds|draft"
    r"|specul|\btiers?\b|\bhost_|\bdisk|resumed|\branks?\b"
)
FRAGMENT = re.compile(r"(Of|Those|That|As|It|The same|They|These)\b")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class House:
    """Every module of the product, parsed; figures are made when somebody asks for them."""

    texts: dict[str, str] = field(
        default_factory=lambda: {
            str(path.relative_to(ROOT)): path.read_text()
            for room in ROOMS
            for path in sorted((ROOT / room).rglob("*.py"))
        }
    )

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        return {path: ast.parse(text) for path, text in self.texts.items()}

    def _all(self, *kinds: type) -> Iterator[tuple[str, ast.AST]]:
        return ((path, node) for path, tree in self.trees.items() for node in ast.walk(tree) if isinstance(node, kinds))

    @cached_property
    def scheduler(self) -> list[str]:
        """The scheduler's own folder: features live in a room below it; reports, views and the watchdog are apart."""
        return [p for p in self.texts if p.rpartition("/")[0] + "/" == SCHEDULER and Path(p).stem not in ASIDE]

    def naming_features(self, paths: Iterable[str]) -> Counter[str]:
        """Lines of each of these modules that name an optional feature."""
        return Counter({p: sum(bool(FEATURE.search(line)) for line in self.texts[p].split("\n")) for p in paths})

    @cached_property
    def attributes(self) -> Counter[str]:
        """Fields, and attributes that are set on self anywhere, of each class that is no table."""
        found = Counter[str]()
        for path, each in self._all(ast.ClassDef):
            assert isinstance(each, ast.ClassDef)
            if TABLES.match(path):
                continue
            own = {
                a.attr
                for method in each.body
                if isinstance(method, Function)
                for a in ast.walk(method)
                if isinstance(a, ast.Attribute) and isinstance(a.ctx, ast.Store)
                if isinstance(a.value, ast.Name) and a.value.id == "self"
            }
            own |= {
                b.target.id
                for b in each.body
                if isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name)
                if "ClassVar" not in ast.unparse(b.annotation)
            }
            found[f"{path}:{each.name}"] = len(own)
        return found

    @cached_property
    def class_lines(self) -> Counter[str]:
        """Lines of each class."""
        return Counter(
            {f"{path}:{c.name}": _lines(c) for path, c in self._all(ast.ClassDef) if isinstance(c, ast.ClassDef)}
        )

    @cached_property
    def file_lines(self) -> Counter[str]:
        """Lines of each module that is no table."""
        return Counter({path: text.count("\n") for path, text in self.texts.items() if not TABLES.match(path)})

    @cached_property
    def parameters(self) -> Counter[str]:
        """Parameters of each function, self and Triton's kernels and the public `gen` apart."""
        found = Counter[str]()
        for path, each in self._all(ast.FunctionDef, ast.AsyncFunctionDef):
            assert isinstance(each, Function)
            given = each.args.args + each.args.kwonlyargs
            if (
                any("triton" in ast.unparse(d) for d in each.decorator_list)
                or f"{path}:{each.name}" == "frontend/api.py:gen"
            ):
                continue
            found[f"{path}:{each.lineno} {each.name}"] = len(given) - bool(given and given[0].arg == "self")
        return found

    @cached_property
    def splats(self) -> list[str]:
        """Calls that splat a tuple which the same function has made."""
        return [
            f"{path}:{call.lineno}"
            for path, each in self._all(ast.FunctionDef, ast.AsyncFunctionDef)
            for made in [_tuples(each)]
            for call in ast.walk(each)
            if isinstance(call, ast.Call)
            for a in call.args
            if isinstance(a, ast.Starred) and isinstance(a.value, ast.Name) and a.value.id in made
        ]

    @cached_property
    def names_twice(self) -> dict[str, set[str]]:
        """Class names that stand in two modules or more, and where."""
        names = defaultdict[str, set[str]](set)
        for path, each in self._all(ast.ClassDef):
            assert isinstance(each, ast.ClassDef)
            names[each.name].add(path)
        return {name: paths for name, paths in names.items() if len(paths) > 1}

    @cached_property
    def fragments(self) -> tuple[int, int]:
        """(docstrings of functions and classes that begin without their noun, all of them)"""
        texts = [
            text
            for _, each in self._all(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            if (text := ast.get_docstring(each))  # type: ignore[arg-type]
        ]
        return sum(bool(FRAGMENT.match(text)) for text in texts), len(texts)

    @cached_property
    def num_classes(self) -> int:
        return len(self.class_lines)

    def matches(self, pattern: str) -> list[str]:
        """Modules outside engine/devices that match, once for each match."""
        apart = "runtime/engine/devices/"
        return [p for p, text in self.texts.items() if not p.startswith(apart) for _ in re.findall(pattern, text)]

    @cached_property
    def forwards(self) -> list[str]:
        """Definitions of `forward(q, k, v, ...)`."""
        return [
            f"{path}:{each.lineno}"
            for path, each in self._all(ast.FunctionDef)
            if isinstance(each, ast.FunctionDef)
            if each.name == "forward" and [a.arg for a in each.args.args[1:4]] == ["q", "k", "v"]
        ]


def _lines(node: ast.ClassDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _tuples(function: ast.AST) -> set[str]:
    """Local names that a function gives to tuples."""
    made = set[str]()
    for each in ast.walk(function):
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Tuple):
            target = each.targets[0]
            if isinstance(target, ast.Name):
                made.add(target.id)
            elif isinstance(target, ast.Tuple):
                pairs = zip(target.elts, each.value.elts, strict=False)
                made |= {a.id for a, b in pairs if isinstance(a, ast.Name) and isinstance(b, ast.Tuple)}
    return made


if __name__ == "__main__":
    house = House()
    rooms = Counter({room: 0 for room in ROOMS})
    for path, text in house.texts.items():
        rooms["/".join(path.split("/")[: 2 if path.startswith("runtime/") else 1])] += text.count("\n")
    print("lines of rooms:", ", ".join(f"{room} {num}" for room, num in rooms.most_common() if num))
    print("lines without bench:", sum(t.count("\n") for p, t in house.texts.items() if not p.startswith("bench/")))
    named, total = house.naming_features(house.scheduler), sum(house.texts[p].count("\n") for p in house.scheduler)
    print(
        f"scheduler: {total} lines in {len(house.scheduler)} files, {named.total()} name a feature:",
        named.most_common(9),
    )
    for title, counts in (("attributes", house.attributes), ("lines of classes", house.class_lines),
                          ("lines of files", house.file_lines), ("parameters", house.parameters)):  # fmt: skip
        print(f"most {title}:", ", ".join(f"{num} {name}" for name, num in counts.most_common(12)))
    print("splats:", len(house.splats), " names twice:", len(house.names_twice), " forwards:", len(house.forwards))
    print("fragments of docstrings:", *house.fragments, " device.type:", len(house.matches(r"device\.type")))
