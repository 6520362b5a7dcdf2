"""Numbers in tools, schemas and calls are not rounded on the way to the template, the grammar or the client."""

import json
from decimal import Decimal
from typing import Any

import pytest

from ramet.ipc.messages import Chat, Generate, Render
from ramet.runtime.exact_json import decoder_of
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.template_files import TemplateSources
from tests.fakes.server import Served, served

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
INTEGER, FRACTION, TINY = "18446744073709551617", "0.12345678901234567890", "1E-400"
NUMBERS = f"[{INTEGER}, {FRACTION}, {TINY}, -{INTEGER}0, 1.0, 7]"
SCHEMA = f'{{"type":"object","properties":{{"x":{{"enum":{NUMBERS}}}}}}}'
ARGUMENTS = f'{{"x": {INTEGER}, "y": {FRACTION}, "z": [1.0, 1e400, 1]}}'
CALL = f'<tool_call>\n{{"name": "f", "arguments": {ARGUMENTS}}}\n</tool_call>'
DUMPED = "{% for each in messages %}{{ each | tojson }}{% endfor %}{{ tools | tojson }}{{ documents | tojson }}"
chat_in = decoder_of(Chat)


def exactly(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


USER = '"messages":[{"role":"user","content":"hi"}]'
BODIES = {  # each without its closing brace
    CHAT: f'{{{USER},"tools":[{{"type":"function","function":{{"name":"f","parameters":{SCHEMA}}}}}]',
    RESPONSES: f'{{"input":"hi","tools":[{{"type":"function","name":"f","parameters":{SCHEMA}}}]',
    MESSAGES: f'{{"max_tokens":99,{USER},"tools":[{{"name":"f","input_schema":{SCHEMA}}}]',
}


def shown(server: Served) -> str:
    """The newest chat as a template sees it."""
    chat = chat_in(server.engine.of_type(Render)[-1].chat)
    return Chats(TemplateSources(default=DUMPED)).render(chat)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_the_numbers_of_a_tool_s_schema_reach_the_template(path: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Yes"]
        status, reply = await server.post(path, (BODIES[path] + "}").encode())
        assert status == 200, reply
        assert json.dumps("enum") + ": " + NUMBERS in shown(server)

    served(check)


@pytest.mark.parametrize("path, force", [
    (CHAT, '"tool_choice":"required"'), (RESPONSES, '"tool_choice":"required"'),
    (MESSAGES, '"tool_choice":{"type":"any"}'),
])  # fmt: skip
def test_the_numbers_of_a_tool_s_schema_reach_the_grammar(path: str, force: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = [CALL]
        async with server.http.post(path, data=f"{BODIES[path]},{force}}}") as response:
            assert response.status == 200, await response.text()
        assert NUMBERS.replace(" ", "") in server.engine.of_type(Generate)[-1].spec.constraint.text

    served(check)


FORMATS = [
    (CHAT, f'{{{USER},"response_format":{{"type":"json_schema","json_schema":{{"name":"a","schema":{SCHEMA}}}}}}}'),
    (CHAT, f'{{{USER},"json_schema":{json.dumps(SCHEMA)}}}'),
    (CHAT, f'{{{USER},"guided_json":{SCHEMA}}}'),
    (CHAT, f'{{{USER},"structured_outputs":{{"json":{SCHEMA}}}}}'),
    (CHAT, BODIES[CHAT] + f',"response_format":{{"type":"json_schema","json_schema":{{"schema":{SCHEMA}}}}}}}'),
    (RESPONSES, f'{{"input":"hi","text":{{"format":{{"type":"json_schema","name":"a","schema":{SCHEMA}}}}}}}'),
    (MESSAGES, f'{{"max_tokens":9,{USER},"output_config":{{"format":{{"type":"json_schema","schema":{SCHEMA}}}}}}}'),
    (MESSAGES, f'{{"max_tokens":9,{USER},"output_format":{{"type":"json_schema","schema":{SCHEMA}}}}}'),
    ("/generate", f'{{"text":"a","sampling_params":{{"json_schema":{SCHEMA}}}}}'),
    ("/generate", f'{{"text":["a"],"sampling_params":[{{"json_schema":{json.dumps(SCHEMA)}}}]}}'),
]


@pytest.mark.parametrize("path, body", FORMATS, ids=[f"{path}-{i}" for i, (path, _) in enumerate(FORMATS)])
def test_the_numbers_of_an_answer_s_schema_reach_the_grammar(path: str, body: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["1"]
        status, reply = await server.post(path, body.encode())
        assert status == 200, reply
        text = server.engine.of_type(Generate)[-1].spec.constraint.text
        assert NUMBERS.replace(" ", "") in text.replace(" ", "")

    served(check)


CALLED = ARGUMENTS.replace("1e400", "1E-400")  # the body's parser has no number beyond float64
ASKED, QUOTED = '{"role":"user","content":"a"}', json.dumps(ARGUMENTS)
RESULT = '{"role":"tool","tool_call_id":"c","content":"1"}'


def chat_after(call: str) -> str:
    return f'{{"messages":[{ASKED},{{"role":"assistant","tool_calls":[{{"id":"c","function":{call}}}]}},{RESULT}]}}'


HISTORIES = [
    (CHAT, chat_after(f'{{"name":"f","arguments":{QUOTED}}}'), ARGUMENTS),
    (CHAT, chat_after(f'{{"name":"f","arguments":{CALLED}}}'), CALLED),
    (
        RESPONSES,
        f'{{"input":[{ASKED},{{"type":"function_call","call_id":"c","name":"f","arguments":{QUOTED}}},'
        '{"type":"function_call_output","call_id":"c","output":"1"}]}',
        ARGUMENTS,
    ),
    (
        MESSAGES,
        f'{{"max_tokens":9,"messages":[{ASKED},'
        f'{{"role":"assistant","content":[{{"type":"tool_use","id":"c","name":"f","input":{CALLED}}}]}},'
        '{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"1"}]}]}',
        CALLED,
    ),
]


@pytest.mark.parametrize("path, body, arguments", HISTORIES, ids=["text", "object", "item", "block"])
def test_the_numbers_of_an_earlier_call_reach_the_template(path: str, body: str, arguments: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Yes"]
        status, reply = await server.post(path, body.encode())
        assert status == 200, reply
        assert arguments.replace("e400", "E+400") in shown(server)

    served(check)


def test_the_numbers_of_an_earlier_call_reach_a_template_that_appends_arguments_to_a_text() -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}{{ tools }}"
    )
    call = f'{{"id":"c","type":"function","function":{{"name":"f","arguments":{QUOTED}}}}}'
    chat = f'{{"messages":[{ASKED},{{"role":"assistant","content":"","tool_calls":[{call}]}},{RESULT}],"tools":[{{}}]}}'
    for source in (template, "{% for m in messages %}{{ m.role + m.content }}{% endfor %}"):
        assert ARGUMENTS.replace("e400", "E+400") in Chats(TemplateSources(default=source)).render(chat_in(chat))


def test_the_input_of_a_call_is_in_messages_as_the_model_wrote_it() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["So.", CALL]
        async with server.http.post(MESSAGES, data=BODIES[MESSAGES] + "}") as response:
            text = await response.text()
        assert f'"input":{ARGUMENTS}' in text
        async with server.http.post(MESSAGES, data=BODIES[MESSAGES] + ',"stream":true}') as response:
            lines = (await response.text()).splitlines()
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
        assert "".join(event["delta"].get("partial_json", "") for event in events if "delta" in event) == ARGUMENTS

    served(check)


@pytest.mark.parametrize("arguments", ["[1]", '{"x": "\\ud800"}', '{"x": '])
def test_the_input_of_a_call_that_is_no_object_is_text(arguments: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = [f'<tool_call>\n{{"name": "f", "arguments": {json.dumps(arguments)}}}\n</tool_call>']
        _, reply = await server.post(MESSAGES, (BODIES[MESSAGES] + "}").encode())
        said = arguments if arguments.startswith("{") else "{}"
        assert reply["content"][0]["input"] == ({"_raw": said} if said != "{}" else {})

    served(check)


def test_a_response_returns_its_tools_and_its_input_with_all_digits() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Yes"]
        call = f'{{"type":"function_call","call_id":"c","name":"f","arguments":"{{}}","extra":{NUMBERS}}}'
        items = f'[{{"role":"user","content":"a"}},{call},{{"type":"function_call_output","call_id":"c","output":"1"}}]'
        body = BODIES[RESPONSES].replace('"hi"', items, 1) + "}"
        async with server.http.post(RESPONSES, data=body) as response:
            text = await response.text()
        assert exactly(text)["tools"][0]["parameters"] == exactly(SCHEMA)
        key = exactly(text)["id"]
        async with server.http.get(f"{RESPONSES}/{key}") as response:
            assert await response.text() == text
        async with server.http.get(f"{RESPONSES}/{key}/input_items?order=asc") as response:
            assert exactly(await response.text())["data"][1]["extra"] == exactly(NUMBERS)
        more = f'{{"input":"and?","previous_response_id":"{key}"}}'
        status, reply = await server.post(RESPONSES, more.encode())
        assert status == 200, reply

    served(check)


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_response_returns_its_metadata_with_all_digits(stream: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Yes"]
        async with server.http.post(
            RESPONSES, data=f'{{"input":"hi","stream":{stream},"metadata":{{"k":\n{NUMBERS}}}}}'
        ) as response:
            text = await response.text()
        assert f'"metadata":{{"k":{NUMBERS.replace(" ", "")}}}' in text

    served(check)


@pytest.mark.parametrize("blank", ["\n", "\r\n", "\r"])
def test_a_stream_has_an_event_on_each_line_however_a_schema_was_written(blank: str) -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Yes"]
        schema = SCHEMA.replace(",", f",{blank}").replace("[", f"[{blank}")
        answer = f'"text":{{"format":{{"type":"json_schema","name":"a","schema":{schema}}}}}'
        body = BODIES[RESPONSES].replace(SCHEMA, schema) + f',"stream":true,{answer}}}'
        async with server.http.post(RESPONSES, data=body) as response:
            lines = (await response.text()).splitlines()
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert len(lines) == 3 * len(data) and {exactly(each)["type"] for each in data} >= {"response.completed"}
        last = exactly(data[-1])["response"]
        assert last["tools"][0]["parameters"] == last["text"]["format"]["schema"] == exactly(SCHEMA)

    served(check)


def test_other_fields_are_read_as_ever() -> None:
    async def check(server: Served) -> None:
        server.engine.says = ["Yes"]
        body = f'{{{USER},"tools":[],"temperature":0.69999999999999995559,"top_p":0.90000000000000002220}}'
        status, reply = await server.post(CHAT, body.encode())
        assert status == 200, reply
        params = server.engine.of_type(Generate)[-1].spec.params
        assert (params.temperature, params.top_p) == (0.7, 0.9)
        status, reply = await server.post(CHAT, f'{{{USER},"seed":{INTEGER}}}'.encode())
        assert status == 400 and "seed" in reply["error"]["message"]

    served(check)
