"""Which arguments are the function's and which the run's, and what is said of those that fit neither."""

import pytest

from ramet import (
    CallFailed,
    ClientError,
    ProgramError,
    Unsupported,
    assistant_end,
    function,
    gen,
    image,
    select,
    user,
    user_begin,
)
from ramet.frontend.backends.mock import Mock
from tests.fakes.services import Service


@function
def program(s, n, stop="default", temperature=None, backend="mine", stream=0):
    s += f"{n} {stop} {temperature} {backend} {stream}" + gen("x")
    return n, stop, temperature, backend, stream


def test_a_parameter_of_the_function_wins_over_one_of_the_run():
    mock = Mock()
    with pytest.raises(ProgramError, match="no backend is set"):
        program.run(n=3, stop="!", temperature="hot", backend="theirs", stream=7)
    from ramet import set_default_backend
    from ramet.frontend.backends import chosen

    set_default_backend(mock)
    try:
        state = program.run(
            n=3, stop="!", temperature="hot", backend="theirs", stream=7,
            sampling_params={"temperature": 0.5, "n": 2, "stop": "."},
        )  # fmt: skip
    finally:
        chosen._default.clear()
    assert state.ret_value == (3, "!", "hot", "theirs", 7)
    assert len(state["x"]) == 2
    [(_, call)] = mock.calls
    assert dict(call.sampling) == {"max_new_tokens": 128, "temperature": 0.5, "n": 2, "stop": (".",)}


@function
def plain(s, word):
    s += word + gen("x")


