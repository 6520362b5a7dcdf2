"""Fields of a body whose numbers keep their digits, because their JSON is meant for a template or a grammar.

The fast parser turns an integer beyond 64 bits into a float. If a body may have such numbers, these fields are parsed
again. Each of their numbers takes up to 0.8 us then, so their count has a bound of its own.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from ramet.runtime.exact_json import loads, may_round
from ramet.runtime.intake.body_items import check_numbers

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
Field = tuple[dict[str, Any], str, bytes]  # an object, the name of one of its fields, and that field's JSON


def with_exact_numbers(value: dict[str, Any], data: bytes | bytearray, most: int) -> dict[str, Any]:
    """Restores exact numbers in `value`, which was parsed from the valid body `data`. WRITES `value` and returns it.

    `most`: how many numbers the fields may have that are parsed again. Raises ClientError.
    """
    if (NESTED in value or not FIELDS.isdisjoint(value)) and may_round(data):
        members = _members(data)
        fields = list(_rounded(value, members))
        match value.get(NESTED):
            case dict() as one:
                fields += _rounded(one, _members(members[NESTED]))
            case list() as each:
                for one, raw in zip(each, _items(members[NESTED]), strict=True):
                    if isinstance(one, dict):
                        fields += _rounded(one, _members(raw))
        _restore(fields, most)
    return value


def _rounded(value: dict[str, Any], members: Members) -> Iterator[Field]:
    """Those of an object's fields that may have lost digits, given its members."""
    for name in FIELDS & value.keys():
        if may_round(data := bytes(members[name])):
            yield value, name, data


def _restore(fields: list[Field], most: int) -> None:
    """WRITES their objects. Raises ClientError."""
    read = [field for field in fields if not _stays_json(field)]
    check_numbers([(name, data) for _, name, data in read], most)
    for value, name, data in fields:
        value[name] = _unread(data) if _stays_json((value, name, data)) else loads(data)


def _stays_json(field: Field) -> bool:
    value, name, _ = field
    return name == KWARGS and isinstance(value[name], dict)


def _unread(raw: bytes) -> dict[str, Any]:
    """Lists and objects for the chat template stay JSON: only the template looks into them."""
    return {name: each if memoryview(each)[0] in b"[{" else loads(each) for name, each in _members(raw).items()}
