"""API speculation: the same texts as without it, fewer calls, and counts of both."""

import math
import random
import re
from collections import Counter
from typing import Any

import pytest
from exact_service import Oracle
from exchanges import Exchange, Service, raw
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet import CallFailed, Mock, OpenAI, Unsupported, assistant, function, gen, select, user
from ramet.frontend.backends.base import Backend, Capabilities, Completion
from ramet.frontend.program import Program
from ramet.frontend.speculation import OutputTokens

SCRIPT = "Who is it?\nName: Harry\nAge: 12\nHouse: red$"


def program(body: Any, num_tokens: int | None) -> Any:
    return Program(body, num_tokens)


def wizard(s: Any) -> None:
    s += "Who is it?\nName:" + gen("name", stop="\n", max_tokens=32)
    s += "\nAge:" + gen("age", stop="\n", max_tokens=32)
    s += "\nHouse:" + gen("house", max_tokens=32)


@pytest.mark.parametrize(("temperature", "longest"), [(0, 3), (0, 1), (1, 1)])
def test_one_call_gives_several_texts(temperature: float, longest: int):
    """With a temperature the constants must be whole tokens."""
    oracle = Oracle(SCRIPT, longest=longest)
    state = program(wizard, 64).run(backend=oracle, temperature=temperature)
    assert (state["name"], state["age"], state["house"]) == (" Harry", " 12", " red")
    assert len(oracle.calls) == 1
    saved = state.saved
    assert saved is not None
    assert (saved.calls, saved.saved_calls, saved.unused_chars) == (1, 2, 0)
    assert saved.saved_prompt_tokens == 2 * len("Who is it?\nName:")
    sent = oracle.calls[0][1].sampling
    assert (sent["stop"], sent["max_new_tokens"]) == ((), 32 + 64)


def test_meta_says_how_each_call_ended():
    state = program(wizard, 64).run(backend=Oracle(SCRIPT, longest=1))
    assert "output_token_logprobs" not in state.get_meta_info("name")  # the program did not ask for them
    assert state.get_meta_info("name")["finish_reason"] == {"type": "stop", "matched": "\n"}
    assert state.get_meta_info("age") == {"finish_reason": {"type": "stop", "matched": "\n"}, "speculated": True}
    assert state.get_meta_info("house")["finish_reason"] == {"type": "stop", "matched": None}


def test_without_it_each_text_is_a_call():
    oracle = Oracle(SCRIPT)
    state = program(wizard, None).run(backend=oracle)
    assert (state["name"], state["age"], state["house"]) == (" Harry", " 12", " red")
    assert len(oracle.calls) == 3
    assert state.saved is None


def test_words_that_do_not_fit_lead_to_calls_of_their_own():
    def other(s: Any) -> None:
        s += "Who is it?\nName:" + gen("name", stop="\n", max_tokens=32)
        s += "\nCity:" + gen("city", stop="\n", max_tokens=32)

    oracle, plain = Oracle(SCRIPT), Oracle(SCRIPT)
    state, expected = program(other, 64).run(backend=oracle), program(other, None).run(backend=plain)
    assert state["city"] == expected["city"]
    assert state.text() == expected.text()
    assert (state.saved.calls, state.saved.saved_calls) == (len(oracle.calls), 0)
    assert state.saved.unused_chars >= len("\nAge: 12\nHouse: red")


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.5},
        {"frequency_penalty": 0.5},
        {"seed": 3},
        {"min_tokens": 2},
        {"stop_regex": "x+"},
        {"stop_token_ids": [3]},
        {"return_logprob": True},
        {"n": 2},
        {"regex": "a+"},
        {"ignore_eos": True},
    ],
)
def test_a_call_that_asks_for_something_else_is_made(change: dict[str, Any]):
    def other(s: Any) -> None:
        s += "Who is it?\nName:" + gen("name", stop="\n", max_tokens=32)
        s += "\nAge:" + gen("age", stop="\n", max_tokens=32, **change)

    oracle = Oracle(SCRIPT)
    oracle.capabilities = Mock.capabilities
    program(other, 64).run(backend=oracle).sync()
    assert len(oracle.calls) == 2
    first_again = oracle.calls[1][1].sampling["max_new_tokens"]
    assert first_again == (96 if change == {"temperature": 0.5} else 32)


