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
from ramet.runtime.intake.constraints import of_schema
from ramet.runtime.intake.exact_fields import with_exact_numbers
from ramet.runtime.intake.limits import OPENED_SHARE
from ramet.runtime.text.chats import Chats
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


def written(body: bytes) -> bytes:
    """The chat of a body as the server sends it to the process that renders it."""
    fields = parsed(body)
    kwargs = {"documents": fields.get("documents"), **fields.get("chat_template_kwargs", {})}
    return chat_module._as_json(msgspec.structs.asdict(Chat(fields["messages"], fields.get("tools"), kwargs)))


@pytest.mark.parametrize("one", LONG)
def test_variables_of_a_template_are_not_read_before_it_is_rendered(one: str) -> None:
    body = chat(f'"chat_template_kwargs":{{"x":{numbers(one)},"y":{{"z":{numbers(one)}}},"w":{one}}}')
    assert num_calls(lambda: written(body)) < NUM / 4
    template = "[{{ x | tojson }},{{ y.z | tojson }},{{ w }}]"
    read = json.loads(Chats(TemplateSources(template)).render_json(written(body)), parse_float=Decimal)
    assert read == [[Decimal(one)] * NUM, [Decimal(one)] * NUM, Decimal(one)]


CALL = '{"id":"c","type":"function","function":{"name":"f","arguments":{"a":%s}}}'


@pytest.mark.parametrize("body", [
    '{"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f","parameters":{"enum":%s}}}]}',
    '{"messages":[{"role":"user","content":"x"}],"documents":[{"a":%s}]}',
    f'{{"messages":[{{"role":"assistant","tool_calls":[{CALL}]}},{{"role":"tool","content":"y"}}]}}',
], ids=["tools", "documents", "arguments"])  # fmt: skip
def test_json_of_any_kind_is_not_read_before_a_template_is_rendered(body: str) -> None:
    data = (body % numbers(LONG[0])).encode()
    assert num_calls(lambda: written(data)) < NUM / 4
    template = TemplateSources("{{ messages | tojson }}{{ tools | tojson }}{{ documents | tojson }}")
    assert Chats(template).render_json(written(data)).count(LONG[0]) == NUM


def test_a_schema_is_read_once_and_written_once() -> None:
    body = f'{{"sampling_params":{{"json_schema":{{"enum":{numbers(LONG[0])}}}}}}}'.encode()

    def text() -> str:
        return of_schema("json_schema", parsed(body)["sampling_params"]["json_schema"]).text

    assert num_calls(text) < 6 * NUM
    assert text() == f'{{"enum":{numbers(LONG[0])}}}'


@pytest.mark.parametrize("tail", ['"tools":[{"a":%s}]', '"documents":%s'])
def test_long_numbers_of_other_fields_are_read_once_and_written_once(tail: str) -> None:
    body = chat(tail % numbers(LONG[0]))
    assert num_calls(lambda: written(body)) < 14 * NUM


def test_an_object_inside_objects_is_not_read_for_each_level() -> None:
    def calls(levels: int) -> int:
        body = b'{"sampling_params":' * levels + f'{{"json_schema":{numbers(LONG[0])}}}'.encode() + b"}" * levels
        value = orjson.loads(body)
        return num_calls(lambda: with_exact_numbers(value, body, NUM * 100))

    assert calls(60) == calls(3)


def test_long_numbers_of_nested_parameters_are_exact() -> None:
    body = f'{{"sampling_params":[{{"json_schema":{{"const":{LONG[0]}}}}},null,{{"guided_json":{LONG[1]}}}]}}'.encode()
    found = with_exact_numbers(orjson.loads(body), body, NUM * 100)["sampling_params"]
    assert exact_json.read(found[0]["json_schema"]["const"]) == Decimal(LONG[0])
    assert found[1:] == [None, {"guided_json": Decimal(LONG[1])}]


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
