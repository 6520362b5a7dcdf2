"""Anthropic's Messages API, against exchanges written by hand after its reference: messages, events, tools, errors."""

import json
from typing import Any

import pytest
from exchanges import Exchange, Service, cut, events, raw
from interview import CLOSED, FORKS, JSON, SYSTEM, check, interview, turns

from ramet import Anthropic, CallFailed, Unsupported, assistant, function, gen, select, separate_reasoning, system, user

PATH = "/v1/messages"
NEW, OLD = "claude-haiku-4-5", "claude-3-5-haiku-20241022"
HI: dict[str, Any] = {"model": NEW, "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}


def reply(*content: dict[str, Any] | str, stop: str = "end_turn", matched: str | None = None) -> dict[str, Any]:
    return {
        "id": "msg_013Zva2CMHLNnjNjJJKqJ2EF",
        "type": "message",
        "role": "assistant",
        "model": NEW,
        "content": [{"type": "text", "text": each} if isinstance(each, str) else each for each in content],
        "stop_reason": stop,
        "stop_sequence": matched,
        "usage": {
            "input_tokens": 20,
            "cache_creation_input_tokens": 3,
            "cache_read_input_tokens": 7,
            "output_tokens": 12,
        },
    }


def start() -> dict[str, Any]:
    return {
        "type": "message_start",
        "message": {
            "id": "msg_1nZdL29xx5MUA1yADyHTEsnR8uuvGzszyY",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": NEW,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 25, "output_tokens": 1},
        },
    }


def block(kind: dict[str, Any], *deltas: dict[str, Any], index: int = 0) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": kind},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def texts(*pieces: str, index: int = 0) -> list[dict[str, Any]]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block({"type": "text", "text": ""}, *deltas, index=index)


def end(stop: str = "end_turn", matched: str | None = None) -> list[dict[str, Any]]:
    delta = {"stop_reason": stop, "stop_sequence": matched}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15}}, {"type": "message_stop"}]


def stream(*parts: list[dict[str, Any]], stop: str = "end_turn", matched: str | None = None) -> Any:
    found = [start(), *(event for part in parts for event in part), *end(stop, matched)]
    return events(*found, named=True, end="")


