"""Gemini's API, against exchanges written by hand after its reference: generateContent, streams, blocks, errors."""

from typing import Any

import pytest
from exchanges import Exchange, Service, cut, events
from interview import FACTS, FORKS, JSON, SYSTEM, check, interview, turns

from ramet import (
    BackendError,
    CallFailed,
    Gemini,
    Unsupported,
    assistant,
    function,
    gen,
    select,
    separate_reasoning,
    user,
)

WHOLE = "/v1beta/models/gemini-2.5-flash:generateContent"
STREAM = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
USAGE = {"promptTokenCount": 11, "candidatesTokenCount": 6, "totalTokenCount": 17}


def contents(*said: tuple[str, str]) -> list[dict[str, Any]]:
    names = {"assistant": "model", "user": "user"}
    return [{"role": names[role], "parts": [{"text": text}]} for role, text in said]


def candidate(*parts: dict[str, Any] | str, finish: str | None = "STOP", **others: Any) -> dict[str, Any]:
    found = [{"text": part} if isinstance(part, str) else part for part in parts]
    ended = {"finishReason": finish} if finish else {}
    return {"content": {"parts": found, "role": "model"}, **ended, "index": 0, **others}


def reply(*candidates: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {
        "candidates": list(candidates),
        "usageMetadata": USAGE,
        "modelVersion": "gemini-2.5-flash",
        "responseId": "mAitaLmkHPPlz7IPvtfUqQ4",
        **others,
    }


def stream(*pieces: str) -> Any:
    *firsts, last = pieces
    return events(*(reply(candidate(piece, finish=None)) for piece in firsts), reply(candidate(last)), end="")


def conversation(streaming: bool) -> list[Exchange]:
    def body(said: list[tuple[str, str]], config: dict[str, Any]) -> dict[str, Any]:
        instruction = {"parts": [{"text": SYSTEM}]}
        return {"contents": contents(*said), "systemInstruction": instruction, "generationConfig": config}

    def free(said: list[tuple[str, str]], config: dict[str, Any], *pieces: str) -> Exchange:
        answer = stream(*pieces) if streaming else reply(candidate("".join(pieces)))
        return Exchange(STREAM if streaming else WHOLE, body(said, config), answer)

    def held(said: list[tuple[str, str]], config: dict[str, Any], answer: str) -> Exchange:
        return Exchange(WHOLE, body(said, config), reply(candidate(answer)))

    choice = {"type": "STRING", "enum": ["yes", "no"]}
    json = {"responseMimeType": "application/json"}
    return [
        free(turns(0), {"maxOutputTokens": 16, "stopSequences": ["."]}, "Pa", "ris"),
        held(
            turns(1),
            {"maxOutputTokens": 1024, "temperature": 0.0, "responseMimeType": "text/x.enum", "responseSchema": choice},
            "yes",
        ),
        held(turns(2), {"maxOutputTokens": 32, **json, "responseJsonSchema": {"type": "integer"}}, "2100000"),
        free(turns(3), {"maxOutputTokens": 64, **json, "responseJsonSchema": FACTS}, JSON[:9], JSON[9:]),
        free([*turns(4), ("user", FORKS[0])], {"maxOutputTokens": 8}, "Seine"),
        free([*turns(4), ("user", FORKS[1])], {"maxOutputTokens": 8}, "che", "ese"),
    ]


def model(service: Service, name: str = "gemini-2.5-flash", **arguments: Any) -> Gemini:
    return Gemini(name, api_key="AIza1", base_url=service.url + "/v1beta", **arguments)


@function
def ask(s: Any, **arguments: Any) -> None:
    s += user("Hi") + assistant(gen("answer", max_tokens=5, **arguments))


HI: dict[str, Any] = {"contents": contents(("user", "Hi")), "generationConfig": {"maxOutputTokens": 5}}


def with_config(**config: Any) -> dict[str, Any]:
    return {**HI, "generationConfig": {**HI["generationConfig"], **config}}


@pytest.mark.parametrize("streaming", [False, True])
def test_the_interview(streaming: bool):
    with Service(*conversation(streaming)) as service:
        state = interview.run(backend=model(service), stream=streaming)
        if streaming:
            assert "".join(state.text_iter("city")) == "Paris"
        check(state)


def test_the_key_goes_in_the_header():
    with Service(Exchange(WHOLE, HI, reply(candidate("Hello")), headers={"x-goog-api-key": "AIza1"})) as service:
        assert ask.run(backend=model(service, "models/gemini-2.5-flash"))["answer"] == "Hello"


def test_the_key_is_found_in_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza2")
    with Service(Exchange(WHOLE, HI, reply(candidate("Hello")), headers={"x-goog-api-key": "AIza2"})) as service:
        assert ask.run(backend=Gemini("gemini-2.5-flash", base_url=service.url + "/v1beta"))["answer"] == "Hello"


def test_meta_is_as_the_runtime_has_it():
    usage = {**USAGE, "cachedContentTokenCount": 4, "thoughtsTokenCount": 9}
    answer = reply(candidate("Hel", finish="MAX_TOKENS"), usageMetadata=usage)
    with Service(Exchange(WHOLE, HI, answer)) as service:
        meta = ask.run(backend=model(service)).get_meta_info("answer")
    assert meta == {
        "id": "mAitaLmkHPPlz7IPvtfUqQ4",
        "prompt_tokens": 11,
        "cached_tokens": 4,
        "completion_tokens": 15,
        "reasoning_tokens": 9,
        "finish_reason": {"type": "length", "length": 15},
    }


def test_parameters_have_the_names_of_the_service():
    body = with_config(
        temperature=0.5,
        topP=0.9,
        topK=7,
        presencePenalty=0.1,
        frequencyPenalty=0.2,
        seed=3,
        candidateCount=2,
        stopSequences=["a", "b"],
        responseLogprobs=True,
        logprobs=1,
    )
    told = {
        "chosenCandidates": [{"token": "Hel", "tokenId": 17, "logProbability": -0.25}],
        "topCandidates": [{"candidates": [{"token": "Hel", "tokenId": 17, "logProbability": -0.25}]}],
    }
    answer = reply(candidate("Hel", logprobsResult=told), {**candidate("Ho"), "index": 1})
    with Service(Exchange(WHOLE, body, answer)) as service:
        state = ask.run(
            backend=model(service),
            temperature=0.5,
            top_p=0.9,
            top_k=7,
            presence_penalty=0.1,
            frequency_penalty=0.2,
            seed=3,
            n=2,
            stop=["a", "b"],
            return_logprob=True,
            top_logprobs_num=1,
        )
        assert state["answer"] == ["Hel", "Ho"]
        first, second = state.get_meta_info("answer")
    assert first["output_token_logprobs"] == [(-0.25, 17, "Hel")]
    assert first["output_top_logprobs"] == [[(-0.25, 17, "Hel")]]
    assert "completion_tokens" not in second


@pytest.mark.parametrize("streaming", [False, True])
def test_thoughts_are_apart(streaming: bool):
    @function
    def think(s: Any) -> None:
        s += user("Hi") + assistant(separate_reasoning(gen("answer", max_tokens=5)))

    body = with_config(thinkingConfig={"thinkingBudget": 64, "includeThoughts": True})
    thought = {"text": "Let me see.", "thought": True}
    answer: Any = reply(candidate(thought, "Hello"))
    if streaming:
        parts = [reply(candidate(thought, finish=None)), reply(candidate("Hel", finish=None)), reply(candidate("lo"))]
        answer = events(*parts, end="")
    with Service(Exchange(STREAM if streaming else WHOLE, body, answer)) as service:
        state = think.run(backend=model(service, thinking={"thinkingBudget": 64}), stream=streaming)
        assert state["answer"] == "Hello"
        assert state["answer_reasoning_content"] == "Let me see."


@pytest.mark.parametrize(
    ("kind", "json_type", "answer", "value"),
    [
        (int, "integer", "4\n", 4),
        (float, "number", "0.5", 0.5),
        (bool, "boolean", "false", False),
        (str, "string", '"x"', "x"),
    ],
)
def test_types_stand_alone(kind: type, json_type: str, answer: str, value: Any):
    body = with_config(responseMimeType="application/json", responseJsonSchema={"type": json_type})
    with Service(Exchange(WHOLE, body, reply(candidate(answer)))) as service:
        assert ask.run(backend=model(service), dtype=kind)["answer"] == value


@pytest.mark.parametrize(
    ("name", "path"),
    [("tunedModels/mine-1", "tunedModels/mine-1"), ("gemini-2.5-pro", "models/gemini-2.5-pro")],
)
def test_a_model_of_ones_own_has_another_path(name: str, path: str):
    with Service(Exchange(f"/v1beta/{path}:generateContent", HI, reply(candidate("Hello")))) as service:
        assert ask.run(backend=model(service, name))["answer"] == "Hello"


def test_definitions_have_their_newer_name():
    thing = {"type": "object", "properties": {"definitions": {"type": "string"}}}
    schema = {"type": "array", "items": {"$ref": "#/definitions/thing"}, "definitions": {"thing": thing}}
    sent = {"type": "array", "items": {"$ref": "#/$defs/thing"}, "$defs": {"thing": thing}}
    body = with_config(responseMimeType="application/json", responseJsonSchema=sent)
    with Service(Exchange(WHOLE, body, reply(candidate("[]")))) as service:
        assert ask.run(backend=model(service), json_schema=schema)["answer"] == "[]"


def test_a_constant_is_an_enum_of_one():
    schema = {"type": "object", "properties": {"kind": {"const": "a", "title": "Kind"}}}
    sent = {"type": "object", "properties": {"kind": {"enum": ["a"]}}}
    body = with_config(responseMimeType="application/json", responseJsonSchema=sent)
    with Service(Exchange(WHOLE, body, reply(candidate('{"kind":"a"}')))) as service:
        assert ask.run(backend=model(service), json_schema=schema)["answer"] == '{"kind":"a"}'


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply(candidate("Hel", finish="SAFETY")), "the output was ended by the service: SAFETY"),
        ({"candidates": [{"finishReason": "RECITATION", "index": 0}]}, "ended by the service: RECITATION"),
        ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, "the prompt was blocked: PROHIBITED_CONTENT"),
        (reply(), "the answer ended before the output did"),
        (reply({**candidate("x"), "index": 5}), "it answered with output 5 of 1"),
        ("text", "its answer is not an object"),
        ({"candidates": [5]}, "its answer is not as expected"),
        ({"candidates": [{"content": "Hello"}]}, "its answer is not as expected"),
        (reply({"content": {"parts": [{"text": 5}]}}), "its answer is not as expected"),
        ({**reply(candidate("Hello")), "usageMetadata": "many"}, "its answer is not an object: 'many'"),
    ],
)
def test_an_answer_that_is_no_output_is_an_error(answer: Any, error: str):
    with Service(Exchange(WHOLE, HI, answer)) as service:
        state = ask.run(backend=model(service))
        with pytest.raises(CallFailed, match=error):
            state["answer"]
        assert isinstance(state.error().reason, BackendError)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (events(reply(candidate("Hel", finish=None)), end=""), "the answer ended before the output did"),
        (cut(reply(candidate("Hel", finish=None))), "ClientPayloadError|the answer ended before the output did"),
        (
            events({"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}}),
            "Overloaded",
        ),
    ],
)
def test_a_stream_that_breaks_off_is_an_error(answer: Any, error: str):
    with Service(Exchange(STREAM, HI, answer)) as service, pytest.raises(CallFailed, match=error):
        ask.run(backend=model(service), stream=True)["answer"]


