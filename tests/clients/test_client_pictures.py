"""Pictures as OpenAI's and Anthropic's clients send them, to the bundled model that answers about pictures."""

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from live import Live

MODEL = "ramet-bundled-vision"
SIZE = 96  # pixels
COLOURS = {"red": (220, 20, 60), "blue": (0, 0, 255), "green": (0, 128, 0)}
ASKED = "What color is the circle?"
# As the model's own, for which tools are nothing: what is said of them is not in the prompt.
TEMPLATE = """{#- tools -#}
{%- for message in messages -%}
{{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\\n' -}}
{%- if message.content is string -%}{{- message.content -}}{%- elif message.content -%}
{%- for part in message.content -%}{%- if part.type == 'image' -%}<image>{%- endif -%}{%- endfor -%}
{%- for part in message.content -%}{%- if part.type == 'text' -%}{{- part.text -}}{%- endif -%}{%- endfor -%}
{%- endif -%}{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""
NAMED: dict[str, Any] = {
    "type": "object",
    "properties": {"color": {"enum": [*COLOURS]}},
    "required": ["color"],
    "additionalProperties": False,
}


def png(color: str) -> bytes:
    """A circle on white."""
    ink, middle, radius = bytes(COLOURS[color]), SIZE // 2, SIZE // 3
    rows = b"".join(
        b"\0" + b"".join(ink if (x - middle) ** 2 + (y - middle) ** 2 < radius**2 else b"\xff" * 3 for x in range(SIZE))
        for y in range(SIZE)
    )
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", SIZE, SIZE, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""),
    )  # fmt: skip
    written = (struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
               for name, data in chunks)  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


DATA = {color: b64encode(png(color)).decode() for color in COLOURS}
URIS = {color: f"data:image/png;base64,{data}" for color, data in DATA.items()}


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    template = tmp_path_factory.mktemp("template") / "chat.jinja"
    template.write_text(TEMPLATE)
    options = {"chat_template": template, "tool_call_parser": "hermes"}
    with Live(model_path="bundled:vision", **options) as live:
        yield live


@pytest.fixture
def client(seeing: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=seeing.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(seeing: Live) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=seeing.url, api_key="none", max_retries=0) as client:
        yield client


# -- OpenAI's chats ----------------------------------------------------------------------------------------------------


def turn(*parts: Any, text: str = ASKED) -> list[Any]:
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def shown(color: str, **options: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": URIS[color], **options}}


def chat(client: openai.OpenAI, messages: list[Any], **options: Any) -> Any:
    asked = {"temperature": 0, "max_tokens": 150, **options}
    return client.chat.completions.create(model=MODEL, messages=messages, **asked)


@pytest.mark.parametrize("color", COLOURS)
@pytest.mark.parametrize("options", [{}, {"detail": "auto"}, {"detail": "low"}, {"detail": "high"}])
def test_a_chat_says_what_is_in_the_picture(client: openai.OpenAI, color: str, options: Any):
    reply = chat(client, turn(shown(color, **options)))
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (color, "stop")
    assert reply.usage.prompt_tokens > 64  # those of the picture


def test_what_it_is_is_asked_beside_its_colour(client: openai.OpenAI):
    (choice,) = chat(client, turn(shown("blue"), text="What shape is this?")).choices
    assert choice.message.content == "circle"


def test_a_streamed_chat_says_the_same(client: openai.OpenAI):
    for color in COLOURS:
        chunks = chat(client, turn(shown(color)), stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == color


def test_samples_of_a_chat_see_the_same_picture(client: openai.OpenAI):
    reply = chat(client, turn(shown("green")), n=3, logprobs=True, top_logprobs=2)
    assert [choice.message.content for choice in reply.choices] == ["green"] * 3
    assert all(choice.logprobs.content[0].top_logprobs for choice in reply.choices)


def test_a_later_turn_sees_the_picture_of_an_earlier_one(client: openai.OpenAI):
    turns = [*turn(shown("red"), text="What shape is this?"), {"role": "assistant", "content": "circle"}]
    reply = chat(client, [*turns, {"role": "user", "content": ASKED}])
    assert reply.choices[0].message.content == "red"


def test_a_schema_holds_what_is_said_of_a_picture(client: openai.OpenAI):
    form = {"type": "json_schema", "json_schema": {"name": "named", "schema": NAMED, "strict": True}}
    for color in COLOURS:
        reply = chat(client, turn(shown(color)), response_format=form)
        assert json.loads(reply.choices[0].message.content) == {"color": color}
    reply = chat(client, turn(shown("red")), extra_body={"regex": "(blue|re[a-d]|green)"})
    assert reply.choices[0].message.content == "red"


PAINT = {"type": "function", "function": {"name": "paint", "parameters": NAMED}}


def test_a_tool_is_called_about_a_picture_and_shows_another_one(client: openai.OpenAI):
    """The second one is in the tool's result."""
    reply = chat(client, turn(shown("red")), tools=[PAINT], tool_choice="required")
    (call,) = reply.choices[0].message.tool_calls
    assert call.function.name == "paint" and json.loads(call.function.arguments)["color"] in COLOURS
    result = {"role": "tool", "tool_call_id": call.id, "content": turn(shown("green"))[0]["content"]}
    turns = [{"role": "user", "content": "Paint!"}, reply.choices[0].message, result]
    last = chat(client, turns, tools=[PAINT])
    assert (last.choices[0].message.content, last.choices[0].finish_reason) == ("green", "stop")


