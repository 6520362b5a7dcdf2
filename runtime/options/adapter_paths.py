"""Adapters as an operator names them: --lora-paths, and what may be loaded while the server runs.

Decides what a name is and which folders are allowed. Reads no file of an adapter.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ramet.runtime.errors import ConfigError

MAX_NAME = 128  # characters
KEYS = {"lora_name", "lora_path", "pinned"}


class NamedAdapter(NamedTuple):
    """`pinned`: it stays in its slot, whoever else waits for one."""

    name: str
    path: str
    pinned: bool = False


def read_paths(entries: Sequence[str], most: int, num_slots: int, folder: str) -> list[NamedAdapter]:
    """Of --lora-paths: NAME=PATH, PATH, or JSON with KEYS. Raises ConfigError that names the entry."""
    if len(entries) > most:
        raise ConfigError(f"--lora-paths has {len(entries)} adapters, must have at most {most} (--max-loaded-loras)")
    found: list[NamedAdapter] = []
    for entry in entries:
        adapter = _read(entry)
        place = f"--lora-paths {entry}"
        if fact := wrong_name(adapter.name):
            raise ConfigError(f"{place}: the name {adapter.name!r} {fact}")
        if adapter.name in [other.name for other in found]:
            raise ConfigError(f"{place}: two adapters have the name {adapter.name!r}")
        if fact := wrong_path(adapter.path, folder):
            raise ConfigError(f"{place}: the path {adapter.path} {fact}")
        found.append(adapter)
    num_pinned = sum(adapter.pinned for adapter in found)
    if num_pinned >= num_slots:
        raise ConfigError(
            f"--lora-paths pins {num_pinned} adapters, must be fewer than --max-loras-per-batch ({num_slots}): others "
            "would never run"
        )
    return found


def _read(entry: str) -> NamedAdapter:
    if not entry.startswith("{"):
        name, is_named, path = entry.partition("=")
        return NamedAdapter(name, path) if is_named else NamedAdapter(Path(entry).name, entry)
    try:
        value: Any = json.loads(entry)
    except ValueError as error:
        raise ConfigError(f"--lora-paths {entry} is not valid JSON: {error}") from None
    name, path, pinned = value.get("lora_name"), value.get("lora_path"), value.get("pinned", False)
    if not (isinstance(name, str) and isinstance(path, str) and isinstance(pinned, bool)) or value.keys() - KEYS:
        raise ConfigError(
            f"--lora-paths {entry} must be an object with the strings lora_name and lora_path, and maybe pinned, true "
            "or false"
        )
    return NamedAdapter(name, path, pinned)


def wrong_name(name: str) -> str:
    """Why an adapter cannot have it; empty: it can. A colon ends the model's name in `model: "base:adapter"`."""
    if not 0 < len(name) <= MAX_NAME:
        return f"has {len(name)} characters, must have 1 to {MAX_NAME}"
    if ":" in name or not name.isprintable():
        return "must have no colon and no control character"
    return ""


def wrong_path(path: str, folder: str) -> str:
    """Why it cannot be loaded; empty: it may be. `folder`: --lora-dir, which links do not lead out of."""
    try:
        parts = [Path(path).resolve(), *(entry.resolve() for entry in Path(path).glob("*"))] if folder else []
        if not all(part.is_relative_to(Path(folder).resolve()) for part in parts):
            return f"is outside of --lora-dir {folder}"
        return "" if Path(path).is_dir() else "is not a folder on this machine"
    except (OSError, ValueError, RuntimeError) as error:  # a name that no file has, or links in a circle
        return f"is not a folder on this machine ({error})"