def test_parameters_of_a_call_win_over_those_of_its_run():
    mock = Mock()

    @function
    def program(s):
        s += "a" + gen("x", max_tokens=3) + gen("y")

    program.run(backend=mock, max_tokens=5, temperature=0, top_k=4).sync()
    assert [dict(call.sampling) for _, call in mock.calls] == [
        {"max_new_tokens": 3, "temperature": 0.0, "top_k": 4},
        {"max_new_tokens": 5, "temperature": 0.0, "top_k": 4},
    ]


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"temperature": -1}, ClientError, "temperature is -1, must be finite and >= 0"),
        ({"max_tokens": 3, "max_new_tokens": 4}, ClientError, "max_new_tokens"),
        ({"sampling_params": {"temprature": 1}}, TypeError, "sampling_params has 'temprature'"),
        ({"sampling_params": 3}, TypeError, "sampling_params is 3, must be a dict"),
        ({"wrod": 1}, TypeError, "plain has no parameter 'wrod'"),
        ({"timeout_s": 0}, ValueError, "timeout_s is 0, must be a number of seconds > 0"),
        ({"backend": 3}, TypeError, "int is not a backend"),
    ],
)
def test_what_a_run_does_not_take_is_named(options, kind, words):
    with pytest.raises(kind, match=words):
        plain.run("a", **{"backend": Mock(), **options})


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: gen("x", top_p=2), ClientError, "top_p is 2, must be in"),
        (lambda: gen("x", stop=["a"] * 33), ClientError, "stop has 33 entries, must have at most 32"),
        (lambda: gen("x", regex="a", json_schema={}), ValueError, "regex and json_schema are given"),
        (lambda: gen("x", choices=["a"], regex="a"), ValueError, "choices and regex are given"),
        (lambda: gen("x", choices_method="x"), ValueError, "choices are not"),
        (lambda: gen("x", dtype=list), ValueError, "dtype is .*list.*, must be int, float, bool or str"),
        (lambda: gen("x", json_schema="{"), ValueError, "json_schema is a text, but no JSON"),
        (lambda: gen("x", json_schema="[1]"), ValueError, r"json_schema is '\[1\]', must be the text of an object"),
        (lambda: gen("x", json_schema=3), ValueError, "json_schema is 3, must be a JSON schema"),
        (lambda: gen("x", dtype=[int]), ValueError, "dtype is .*int.*, must be int, float, bool or str"),
        (lambda: gen("x", regex=5), ValueError, "regex is 5, must be a text"),
        (lambda: gen("x", ebnf=["a"]), ValueError, r"ebnf is \['a'\], must be a text"),
        (lambda: gen("x", structural_tag=5), ValueError, "structural_tag is 5, must be a text or an object"),
        (lambda: gen("x", min_tokens=9, max_tokens=3), ClientError, "min_new_tokens is 9, must be in .* = .0, 3"),
        (
            lambda: gen("x", max_tokens=5, max_new_tokens=5),
            ClientError,
            "^max_new_tokens and max_tokens are both given: they are one parameter",
        ),
        (lambda: gen("x", return_logprob="yes"), ClientError, "return_logprob is 'yes', must be true or false"),
        (lambda: gen("x", logprob_start_len="a"), ClientError, "logprob_start_len is 'a', must be an integer, -1"),
        (lambda: gen("x", logprob_start_len=-2), ClientError, "logprob_start_len is -2, must be -1"),
        (lambda: gen("x", top_logprobs_num=-5), ClientError, "top_logprobs_num is -5, must be >= 0"),
        (lambda: gen("x", token_ids_logprob=5), ClientError, "token_ids_logprob is 5, must be a list of token ids"),
        (lambda: gen("x", token_ids_logprob=[1, -1]), ClientError, r"token_ids_logprob is \[1, -1\], must be a list"),
        (lambda: gen("x", return_text_in_logprobs=1), ClientError, "return_text_in_logprobs is 1, must be true"),
        (lambda: gen("x", priority="x"), ClientError, "priority is 'x', must be an integer"),
        (lambda: gen("x", cache_salt=5), ClientError, "cache_salt is 5, must be a text"),
        (lambda: gen("x", extra_key=5), ClientError, "extra_key is 5, must be a text"),
        (lambda: gen("x", custom_logit_processor=5), ClientError, "custom_logit_processor is 5, must be a text"),
        (lambda: gen("x", return_hidden_states="first"), ClientError, "is 'first', must be true, false or 'last'"),
        (lambda: gen("x", grammar_backend=5), ClientError, "grammar_backend is 5, must be a text"),
        (lambda: gen("x", token_healing="no"), ClientError, "token_healing is 'no', must be true or false"),
        (lambda: select("x", ["a"], priority=True), ClientError, "priority is True, must be an integer"),
        (lambda: select("x", "abc"), ValueError, "choices are 'abc', must be a list of texts"),
        (lambda: select("x", ["a", 5]), ValueError, r"choices are \('a', 5\), must be a list of texts"),
        (lambda: select("x", 5), ValueError, "choices are 5, must be a list of texts"),
        (lambda: select("x"), ValueError, "choices are None, must be a list of texts"),
        (lambda: select("x", []), ValueError, "at least one text"),
        (lambda: select("x", ["a", "a"]), ValueError, "none of them empty or twice"),
        (lambda: select("x", ["a"], choices_method="best"), ValueError, "choices_method is 'best', must be one of"),
        (lambda: select("x", ["a"], temperature=-1), ClientError, "temperature is -1"),
        (lambda: gen("x", temprature=1), TypeError, "temprature"),
        (lambda: "a" + gen("x") + 5, TypeError, "int cannot be appended to a prompt"),
        (lambda: None + gen("x"), TypeError, "NoneType cannot be appended"),
    ],
)
def test_a_node_refuses_its_arguments_where_it_is_made(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (5, TypeError, "int cannot be appended"),
        (None, TypeError, "NoneType cannot be appended"),
        (["a"], TypeError, "list cannot be appended"),
        (user_begin() + user("x"), ProgramError, "user: the turn of user has not ended"),
        (assistant_end(), ProgramError, "assistant_end: no turn has begun"),
        (user_begin() + assistant_end(), ProgramError, "assistant_end: the turn is of user"),
        ("text " + image("cat.png"), Unsupported, "image: Service takes no image input"),
    ],
)
def test_appending_refuses_at_the_users_line_before_any_call(value, kind, words):
    service = Service()

    @function
    def program(s):
        s += value + gen("x") if not isinstance(value, int | list | None) else value

    with pytest.raises(kind, match=words):
        program.run(backend=service)
    assert service.prompts == []


