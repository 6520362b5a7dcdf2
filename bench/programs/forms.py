"""Forms that are filled in under regular expressions: fields of a page, and a whole record of a character."""

from typing import Any

from ramet import function, gen
from ramet.bench.constrained_cases import CHARACTER

FIELDS = {
    "name": r'"[\w\d\s]{1,16}"', "country": r'"[\w\d\s]{1,16}"', "latitude": r"[-+]?[0-9]{1,2}\.[0-9]{1,4}",
    "population": r"[0-9]{3,8}", "landmarks": r'\["[\w\d\s]{1,16}", "[\w\d\s]{1,16}", "[\w\d\s]{1,16}"\]',
}  # fmt: skip


@function
def fill_in(s: Any, page: str, serial: bool) -> None:
    s += page + "\n{"
    for name, regex in FIELDS.items():
        s += f'"{name}": ' + gen(name, max_tokens=64, regex=regex) + ", "


@function
def describe(s: Any, name: str, serial: bool) -> None:
    s += name + "\n" + gen("record", max_tokens=256, regex=CHARACTER)
