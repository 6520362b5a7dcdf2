"""The JSON-Schema-Test-Suite, from tests/data."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "data" / "json_schema_suite"
DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}


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


def groups() -> Iterator[Group]:
    for draft in DRAFTS:
        for line in (FOLDER / f"{draft}.jsonl").read_text().splitlines():
            yield Group(draft, **json.loads(line))