def one(**value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": value}, "required": ["value"], "additionalProperties": False}


def asked(schema: dict[str, Any], name: str = NEW) -> dict[str, Any]:
    """How an answer is held to a schema by that model."""
    if name == NEW:
        return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    tool = {"name": "answer", "description": "Gives the answer.", "input_schema": schema}
    return {"tools": [tool], "tool_choice": {"type": "tool", "name": "answer"}}


def answered(value: Any, name: str = NEW) -> dict[str, Any]:
    if name == NEW:
        return reply(json.dumps(value))
    tool = {"type": "tool_use", "id": "toolu_01T1x1fJ34qAmk2tNTrN7Up6", "name": "answer", "input": value}
    return reply(tool, stop="tool_use")


def messages(num: int, last: str | None = None) -> list[dict[str, str]]:
    found = [{"role": role, "content": text} for role, text in turns(num)]
    return [*found, {"role": "user", "content": last}] if last else found


def conversation(name: str, streaming: bool) -> list[Exchange]:
    same = {"model": name, "system": SYSTEM}

    def free(body: dict[str, Any], *pieces: str) -> Exchange:
        answer = stream(texts(*pieces)) if streaming else reply("".join(pieces))
        return Exchange(PATH, {**same, **body, **({"stream": True} if streaming else {})}, answer)

    def held(body: dict[str, Any], schema: dict[str, Any], value: Any) -> Exchange:
        return Exchange(PATH, {**same, **body, **asked(schema, name)}, answered(value, name))

    choice = one(type="string", enum=["yes", "no"])
    facts = {"messages": messages(3), "max_tokens": 64}
    return [
        free({"messages": messages(0), "max_tokens": 16, "stop_sequences": ["."]}, "Pa", "ris"),
        held({"messages": messages(1), "max_tokens": 69, "temperature": 0.0}, choice, {"value": "yes"}),
        held({"messages": messages(2), "max_tokens": 32}, one(type="integer"), {"value": 2100000}),
        free({**facts, **asked(CLOSED)}, JSON[:9], JSON[9:]),
        free({"messages": messages(4, FORKS[0]), "max_tokens": 8}, "Seine"),
        free({"messages": messages(4, FORKS[1]), "max_tokens": 8}, "che", "ese"),
    ]


def model(service: Service, name: str = NEW, **arguments: Any) -> Anthropic:
    return Anthropic(name, api_key="sk-ant-1", base_url=service.url, **arguments)


@function
def ask(s: Any, **arguments: Any) -> None:
    s += user("Hi") + assistant(gen("answer", max_tokens=5, **arguments))


@function
def going_on(s: Any, words: str = "Well, ", **arguments: Any) -> None:
    s += user("Hi") + assistant(words + gen("answer", max_tokens=5, **arguments))


@function
def choose(s: Any) -> None:
    s += user("Hi") + assistant(select("it", choices=["a", "b"]))


@pytest.mark.parametrize("streaming", [False, True])
def test_the_interview(streaming: bool):
    with Service(*conversation(NEW, streaming)) as service:
        state = interview.run(backend=model(service), stream=streaming)
        if streaming:
            assert "".join(state.text_iter("city")) == "Paris"
        check(state)


def test_the_system_prompt_is_in_every_call():
    with Service(*conversation(NEW, False)) as service:
        check(interview.run(backend=model(service)))
        assert [body["system"] for _, body in service.requests] == [SYSTEM] * 6


def test_key_and_version_go_in_headers():
    headers = {"x-api-key": "sk-ant-1", "anthropic-version": "2023-06-01"}
    with Service(Exchange(PATH, HI, reply("Hello"), headers=headers)) as service:
        assert ask.run(backend=model(service))["answer"] == "Hello"


@pytest.mark.parametrize("streaming", [False, True])
def test_meta_is_as_the_runtime_has_it(streaming: bool):
    body = {**HI, "stop_sequences": ["END"], **({"stream": True} if streaming else {})}
    answer: Any = reply("Hel", "lo", stop="stop_sequence", matched="END")
    if streaming:
        answer = stream(texts("Hel"), texts("lo", index=1), stop="stop_sequence", matched="END")
    with Service(Exchange(PATH, body, answer)) as service:
        state = ask.run(backend=model(service), stop="END", stream=streaming)
        assert state["answer"] == "Hello"
        meta = state.get_meta_info("answer")
    assert meta.pop("id").startswith("msg_")
    counts = {"prompt_tokens": 25, "cached_tokens": 0, "completion_tokens": 15}
    if not streaming:
        counts = {"prompt_tokens": 30, "cached_tokens": 7, "completion_tokens": 12}
    assert meta == {**counts, "finish_reason": {"type": "stop", "matched": "END"}}


def test_an_output_cut_at_max_tokens():
    with Service(Exchange(PATH, HI, reply("Hel", stop="max_tokens"))) as service:
        meta = ask.run(backend=model(service)).get_meta_info("answer")
    assert meta["finish_reason"] == {"type": "length", "length": 12}


def test_parameters_have_the_names_of_the_service():
    body = {**HI, "temperature": 0.5, "top_p": 0.9, "top_k": 7}
    with Service(Exchange(PATH, body, reply("Hello"))) as service:
        backend = model(service)
        assert ask.run(backend=backend, temperature=0.5, top_p=0.9, top_k=7)["answer"] == "Hello"
    with Service(Exchange(PATH, HI, reply("Hello"))) as service:
        assert ask.run(backend=model(service), top_k=-1)["answer"] == "Hello"


@pytest.mark.parametrize("streaming", [False, True])
def test_a_stop_text_of_blanks_is_not_sent_and_cuts(streaming: bool):
    body = {**HI, "stop_sequences": ["END"], **({"stream": True} if streaming else {})}
    answer: Any = stream(texts("one", "\ntwo")) if streaming else reply("one\ntwo")
    with Service(Exchange(PATH, body, answer)) as service:
        state = ask.run(backend=model(service), stop=["\n", "END"], stream=streaming)
        assert state["answer"] == "one"
        if streaming:
            assert "".join(state.text_iter("answer")) == "one"
        assert state.get_meta_info("answer")["finish_reason"] == {"type": "stop", "matched": "\n"}


def test_n_outputs_take_n_calls():
    exchanges = [Exchange(PATH, HI, reply(text)) for text in ("one", "two", "three")]
    with Service(*exchanges) as service:
        state = ask.run(backend=model(service), n=3)
        assert sorted(state["answer"]) == ["one", "three", "two"]
        assert [meta["completion_tokens"] for meta in state.get_meta_info("answer")] == [12, 12, 12]


# -- going on in a turn -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "goes_on", "sampling", "formats"),
    [
        ("claude-2.1", True, True, False),
        ("claude-3-opus-20240229", True, True, False),
        ("claude-3-5-sonnet-20241022", True, True, False),
        ("claude-opus-4-20250514", True, True, False),
        ("claude-opus-4-1", True, True, False),
        ("claude-sonnet-4-5-20250929", True, True, True),
        ("claude-haiku-4-5", True, True, True),
        ("claude-opus-4-6", False, True, True),
        ("anthropic.claude-sonnet-4-6", False, True, True),
        ("claude-opus-4-7", False, False, True),
        ("claude-sonnet-5", False, False, True),
        ("claude-opus-5-5", False, False, True),
        ("claude-next", False, False, True),
    ],
)
def test_what_a_model_can_do_follows_from_its_version(name: str, goes_on: bool, sampling: bool, formats: bool):
    can = Anthropic(name, api_key="k").capabilities
    assert can.continues == goes_on
    assert ("temperature" in can.sampling) == sampling
    assert ("regex" in can.held) == formats


