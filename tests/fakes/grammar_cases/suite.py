"""The JSON-Schema-Test-Suite, from tests/data: its groups, and the texts that stand for an instance."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "data" / "json_schema_suite"
DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}
MAX_SPELLINGS = 60


@dataclass(frozen=True, slots=True)
class Group:
    draft: str
    file: str
    description: str
    schema: Any
    tests: list[tuple[str, Any, bool]]  # what it shows, an instance, whether it is valid

    @property
    def name(self) -> str:
        return f"{self.draft}/{self.file}: {self.description}"

    @property
    def text(self) -> str:
        """The schema, which says its dialect as far as one can."""
        schema = self.schema
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": DRAFTS[self.draft], **schema}
        return json.dumps(schema, ensure_ascii=False)


def groups() -> list[Group]:
    return [
        Group(draft, **json.loads(line))
        for draft in DRAFTS
        for line in (FOLDER / f"{draft}.jsonl").read_text().splitlines()
    ]


def spellings(instance: Any) -> list[str]:
    """Texts of an instance with single spaces: orders of its members, escaped or not, whole numbers with a fraction."""
    found = {
        json.dumps(other, ensure_ascii=escaped)
        for other in islice(_variants(instance), MAX_SPELLINGS)
        for escaped in (False, True)
    }
    return sorted(found)


def _variants(value: Any) -> Iterator[Any]:
    match value:
        case dict():
            for order in permutations(value):
                for inner in product(*(list(islice(_variants(value[key]), 6)) for key in order)):
                    yield dict(zip(order, inner))
        case list():
            for inner in product(*(list(islice(_variants(item), 4)) for item in value)):
                yield list(inner)
        case bool() | None | str():
            yield value
        case int() if abs(value) < 2**53:
            yield value
            yield float(value)
        case float() if value.is_integer() and abs(value) < 2**53:
            yield value
            yield int(value)
        case _:
            yield value
