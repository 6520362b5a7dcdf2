"""What a body of long numbers costs: each is read once, and those that only a template reads are not read here."""

import json
from decimal import Decimal
from typing import Any

import msgspec
import orjson
import pytest

from ramet.ipc.messages import Chat
from ramet.runtime import exact_json
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import chat as chat_module
from ramet.runtime.intake.exact_fields import with_exact_numbers
from ramet.runtime.intake.limits import OPENED_SHARE
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.encode_process import _chat
from ramet.runtime.text.template_files import TemplateSources
from tests.fakes.bodies import parsed
from tests.fakes.effort import num_calls

NUM = 2000
LONG = [
    "1.00000000000000001",
    "0.12345678901234567",
    "18446744073709551617.5",
    "-0.0000012345678901234567891",
]
FLOATS = [
    "1.0000000000000000",
    "0.1234567890123456",
    "100000000000000.0",
    "-0.1000000000000000000",
    "2.5000000000000000",
    "-1.234567890123456e-9",
    "1.234567890123456e+300",
]


def numbers(one: str) -> str:
    return "[" + ",".join([one] * NUM) + "]"


def chat(tail: str) -> bytes:
    return f'{{"messages":[{{"role":"user","content":"x"}}],{tail}}}'.encode()


@pytest.mark.parametrize("one", [*LONG, *FLOATS])
def test_a_number_is_read_by_few_calls(one: str) -> None:
    """At most one Decimal for each."""
    text, made = numbers(one), []

    class Counted(Decimal):
        def __new__(cls, *given: Any) -> "Counted":
            made.append(given)
            return super().__new__(cls, *given)

    assert exact_json.loads(text) == [exact_json.loads(one)] * NUM
    kept, exact_json.Decimal = exact_json.Decimal, Counted  # type: ignore[misc]
    try:
        read = exact_json.loads(text)
    finally:
        exact_json.Decimal = kept  # type: ignore[misc]
    assert Decimal(read[0]) == Decimal(one) or repr(read[0]) == repr(float(one))
    assert len(made) == (NUM if one in LONG else 0)
    assert num_calls(lambda: exact_json.loads(text)) < 12 * NUM


@pytest.mark.parametrize("one", LONG)
def test_variables_of_a_template_are_not_read_before_it_is_rendered(one: str) -> None:
    body = chat(f'"chat_template_kwargs":{{"x":{numbers(one)},"y":{{"z":{numbers(one)}}},"w":{one}}}')
    made: list[Any] = []

    def forward() -> None:
        fields = parsed(body)
        asked = Chat(fields["messages"], None, fields["chat_template_kwargs"])
        made.append(_chat(chat_module._as_json(msgspec.structs.asdict(asked))))

    assert num_calls(forward) < NUM / 4
    shown = Chats(TemplateSources(default="[{{ x | tojson }},{{ y.z | tojson }},{{ w }}]")).render(made[0])
    read = json.loads(shown, parse_float=Decimal)
    assert read == [[Decimal(one)] * NUM, [Decimal(one)] * NUM, Decimal(one)]


@pytest.mark.parametrize("tail", ['"tools":[{"a":%s}]', '"documents":[{"a":%s}]'])
def test_long_numbers_of_other_fields_are_read_once_and_written_once(tail: str) -> None:
    body = chat(tail % numbers(LONG[0]))

    def forward() -> None:
        fields = parsed(body)
        asked = Chat(fields["messages"], fields.get("tools"), {"documents": fields.get("documents")})
        assert _chat(chat_module._as_json(msgspec.structs.asdict(asked))).messages

    assert num_calls(forward) < 14 * NUM


def test_an_object_inside_objects_is_not_read_for_each_level() -> None:
    def calls(levels: int) -> int:
        body = b'{"sampling_params":' * levels + f'{{"json_schema":{numbers(LONG[0])}}}'.encode() + b"}" * levels
        value = orjson.loads(body)
        return num_calls(lambda: with_exact_numbers(value, body, NUM * 100))

    assert calls(60) == calls(3)


def test_long_numbers_of_nested_parameters_are_exact() -> None:
    body = f'{{"sampling_params":[{{"json_schema":{{"const":{LONG[0]}}}}},null,{{"guided_json":{LONG[1]}}}]}}'.encode()
    found = with_exact_numbers(orjson.loads(body), body, NUM * 100)["sampling_params"]
    assert found == [{"json_schema": {"const": Decimal(LONG[0])}}, None, {"guided_json": Decimal(LONG[1])}]


@pytest.mark.parametrize("one", ["1.5", "1e5", "-7", LONG[0], FLOATS[1]])
def test_numbers_beside_a_long_one_are_counted_before_they_are_read(one: str) -> None:
    def body(num: int) -> bytes:
        return chat(f'"tools":[{LONG[0]},"{"12, " * 3 * NUM}",{",".join([one] * (num - 1))}]')

    most = NUM * OPENED_SHARE
    assert len(parsed(body(NUM), most)["tools"]) == NUM + 1
    refused: list[ClientError] = []

    def refuse() -> None:
        with pytest.raises(ClientError) as error:
            parsed(body(NUM + 1), most)
        refused.append(error.value)

    assert num_calls(refuse) < 200
    assert str(refused[0]).startswith(f"tools has more than {NUM} numbers") and "--max-body-items" in refused[0].hint


def test_numbers_without_a_long_one_are_read_without_a_call_for_each() -> None:
    text = numbers("1.5")
    assert num_calls(lambda: exact_json.loads(text)) < 20
