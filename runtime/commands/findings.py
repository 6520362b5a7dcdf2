"""Lines of a report: what was looked at, what was found, what to do. Decides how they look."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found, and for a note or a lack what to do."""

    kind: Kind
    what: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {"ok": "  ok     ", "note": "  note   ", "missing": "  MISSING"}[self.kind]
        return f"{mark} {self.what:<18} {self.found}" + (f"\n{'':10} {'':<18} -> {self.remedy}" if self.remedy else "")