def test_a_text_is_not_longer_than_its_call_allows():
    def short(s: Any) -> None:
        s += "Who is it?\nName:" + gen("name", stop="\n", max_tokens=32)
        s += "\nAge:" + gen("age", stop="\n", max_tokens=1)

    states = [program(short, number).run(backend=Oracle(SCRIPT)) for number in (None, 64)]
    assert states[0]["age"] == states[1]["age"]
    assert states[1].saved.saved_calls == 0


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("tells_end", [True, False])
@pytest.mark.parametrize(("most", "reason"), [(3, "length"), (4, "stop")])
def test_the_end_of_an_output_takes_a_token_of_its_call(temperature: float, tells_end: bool, most: int, reason: str):
    """Without one left for it the text was cut; services differ in whether they count it."""

    def body(s: Any) -> None:
        s += "Age:" + gen("age", max_tokens=most)

    for number in (None, 8):
        state = program(body, number).run(
            backend=Oracle("Age: 12$", longest=1, tells_end=tells_end), temperature=temperature
        )
        assert state["age"] == " 12"
        assert state.get_meta_info("age")["finish_reason"]["type"] == reason


def test_forks_speculate_for_themselves():
    def forked(s: Any) -> None:
        s += "Who is it?\n"
        forks = s.fork(2)
        for fork in forks:
            fork += "Name:" + gen("name", stop="\n", max_tokens=32) + "\nAge:" + gen("age", stop="\n", max_tokens=32)
        forks.join()

    oracle = Oracle(SCRIPT, longest=1)
    state = program(forked, 64).run(backend=oracle)
    assert (state["name"], state["age"]) == ([" Harry"] * 2, [" 12"] * 2)
    assert len(oracle.calls) == 2


def test_a_batch_shares_no_state():
    programs = program(lambda s, i: wizard(s), 64).run_batch(
        [{"i": i} for i in range(50)], backend=Oracle(SCRIPT, longest=1)
    )
    assert {(state["name"], state["age"], state["house"]) for state in programs} == {(" Harry", " 12", " red")}
    assert {state.saved.calls for state in programs} == {1}


def test_texts_that_are_read_as_they_grow():
    state = program(wizard, 64).run(backend=Oracle(SCRIPT), stream=True)
    assert "".join(state.text_iter()) == SCRIPT.removesuffix("$")


# -- any program, any service ------------------------------------------------------------------------------------------

CHARS = st.text(alphabet="ab\n:", max_size=12)
STOPS = st.lists(st.text(alphabet="ab\n:", min_size=1, max_size=3), max_size=2)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[tuple[str, tuple[str, ...], int]]]:
    """A service's script, and a program: constants, which often are the script's, and calls with stops and limits."""
    script, steps, at = draw(st.text(alphabet="ab\n:$", min_size=5, max_size=80)), [], 0
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.integers(0, 8))
        follows = draw(st.integers(0, 3))
        constant = script[at : at + size].replace("$", "") if follows else draw(CHARS)
        at += size + draw(st.integers(0, 12))
        steps.append((constant, tuple(draw(STOPS)), draw(st.integers(1, 40))))
    return script, steps


def written(s: Any, steps: list[tuple[str, tuple[str, ...], int]]) -> None:
    for i, (constant, stops, most) in enumerate(steps):
        s += constant + gen(f"x{i}", stop=list(stops), max_tokens=most)


def ended(state: Any, num: int) -> list[Any]:
    return [state.get_meta_info(f"x{i}")["finish_reason"] for i in range(num)]


@settings(max_examples=300, deadline=None)
@given(cases(), st.integers(1, 60), st.sampled_from([0, 1]), st.sampled_from([1, 2, 3]), st.booleans())
def test_any_program_has_the_texts_that_it_has_without(
    case: tuple[str, list[tuple[str, tuple[str, ...], int]]],
    num_tokens: int,
    temperature: float,
    longest: int,
    tells_end: bool,
):
    script, steps = case
    plain, oracle = (Oracle(script, longest=longest, tells_end=tells_end) for _ in range(2))
    expected = program(written, None).run(steps, backend=plain, temperature=temperature)
    state = program(written, num_tokens).run(steps, backend=oracle, temperature=temperature)
    assert state.text() == expected.text()
    assert [state[f"x{i}"] for i in range(len(steps))] == [expected[f"x{i}"] for i in range(len(steps))]
    assert ended(state, len(steps)) == ended(expected, len(steps))
    assert state.saved.calls == len(oracle.calls)
    asked_twice = len(oracle.calls) + state.saved.saved_calls - len(steps)
    assert 0 <= asked_twice <= len(steps)


