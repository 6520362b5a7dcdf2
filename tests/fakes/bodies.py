"""Bodies as the server reads them, without the server."""

from typing import Any

from ramet.runtime.config import ServeArgs
from ramet.runtime.intake.body import parse_object
from ramet.runtime.intake.body_items import ItemCount

MAX_ITEMS = ServeArgs().max_body_items


def parsed(data: bytes, most: int = MAX_ITEMS) -> dict[str, Any]:
    count = ItemCount(most)
    count.add(data)
    count.check(data)
    return parse_object(data, count)
