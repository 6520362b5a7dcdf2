"""Endpoint on a server of SGLang: its native API, against written exchanges, and select against our own server's."""

from collections.abc import Iterator
from typing import Any

import pytest
from exchanges import Exchange, Service, cut, events, raw
from live import Live

from ramet import (
    CallFailed,
    Endpoint,
    RuntimeEndpoint,
    Unsupported,
    assistant,
    flush_cache,
    function,
    gen,
    select,
    user,
)

INFO = {
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "tokenizer_path": "meta-llama/Llama-3.1-8B-Instruct",
    "is_generation": True,
    "preferred_sampling_params": None,
    "weight_version": "default",
}
MISSING = raw('{"detail": "Not Found"}', 404, kind="application/json")
TURNS = "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"


def reply(text: str, finish: Any = None, **meta: Any) -> dict[str, Any]:
    reason = finish or {"type": "stop", "matched": 128009}
    info = {"id": "a1", "finish_reason": reason, "prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 4}
    return {"text": text, "output_ids": [1, 2], "meta_info": {**info, **meta}}


def asked_once(path: str, body: Any) -> list[Exchange]:
    """How a server is found to be SGLang's, by the first call."""
    return [Exchange(path, body, MISSING), Exchange("/get_model_info", None, INFO, method="GET")]


@function
def ask(s: Any, **arguments: Any) -> None:
    s += user("Hi") + assistant(gen("answer", max_tokens=5, **arguments))


@function
def plain(s: Any, **arguments: Any) -> None:
    s += "Hi" + gen("answer", max_tokens=5, **arguments)


FIRST = {"prompt": ["Hi"], "sampling_params": {"max_new_tokens": 5}}
PLAIN = {"text": "Hi", "sampling_params": {"max_new_tokens": 5}}


@pytest.mark.parametrize("streaming", [False, True])
def test_a_server_of_sglang_is_found_out_by_its_first_answer(streaming: bool):
    more = {"stream": True} if streaming else {}
    answer: Any = reply(" there")
    if streaming:
        growing = [reply(" th"), reply(" there")]
        growing[0]["meta_info"]["finish_reason"] = None
        answer = events(*growing)
    calls = [Exchange("/generate", {**PLAIN, **more}, answer) for _ in range(2)]
    with Service(*asked_once("/language/generate", {**FIRST, **more}), *calls) as service:
        backend = RuntimeEndpoint(service.url)
        for _ in range(2):
            state = plain.run(hints=False, backend=backend, stream=streaming)
            if streaming:
                assert list(state.text_iter("answer")) == [" th", "ere"]
            assert state.text() == "Hi there"
            assert state.get_meta_info("answer")["cached_tokens"] == 4


def test_turns_become_text_by_the_models_template():
    body = {"text": TURNS, "sampling_params": {"max_new_tokens": 5, "stop": ["<|eot_id|>"]}}
    exchanges = [Exchange("/get_model_info", None, INFO, method="GET"), Exchange("/generate", body, reply("Hello"))]
    with Service(*exchanges) as service:
        state = ask.run(backend=Endpoint(service.url, server="sglang"))
        assert state["answer"] == "Hello"
        assert state.text() == TURNS + "Hello<|eot_id|>"


def test_turns_become_text_by_the_template_that_is_named():
    body = {
        "text": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        "sampling_params": {"max_new_tokens": 5, "stop": ["<|im_end|>"]},
    }
    info = Exchange("/get_model_info", None, {"model_path": "x"}, method="GET")
    with Service(info, Exchange("/generate", body, reply("Hello"))) as service:
        backend = Endpoint(service.url, server="sglang", chat_template_name="chatml")
        assert ask.run(backend=backend)["answer"] == "Hello"


def test_turns_for_a_model_without_a_known_template_are_refused():
    info = Exchange("/get_model_info", None, {"model_path": "my/model"}, method="GET")
    error = r"a turn: .* no chat template is known for its model: pass chat_template_name"
    with Service(info) as service, pytest.raises(CallFailed, match=error):
        ask.run(backend=Endpoint(service.url, server="sglang"))["answer"]


def test_parameters_and_constraints_are_sent_as_they_are():
    params = {
        "max_new_tokens": 5,
        "temperature": 0.5,
        "top_k": 7,
        "min_new_tokens": 1,
        "logit_bias": {"3": 1.0},
        "json_schema": '{"const":1208925819614629174706176}',
    }
    body = {"text": "Hi", "sampling_params": params, "return_logprob": True, "top_logprobs_num": 2}
    info = Exchange("/get_model_info", None, INFO, method="GET")
    with Service(info, Exchange("/generate", body, reply("{}"))) as service:
        plain.run(
            backend=Endpoint(service.url, server="sglang"),
            temperature=0.5,
            top_k=7,
            min_tokens=1,
            logit_bias={3: 1.0},
            return_logprob=True,
            top_logprobs_num=2,
            json_schema={"const": 2**80},
        ).sync()


def test_a_server_that_is_neither_is_named():
    missing = Exchange("/get_model_info", None, MISSING, method="GET")
    error = "knows neither ramet's calls nor SGLang's; OpenAI"
    first = Exchange("/language/generate", FIRST, MISSING)
    with Service(first, missing) as service, pytest.raises(CallFailed, match=error):
        plain.run(hints=False, backend=Endpoint(service.url))["answer"]


def test_a_server_that_is_said_to_be_ramets_is_asked_nothing_else():
    first = Exchange("/language/generate", FIRST, MISSING)
    with Service(first) as service, pytest.raises(CallFailed, match="Not Found"):
        plain.run(hints=False, backend=Endpoint(service.url, server="ramet"))["answer"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (cut(), "ClientPayloadError|the stream ended before the output did"),
        (events(), "the stream ended before the output did"),
        (events(reply("a"), reply("")), "it streams pieces of texts: start it without --stream-output"),
        (events(reply("a"), reply("b")), "it streams pieces of texts: start it without --stream-output"),
        (events({"error": {"message": "out of memory"}}), "out of memory"),
        (events({"error": {"message": "out of memory", "code": 503}}), r"out of memory \(HTTP 503\)"),
        (events(reply("a", {"type": "abort", "message": "aborted"})), "the call was aborted: aborted"),
        (events({"choices": []}), r"its answer is not as expected.*`text`"),
        (events(5), "its answer is not an object"),
    ],
)
def test_a_stream_that_is_no_output_is_an_error(answer: Any, error: str):
    info = Exchange("/get_model_info", None, INFO, method="GET")
    call = Exchange("/generate", {**PLAIN, "stream": True}, answer)
    with Service(info, call) as service, pytest.raises(CallFailed, match=error):
        plain.run(hints=False, backend=Endpoint(service.url, server="sglang"), stream=True)["answer"]


