"""What bodies say of their fields: a sampling parameter under some name, or a feature that is not built.

Decides their descriptions and schemas, for /openapi.json and the documentation. Knows no endpoint.
"""

from typing import Any, get_type_hints

from msgspec import Meta

from ramet.ipc.params import CHECKS, SamplingParams, about

_ABOUT = {
    name: hint.__metadata__[0].description for name, hint in get_type_hints(SamplingParams, include_extras=True).items()
}


def sampled(name: str, note: str = "") -> Meta:
    """Says of a field that it is the sampling parameter `name`."""
    text = f"{_ABOUT[name]}: {CHECKS[name].valid}" + (f"; {note}" if note else "")
    return Meta(description=text, extra_json_schema={"anyOf": [CHECKS[name].schema, {"type": "null"}]})


def unbuilt(text: str, **schema: Any) -> Meta:
    """Says of a field that any value but one that asks for nothing is refused."""
    return about(f"*refused until it is built*: {text}", **{"x-unbuilt": True}, **schema)
