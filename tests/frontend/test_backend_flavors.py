"""Servers that speak OpenAI's API: what each is asked for beyond it, and what it is not."""

from typing import Any

import pytest
from exchanges import Exchange, Service, events, raw

from ramet import CallFailed, OpenAI, Unsupported, assistant, function, gen, select, separate_reasoning, user

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]
SERVERS = ["vllm", "sglang", "tgi", "llama.cpp"]
DATE = {"type": "object", "properties": {"year": {"type": "integer", "minimum": 1}}, "required": ["year"]}


def reply(text: str, **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": text, **message}
    usage = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    return {"id": "c-1", "choices": [{"index": 0, "message": said, "finish_reason": "stop"}], "usage": usage}


def completion(text: str) -> dict[str, Any]:
    return {"id": "c-1", "choices": [{"index": 0, "text": text, "finish_reason": "stop"}], "usage": None}


def model(service: Service, flavor: str, **arguments: Any) -> OpenAI:
    return OpenAI("m", base_url=service.url + "/v1", flavor=flavor, **arguments)


@function
def ask(s: Any, **arguments: Any) -> None:
    s += user("Hi") + assistant(gen("answer", max_tokens=5, **arguments))


@function
def text(s: Any, **arguments: Any) -> None:
    s += "Hi" + gen("answer", max_tokens=5, **arguments)


@function
def going_on(s: Any, **arguments: Any) -> None:
    s += user("Hi") + assistant("Well, " + gen("answer", max_tokens=5, **arguments))


@function
def choose(s: Any, arguments: dict[str, Any] | None = None) -> None:
    s += user("Hi") + assistant(select("it", choices=['a"b', "c.d\n"], **(arguments or {})))


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": MESSAGES, "max_tokens": 5, **fields}


def form(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def one(**value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": value}, "required": ["value"], "additionalProperties": False}


NUMBER = r"[-+]?[0-9]{1,18}[ \n]*"
STOPS = {"stop": [" ", "\n"]}  # of a number that is held by its regular expression


@pytest.mark.parametrize(
    ("flavor", "fields", "answer"),
    [
        ("vllm", {"structured_outputs": {"json": DATE}}, '{"year": 1984}'),
        ("sglang", form(DATE), '{"year": 1984}'),
        ("tgi", {"response_format": {"type": "json_object", "value": DATE}}, '{"year": 1984}'),
        ("llama.cpp", {"json_schema": DATE}, '{"year": 1984}'),
    ],
)
def test_a_schema(flavor: str, fields: dict[str, Any], answer: str):
    with Service(Exchange(CHAT, body(**fields), reply(answer))) as service:
        assert ask.run(backend=model(service, flavor), json_schema=DATE)["answer"] == answer


@pytest.mark.parametrize(
    ("flavor", "fields", "answer"),
    [
        ("vllm", {"structured_outputs": {"regex": "[0-9]{4}"}}, "1984"),
        ("sglang", {"regex": "[0-9]{4}"}, "1984"),
        ("tgi", {"response_format": {"type": "regex", "value": "[0-9]{4}"}}, "1984"),
        ("llama.cpp", {"json_schema": one(type="string", pattern="^([0-9]{4})$")}, '{"value": "1984"}'),
    ],
)
def test_a_regex(flavor: str, fields: dict[str, Any], answer: str):
    with Service(Exchange(CHAT, body(**fields), reply(answer))) as service:
        assert ask.run(backend=model(service, flavor), regex="[0-9]{4}")["answer"] == "1984"


@pytest.mark.parametrize(
    ("flavor", "fields", "answer"),
    [
        ("vllm", {"structured_outputs": {"regex": NUMBER}, **STOPS}, "42"),
        ("sglang", {"regex": NUMBER, **STOPS}, "42"),
        ("tgi", {"response_format": {"type": "regex", "value": NUMBER}, **STOPS}, "42 "),
        ("llama.cpp", {"json_schema": {"type": "integer"}}, "42"),
    ],
)
def test_a_number(flavor: str, fields: dict[str, Any], answer: str):
    with Service(Exchange(CHAT, body(**fields), reply(answer))) as service:
        assert ask.run(backend=model(service, flavor), dtype=int)["answer"] == 42


@pytest.mark.parametrize(
    ("flavor", "fields"),
    [
        ("vllm", {"structured_outputs": {"choice": ['a"b', "c.d\n"]}}),
        ("sglang", {"regex": '(a"b)|(c\\.d\n)'}),
        ("tgi", {"response_format": {"type": "regex", "value": '(a"b)|(c\\.d\n)'}}),
        ("llama.cpp", {"grammar": 'root ::= "a\\"b" | "c.d\\n"'}),
    ],
)
def test_a_choice(flavor: str, fields: dict[str, Any]):
    asked = body(temperature=0.0, **fields) | {"max_tokens": 71}  # the longest is "c.d\\n", as JSON
    with Service(Exchange(CHAT, asked, reply("c.d\n"))) as service:
        assert choose.run(backend=model(service, flavor))["it"] == "c.d\n"


@pytest.mark.parametrize(
    ("flavor", "fields"),
    [
        ("vllm", {"structured_outputs": {"grammar": "root ::= 'a'"}}),
        ("sglang", {"ebnf": "root ::= 'a'"}),
        ("llama.cpp", {"grammar": "root ::= 'a'"}),
    ],
)
def test_a_grammar(flavor: str, fields: dict[str, Any]):
    with Service(Exchange(CHAT, body(**fields), reply("a"))) as service:
        assert ask.run(backend=model(service, flavor), ebnf="root ::= 'a'")["answer"] == "a"


@pytest.mark.parametrize(
    ("flavor", "fields"),
    [
        ("vllm", {"continue_final_message": True, "add_generation_prompt": False}),
        ("sglang", {"continue_final_message": True}),
        ("llama.cpp", {}),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_turn_is_gone_on_with(flavor: str, fields: dict[str, Any], streaming: bool):
    asked = body(**fields) | {"messages": [*MESSAGES, {"role": "assistant", "content": "Well, "}]}
    answer: Any = reply("yes")
    if streaming:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
        answer = events({"id": "c", "choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]})
    with Service(Exchange(CHAT, asked, answer)) as service:
        assert going_on.run(backend=model(service, flavor), stream=streaming)["answer"] == "yes"


@pytest.mark.parametrize("flavor", ["tgi", "compatible", "openai"])
def test_others_do_not_go_on(flavor: str):
    with Service() as service, pytest.raises(Unsupported, match="cannot go on inside a turn"):
        going_on.run(backend=model(service, flavor))


LOCAL = {
    "top_k": 5,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "min_tokens": 2,
    "stop_token_ids": [7],
    "ignore_eos": True,
    "skip_special_tokens": False,
}


@pytest.mark.parametrize(
    ("flavor", "given", "sent"),
    [
        ("vllm", {**LOCAL, "priority": 3, "cache_salt": "x"}, {**LOCAL, "priority": 3, "cache_salt": "x"}),
        ("sglang", {**LOCAL, "stop_regex": "a+"}, {**LOCAL, "stop_regex": ["a+"]}),
        (
            "llama.cpp",
            {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True, "seed": 4},
            {"top_k": 5, "min_p": 0.1, "repeat_penalty": 1.1, "ignore_eos": True, "seed": 4},
        ),
        (
            "tgi",
            {"temperature": 0.5, "seed": 4, "frequency_penalty": 0.1, "top_p": 0.9},
            {"temperature": 0.5, "seed": 4, "frequency_penalty": 0.1, "top_p": 0.9},
        ),
    ],
)
def test_parameters_beyond_the_api(flavor: str, given: dict[str, Any], sent: dict[str, Any]):
    with Service(Exchange(CHAT, body(**sent), reply("a"))) as service:
        assert ask.run(backend=model(service, flavor), **given)["answer"] == "a"


def test_a_choice_has_the_parameters_that_its_service_has():
    given = {"priority": 3, "cache_salt": "x", "seed": 7}
    fields = {"structured_outputs": {"choice": ['a"b', "c.d\n"]}, "temperature": 0.0, "max_tokens": 71}
    with Service(Exchange(CHAT, body(**given) | fields, reply("c.d\n"))) as service:
        assert choose.run(given, backend=model(service, "vllm"))["it"] == "c.d\n"


def test_parameters_that_ask_for_nothing_are_not_sent_to_tgi():
    """It takes no top_p of 1, and makes 2.0 of a presence_penalty of 0."""
    with Service(Exchange(CHAT, body(), reply("a"))) as service:
        assert ask.run(backend=model(service, "tgi"), top_p=1.0, presence_penalty=0.0)["answer"] == "a"
    with Service() as service, pytest.raises(Unsupported, match=r"presence_penalty: .* has no such parameter"):
        ask.run(backend=model(service, "tgi"), presence_penalty=0.1)


def test_texts_of_tgi_have_no_log_probabilities():
    with (
        Service() as service,
        pytest.raises(Unsupported, match=r"return_logprob: .* no such parameter outside of turns"),
    ):
        text.run(backend=model(service, "tgi"), return_logprob=True)
    assert (
        "return_logprob"
        not in (OpenAI("m", base_url="http://127.0.0.1:9", flavor="tgi", is_chat_model=False)).capabilities.options
    )


def test_texts_of_llama_cpp_have_log_probabilities_with_one_likely_token_at_least():
    told = {"content": [{"token": " there", "logprob": -0.5, "top_logprobs": [{"token": " there", "logprob": -0.5}]}]}
    answer = {**completion(" there"), "choices": [{**completion(" there")["choices"][0], "logprobs": told}]}
    asked = {"model": "m", "prompt": "Hi", "max_tokens": 5, "logprobs": 1}
    with Service(Exchange(TEXT, asked, answer)) as service:
        meta = text.run(backend=model(service, "llama.cpp"), return_logprob=True).get_meta_info("answer")
    assert meta["output_token_logprobs"] == [(-0.5, None, " there")]


def test_a_turn_behind_one_of_the_assistant_is_refused_where_it_would_go_on_with_it():
    @function
    def twice(s: Any) -> None:
        s += user("Hi") + assistant("Hello.") + assistant(gen("answer", max_tokens=5))

    with (
        Service() as service,
        pytest.raises(
            CallFailed, match=r"two turns of the assistant: .* would go on inside the assistant's turn before"
        ),
    ):
        twice.run(backend=model(service, "llama.cpp"))["answer"]
    messages = [*MESSAGES, {"role": "assistant", "content": "Hello."}]
    with Service(Exchange(CHAT, {**body(), "messages": messages}, reply("Again."))) as service:
        assert twice.run(backend=model(service, "vllm"))["answer"] == "Again."


def test_a_stream_of_sglang_has_no_beginning_of_its_stop_text():
    def chunk(text: str, **ended: Any) -> dict[str, Any]:
        return {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None, **ended}]}

    chunks = [chunk("one"), chunk("\n"), chunk("", finish_reason="stop", matched_stop="\n\n")]
    asked = body(stop=["\n\n"], stream=True, stream_options={"include_usage": True})
    with Service(Exchange(CHAT, asked, events(*chunks))) as service:
        state = ask.run(backend=model(service, "sglang"), stop="\n\n", stream=True)
        assert "".join(state.text_iter("answer")) == "one"
        assert state["answer"] == "one"


@pytest.mark.parametrize("flavor", ["tgi", "llama.cpp"])
def test_n_outputs_take_n_calls_where_n_is_ignored(flavor: str):
    with Service(*(Exchange(CHAT, body(), reply(answer)) for answer in "ab")) as service:
        assert sorted(ask.run(backend=model(service, flavor), n=2)["answer"]) == ["a", "b"]


def test_each_of_n_calls_has_a_seed_of_its_own():
    with Service(*(Exchange(CHAT, body(seed=7 + i), reply(str(i))) for i in range(3))) as service:
        assert ask.run(backend=model(service, "tgi"), n=3, seed=7)["answer"] == ["0", "1", "2"]


@pytest.mark.parametrize("flavor", SERVERS)
def test_texts_are_gone_on_with_by_the_completions_api(flavor: str):
    asked = {"model": "m", "prompt": "Hi", "max_tokens": 5}
    with Service(Exchange(TEXT, asked, completion(" there"))) as service:
        assert text.run(backend=model(service, flavor)).text() == "Hi there"


@pytest.mark.parametrize(
    ("flavor", "fields"),
    [
        ("vllm", {"structured_outputs": {"regex": "a+"}}),
        ("sglang", {"regex": "a+"}),
    ],
)
def test_texts_are_held_as_chats_are(flavor: str, fields: dict[str, Any]):
    asked = {"model": "m", "prompt": "Hi", "max_tokens": 5, **fields}
    with Service(Exchange(TEXT, asked, completion("aa"))) as service:
        assert text.run(backend=model(service, flavor), regex="a+")["answer"] == "aa"


@pytest.mark.parametrize("flavor", ["tgi", "compatible"])
def test_texts_are_free_where_the_completions_api_keeps_to_nothing(flavor: str):
    with Service() as service, pytest.raises(Unsupported, match="outputs of the completions API are free"):
        text.run(backend=model(service, flavor), regex="a+")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("flavor", ["vllm", "sglang", "llama.cpp"])
def test_thoughts_are_apart_by_either_name(flavor: str, name: str):
    @function
    def think(s: Any) -> None:
        s += user("Hi") + assistant(separate_reasoning(gen("answer", max_tokens=5)))

    with Service(Exchange(CHAT, body(), reply("Hello", **{name: "Hm."}))) as service:
        assert think.run(backend=model(service, flavor))["answer_reasoning_content"] == "Hm."
    with Service() as service, pytest.raises(Unsupported, match="does not separate thoughts"):
        think.run(backend=model(service, "tgi"))


# -- which server it is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "flavor"),
    [
        ("vllm", "vllm"),
        ("sglang", "sglang"),
        ("llamacpp", "llama.cpp"),
        ("somebody", "compatible"),
        (None, "compatible"),
    ],
)
def test_a_server_is_known_by_the_owner_of_its_models(owner: str | None, flavor: str):
    models = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner}]}
    with Service(Exchange("/v1/models", None, models, method="GET")) as service:
        assert OpenAI("m", base_url=service.url + "/v1").flavor.name == flavor


@pytest.mark.parametrize("answer", [raw("<html>", 404), {"data": []}, {"data": [1]}, [], raw("{")])
def test_a_server_that_does_not_say_is_only_compatible(answer: Any):
    with Service(Exchange("/v1/models", None, answer, method="GET")) as service:
        assert OpenAI("m", base_url=service.url + "/v1").flavor.name == "compatible"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (raw('{"error": "wrong key"}', 401, kind="application/json"), r"wrong key \(HTTP 401\)"),
        ({"object": "error"}, "its answer is not a list of models"),
    ],
)
def test_what_is_refused_says_that_the_server_is_not_known(answer: Any, why: str, caplog: pytest.LogCaptureFixture):
    with Service(Exchange("/v1/models", None, answer, method="GET")) as service:
        backend = OpenAI("m", base_url=service.url + "/v1")
        assumed = f"flavor='compatible' is assumed: .*{why}"
        with pytest.raises(Unsupported, match=rf"top_k: .* has no such parameter \(the server did not say .*{assumed}"):
            ask.run(backend=backend, top_k=5)
        with pytest.raises(Unsupported, match=rf"names a choice and gives no scores.*{assumed}"):
            choose.run({"choices_method": "exact_sequence"}, backend=backend)
    assert "flavor='compatible' is assumed" in caplog.text


def test_a_server_that_is_not_there_is_asked_when_a_program_runs():
    backend = OpenAI("m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(CallFailed, match=r"127\.0\.0\.1:9/v1: ClientConnectorError"):
        ask.run(backend=backend)["answer"]


def test_the_address_is_found_in_the_environment(monkeypatch: pytest.MonkeyPatch):
    with Service(Exchange(CHAT, body(), reply("a"), headers={"Authorization": "Bearer k"})) as service:
        monkeypatch.setenv("OPENAI_BASE_URL", service.url + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        assert ask.run(backend=OpenAI("m", flavor="compatible"))["answer"] == "a"