def test_an_answer_that_is_no_output_is_an_error():
    info = Exchange("/get_model_info", None, INFO, method="GET")
    error = pytest.raises(CallFailed, match=r"its answer is not as expected.*`text`")
    with Service(info, Exchange("/generate", PLAIN, {"id": "x"})) as service, error:
        plain.run(hints=False, backend=Endpoint(service.url, server="sglang"))["answer"]


def growing(*texts: str, matched: Any) -> Any:
    parts = [reply(text, {"type": "stop", "matched": matched}) for text in texts]
    for part in parts[:-1]:
        part["meta_info"]["finish_reason"] = None
    return events(*parts)


@pytest.mark.parametrize(
    ("texts", "matched", "text"),
    [
        (["one", "one\n", "one\n"], "\n\n", "one"),  # what was given stays in the text
        (["one", "one\n", "one"], "\n\n", "one"),  # or does not
        (["one", "one\ntwo", "one\ntwo"], "\n\n", "one\ntwo"),
        (["one\n"], 128009, "one\n"),
        (["one", "one\n"], "\n\n", "one\n"),  # the last event cut the stop text, and nothing of it came before
    ],
)
def test_a_stream_has_no_beginning_of_its_stop_text(texts: list[str], matched: Any, text: str):
    info = Exchange("/get_model_info", None, INFO, method="GET")
    body = {"text": "Hi", "sampling_params": {"max_new_tokens": 5, "stop": ["\n\n"]}, "stream": True}
    with Service(info, Exchange("/generate", body, growing(*texts, matched=matched))) as service:
        backend = Endpoint(service.url, server="sglang")
        state = plain.run(hints=False, backend=backend, stream=True, stop="\n\n")
        assert "".join(state.text_iter("answer")) == text
        assert state.text() == "Hi" + text


