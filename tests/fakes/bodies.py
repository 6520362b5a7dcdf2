"""Bodies as the server reads them, without the server."""

from typing import Any

from ramet.runtime.config import ServeArgs
from ramet.runtime.intake.body import parse_object
from ramet.runtime.intake.body_items import counted

MOST_ITEMS = ServeArgs().max_body_items


def parsed(data: bytes, most: int = MOST_ITEMS) -> dict[str, Any]:
    return parse_object(data, counted(data, most))
