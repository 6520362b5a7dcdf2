"""Fields of a body whose numbers keep their digits, because their JSON is meant for a template or a grammar.

The fast parser turns an integer beyond 64 bits into a float. If a body may have such numbers, these fields are parsed
again.
"""

from typing import Any

import msgspec

from ramet.runtime.exact_json import loads, may_round

FIELDS = frozenset({
    "messages", "tools", "input", "documents", "chat_template_kwargs",
    "response_format", "json_schema", "structural_tag", "guided_json", "structured_outputs", "text", "output_format",
    "output_config",
})  # fmt: skip
NESTED = "sampling_params"  # an object, or a list of objects, that may contain such fields

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def with_exact_numbers(value: dict[str, Any], data: bytes | bytearray) -> dict[str, Any]:
    """Restores exact numbers in `value`, which was parsed from the valid body `data`. WRITES `value` and returns it."""
    if (NESTED in value or not FIELDS.isdisjoint(value)) and may_round(data):
        _read_again(value, data)
    return value


def _read_again(value: Any, data: bytes | bytearray | msgspec.Raw) -> None:
    if isinstance(value, list):
        for one, raw in zip(value, _items(data), strict=True):
            _read_again(one, raw)
    elif isinstance(value, dict):
        for name, raw in _members(data).items():
            if name == NESTED:
                _read_again(value[name], raw)
            elif name in FIELDS and may_round(bytes(raw)):
                value[name] = loads(raw)