@settings(max_examples=300, deadline=None)
@given(cases(), st.integers(1, 60), st.sampled_from([0, 1]), st.sampled_from([1, 2, 3]))
def test_a_chat_has_the_texts_of_a_service_that_goes_on_or_none(
    case: tuple[str, list[tuple[str, tuple[str, ...], int]]], num_tokens: int, temperature: float, longest: int
):
    """An API of whole turns: what it cannot show to be right is an error, and no text is ever another one."""

    def turn(s: Any, steps: Any) -> None:
        with s.assistant():
            written(s, steps)

    script, steps = case
    script = "<assistant>" + script
    expected = program(turn, None).run(steps, backend=Oracle(script, longest=longest), temperature=temperature)
    service = Oracle(script, continues=False, longest=longest)
    state = program(turn, num_tokens).run(steps, backend=service, temperature=temperature)
    for i in range(len(steps)):
        try:
            assert state[f"x{i}"] == expected[f"x{i}"]
        except CallFailed:
            assert i > 0 or steps[0][0], "a turn that has no words yet needs no luck"
            break


# -- chats -------------------------------------------------------------------------------------------------------------

PATH = "/v1/chat/completions"
LOGPROBS = {"logprobs": True}
HI = {"model": "m", "messages": [{"role": "user", "content": "Who?"}]}


def said(text: str, finish: str = "stop") -> dict[str, Any]:
    tokens = [{"token": word, "logprob": -1.0} for word in re.findall(r"\s?\w+|.|\n", text)]
    choice = {"index": 0, "message": {"content": text}, "finish_reason": finish, "logprobs": {"content": tokens}}
    return {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 9}}


def chat(*answers: tuple[int, dict[str, Any]]) -> Service:
    return Service(*(Exchange(PATH, {**HI, "max_tokens": most, **LOGPROBS}, answer) for most, answer in answers))


def model(service: Service) -> OpenAI:
    return OpenAI("m", base_url=service.url + "/v1", flavor="compatible")


@function(num_api_spec_tokens=50)
def turn(s: Any) -> None:
    s += user("Who?")
    with s.assistant():
        s += "Name:" + gen("name", stop="\n", max_tokens=20) + "\nAge:" + gen("age", stop="\n", max_tokens=20)


def test_a_whole_turn_is_one_call():
    with chat((75, said("Name: Harry\nAge: 12\n"))) as service:
        state = turn.run(backend=model(service))
        assert (state["name"], state["age"]) == (" Harry", " 12")
        assert state.messages()[-1] == {"role": "assistant", "content": "Name: Harry\nAge: 12"}
        assert (state.saved.calls, state.saved.saved_calls, state.saved.saved_prompt_tokens) == (1, 1, 7)


def test_an_answer_with_other_words_is_asked_for_again():
    with chat((75, said("It is Harry.")), (75, said("Name: Ron\nAge: 11"))) as service:
        state = turn.run(backend=model(service))
        assert (state["name"], state["age"]) == (" Ron", " 11")
        assert (state.saved.calls, state.saved.unused_chars) == (2, len("It is Harry."))


def test_answers_with_other_words_are_an_error_in_the_end():
    error = r"did not begin with the words of the turn, 'Name:', in 3 tries, and it cannot go on inside a turn"
    with chat(*[(75, said("It is Harry."))] * 3) as service, pytest.raises(CallFailed, match=error):
        turn.run(backend=model(service))["name"]


def test_an_answer_that_does_not_show_its_end_is_an_error():
    error = "does not show where this call ends"
    exchange = Exchange(PATH, {**HI, "max_tokens": 75, "temperature": 0}, said("Name: Harry Potter", "length"))
    with Service(exchange) as service, pytest.raises(CallFailed, match=error):
        turn.run(backend=model(service), temperature=0)["name"]


def test_told_tokens_show_an_end_that_is_nowhere_written():
    """The call's last token is known, so its text needs no second answer: that would favour short texts."""

    @function(num_api_spec_tokens=50)
    def one(s: Any) -> None:
        s += user("Who?") + assistant("Name:" + gen("name", stop="\n", max_tokens=20))

    with chat((75, said("Name:" + " Harry James" * 35, "length"))) as service:
        state = one.run(backend=model(service))
        assert state["name"] == " Harry James" * 10
        assert state.get_meta_info("name")["finish_reason"] == {"type": "length", "length": 20}


# -- draws -------------------------------------------------------------------------------------------------------------


class Coin(Backend):
    """Each token is "a" or, in one of three, the end. `tells`: tokens. What comes next does not depend on the text."""

    name = "Coin"

    def __init__(self, tells: bool) -> None:
        self.capabilities = Capabilities(options=None if tells else frozenset())
        self._draw = random.Random(1)
        self.num_calls = 0

    async def generate(self, prompt: Any, call: Any, on_text: Any = None) -> list[Completion]:
        self.num_calls += 1
        most, tokens = call.sampling["max_new_tokens"], list[str]()
        while len(tokens) < most and self._draw.random() >= 1 / 3:
            tokens.append("a")
        meta = {"finish_reason": {"type": "stop" if len(tokens) < most else "length"}}
        if call.options.get("return_logprob"):
            meta["output_token_logprobs"] = [(-1.0, None, token) for token in tokens]
        return [Completion("".join(tokens), meta)]