def test_each_event_of_a_stream_has_all_log_probabilities_so_far():
    tokens = [[-0.5, 7, None], [-0.25, 8, None]]
    parts = [reply(" a", output_token_logprobs=tokens[:1]), reply(" a b", output_token_logprobs=tokens)]
    parts[0]["meta_info"]["finish_reason"] = None
    info = Exchange("/get_model_info", None, INFO, method="GET")
    call = Exchange("/generate", {**PLAIN, "return_logprob": True, "stream": True}, events(*parts))
    with Service(info, call) as service:
        backend = Endpoint(service.url, server="sglang")
        state = plain.run(hints=False, backend=backend, stream=True, return_logprob=True)
        assert state.get_meta_info("answer")["output_token_logprobs"] == tokens


def test_a_stop_text_that_is_to_stay_is_streamed():
    info = Exchange("/get_model_info", None, INFO, method="GET")
    params = {"max_new_tokens": 5, "stop": ["\n\n"], "no_stop_trim": True}
    call = Exchange(
        "/generate",
        {"text": "Hi", "sampling_params": params, "stream": True},
        growing("one\n", "one\n\n", matched="\n\n"),
    )
    with Service(info, call) as service:
        backend = Endpoint(service.url, server="sglang")
        state = plain.run(hints=False, backend=backend, stream=True, stop="\n\n", no_stop_trim=True)
        assert "".join(state.text_iter("answer")) == "one\n\n"


def test_a_shared_prefix_is_computed_before_forks():
    prefix = "These words are long enough to be worth a request of their own, for two forks."

    @function
    def forks(s: Any) -> None:
        s += prefix
        children = s.fork(2)
        children += [" a", " b"]
        children += gen("x", max_tokens=1)
        children.join()

    info = Exchange("/get_model_info", None, INFO, method="GET")
    hold = Exchange("/generate", {"text": prefix, "sampling_params": {"max_new_tokens": 0}}, reply(""))
    calls = [
        Exchange("/generate", {"text": prefix + text, "sampling_params": {"max_new_tokens": 1}}, reply(text))
        for text in (" a", " b")
    ]
    with Service(info, hold, *calls) as service:
        assert forks.run(backend=Endpoint(service.url, server="sglang"))["x"] == [" a", " b"]
        assert service.requests[1][1]["text"] == prefix


def test_its_cache_is_flushed():
    with Service(Exchange("/flush_cache?timeout=60", None, raw("Cache flushed."))) as service:
        flush_cache(Endpoint(service.url, server="sglang"))


