"""OpenAI's API, against exchanges written by hand after its reference: chats, completions, streams, errors."""

from typing import Any

import pytest
from exchanges import Exchange, Service, cut, events, raw
from interview import CLOSED, FORKS, JSON, SYSTEM, check, interview, turns

import ramet
from ramet import BackendError, CallFailed, OpenAI, Unsupported, assistant, function, gen, select, system, user
from ramet.frontend.backends.base import GenCall, SelectCall
from ramet.frontend.prompt import EMPTY, TurnBegin, TurnEnd

CHAT = "/v1/chat/completions"
USAGE = {
    "prompt_tokens": 19,
    "completion_tokens": 10,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 0},
}


def said(text: str | None, finish: str = "stop", index: int = 0, **message: Any) -> dict[str, Any]:
    whole = {"role": "assistant", "content": text, "refusal": None, "annotations": [], **message}
    return {"index": index, "message": whole, "logprobs": None, "finish_reason": finish}


def reply(*choices: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion",
        "created": 1741569952,
        "model": "gpt-4.1-2025-04-14",
        "choices": list(choices),
        "usage": USAGE,
        "service_tier": "default",
    }


def chunk(delta: dict[str, Any], finish: str | None = None, **others: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    same = {"id": "chatcmpl-123", "object": "chat.completion.chunk", "created": 1694268190, "model": "gpt-4o-mini"}
    return {**same, "choices": choices, "usage": None, **others}


def stream(*pieces: str, finish: str = "stop") -> Any:
    start = chunk({"role": "assistant", "content": "", "refusal": None})
    parts = [chunk({"content": piece}) for piece in pieces]
    return events(start, *parts, chunk({}, finish), {**chunk({}), "choices": [], "usage": USAGE})


def messages(num: int, last: str | None = None) -> list[dict[str, str]]:
    found = [{"role": role, "content": text} for role, text in [("system", SYSTEM), *turns(num)]]
    return [*found, {"role": "user", "content": last}] if last else found


def schema(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": value}}


def one(**value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": value}, "required": ["value"], "additionalProperties": False}


STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


def conversation(streaming: bool, tokens: str = "max_completion_tokens") -> list[Exchange]:
    ask = {"model": "gpt-4.1"}

    def free(body: dict[str, Any], *pieces: str) -> Exchange:
        answer = stream(*pieces) if streaming else reply(said("".join(pieces)))
        return Exchange(CHAT, {**ask, **body, **(STREAMED if streaming else {})}, answer)

    choice, number = one(type="string", enum=["yes", "no"]), one(type="integer")
    most = {"max_completion_tokens": 69, "max_tokens": 1024}[tokens]  # of a choice: of a server that is not known, more
    return [
        free({"messages": messages(0), tokens: 16, "stop": ["."]}, "Pa", "ris"),
        Exchange(
            CHAT,
            {**ask, "messages": messages(1), tokens: most, "temperature": 0.0, "response_format": schema(choice)},
            reply(said('{"value":"yes"}')),
        ),
        Exchange(
            CHAT,
            {**ask, "messages": messages(2), tokens: 32, "response_format": schema(number)},
            reply(said('{"value": 2100000}')),
        ),
        free({"messages": messages(3), tokens: 64, "response_format": schema(CLOSED)}, JSON[:9], JSON[9:]),
        free({"messages": messages(4, FORKS[0]), tokens: 8}, "Seine"),
        free({"messages": messages(4, FORKS[1]), tokens: 8}, "che", "ese"),
    ]


def model(service: Service, name: str = "gpt-4.1", flavor: str = "openai", **arguments: Any) -> OpenAI:
    return OpenAI(name, api_key="sk-1", base_url=service.url + "/v1", flavor=flavor, is_chat_model=True, **arguments)


@function
def ask(s: Any, **arguments: Any) -> None:
    s += user("Hi") + assistant(gen("answer", max_tokens=5, **arguments))


HI: dict[str, Any] = {
    "model": "gpt-4.1",
    "messages": [{"role": "user", "content": "Hi"}],
    "max_completion_tokens": 5,
}


@pytest.mark.parametrize("streaming", [False, True])
def test_the_interview(streaming: bool):
    with Service(*conversation(streaming)) as service:
        state = interview.run(backend=model(service), stream=streaming)
        if streaming:
            assert "".join(state.text_iter("city")) == "Paris"
        check(state)


def test_the_key_goes_in_the_header():
    exchange = Exchange(CHAT, HI, reply(said("Hello")), headers={"Authorization": "Bearer sk-1"})
    with Service(exchange) as service:
        assert ask.run(backend=model(service))["answer"] == "Hello"


def test_azure_reads_the_key_and_its_version_elsewhere():
    exchange = Exchange(CHAT + "?api-version=2024-10-21", HI, reply(said("Hello")), headers={"api-key": "sk-1"})
    with Service(exchange) as service:
        url = service.url + "/v1"
        backend = OpenAI("gpt-4.1", is_azure=True, api_key="sk-1", base_url=url, api_version="2024-10-21")
        assert ask.run(backend=backend)["answer"] == "Hello"


@pytest.mark.parametrize(("version", "path"), [("2024-10-21", "deployments/my%20gpt"), (None, "v1")])
@pytest.mark.parametrize("by_environment", [False, True])
def test_azure_is_found_by_its_endpoint(
    version: str | None, path: str, by_environment: bool, monkeypatch: pytest.MonkeyPatch
):
    called = f"/openai/{path}/chat/completions" + (f"?api-version={version}" if version else "")
    body = {**HI, "model": "my gpt"}
    with Service(Exchange(called, body, reply(said("Hello")), headers={"api-key": "sk-1"})) as service:
        given = {"api_key": "sk-1", "azure_endpoint": service.url + "/", "api_version": version}
        if by_environment:
            names = ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION")
            for name, value in zip(names, given.values(), strict=True):
                monkeypatch.setenv(name, value or "")
            given = {}
        assert ask.run(backend=OpenAI(model_name="my gpt", is_azure=True, **given))["answer"] == "Hello"


def test_meta_is_as_the_runtime_has_it():
    with Service(Exchange(CHAT, HI, reply(said("Hello", "length")))) as service:
        meta = ask.run(backend=model(service)).get_meta_info("answer")
    assert meta == {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "prompt_tokens": 19,
        "cached_tokens": 4,
        "completion_tokens": 10,
        "finish_reason": {"type": "length", "length": 10},
    }


def test_parameters_have_the_names_of_the_service():
    body = {
        **HI,
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "logit_bias": {"50256": -100.0},
        "seed": 7,
        "n": 2,
        "stop": ["a", "b"],
        "logprobs": True,
        "top_logprobs": 2,
    }
    told = {
        "content": [
            {
                "token": "Hel",
                "logprob": -0.25,
                "bytes": [72, 101, 108],
                "top_logprobs": [{"token": "Hel", "logprob": -0.25, "bytes": [72]}],
            }
        ],
        "refusal": None,
    }
    choices = [{**said("Hel"), "logprobs": told}, said("Ho", index=1)]
    with Service(Exchange(CHAT, body, reply(*choices))) as service:
        state = ask.run(
            backend=model(service),
            temperature=0.5,
            top_p=0.9,
            frequency_penalty=0.1,
            presence_penalty=0.2,
            logit_bias={50256: -100},
            seed=7,
            n=2,
            stop=["a", "b"],
            return_logprob=True,
            top_logprobs_num=2,
        )
        assert state["answer"] == ["Hel", "Ho"]
        first, second = state.get_meta_info("answer")
    assert first["output_token_logprobs"] == [(-0.25, None, "Hel")]
    assert first["output_top_logprobs"] == [[(-0.25, None, "Hel")]]
    assert "output_token_logprobs" not in second
    assert "completion_tokens" not in second, "the service counts those of all outputs together"


def test_a_server_of_another_project_is_told_max_tokens():
    with Service(*conversation(False, "max_tokens")) as service:
        check(interview.run(backend=model(service, flavor="compatible")))


@pytest.mark.parametrize(
    ("name", "thinks"),
    [("o3", True), ("o4-mini", True), ("gpt-5", True), ("gpt-5.1-mini", True), ("gpt-5-chat-latest", False)],
)
def test_models_that_think_are_known_by_name(name: str, thinks: bool):
    backend = OpenAI(name, api_key="sk-1")
    assert (backend.flavor.name == "openai, models that think") == thinks
    if thinks:
        with pytest.raises(Unsupported, match=r"gen\('answer'\): temperature: .* has no such parameter"):
            ask.run(backend=backend, temperature=0.5)
        with pytest.raises(Unsupported, match=r"stop: .* has no such parameter"):
            ask.run(backend=backend, stop="\n")


def test_a_model_that_thinks_has_numbers_and_choices_too():
    body = {**HI, "model": "o3", "response_format": schema(one(type="integer"))}
    choice = {**body, "max_completion_tokens": 1024, "response_format": schema(one(type="string", enum=["a", "b"]))}
    with Service(
        Exchange(CHAT, body, reply(said('{"value":4}'))), Exchange(CHAT, choice, reply(said('{"value":"b"}')))
    ) as service:
        backend = model(service, "o3")
        assert ask.run(backend=backend, dtype=int, temperature=1.0)["answer"] == 4

        @function
        def choose(s: Any) -> None:
            s += user("Hi") + assistant(select("it", choices=["a", "b"]))

        assert choose.run(backend=backend)["it"] == "b"


@pytest.mark.parametrize(
    ("name", "text"),
    [("gpt-3.5-turbo-instruct", True), ("davinci-002", True), ("babbage-002", True), ("gpt-4o", False)],
)
def test_completion_models_are_known_by_name(name: str, text: bool):
    can = OpenAI(name, api_key="sk-1").capabilities
    assert (can.completion, can.chat) == (text, not text)


def test_what_is_said_of_the_model_counts_more_than_its_name():
    can = OpenAI("gpt-3.5-turbo-instruct", api_key="sk-1", is_chat_model=True).capabilities
    assert (can.completion, can.chat) == (False, True)


COMPLETION = {
    "id": "cmpl-uqkvlQyYK7bGYrRHQ0eXlWi7",
    "object": "text_completion",
    "created": 1589478378,
    "model": "gpt-3.5-turbo-instruct",
    "choices": [{"text": " test", "index": 0, "logprobs": None, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
}


@function
def go_on(s: Any) -> None:
    s += "This is a" + gen("rest", max_tokens=1)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_completion_model_goes_on_with_the_text(streaming: bool):
    body: dict[str, Any] = {"model": "davinci-002", "prompt": "This is a", "max_tokens": 1}
    answer: Any = COMPLETION
    if streaming:
        body, answer = {**body, **STREAMED}, events({**COMPLETION, "usage": None}, {**COMPLETION, "choices": []})
    with Service(Exchange("/v1/completions", body, answer)) as service:
        backend = OpenAI("davinci-002", False, api_key="sk-1", base_url=service.url + "/v1", flavor="openai")
        state = go_on.run(backend=backend, stream=streaming)
        assert state.text() == "This is a test"
        assert state.get_meta_info("rest")["prompt_tokens"] == 5


def test_the_end_of_an_output_has_many_names():
    answer = {**COMPLETION, "choices": [{"text": " test", "index": 0, "finish_reason": "eos"}]}
    with Service(
        Exchange("/v1/completions", {"model": "m", "prompt": "This is a", "max_tokens": 1}, answer)
    ) as service:
        backend = OpenAI("m", base_url=service.url + "/v1", flavor="compatible")
        assert go_on.run(backend=backend).get_meta_info("rest")["finish_reason"]["type"] == "stop"


def test_a_completion_model_reads_turns_by_a_template():
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    body = {"model": "davinci-002", "prompt": prompt, "max_tokens": 5, "stop": ["<|im_end|>"]}
    with Service(Exchange("/v1/completions", body, COMPLETION)) as service:
        backend = OpenAI("davinci-002", False, "chatml", api_key="sk-1", base_url=service.url + "/v1", flavor="openai")
        assert ask.run(backend=backend)["answer"] == " test"


def test_log_probabilities_of_a_completion():
    told = {"tokens": [" test"], "token_logprobs": [-0.5], "top_logprobs": [{" test": -0.5, " dog": -2.0}]}
    body = {"model": "davinci-002", "prompt": "This is a", "max_tokens": 1, "logprobs": 2}
    answer = {**COMPLETION, "choices": [{**COMPLETION["choices"][0], "logprobs": told}]}  # type: ignore[index]
    with Service(Exchange("/v1/completions", body, answer)) as service:
        backend = OpenAI("davinci-002", False, api_key="sk-1", base_url=service.url + "/v1", flavor="openai")
        meta = go_on.run(backend=backend, return_logprob=True, top_logprobs_num=2).get_meta_info("rest")
    assert meta["output_token_logprobs"] == [(-0.5, None, " test")]
    assert meta["output_top_logprobs"] == [[(-0.5, None, " test"), (-2.0, None, " dog")]]


@pytest.mark.parametrize(
    ("kind", "json_type", "answer", "value", "text"),
    [
        (int, "integer", "-4", -4, "-4"),
        (int, "integer", "4.0", 4, "4"),
        (float, "number", "0.50", 0.5, "0.50"),
        (bool, "boolean", "true", True, "True"),
        (str, "string", '"a \\"b\\" c"', 'a "b" c', '"a \\"b\\" c"'),
    ],
)
def test_types_are_asked_for_as_a_field(kind: type, json_type: str, answer: str, value: Any, text: str):
    body = {**HI, "response_format": schema(one(type=json_type))}
    with Service(Exchange(CHAT, body, reply(said(f'{{"value":{answer}}}')))) as service:
        state = ask.run(backend=model(service), dtype=kind)
        assert state["answer"] == value
        assert type(value)(state["answer"]) == value
        assert state.messages()[-1]["content"] == text


def choosing(most: int) -> dict[str, Any]:
    form = schema(one(type="string", enum=["a", "b"]))
    return {**HI, "temperature": 0.0, "max_completion_tokens": most, "response_format": form}


@function
def choose(s: Any, arguments: dict[str, Any] | None = None) -> None:
    s += user("Hi") + assistant(select("it", choices=["a", "b"], **(arguments or {})))


def test_a_model_that_thinks_of_its_choices_is_given_more_tokens_from_then_on():
    cut, whole = reply(said('{"val', "length")), reply(said('{"value":"b"}'))
    asked = [Exchange(CHAT, choosing(67), cut), *(Exchange(CHAT, choosing(1024), whole) for _ in range(2))]
    with Service(*asked) as service:
        backend = model(service)
        assert choose.run(backend=backend)["it"] == "b"
        assert choose.run(backend=backend)["it"] == "b"


@pytest.mark.parametrize("arguments", [{"temperature": 0.5}, {"priority": 3}, {"token_healing": False}])
def test_what_a_choice_asks_beyond_the_service_is_refused(arguments: dict[str, Any]):
    (name,) = arguments
    with pytest.raises(Unsupported, match=rf"select\('it'\): {name}: .* has no such parameter"):
        choose.run(arguments, backend=OpenAI("o3", api_key="sk-1"))


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}],
        [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Hello"}],
        [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hello"}],
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_content_may_come_in_parts(content: list[Any], streaming: bool):
    body = {**HI, **(STREAMED if streaming else {})}
    answer: Any = reply(said(content))  # type: ignore[arg-type]
    if streaming:
        answer = events(*(chunk({"content": [part]}) for part in content), chunk({}, "stop"))
    with Service(Exchange(CHAT, body, answer)) as service:
        state = ask.run(backend=model(service), stream=streaming)
        assert state["answer"] == "Hello"
        if streaming:
            assert "".join(state.text_iter("answer")) == "Hello"


def test_a_number_that_is_none_is_an_error():
    body = {**HI, "response_format": schema(one(type="integer"))}
    with (
        Service(Exchange(CHAT, body, reply(said('{"value":1e999}')))) as service,
        pytest.raises(CallFailed, match="'1e999' is not an integer"),
    ):
        ask.run(backend=model(service), dtype=int)["answer"]


def test_a_regex_is_the_pattern_of_a_field():
    body = {**HI, "response_format": schema(one(type="string", pattern="^([0-9]{4}|never)$"))}
    with Service(Exchange(CHAT, body, reply(said('{"value":"1984"}')))) as service:
        assert ask.run(backend=model(service), regex="[0-9]{4}|never")["answer"] == "1984"


def test_a_schema_without_an_object_is_asked_for_as_a_field():
    body = {**HI, "response_format": schema(one(type="array", items={"type": "integer"}))}
    with Service(Exchange(CHAT, body, reply(said('{"value":[1, 2]}')))) as service:
        assert ask.run(backend=model(service), json_schema=list[int])["answer"] == [1, 2]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply(said('{"value":"c"}')), "'c' is not one of the choices"),
        (reply(said("b")), "'b' is not an object with 'value'"),
        (reply(said('{"value":"a"', "length")), "cut at max_tokens before it was complete"),
    ],
)
def test_a_choice_that_is_none_is_an_error(answer: Any, error: str):
    asked = [choosing(67)] if answer["choices"][0]["finish_reason"] == "stop" else [choosing(67), choosing(1024)]
    with Service(*(Exchange(CHAT, body, answer) for body in asked)) as service:
        state = choose.run(backend=model(service))
        with pytest.raises(CallFailed, match=error):
            state["it"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply(said(None, refusal="I cannot help with that.")), "the model refused: I cannot help with that"),
        (reply(said("Hel", "content_filter")), "its content filter ended the output"),
        (reply(said("Hel", "tool_calls")), "the output ended for 'tool_calls'"),
        ([1, 2], "its answer is not an object"),
        ({"choices": [5]}, r"OpenAI\('gpt-4.1'\): its answer is not as expected.*{'choices': \[5\]}"),
        ({"choices": {"message": "Hello"}}, "its answer is not as expected"),
        (reply({"message": "Hello"}), "its answer is not as expected"),
        (reply(said(5)), "its answer is not as expected"),
        (reply({**said("Hello"), "logprobs": {"content": [{"token": "Hello"}]}}), "its answer has no 'logprob'"),
        ({**reply(said("Hello")), "usage": "many"}, "its answer is not an object: 'many'"),
        ({"id": "x", "choices": []}, "the answer ended before the output did"),
        (reply(said("Hello", index=3)), "it answered with output 3 of 1"),
    ],
)
def test_an_answer_that_is_no_output_is_an_error(answer: Any, error: str):
    with Service(Exchange(CHAT, HI, answer)) as service:
        state = ask.run(backend=model(service))
        with pytest.raises(CallFailed, match=error):
            state["answer"]
        assert isinstance(state.error().reason, BackendError)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (cut(chunk({"content": "Hel"})), "ClientPayloadError|the answer ended before the output did"),
        (events(chunk({"content": "Hel"}), end=""), "the answer ended before the output did"),
        (events(chunk({"content": "Hel"}), {"error": {"message": "overloaded", "code": 503}}), "overloaded"),
        (raw("data: {broken\n\n", kind="text/event-stream"), "its answer is not JSON"),
    ],
)
def test_a_stream_that_breaks_off_is_an_error(answer: Any, error: str):
    with Service(Exchange(CHAT, {**HI, **STREAMED}, answer)) as service:
        state = ask.run(backend=model(service), stream=True)
        with pytest.raises(CallFailed, match=error):
            state["answer"]


