"""Every call shape of a program and its runs: function, run, run_batch, bind, nested programs, streams, errors."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from live import Live

import ramet
from ramet import (
    LLM,
    BatchFailed,
    CallFailed,
    Cancelled,
    ClientError,
    Endpoint,
    Mock,
    Program,
    ProgramError,
    RuntimeEndpoint,
    function,
    gen,
    set_default_backend,
    user,
)
from ramet.frontend.backends import chosen


@pytest.fixture(autouse=True)
def no_default_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "_default", [])


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_total_tokens=16384) as llm:
        yield llm


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(max_total_tokens=16384) as live:
        yield live


def echo(prompt: str, call: Any) -> str:
    return f"<{len(prompt)}>"


# -- function ----------------------------------------------------------------------------------------------------------


def plain(s, word):
    """Says a word."""
    s += word + gen("x")
    return word


async def awaited(prompt, word):
    prompt += word + gen("x")
    assert await prompt["x"]
    return word


@pytest.mark.parametrize("body", [plain, awaited])
@pytest.mark.parametrize("decorate", [function, function(), function(num_api_spec_tokens=4)])
def test_a_program_of_every_form(body: Any, decorate: Any):
    program = decorate(body)
    assert isinstance(program, Program)
    assert (program.__name__, program.__doc__) == (body.__name__, body.__doc__)
    for state in (program.run("abc", backend=Mock(echo)), program.run(word="abc", backend=Mock(echo))):
        assert (state["x"], state.ret_value, state.text()) == ("<3>", "abc", "abc<3>")


def test_the_state_has_any_name_and_a_call_is_a_run():
    @function
    def program(conversation, /, *words, end="."):
        for word in words:
            conversation += word
        conversation += end + gen("x")

    assert program("a", "b", end="!", backend=Mock(echo)).text() == "ab!<3>"


def test_a_program_is_awaited():
    async def main():
        states = [await function(body).arun("abc", backend=Mock(echo)) for body in (plain, awaited)]
        return [(state["x"], state.ret_value) for state in states]

    assert asyncio.run(main()) == [("<3>", "abc")] * 2


def test_what_cannot_be_a_program():
    for body in (lambda: None, lambda *, s: None):
        with pytest.raises(TypeError, match="must take the state of its prompt as its first argument"):
            function(body)
    for num in (0, -1, True):
        with pytest.raises(ValueError, match="num_api_spec_tokens"):
            function(num_api_spec_tokens=num)(plain)


def test_calls_of_a_service_may_be_speculated():
    @function(num_api_spec_tokens=32)
    def character(s, name):
        s += name + " is a fox.\nJob:" + gen("job", stop="\n") + "\nCity:" + gen("city", stop="\n") + "\n"

    whole = "Ada is a fox.\nJob: baker\nCity: Lima\nPet: none"
    state = character.run("Ada", backend=Mock(lambda prompt, call: whole[len(prompt) :]))
    assert (state["job"], state["city"]) == (" baker", " Lima")
    assert state.saved.calls + state.saved.saved_calls == 2
    assert character.run("Ada", backend=Mock(echo), sampling_params={"n": 2})["job"] == ["<18>", "<18>"]
    assert character.bind(name="Ada").num_api_spec_tokens == 32


# -- run ---------------------------------------------------------------------------------------------------------------

SAMPLED = {  # keyword of run -> value given, and name and value of the sampling parameter
    "max_new_tokens": (7, "max_new_tokens", 7),
    "max_tokens": (7, "max_new_tokens", 7),
    "min_tokens": (2, "min_new_tokens", 2),
    "n": (2, "n", 2),
    "stop": ([".", "!"], "stop", (".", "!")),
    "stop_token_ids": ([5], "stop_token_ids", (5,)),
    "stop_regex": ("[.]", "stop_regex", ("[.]",)),
    "temperature": (0.5, "temperature", 0.5),
    "top_p": (0.9, "top_p", 0.9),
    "top_k": (4, "top_k", 4),
    "min_p": (0.1, "min_p", 0.1),
    "typical_p": (0.5, "typical_p", 0.5),
    "frequency_penalty": (0.5, "frequency_penalty", 0.5),
    "presence_penalty": (0.5, "presence_penalty", 0.5),
    "repetition_penalty": (1.5, "repetition_penalty", 1.5),
    "ignore_eos": (True, "ignore_eos", True),
    "seed": (3, "sampling_seed", 3),
}
PASSED = {
    "return_logprob": True,
    "logprob_start_len": 0,
    "top_logprobs_num": 2,
    "return_text_in_logprobs": True,
    "priority": 1,
}


@function
def ask(s, question):
    s += question + gen("x")


@pytest.mark.parametrize("keyword", [*SAMPLED, *PASSED])
def test_a_keyword_of_run_is_the_default_of_its_calls(keyword: str):
    mock = Mock(echo)
    value = SAMPLED[keyword][0] if keyword in SAMPLED else PASSED[keyword]
    ask.run(question="abc", backend=mock, **{keyword: value}).sync()
    ((_, call),) = mock.calls
    if keyword in SAMPLED:
        _, name, arrived = SAMPLED[keyword]
        assert call.sampling[name] == arrived
    else:
        assert call.options == {keyword: value}


def test_without_keywords_a_call_has_128_tokens_and_use_thread_changes_nothing():
    mock = Mock(echo)
    ask.run("abc", backend=mock, use_thread=False).sync()
    ((_, call),) = mock.calls
    assert call.sampling == {"max_new_tokens": 128} and call.options == {}


def test_a_function_s_own_parameters_may_have_any_name():
    @function
    def program(s, n, stop, stream, temperature, backend, hints=None):
        s += f"{n} {stop} {stream} {temperature} {backend} {hints}" + gen("x", max_tokens=3)

    mock = Mock(lambda prompt, call: "one two three four")
    set_default_backend(mock)
    sampling = {"temperature": 0.25, "n": 2, "stop": "four"}
    state = program.run(n=1, stop="b", stream="c", temperature="d", backend="e", hints="f", sampling_params=sampling)
    assert state.text() == "1 b c d e fone two three"
    ((_, call),) = mock.calls
    assert call.sampling == {"max_new_tokens": 3, "temperature": 0.25, "n": 2, "stop": ("four",)}


def test_keywords_that_nobody_takes_are_refused():
    with pytest.raises(TypeError, match=r"ask has no parameter 'questoin'"):
        ask.run(questoin="abc", backend=Mock(echo))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'question'"):
        ask.run(backend=Mock(echo))
    with pytest.raises(ClientError, match="temperature"):
        ask.run("abc", temperature=-1, backend=Mock(echo))


def test_log_probabilities_are_in_the_meta_info(llm: LLM):
    state = ask.run("37 + 58 =", return_logprob=True, top_logprobs_num=2, temperature=0, backend=llm)
    meta = state.get_meta_info("x")
    assert len(meta["output_token_logprobs"]) == meta["completion_tokens"] == len(meta["output_top_logprobs"])
    assert {"finish_reason", "prompt_tokens", "cached_tokens", "id"} <= set(meta)


def test_a_state_says_all_of_itself():
    @function
    def program(s):
        s += user("Hello") + gen("x")
        return 42

    state = program.run(backend=Mock(echo))
    state.sync()
    assert state.error() is None and state.ret_value == 42
    assert state.text() == "Hello<5>" and asyncio.run(state.text_async()) == "Hello<5>"
    assert state.messages() == [{"role": "user", "content": "Hello"}]
    assert state.get_meta_info("x")["completion_tokens"] == 1


def test_bound_arguments_are_given():
    @function
    def program(s, a, b, c="c"):
        s += a + b + c + gen("x")

    bound = program.bind(b="2")
    assert bound.run("1", backend=Mock(echo)).text() == "12c<3>"
    assert bound.bind(c="3").run(a="1", backend=Mock(echo)).text() == "123<3>"
    assert [state.text() for state in bound.run_batch([{"a": "1"}, ("0",)], backend=Mock(echo))] == ["12c<3>", "02c<3>"]
    with pytest.raises(TypeError, match="program has no parameter 'd'"):
        program.bind(d=1)


# -- programs inside programs ------------------------------------------------------------------------------------------


@function
def expand(s, tip, n="no"):
    s += f"{tip} {n}:" + gen("paragraph")


def test_a_program_calls_others_which_use_its_backend():
    @function
    def outer(s):
        s += "Tips: " + gen("tip")
        first, second = expand(s["tip"]), expand.run(tip="b", n="yes")
        s += first["paragraph"] + second["paragraph"]
        return first.text()

    state = outer.run(backend=Mock(echo))
    assert state.text() == "Tips: <6><7><6>" and state.ret_value == "<6> no:<7>"


def test_an_async_program_awaits_others_or_appends_what_comes():
    @function
    async def inner(s, word):
        s += word + gen("x")
        return word

    @function
    async def outer(s):
        tasks = [inner(word) for word in ("a", "bb")]
        states = await asyncio.gather(*tasks)
        forks = s.fork(2)
        forks += lambda i: "c" * i + gen("y")
        for state, fork in zip(states, forks, strict=True):
            s += state["x"] + fork["y"]
        s += gen("z")
        assert await s.get_var("z") == await s["z"]
        await s.sync()
        assert await s.error() is None and (await s.get_meta_info("z"))["finish_reason"]["type"] == "stop"
        return await s.text()

    state = outer.run(backend=Mock(echo))
    assert state.ret_value == state.text() == "<1><0><2><1><12>"


# -- run_batch ---------------------------------------------------------------------------------------------------------

ARGUMENTS = [{"question": "a"}, ("bb",), ["ccc"]]


@pytest.mark.parametrize("num_threads", ["auto", 1, 2])
def test_a_batch_takes_dicts_and_tuples(num_threads: Any):
    states = ask.run_batch(ARGUMENTS, num_threads=num_threads, temperature=0, backend=Mock(echo))
    assert [state["x"] for state in states] == ["<1>", "<2>", "<3>"]


def test_a_batch_shows_its_progress(capsys: pytest.CaptureFixture[str]):
    ask.run_batch(ARGUMENTS, progress_bar=True, backend=Mock(echo))
    assert "3/3" in capsys.readouterr().err


def test_a_batch_may_be_an_iterator():
    states = ask.run_batch(ARGUMENTS, generator_style=True, num_threads=1, backend=Mock(echo))
    assert next(states)["x"] == "<1>" and [state["x"] for state in states] == ["<2>", "<3>"]


def test_a_batch_raises_its_first_failure_or_returns_all():
    def refuse(prompt, call):
        if prompt == "bb":
            raise ValueError("not bb")
        return "fine"

    with pytest.raises(BatchFailed, match=r"batch_kwargs\[1\].*not bb") as failed:
        ask.run_batch(ARGUMENTS, num_threads=1, backend=Mock(refuse))
    assert failed.value.index == 1
    states = ask.run_batch(ARGUMENTS, on_error="return", backend=Mock(refuse))
    assert [state.error() is None for state in states] == [True, False, True]
    with pytest.raises(ValueError, match="on_error is 'ignore'"):
        ask.run_batch(ARGUMENTS, on_error="ignore", backend=Mock(refuse))


def test_a_batch_is_resumed_from_its_file(tmp_path):
    first, second = Mock(echo), Mock(echo)
    ask.run_batch(ARGUMENTS[:2], resume=tmp_path / "done.jsonl", backend=first)
    states = ask.run_batch(ARGUMENTS, resume=tmp_path / "done.jsonl", backend=second)
    assert [prompt for prompt, _ in second.calls] == ["ccc"]
    assert [state["x"] for state in states] == ["<1>", "<2>", "<3>"]


def test_a_body_runs_once_for_each_program_of_a_batch():
    runs = []

    @function
    def program(s, word):
        runs.append(word)
        s += word * 100 + gen("x")

    program.run_batch([("a",), ("b",)], num_threads=1, backend=Mock(echo))
    assert runs == ["a", "b"]


# -- streams -----------------------------------------------------------------------------------------------------------


@function
def two_answers(s):
    long = {"max_tokens": 32, "ignore_eos": True}  # a busy machine gives a word or two in one piece
    s += user("Name the capital of France.") + "A: " + gen("a", **long) + " B: " + gen("b", **long)


@pytest.fixture(params=["mock", "llm", "endpoint"])
def backend(request: pytest.FixtureRequest) -> Any:
    match request.param:
        case "llm":
            return request.getfixturevalue("llm")
        case "endpoint":
            return Endpoint(request.getfixturevalue("server").url)
    return Mock(lambda prompt, call: " one two three")


def test_a_stream_is_read_whole_or_by_variable(backend: Any):
    state = two_answers.run(stream=True, temperature=0, backend=backend)
    for name in "ba":
        pieces = list(state.text_iter(name))
        assert len(pieces) > 1 and "".join(pieces) == state[name]
    texts = "".join(state.text_iter())
    assert texts == "Name the capital of France.A: " + state["a"] + " B: " + state["b"]
    with pytest.raises(KeyError, match="'c' is not a variable"):
        list(state.text_iter("c"))


def test_a_stream_is_read_on_an_event_loop(backend: Any):
    async def main():
        state = two_answers.run(stream=True, temperature=0, backend=backend)
        pieces = [piece async for piece in state.text_async_iter("b", return_meta_data=True)]
        whole = "".join([text async for text in state.text_async_iter()])
        return state, pieces, whole

    state, pieces, whole = asyncio.run(main())
    assert "".join(text for text, _ in pieces) == state["b"] and whole.endswith(state["b"])
    assert [meta for _, meta in pieces if meta] == [state.get_meta_info("b")]


def test_variables_that_are_no_calls_are_read_when_they_are_known():
    @function
    def program(s):
        with s.var_scope("whole"):
            s += "a" + gen("x")
        s["set"] = 5

    state = program.run(stream=True, backend=Mock(echo))
    assert ["".join(state.text_iter(name)) for name in ("whole", "x", "set")] == ["a<1>", "<1>", "5"]

    async def read():
        return [piece async for piece in state.text_async_iter("whole", return_meta_data=True)]

    assert asyncio.run(read()) == [("a<1>", None)]


@pytest.mark.parametrize("joins", [True, False])
def test_a_fork_is_read_as_it_grows(joins: bool):
    readers = []

    @function
    def program(s):
        forks = s.fork(2)
        readers.extend(threads.submit(lambda fork=fork: "".join(fork.text_iter())) for fork in forks)
        forks += lambda i: "ab"[i] + gen("x")
        assert ["".join(fork.text_iter("x")) for fork in forks] == ["<1>", "<1>"]
        if joins:
            forks.join()
            assert [reader.result(30) for reader in readers] == ["a<1>", "b<1>"]

    with ThreadPoolExecutor() as threads:
        program.run(stream=True, backend=Mock(echo)).sync()
        assert [reader.result(30) for reader in readers] == ["a<1>", "b<1>"]


def test_a_function_does_not_wait_for_its_own_end():
    @function
    def program(s):
        s += "a" + gen("x")
        for state in (s, *s.fork(2)):
            with pytest.raises(ProgramError, match="ends with the function that reads it"):
                list(state.text_iter())
        return True

    state = program.run(stream=True, backend=Mock(echo))
    state.sync()
    assert state.ret_value is True


def test_only_a_run_that_streams_is_read_as_it_grows():
    with pytest.raises(ProgramError, match=r"only of run\(stream=True\)"):
        list(ask.run("a", backend=Mock(echo)).text_iter())


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_failure_is_raised_where_its_value_is_used():
    state = ask.run("What?", backend=Mock([]))
    for use in (lambda: state["x"], lambda: state.get_meta_info("x"), lambda: state.text(), lambda: state.prompt()):
        with pytest.raises(CallFailed, match="has no reply left for this call"):
            use()
    with pytest.raises(CallFailed) as failed:
        state["x"]
    here = (
        rf"gen\('x'\) at {re.escape(__file__)}:\d+ in ask failed: BackendError: Mock: .*; the prompt ends with 'What\?'"
    )
    assert re.fullmatch(here, str(failed.value))
    assert type(state.error()) is CallFailed
    state.sync()


def test_what_the_function_raises_is_raised_by_run():
    states = []

    @function
    def program(s):
        states.append(s)
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        program.run(backend=Mock(echo))
    assert isinstance(states[0].error(), LookupError)


def test_a_run_may_be_cancelled():
    @function
    def program(s):
        s.cancel()
        s += gen("x")

    with pytest.raises(Cancelled):
        program.run(backend=Mock(echo))["x"]


# -- backends ----------------------------------------------------------------------------------------------------------


def test_a_run_needs_a_backend_and_takes_the_default_one():
    with pytest.raises(ProgramError, match="no backend is set"):
        ask.run("a")
    set_default_backend(Mock(["default"]))
    assert ask.run("a")["x"] == "default"
    assert ask.run("a", backend=Mock(["own"]))["x"] == "own"
    with pytest.raises(TypeError, match="int is not a backend"):
        ask.run("a", backend=3)


def test_an_endpoint_an_url_and_an_llm_answer_alike(llm: LLM, server: Live):
    assert RuntimeEndpoint is Endpoint
    backends = [llm, server.url, server.url + "/v1", Endpoint(server.url), RuntimeEndpoint(server.url + "/")]
    answers = [ask.run("Question: What is 37 + 58?\nAnswer:", temperature=0, backend=each)["x"] for each in backends]
    assert len(set(answers)) == 1 and answers[0].startswith(" 95")


def test_a_server_s_refusal_says_what_it_refused(server: Live):
    state = ask.run("a " * 5000, max_new_tokens=4000, backend=server.url)
    with pytest.raises(CallFailed, match=r"BackendError: the server at http://.*HTTP 400"):
        state["x"]


def test_a_server_tells_of_itself(llm: LLM, server: Live):
    for backend in (llm, Endpoint(server.url)):
        info = ramet.get_server_info(backend)
        assert info["max_total_tokens"] == 16384 and len(info["internal_states"]) == 1
    set_default_backend(Mock())
    with pytest.raises(ProgramError, match="get_server_info: Mock does not tell of itself"):
        ramet.get_server_info()


def test_flush_cache_forgets_prefixes(llm: LLM, server: Live):
    for backend in (llm, server.url):
        question = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 3

        def cached(question=question, backend=backend):
            return ask.run(question, max_new_tokens=1, backend=backend).get_meta_info("x")["cached_tokens"]

        cached()
        assert cached() > 0
        ramet.flush_cache(backend)
        assert cached() == 0
    set_default_backend(llm)
    ramet.flush_cache()
    assert cached(backend=None) == 0