@pytest.mark.parametrize(
    ("node", "capabilities", "words"),
    [
        (gen("x", regex="a"), {}, r"gen\('x'\): Service cannot keep an output to regex"),
        (gen("x", dtype=int), {"dtype": False}, "has no outputs of dtype int"),
        (gen("x", top_k=3), {"sampling": frozenset({"temperature", "max_new_tokens"})}, "top_k: Service has no such"),
        (gen("x", return_logprob=True), {"options": frozenset()}, "return_logprob: Service has no such parameter"),
        (gen("x", stop=["a", "b"]), {"most_stops": 1}, "takes at most 1 texts, and here are 2"),
        (gen("x"), {"completion": False}, r"takes chats only: call gen inside assistant\(\)"),
        (select("x", ["a"]), {"select": ""}, r"select\('x'\): Service has no choice between texts"),
        (select("x", ["a"], choices_method=max), {"select": "drawn"}, "gives no scores"),
        (user("hi") + gen("x"), {"chat": False}, "reads no turns of a chat"),
        (user("hi" + gen("x")), {"continues": False}, "cannot go on inside a turn that has text already"),
    ],
)
def test_what_a_backend_cannot_do_is_refused_by_name_before_any_call(node, capabilities, words):
    service = Service(**capabilities)

    @function
    def program(s):
        s += node

    with pytest.raises(Unsupported, match=words):
        program.run(backend=service)
    assert service.prompts == []


def test_a_select_has_of_the_runs_options_those_that_are_its_own():
    class Asked(Service):
        async def select(self, prompt, call):
            asked.append(dict(call.options))
            return await super().select(prompt, call)

    @function
    def program(s):
        s += "a" + select("x", ["b", "c"]) + gen("y", choices=["d"], return_logprob=True, max_tokens=3, priority=2)

    asked: list[dict[str, object]] = []
    state = program.run(backend=Asked(), return_logprob=True, grammar_backend="ebnf", seed=7, cache_salt="t", n=1)
    assert state.error() is None
    assert asked == [{"cache_salt": "t", "sampling_seed": 7}, {"cache_salt": "t", "sampling_seed": 7, "priority": 2}]


def test_a_select_refuses_what_its_backend_has_not_from_the_run_as_well():
    @function
    def program(s):
        s += select("x", ["b", "c"])

    with pytest.raises(Unsupported, match=r"select\('x'\): cache_salt: Service has no such parameter"):
        program.run(backend=Service(options=frozenset()), cache_salt="t")
    with pytest.raises(ValueError, match="n is 3, but a select has one choice"):
        gen("x", choices=["a"], n=3)


def test_a_function_needs_a_parameter_for_its_state():
    with pytest.raises(TypeError, match="must take the state of its prompt as its first argument"):

        @function
        def nothing():
            pass

    with pytest.raises(ValueError, match="num_api_spec_tokens is 0, must be an integer >= 1"):
        function(num_api_spec_tokens=0)(lambda s: None)


def test_bind_gives_some_of_the_arguments():
    bound = plain.bind(word="hello")
    assert bound.run(backend=Mock()).text().startswith("hello")
    assert [state.text()[:5] for state in bound.run_batch([{}, {}], backend=Mock())] == ["hello"] * 2
    with pytest.raises(TypeError, match="plain has no parameter 'wrod'"):
        plain.bind(wrod="x")
    assert function(num_api_spec_tokens=3)(plain.function).bind(word="x").num_api_spec_tokens == 3


@pytest.mark.parametrize("make", [gen, select])
def test_choices_come_from_any_iterable(make):
    @function
    def program(s):
        s += make("x", choices=(f"{i}" for i in range(3)))

    assert program.run(backend=Mock(picks=["2"]))["x"] == "2"


def test_a_mock_picks_what_a_test_wants():
    @function
    def program(s):
        s += select("x", ["a", "b"]) + select("y", ["a", "b"])
        return s["x"] + s["y"]

    assert program.run(backend=Mock(picks=["b", "a"])).ret_value == "ba"
    assert program.run(backend=Mock(picks=lambda text, call: call.choices[len(text)])).ret_value == "ab"
    for picks, words in ((["b"], "no choice left"), (["c", "a"], "picks 'c', which is not one of")):
        with pytest.raises(CallFailed, match=words):
            program.run(backend=Mock(picks=picks))