def test_a_stop_text_is_cut_also_where_the_service_leaves_it():
    body = {**HI, **STREAMED, "stop": ["END", "\n"]}
    with Service(Exchange(CHAT, body, stream("one E", "ND two"))) as service:
        state = ask.run(backend=model(service), stream=True, stop=["END", "\n"])
        assert "".join(state.text_iter("answer")) == "one "
        assert state.get_meta_info("answer")["finish_reason"] == {"type": "stop", "matched": "END"}


# -- what is refused, before any call ---------------------------------------------------------------------------------


def refused(program: Any, error: str, **arguments: Any) -> None:
    with Service() as service, pytest.raises(Unsupported, match=error):
        program.run(backend=model(service), **arguments)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"top_k": 5}, r"gen\('answer'\): top_k: OpenAI\('gpt-4.1'\) has no such parameter"),
        ({"min_tokens": 2}, "min_new_tokens: .* has no such parameter"),
        ({"stop_regex": "a+"}, "stop_regex: .* has no such parameter"),
        ({"ebnf": "root ::= 'a'"}, "cannot keep an output to ebnf"),
        ({"priority": 3}, "priority: .* has no such parameter"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "takes at most 4 texts, and here are 5"),
        ({"json_schema": {"type": "object"}}, "json_schema is an object without named properties"),
        (
            {"json_schema": {"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}}},
            r"json_schema.properties.a has 'minLength', which is not enforced",
        ),
        (
            {"json_schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
            r"json_schema.properties.a may be absent",
        ),
    ],
)
def test_what_the_service_cannot_do_is_refused(arguments: Any, error: str):
    refused(ask, error, **arguments)


def test_neutral_values_are_not_refused():
    with Service(Exchange(CHAT, HI, reply(said("Hello")))) as service:
        state = ask.run(backend=model(service), top_k=-1, min_p=0, repetition_penalty=1.0, ignore_eos=False)
        assert state["answer"] == "Hello"


def test_places_that_a_chat_does_not_have_are_refused():
    @function
    def alone(s: Any) -> None:
        s += "Hi" + gen("answer")

    @function
    def beside(s: Any) -> None:
        s += "Note." + user("Hi") + assistant(gen("answer"))

    @function
    def as_user(s: Any) -> None:
        s += user("Hi" + gen("answer"))

    @function
    def behind(s: Any) -> None:
        s += user("Hi") + gen("answer")

    @function
    def inside(s: Any) -> None:
        s += user("Hi") + assistant("Well, " + gen("answer"))

    @function
    def choosing(s: Any) -> None:
        s += user("Hi") + assistant("Well, " + select("answer", choices=["a", "b"]))

    @function
    def tools(s: Any) -> None:
        s += ramet.tool("42")

    @function
    def picture(s: Any) -> None:
        s += user("What is it?") + assistant(ramet.image("cat.png") + gen("answer"))

    refused(alone, "takes chats only: call gen inside assistant()")
    refused(beside, "reads no text outside of turns")
    refused(as_user, "writes turns of the assistant only, and here is a turn of user")
    refused(behind, "writes turns of the assistant only, and here is no turn")
    refused(inside, "cannot go on inside a turn that has text already")
    refused(choosing, "cannot go on inside a turn that has text already")
    refused(tools, "a turn of tool: .* reads turns of assistant, system, user only")
    refused(picture, "takes media in turns of user only, and here is a turn of assistant")


@pytest.mark.parametrize("method", ["exact_sequence", "greedy_token_selection", lambda scored: 0])
def test_choice_methods_that_read_scores_are_refused(method: Any):
    @function
    def choose(s: Any) -> None:
        s += user("Hi") + assistant(select("it", choices=["a", "b"], choices_method=method))

    refused(choose, r"select\('it'\): .* names a choice and gives no scores")


def test_text_outside_of_turns_that_comes_late_is_refused_before_the_call():
    @function
    def late(s: Any, value: Any) -> None:
        s += value
        s += user("Hi") + assistant(gen("answer"))

    @function
    def other(s: Any) -> None:
        s += user("Hi") + assistant(gen("a", max_tokens=5))

    with Service(Exchange(CHAT, HI, reply(said("Hello")))) as service:
        backend = model(service)
        value = ramet.frontend.ir.Variable("a", other.run(backend=backend).results()["a"])
        with pytest.raises(CallFailed, match=r"text outside of turns: .* takes chats only"):
            late.run(value, backend=backend)["answer"]


def test_a_turn_with_words_is_never_answered_by_another_turn():
    """Whoever asks the backend itself."""
    prompt = EMPTY.extended(TurnBegin("user")).extended("Hi").extended(TurnEnd("user"))
    prompt = prompt.extended(TurnBegin("assistant")).extended("Well, ")
    with Service() as service:
        backend = model(service)
        for asked in (
            backend.generate(prompt, GenCall({"max_new_tokens": 5})),
            backend.select(prompt, SelectCall(("a", "b"), "token_length_normalized", 0.0)),
        ):
            with pytest.raises(Unsupported, match="cannot go on inside a turn that has text already"):
                backend.loop.start(asked).result()


def test_a_completion_model_keeps_to_nothing():
    backend = OpenAI("davinci-002", api_key="sk-1")

    @function
    def number(s: Any) -> None:
        s += "Count: " + gen("n", dtype=int)

    @function
    def choice(s: Any) -> None:
        s += "Yes or no? " + select("n", choices=["yes", "no"])

    with pytest.raises(Unsupported, match="has no outputs of dtype int"):
        number.run(backend=backend)
    with pytest.raises(Unsupported, match="has no choice between texts"):
        choice.run(backend=backend)
    with pytest.raises(Unsupported, match="reads no turns of a chat"):
        ask.run(backend=backend)


def test_bad_arguments_of_the_backend():
    with pytest.raises(ValueError, match="flavor is 'x', must be one of openai, compatible, vllm"):
        OpenAI("m", base_url="http://127.0.0.1:1", flavor="x")
    with pytest.raises(ValueError, match="the chat template is 'x', must be one of default, claude"):
        OpenAI("davinci-002", chat_template="x")
    with pytest.raises(ValueError, match="chat_template is given, but gpt-4o reads chats itself"):
        OpenAI("gpt-4o", chat_template="chatml")
    with pytest.raises(ValueError, match="is_azure is True, but azure_endpoint is not given"):
        OpenAI("gpt-4o", is_azure=True)
    with pytest.raises(ValueError, match="base_url and azure_endpoint are both given"):
        OpenAI("gpt-4o", is_azure=True, base_url="http://127.0.0.1:1", azure_endpoint="http://127.0.0.1:1")
    with pytest.raises(ValueError, match=r"azure_endpoint is 'http://127\.0\.0\.1:1', but is_azure is False"):
        OpenAI("gpt-4o", azure_endpoint="http://127.0.0.1:1")
    with pytest.raises(ValueError, match=r"^is_chat_model is of type str, must be True, False or None$"):
        OpenAI("gpt-4o", "sk-1")  # type: ignore[arg-type]


# -- many at once -----------------------------------------------------------------------------------------------------


def test_many_programs_share_one_backend():
    numbers = range(40)

    def body(number: int) -> dict[str, Any]:
        said_before = {"role": "user", "content": f"Say {number}."}
        return {"model": "gpt-4.1", "messages": [said_before], "max_completion_tokens": 5}

    @function
    def say(s: Any, number: int) -> None:
        s += user(f"Say {number}.") + assistant(gen("it", max_tokens=5))

    with Service(*(Exchange(CHAT, body(number), reply(said(str(number)))) for number in numbers)) as service:
        backend = model(service)
        before = {name: value for name, value in vars(backend).items() if name != "_http"}
        states = say.run_batch([{"number": number} for number in numbers], backend=backend, num_threads=16)
        assert [state["it"] for state in states] == [str(number) for number in numbers]
        assert {name: value for name, value in vars(backend).items() if name != "_http"} == before


def test_the_system_prompt_is_in_every_call():
    with Service(*conversation(False)) as service:
        check(interview.run(backend=model(service)))
        firsts = [body["messages"][0] for _, body in service.requests]
    assert firsts == [{"role": "system", "content": SYSTEM}] * 6


def test_a_system_turn_may_come_late():
    @function
    def late(s: Any) -> None:
        s += user("Hi") + system("Be kind.") + assistant(gen("answer", max_tokens=5))

    body = {**HI, "messages": [*HI["messages"], {"role": "system", "content": "Be kind."}]}
    with Service(Exchange(CHAT, body, reply(said("Hello")))) as service:
        assert late.run(backend=model(service))["answer"] == "Hello"