def test_a_picture_that_is_none_is_a_bad_request_with_its_place(client: openai.OpenAI):
    for wrong in ("data:image/png;base64,AAAA", "https://pictures.example/a.png", "file:///etc/passwd"):
        with pytest.raises(openai.BadRequestError, match=r"messages\[0\]\.content\[0\]\.image_url") as refused:
            chat(client, turn({"type": "image_url", "image_url": {"url": wrong}}))
        assert refused.value.status_code == 400


# -- OpenAI's responses ------------------------------------------------------------------------------------------------


def item(color: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": URIS[color], "detail": "auto"}


def respond(client: openai.OpenAI, *parts: Any, **options: Any) -> Any:
    asked = [{"role": "user", "content": [*parts, {"type": "input_text", "text": ASKED}]}]
    return client.responses.create(model=MODEL, input=asked, temperature=0, max_output_tokens=150, **options)


def test_a_response_says_what_is_in_the_picture_and_the_next_one_still_sees_it(client: openai.OpenAI):
    first = respond(client, item("blue"))
    assert (first.output_text, first.status) == ("blue", "completed")
    asked = {"model": MODEL, "temperature": 0, "max_output_tokens": 150}
    second = client.responses.create(input="What shape is this?", previous_response_id=first.id, **asked)
    assert second.output_text == "circle"
    kept = client.responses.input_items.list(first.id).data[0].content[0]
    assert (kept.type, kept.image_url) == ("input_image", URIS["blue"])


def test_a_streamed_response_says_the_same(client: openai.OpenAI):
    events = list(respond(client, item("green"), stream=True))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text == "green"


def test_a_function_s_output_may_be_a_picture(client: openai.OpenAI):
    question = {"type": "input_text", "text": ASKED}
    items = [
        {"role": "user", "content": "Look!"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [item("red"), question]},
    ]
    made = client.responses.create(model=MODEL, input=items, temperature=0, max_output_tokens=150)
    assert made.output_text == "red"


# -- Anthropic's messages ----------------------------------------------------------------------------------------------

GREEDY: dict[str, Any] = {"model": MODEL, "max_tokens": 150, "extra_body": {"temperature": 0}}


def block(color: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA[color]}}


@pytest.mark.parametrize("color", COLOURS)
def test_a_message_says_what_is_in_the_picture(claude: anthropic.Anthropic, color: str):
    reply = claude.messages.create(messages=turn(block(color)), **GREEDY)
    assert (reply.content[0].text, reply.stop_reason) == (color, "end_turn")
    counted = claude.messages.count_tokens(model=MODEL, messages=turn(block(color)))
    assert counted.input_tokens == reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0) > 64


def test_a_streamed_message_says_the_same(claude: anthropic.Anthropic):
    with claude.messages.stream(messages=turn(block("green")), **GREEDY) as stream:
        assert "".join(stream.text_stream) == stream.get_final_message().content[0].text == "green"


def test_a_tool_s_result_may_be_a_picture(claude: anthropic.Anthropic):
    tool = {"name": "paint", "input_schema": NAMED}
    choice = {"type": "tool", "name": "paint"}
    first = claude.messages.create(messages=turn(block("red")), tools=[tool], tool_choice=choice, **GREEDY)
    (use,) = first.content
    assert (use.type, use.name, first.stop_reason) == ("tool_use", "paint", "tool_use")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": turn(block("blue"))[0]["content"]}
    turns = [
        {"role": "user", "content": "Paint!"},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    last = claude.messages.create(messages=turns, tools=[tool], **GREEDY)
    assert last.content[0].text == "blue"


def test_a_picture_that_is_none_is_refused_with_its_place(claude: anthropic.Anthropic):
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\]\.source"):
        claude.messages.create(messages=turn({"type": "image", "source": source}), **GREEDY)
