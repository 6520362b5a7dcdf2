"""Fields of a body whose numbers keep their digits, because their JSON is meant for a template or a grammar.

The fast parser turns an integer beyond 64 bits into a float. If a body may have such numbers, these fields are parsed
again.
"""

from typing import Any

import msgspec

from ramet.runtime.exact_json import loads, may_round

KWARGS = "chat_template_kwargs"
FIELDS = frozenset({
    "messages", "tools", "input", "documents", KWARGS,
    "response_format", "json_schema", "structural_tag", "guided_json", "structured_outputs", "text", "output_format",
    "output_config",
})  # fmt: skip
NESTED = "sampling_params"  # an object, or a list of objects, that may contain such fields

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
Members = dict[str, msgspec.Raw]


def with_exact_numbers(value: dict[str, Any], data: bytes | bytearray) -> dict[str, Any]:
    """Restores exact numbers in `value`, which was parsed from the valid body `data`. WRITES `value` and returns it."""
    if (NESTED in value or not FIELDS.isdisjoint(value)) and may_round(data):
        members = _members(data)
        _restore(value, members)
        match value.get(NESTED):
            case dict() as one:
                _restore(one, _members(members[NESTED]))
            case list() as each:
                for one, raw in zip(each, _items(members[NESTED]), strict=True):
                    if isinstance(one, dict):
                        _restore(one, _members(raw))
    return value


def _restore(value: dict[str, Any], members: Members) -> None:
    """WRITES `value`, which has these members."""
    for name in FIELDS & value.keys():
        raw = members[name]
        if may_round(bytes(raw)):
            value[name] = _unread(raw) if name == KWARGS and isinstance(value[name], dict) else loads(raw)


def _unread(raw: msgspec.Raw) -> dict[str, Any]:
    """Lists and objects for the chat template stay JSON: only the template looks into them."""
    return {name: each if memoryview(each)[0] in b"[{" else loads(each) for name, each in _members(raw).items()}
