"""Keys of a GGUF file that --json-model-override-args leaves out: those that are null and have a point in their name.

config.json has no such names, so that both kinds of keys stand in one object.
"""

import json


def split(overrides: str) -> tuple[str, frozenset[str]]:
    """What is left for config.json, and the keys. What is no JSON object is left whole: who reads it names it."""
    try:
        values = json.loads(overrides) if overrides else {}
    except (ValueError, RecursionError):
        return overrides, frozenset()
    if not isinstance(values, dict):
        return overrides, frozenset()
    left_out = frozenset(name for name, value in values.items() if value is None and "." in name)
    if not left_out:
        return overrides, left_out
    rest = {name: value for name, value in values.items() if name not in left_out}
    return json.dumps(rest) if rest else "", left_out