@pytest.mark.parametrize(
    ("words", "sent", "answer", "text"),
    [
        ("Well,", "Well,", " yes", " yes"),
        ("Well, ", "Well,", " yes", "yes"),  # blanks at the end are refused, and the output begins with them
        ("Well, ", "Well,", "yes", "yes"),
        ("Well,\n\n", "Well,", "\n\nyes", "yes"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_turn_is_gone_on_with(words: str, sent: str, answer: str, text: str, streaming: bool):
    said = [*HI["messages"], {"role": "assistant", "content": sent}]
    body = {**HI, "messages": said, **({"stream": True} if streaming else {})}
    reply_to = stream(texts(*answer)) if streaming else reply(answer)
    with Service(Exchange(PATH, body, reply_to)) as service:
        state = going_on.run(words, backend=model(service), stream=streaming)
        assert state["answer"] == text
        if streaming:
            assert "".join(state.text_iter("answer")) == text
        assert state.messages()[-1]["content"] == words + text


def test_newer_models_refuse_to_go_on():
    error = "cannot go on inside a turn that has text already"
    with Service() as service, pytest.raises(Unsupported, match=error):
        going_on.run(backend=model(service, "claude-opus-4-6"))


def test_what_is_said_of_the_model_counts_more_than_its_name():
    said = [*HI["messages"], {"role": "assistant", "content": "Well,"}]
    with Service(Exchange(PATH, {**HI, "model": "claude-opus-4-6", "messages": said}, reply(" no"))) as service:
        backend = model(service, "claude-opus-4-6", prefill=True)
        assert going_on.run(backend=backend)["answer"] == "no"
    with Service() as service, pytest.raises(Unsupported, match="cannot go on inside a turn"):
        going_on.run(backend=model(service, prefill=False))


# -- forms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [NEW, OLD])
def test_a_choice_is_a_field(name: str):
    body = {**HI, "model": name, "max_tokens": {NEW: 67, OLD: 1024}[name], "temperature": 0.0}
    body |= asked(one(type="string", enum=["a", "b"]), name)
    with Service(Exchange(PATH, body, answered({"value": "b"}, name))) as service:
        assert choose.run(backend=model(service, name))["it"] == "b"


@pytest.mark.parametrize("name", [NEW, OLD])
@pytest.mark.parametrize(
    ("kind", "json_type", "value"),
    [(int, "integer", 4), (int, "integer", -(2**80) - 1), (bool, "boolean", True), (str, "string", "x")],
)
def test_types_are_fields(name: str, kind: type, json_type: str, value: Any):
    body = {**HI, "model": name, **asked(one(type=json_type), name)}
    with Service(Exchange(PATH, body, answered({"value": value}, name))) as service:
        assert ask.run(backend=model(service, name), dtype=kind)["answer"] == value


@pytest.mark.parametrize("streaming", [False, True])
def test_a_schema_is_that_of_a_tool_for_older_models(streaming: bool):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]}
    body = {**HI, "model": OLD, **asked(schema, OLD)}
    with Service(Exchange(PATH, body, answered({"a": 4}, OLD))) as service:
        state = ask.run(backend=model(service, OLD), json_schema=schema, stream=streaming)
        assert state["answer"] == '{"a":4}'


def test_numbers_of_a_schema_and_of_an_answer_by_tool_keep_their_digits():
    value = '{"a":18446744073709551617,"b":[0.12345678901234567890,1.0,0.5,-7,1E+400]}'
    schema = one(enum=[2**80, -(2**80), "x"])
    text = json.dumps(answered({}, OLD)).replace('"input": {}', f'"input": {value}')
    exchange = Exchange(PATH, {**HI, "model": OLD, **asked(schema, OLD)}, raw(text, kind="application/json"))
    with Service(exchange) as service:
        assert ask.run(backend=model(service, OLD), json_schema=schema)["answer"] == value


@pytest.mark.parametrize("number", ["1e99999999999999999999", "NaN", "[" * 100_000])
def test_an_answer_that_no_number_can_hold_is_a_backend_s_error(number: str):
    text = json.dumps(answered({}, OLD)).replace('"input": {}', f'"input": {{"a": {number}}}')
    exchange = Exchange(PATH, {**HI, "model": OLD, **asked(one(type="integer"), OLD)}, raw(text))
    with Service(exchange) as service, pytest.raises(CallFailed, match="its answer is not JSON"):
        ask.run(backend=model(service, OLD), dtype=int)["answer"]


def test_an_answer_by_tool_in_a_stream():
    """Speculation and others may ask for a stream; the pieces of the tool's arguments are put together."""
    from ramet.frontend.backends.anthropic import AnthropicAnswer
    from ramet.frontend.backends.forms import EnforcedForm
    from ramet.frontend.backends.service import ServiceQuestion

    answer = AnthropicAnswer("it", ServiceQuestion({}, (), EnforcedForm({"tools": []})), None)
    kind = {"type": "tool_use", "id": "toolu_01", "name": "answer", "input": {}}
    pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"va', 'lue": 4}')]
    for event in [start(), *block(kind, *pieces), *end("tool_use")]:
        answer.add(event)
    (output,) = answer.completions()
    assert output.text == '{"value": 4}'


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        (
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}},
            "has 'minimum', which is not enforced",
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "an object without named properties"),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, "minItems is 2, and at most 1 is enforced"),
        ({}, "says nothing of what it holds"),
    ],
)
def test_schemas_that_are_not_enforced_are_refused(schema: dict[str, Any], error: str):
    with Service() as service, pytest.raises(Unsupported, match=error):
        ask.run(backend=model(service), json_schema=schema)


