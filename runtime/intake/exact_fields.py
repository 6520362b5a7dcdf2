"""Fields of a body whose numbers keep their digits, because their JSON is meant for a template or a grammar.

The fast parser turns an integer beyond 64 bits into a float. If a body may have such numbers, these fields are parsed
again, or stay JSON where nobody needs to look into them (unread_json.py). Each number that is read takes up to 0.8 us,
so their count has a bound of its own.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from ramet.runtime.exact_json import may_round
from ramet.runtime.intake.body_items import check_numbers
from ramet.runtime.intake.unread_json import ITEMS, Path, with_unread

KWARGS = "chat_template_kwargs"
# whose numbers keep their digits -> where in them JSON of any kind stands
FIELDS: dict[str, tuple[Path, ...]] = {
    "messages": (
        (ITEMS, "tool_calls", ITEMS, "function", "arguments"),
        (ITEMS, "function_call", "arguments"),
        (ITEMS, "content", ITEMS, "input"),
    ),
    "tools": ((ITEMS, "function", "parameters"), (ITEMS, "input_schema"), (ITEMS, "parameters")),
    "input": (),
    "documents": ((ITEMS,),),
    "metadata": (),
    KWARGS: ((),),
    "response_format": (("json_schema", "schema"), ("schema",)),
    "json_schema": ((),),
    "structural_tag": ((),),
    "guided_json": ((),),
    "structured_outputs": (("json",), ("structural_tag",)),
    "text": (("format", "schema"),),
    "output_format": (("schema",),),
    "output_config": (("format", "schema"),),
}
NESTED = "sampling_params"  # an object, or a list of objects, that may contain such fields

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
Members = dict[str, msgspec.Raw]
Field = tuple[dict[str, Any], str, bytes]  # an object, the name of one of its fields, and that field's JSON


def with_exact_numbers(value: dict[str, Any], data: bytes | bytearray, most: int) -> dict[str, Any]:
    """Restores exact numbers in `value`, which was parsed from the valid body `data`. WRITES `value` and returns it.

    `most`: how many numbers the fields may have that are parsed again. Raises ClientError.
    """
    if (NESTED in value or not FIELDS.keys().isdisjoint(value)) and may_round(data):
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
    for name in FIELDS.keys() & value.keys():
        if may_round(data := bytes(members[name])):
            yield value, name, data


def _restore(fields: list[Field], most: int) -> None:
    """WRITES their objects. Raises ClientError."""
    counted = [(name, data) for value, name, data in fields if not (name == KWARGS and isinstance(value[name], dict))]
    check_numbers(counted, most)
    for value, name, data in fields:
        value[name] = with_unread(value[name], data, FIELDS[name])
