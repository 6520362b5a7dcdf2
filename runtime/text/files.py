"""JSON files of a model folder. Decides what a missing or broken one means; knows none of their fields."""

import json
from pathlib import Path
from typing import Any

from ramet.runtime.errors import ConfigError


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`; {} when there is no such file. Raises ConfigError when it is no JSON object."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds a {type(content).__name__}, must hold a JSON object")
    return content
