"""JSON files of a model folder. Decides what a missing or broken one means; knows none of their fields."""

import json
from pathlib import Path
from typing import Any

from ramet.runtime.errors import ConfigError


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`; {} when there is no such file. Raises ConfigError when it is no JSON object."""
    content = _content(path, {})
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds a {type(content).__name__}, must hold a JSON object")
    return content


def read_json_list(path: Path) -> list[dict[str, Any]]:
    """The objects listed in `path`; [] when there is no such file. Raises ConfigError when it is no such list."""
    content = _content(path, [])
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise ConfigError(f"{path} must hold a JSON list of objects")
    return content


def _content(path: Path, missing: Any) -> Any:
    if not path.is_file():
        return missing
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from error