def test_what_the_server_cannot_do_is_refused():
    @function
    def tool(s: Any) -> None:
        import ramet

        s += ramet.tool("42")

    backend = Endpoint("http://127.0.0.1:9", server="sglang")
    with pytest.raises(Unsupported, match=r"a turn of tool: .* reads turns of assistant, system, user only"):
        tool.run(backend=backend)
    with pytest.raises(Unsupported, match=r"cache_salt: .* has no such parameter"):
        plain.run(hints=False, backend=backend, cache_salt="x")
    with pytest.raises(ValueError, match="server is 'x', must be 'ramet', 'sglang' or None"):
        Endpoint("http://127.0.0.1:9", server="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{"cache_salt": "x"}, {"grammar_backend": "outlines"}])
def test_what_a_server_cannot_do_is_refused_also_where_it_was_not_known(arguments: dict[str, Any]):
    with Service(*asked_once("/language/generate", {**FIRST, **arguments})) as service:
        backend = Endpoint(service.url)
        with pytest.raises(CallFailed, match=r"Unsupported: gen: .* is a server of SGLang, which has no"):
            plain.run(hints=False, backend=backend, **arguments)["answer"]
        with pytest.raises(Unsupported, match="has no such parameter"):
            plain.run(hints=False, backend=backend, **arguments)


# -- select ------------------------------------------------------------------------------------------------------------


def scored(text: str, start: int, *tokens: tuple[float | None, int, str], **others: Any) -> Exchange:
    body = {
        "text": text,
        "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
        "return_logprob": True,
        "logprob_start_len": start,
        **others,
    }
    return Exchange("/generate", body, reply("", input_token_logprobs=[list(token) for token in tokens]))


@function
def choose(s: Any, text: str, choices: list[str], **arguments: Any) -> None:
    s += text + select("it", choices=choices, **arguments)


def test_a_choice_is_scored_from_where_its_tokens_leave_the_prompts():
    """The prompt's last token is not that of the text with a choice: it is scored as a part of the choice."""
    text = "one two th"
    exchanges = [
        Exchange("/get_model_info", None, INFO, method="GET"),
        Exchange("/generate", {"text": text, "sampling_params": {"max_new_tokens": 0}}, reply("", prompt_tokens=3)),
        scored(text, 0, (None, 1, "one"), (-0.1, 2, " two"), (-5.0, 3, " th")),
        scored(text + "ree", 0, (None, 1, "one"), (-0.1, 2, " two"), (-1.5, 4, " three")),
        scored(text + "e", 0, (None, 1, "one"), (-0.1, 2, " two"), (-0.5, 5, " the")),
    ]
    with Service(*exchanges) as service:
        state = choose.run(text, ["ree", "e"], backend=Endpoint(service.url, server="sglang"))
        assert state["it"] == "e"
        meta = state.get_meta_info("it")
    assert meta["scores"] == [-1.5, -0.5]
    assert [choice["num_tokens"] for choice in meta["choices"]] == [1, 1]
    assert meta["choices"][0]["token_logprobs"] == [(-1.5, 4, " three")]
    assert sum(meta["probabilities"]) == pytest.approx(1)


def test_an_answer_without_a_number_of_tokens_is_an_error():
    body = {"text": "Hi", "sampling_params": {"max_new_tokens": 0}}
    info = Exchange("/get_model_info", None, INFO, method="GET")
    error = pytest.raises(CallFailed, match="its answer has no 'prompt_tokens'")
    with Service(info, Exchange("/generate", body, {"meta_info": {}})) as service, error:
        choose.run("Hi", ["a", "b"], backend=Endpoint(service.url, server="sglang"))["it"]


def test_a_longer_window_is_asked_for_where_all_of_it_differs():
    def tokens(first: int, num: int) -> list[tuple[float | None, int, str]]:
        return [(None if i == 0 else -1.0, first + i, "x") for i in range(num)]

    counted = Exchange(
        "/generate", {"text": "p", "sampling_params": {"max_new_tokens": 0}}, reply("", prompt_tokens=20)
    )
    exchanges = [
        Exchange("/get_model_info", None, INFO, method="GET"),
        counted,
        scored("p", 12, *tokens(100, 8)),
        scored("pa", 12, *tokens(200, 9)),
        scored("p", 4, *tokens(50, 8), *tokens(100, 8)),
        scored("pa", 4, *tokens(50, 8), (-2.0, 7, "a")),
    ]
    with Service(*exchanges) as service:
        state = choose.run("p", ["a"], backend=Endpoint(service.url, server="sglang"))
        assert state.get_meta_info("it")["scores"] == [-2.0]


def test_a_choice_without_the_prompt_is_read_as_the_server_reads_it_alone():
    """Of its first token nothing is told: that is what texts begin with."""
    counted = Exchange(
        "/generate", {"text": "p", "sampling_params": {"max_new_tokens": 0}, "priority": 3}, reply("", prompt_tokens=2)
    )
    exchanges = [
        Exchange("/get_model_info", None, INFO, method="GET"),
        counted,
        scored("p", 0, (None, 1, "<s>"), (-1.0, 2, "p"), priority=3),
        scored("pa", 0, (None, 1, "<s>"), (-1.0, 2, "p"), (-2.0, 3, "a"), priority=3),
        scored("pb", 0, (None, 1, "<s>"), (-1.0, 2, "p"), (-3.0, 4, "b"), priority=3),
        scored("a", 0, (None, 1, "<s>"), (-1.5, 3, "a"), priority=3),
        scored("b", 0, (None, 1, "<s>"), (-6.0, 4, "b"), priority=3),
    ]
    method = "unconditional_likelihood_normalized"
    with Service(*exchanges) as service:
        backend = Endpoint(service.url, server="sglang")
        state = choose.run("p", ["a", "b"], choices_method=method, priority=3, backend=backend)
        assert state["it"] == "b"
        assert state.get_meta_info("it")["scores"] == [-0.5, 3.0]


def test_select_that_needs_the_models_end_is_refused():
    info = Exchange("/get_model_info", None, INFO, method="GET")
    with Service(info) as service, pytest.raises(CallFailed, match="does not tell which of its tokens end an output"):
        choose.run("p", ["a"], choices_method="exact_sequence", backend=Endpoint(service.url, server="sglang"))["it"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Live(dtype="float32") as live:
        yield live.url


CASES = [
    ("The capital of France is", [" Paris", " London", " a city"]),
    ("The capital of France is ", ["Paris", "London", "the largest"]),
    ("Yes or no? y", ["es", "ear", "esterday", "e"]),
    ("one two thr", ["ee", "ew", "ough it"]),
    ("Größe: gr", ["oß", "ün", "au"]),
    ("a " * 60 + "b", [" c", " c d", "c"]),
]


@pytest.mark.parametrize("method", ["token_length_normalized", "greedy_token_selection"])
@pytest.mark.parametrize(("text", "choices"), CASES)
def test_select_is_that_of_our_own_server(server: str, text: str, choices: list[str], method: str):
    """Our server's /generate is SGLang's, so the same scores come by either way."""
    ours = choose.run(text, choices, choices_method=method, backend=Endpoint(server))
    theirs = choose.run(text, choices, choices_method=method, backend=Endpoint(server, server="sglang"))
    assert theirs["it"] == ours["it"]
    mine, other = ours.get_meta_info("it"), theirs.get_meta_info("it")
    assert other["scores"] == pytest.approx(mine["scores"], abs=1e-4)
    assert other["probabilities"] == pytest.approx(mine["probabilities"], abs=1e-4)
    for one, two in zip(mine["choices"], other["choices"], strict=True):
        assert [token[1] for token in one["token_logprobs"]] == [token[1] for token in two["token_logprobs"]]
        assert two["logprob"] == pytest.approx(one["logprob"], abs=1e-4)


def test_a_choice_is_drawn_by_the_same_seed_as_by_our_own_server(server: str):
    text, choices = CASES[0]
    for seed in range(12):
        drawn = [
            choose.run(text, choices, temperature=2.0, seed=seed, backend=backend)["it"]
            for backend in (Endpoint(server), Endpoint(server, server="sglang"))
        ]
        assert drawn[0] == drawn[1]


def test_a_method_of_ones_own_reads_the_scores(server: str):
    def worst(choices: Any) -> int:
        return min(range(len(choices)), key=lambda i: choices[i].logprob)

    text, choices = CASES[0]
    picked = [
        choose.run(text, choices, choices_method=worst, backend=backend)["it"]
        for backend in (Endpoint(server), Endpoint(server, server="sglang"))
    ]
    assert picked[0] == picked[1]


@pytest.mark.parametrize("streaming", [False, True])
def test_texts_are_those_of_our_own_server(server: str, streaming: bool):
    ours = plain.run(hints=False, backend=Endpoint(server), temperature=0, token_healing=False, logit_bias={300: -5})
    theirs = plain.run(
        hints=False, backend=Endpoint(server, server="sglang"), temperature=0, stream=streaming, logit_bias={300: -5}
    )
    assert theirs["answer"] == ours["answer"]


def test_a_template_by_name_counts_on_our_own_server_too(server: str):
    state = ask.run(backend=Endpoint(server, chat_template_name="vicuna_v1.1"), temperature=0)
    assert state["answer"]
    assert "USER:Hi ASSISTANT:" in state.text()