def test_optional_properties_stay_optional():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    body = {**HI, **asked({**schema, "additionalProperties": False})}
    with Service(Exchange(PATH, body, reply("{}"))) as service:
        assert ask.run(backend=model(service), json_schema=schema)["answer"] == "{}"


def test_a_form_takes_a_whole_turn():
    with Service() as service, pytest.raises(Unsupported, match="keeps to a form only whole turns"):
        going_on.run(backend=model(service), dtype=int)


# -- thoughts ---------------------------------------------------------------------------------------------------------


@function
def think(s: Any) -> None:
    s += user("Hi") + assistant(separate_reasoning(gen("answer", max_tokens=3000)))


THINKING = {"type": "enabled", "budget_tokens": 2048}


@pytest.mark.parametrize("streaming", [False, True])
def test_thoughts_are_apart(streaming: bool):
    body = {**HI, "max_tokens": 3000, "thinking": THINKING, **({"stream": True} if streaming else {})}
    thought = {"type": "thinking", "thinking": "Let me see.", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}
    answer: Any = reply(thought, "Hello")
    if streaming:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in ("Let ", "me see.")]
        signed = {"type": "signature_delta", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}
        thinking = block({"type": "thinking", "thinking": ""}, *deltas, signed)
        answer = stream(thinking, texts("Hel", "lo", index=1))
    with Service(Exchange(PATH, body, answer)) as service:
        state = think.run(backend=model(service, thinking=THINKING), stream=streaming)
        assert state["answer"] == "Hello"
        assert state["answer_reasoning_content"] == "Let me see."
        assert state.messages()[-1]["content"] == "Hello"


def test_a_choice_of_a_model_that_thinks_has_room_for_its_thoughts_and_no_temperature():
    body = {**HI, "max_tokens": 2048 + 1024, "thinking": THINKING, **asked(one(type="string", enum=["a", "b"]))}
    with Service(Exchange(PATH, body, answered({"value": "b"}))) as service:
        assert choose.run(backend=model(service, thinking=THINKING))["it"] == "b"