def test_an_error_is_in_the_services_words():
    fault = {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": []}}
    error = r"API key not valid. \(HTTP 400\)"
    with Service(Exchange(WHOLE, HI, fault, status=400)) as service, pytest.raises(CallFailed, match=error):
        ask.run(backend=model(service))["answer"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"regex": "a+"}, "cannot keep an output to regex"),
        ({"ebnf": "root ::= 'a'"}, "cannot keep an output to ebnf"),
        ({"min_p": 0.1}, "min_p: .* has no such parameter"),
        ({"stop": list("abcdef")}, "takes at most 5 texts, and here are 6"),
        ({"json_schema": {"type": "string", "pattern": "a+"}}, "json_schema has 'pattern', which is not enforced"),
        ({"json_schema": {"type": "object", "patternProperties": {}}}, "has 'patternProperties', which is not"),
        (
            {"json_schema": {"type": "string", "$defs": {}, "definitions": {}}},
            "has '\\$defs' and 'definitions', of which one may be there",
        ),
    ],
)
def test_what_the_service_cannot_do_is_refused(arguments: dict[str, Any], error: str):
    with Service() as service, pytest.raises(Unsupported, match=error):
        ask.run(backend=model(service), **arguments)


def test_a_turn_behind_one_of_the_model_is_refused():
    @function
    def twice(s: Any) -> None:
        s += user("Hi") + assistant("Hello.") + assistant(gen("answer"))

    with (
        Service() as service,
        pytest.raises(CallFailed, match=r"two turns of the assistant: .* put a turn of the user"),
    ):
        twice.run(backend=model(service))["answer"]


def test_it_does_not_go_on_in_a_turn():
    @function
    def inside(s: Any) -> None:
        s += user("Hi") + assistant("Well, " + gen("answer"))

    @function
    def alone(s: Any) -> None:
        s += "Hi" + select("answer", choices=["a", "b"])

    with Service() as service:
        with pytest.raises(Unsupported, match="cannot go on inside a turn that has text already"):
            inside.run(backend=model(service))
        with pytest.raises(Unsupported, match="takes chats only: call select inside assistant"):
            alone.run(backend=model(service))