@pytest.mark.parametrize("tells", [True, False])
def test_texts_are_as_likely_as_without(tells: bool):
    """Up to two tokens of a coin: lengths 0, 1 and 2 in shares of 3/9, 2/9 and 4/9."""

    @function(num_api_spec_tokens=3)
    def flips(s: Any) -> None:
        s += gen("x", max_tokens=2)

    coin = Coin(tells)
    lengths = Counter(len(state["x"]) for state in flips.run_batch([{}] * 4500, backend=coin))
    for length, share in ((0, 3 / 9), (1, 2 / 9), (2, 4 / 9)):
        assert abs(lengths[length] / 4500 - share) < 4 * math.sqrt(share * (1 - share) / 4500)
    assert coin.num_calls == 4500  # none was asked for twice


def test_a_service_that_refuses_log_probabilities_is_asked_for_each_call():
    refused = raw('{"error": {"message": "logprobs are not supported"}}', 400, kind="application/json")
    body = {"model": "m", "prompt": "Name:", "max_tokens": 20}
    answers = [Exchange("/v1/completions", {**body, "max_tokens": 70, "logprobs": 0}, refused)]
    answer = {"choices": [{"index": 0, "text": " Harry", "finish_reason": "stop"}]}
    answers += [Exchange("/v1/completions", {**body, "prompt": prompt, "stop": ["."]}, answer)
                for prompt in ("Name:", "Name: Harry.Name:")]  # fmt: skip

    @function(num_api_spec_tokens=50)
    def names(s: Any) -> None:
        for i in range(2):
            s += "Name:" + gen(f"name {i}", stop=".", max_tokens=20) + "."

    with Service(*answers) as service:
        state = names.run(backend=OpenAI("m", base_url=service.url + "/v1", flavor="compatible", is_chat_model=False))
        assert state["name 1"] == " Harry"


@pytest.mark.parametrize(
    ("text", "pieces", "ends"),
    [
        ("abc", ["a", "bc"], [1, 3]),
        ("aéb", ["a", "\ufffd", "\ufffd", "b"], [1, None, 2, 3]),
        ("aéb", ["a", "\ufffd", "b"], [1, 2, 3]),
        ("é", ["x", "y"], [None, 1]),
        ("", [], []),
    ],
)
def test_ends_of_tokens_that_are_no_whole_characters(text: str, pieces: list[str], ends: list[int | None]):
    assert OutputTokens.of(text, pieces, 9, 0).ends == ends


def test_the_next_turn_is_another_call():
    @function(num_api_spec_tokens=50)
    def two(s: Any) -> None:
        s += user("Who?") + assistant(gen("one", max_tokens=20)) + user("And?") + assistant(gen("two", max_tokens=20))

    messages = [*HI["messages"], {"role": "assistant", "content": "Harry."}, {"role": "user", "content": "And?"}]
    exchanges = [
        Exchange(PATH, {**HI, "max_tokens": 70, **LOGPROBS}, said("Harry.")),
        Exchange(PATH, {**HI, "messages": messages, "max_tokens": 70, **LOGPROBS}, said("Ron.")),
    ]
    with Service(*exchanges) as service:
        state = two.run(backend=model(service))
        assert (state["one"], state["two"]) == ("Harry.", "Ron.")


@pytest.mark.parametrize("node", [gen("x", dtype=int), gen("x", seed=3), select("x", choices=["a", "b"])])
def test_what_is_not_speculated_still_needs_a_turn_without_words(node: Any):
    @function(num_api_spec_tokens=50)
    def held(s: Any) -> None:
        s += user("Who?") + assistant("Age: " + node)

    with Service() as service, pytest.raises(Unsupported, match="cannot go on inside a turn that has text already"):
        held.run(backend=model(service))


def test_without_it_the_error_says_what_helps():
    @function
    def plain(s: Any) -> None:
        s += user("Who?") + assistant("Name:" + gen("name"))

    with Service() as service, pytest.raises(Unsupported, match="with @function"):
        plain.run(backend=model(service))


def test_the_number_of_tokens_is_checked():
    with pytest.raises(ValueError, match="num_api_spec_tokens is 0, must be an integer >= 1"):
        function(num_api_spec_tokens=0)(lambda s: None)