@pytest.mark.parametrize("arguments", [{"temperature": 0.5}, {"top_k": 3}])
def test_a_model_that_thinks_has_no_temperature(arguments: dict[str, Any]):
    with Service() as service, pytest.raises(Unsupported, match="has no such parameter"):
        ask.run(backend=model(service, thinking=THINKING), **arguments)


@pytest.mark.parametrize("name", [NEW, "claude-opus-4-6"])
def test_a_turn_behind_one_of_the_assistant_is_refused(name: str):
    @function
    def twice(s: Any) -> None:
        s += user("Hi") + assistant("Hello.") + assistant(gen("answer"))

    with (
        Service() as service,
        pytest.raises(CallFailed, match=r"two turns of the assistant: .* put a turn of the user"),
    ):
        twice.run(backend=model(service, name))["answer"]


def test_a_model_that_thinks_neither_goes_on_nor_calls_a_tool():
    with Service() as service:
        with pytest.raises(Unsupported, match="cannot go on inside a turn"):
            going_on.run(backend=model(service, thinking=THINKING))
        with pytest.raises(Unsupported, match="cannot be made to call a tool, which holds the answer, while it thinks"):
            ask.run(backend=model(service, "claude-opus-4-1", thinking=THINKING), dtype=int)


def test_the_parser_of_thoughts_is_the_services():
    @function
    def named(s: Any) -> None:
        s += user("Hi") + assistant(separate_reasoning(gen("answer"), model_type="qwen3"))

    with Service() as service, pytest.raises(Unsupported, match=r"model_type: .* leave model_type out"):
        named.run(backend=model(service))


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply("I cannot", stop="refusal"), "the model refused to answer"),
        (reply("Hel", stop="pause_turn"), "the output ended for 'pause_turn'"),
        ({"type": "message"}, "its answer has no 'content'"),
        ([], "its answer is not an object"),
        ({"content": "Hello"}, "its answer is not as expected"),
        ({"content": [{"type": "text", "text": 5}]}, "its answer is not as expected"),
        ({"content": [{"type": "tool_use"}]}, "its answer has no 'input'"),
        ({"content": [], "usage": 5}, "its answer is not as expected"),
    ],
)
def test_an_answer_that_is_no_output_is_an_error(answer: Any, error: str):
    with Service(Exchange(PATH, HI, answer)) as service, pytest.raises(CallFailed, match=error):
        ask.run(backend=model(service))["answer"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (events(start(), *texts("Hel"), named=True, end=""), "the stream ended before the output did"),
        (cut(start(), *texts("Hel")), "ClientPayloadError|the stream ended before the output did"),
        (
            events(start(), {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, end=""),
            "Overloaded",
        ),
        (events({"type": "message_start", "message": 5}, named=True), "its answer is not as expected"),
        (events([]), "its answer is not an object"),
    ],
)
def test_a_stream_that_breaks_off_is_an_error(answer: Any, error: str):
    with Service(Exchange(PATH, {**HI, "stream": True}, answer)) as service, pytest.raises(CallFailed, match=error):
        ask.run(backend=model(service), stream=True)["answer"]


def test_an_error_is_in_the_services_words():
    fault = {"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens: too large"}}
    error = r"max_tokens: too large \(HTTP 400\)"
    with Service(Exchange(PATH, HI, fault, status=400)) as service, pytest.raises(CallFailed, match=error):
        ask.run(backend=model(service))["answer"]


@pytest.mark.parametrize("name", ["seed", "frequency_penalty", "min_p", "logit_bias", "return_logprob"])
def test_parameters_that_it_does_not_have_are_refused(name: str):
    value: Any = {"logit_bias": {1: 2.0}, "return_logprob": True, "seed": 3}.get(name, 0.5)
    with Service() as service, pytest.raises(Unsupported, match="has no such parameter"):
        ask.run(backend=model(service), **{name: value})


def test_turns_of_the_system_come_first():
    @function
    def late(s: Any) -> None:
        s += user("Hi") + system("Be kind.") + assistant(gen("answer"))

    @function
    def two(s: Any) -> None:
        s += system("Be kind.") + system("Be brief.") + user("Hi") + assistant(gen("answer", max_tokens=5))

    with Service() as service, pytest.raises(CallFailed, match="turns of the system at the beginning of a chat only"):
        late.run(backend=model(service))["answer"]
    body = {**HI, "system": "Be kind.\n\nBe brief."}
    with Service(Exchange(PATH, body, reply("Hello"))) as service:
        assert two.run(backend=model(service))["answer"] == "Hello"
