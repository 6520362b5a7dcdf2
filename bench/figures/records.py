"""Lines of bench/results/ by machine class, oldest first. Knows no benchmark.

Figures of two machine classes are never compared: a hypervisor often gives unlike CPUs one name, so the class holds
the newest matrix or vector instructions too, where a line has them.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = dict[str, Any]
_BENCH = re.compile(r"python -m ramet bench \w+ ?")
_INCIDENTAL = re.compile(r"--(rounds|output-file)[ =]\S+ ?")  # how often and to where: the same thing is measured


@dataclass(frozen=True, order=True)
class MachineClass:
    cpu: str
    cores: int
    gpu: str  # empty: none
    instructions: str  # empty: the line does not say

    @property
    def name(self) -> str:
        parts = [self.cpu, f"{self.cores} cores", self.gpu, self.instructions and f"with {self.instructions}"]
        return ", ".join(part for part in parts if part)

    @property
    def slug(self) -> str:
        plain = self.name.lower().replace("(r)", "").replace("(tm)", "")
        return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def read(folder: Path) -> dict[str, list[Record]]:
    """Name of each results file -> its lines, oldest first."""
    return {path.stem: _oldest_first(path.read_text()) for path in sorted(folder.glob("*.jsonl"))}


def _oldest_first(lines: str) -> list[Record]:
    return sorted(map(json.loads, lines.splitlines()), key=lambda record: str(record["time"]))


def machine_class(record: Record) -> MachineClass:
    machine = record["machine"]
    gpu = machine.get("gpu", "").split(",")[0]  # the driver's version comes after it
    instructions = machine.get("instructions") or [""]
    return MachineClass(machine["cpu"], machine["cores"], gpu, instructions[-1])


def by_class(records: Iterable[Record]) -> dict[MachineClass, list[Record]]:
    found: dict[MachineClass, list[Record]] = {}
    for record in records:
        found.setdefault(machine_class(record), []).append(record)
    return dict(sorted(found.items()))


def variant(record: Record) -> str:
    """What a command asks for beyond its benchmark's defaults; two lines of one variant measured the same thing."""
    return _INCIDENTAL.sub("", _BENCH.sub("", record["command"]) + " ").strip()


def newest_of_each_variant(records: Iterable[Record]) -> list[Record]:
    """Of lines that come oldest first, and so do those that are returned."""
    found = {variant(record): record for record in records}
    return sorted(found.values(), key=lambda record: str(record["time"]))
