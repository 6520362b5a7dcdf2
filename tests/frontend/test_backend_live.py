"""OpenAI and Anthropic as backends of our own server, which speaks both APIs: the whole way, streams included."""

from collections.abc import Iterator
from typing import Any

import pytest
from live import Live

from ramet import Anthropic, Endpoint, OpenAI, assistant, function, gen, select, system, user

MODEL = "claude-3-bundled"  # a name by which the model may go on inside a turn


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Live(dtype="float32", served_model_name=MODEL) as live:
        yield live.url


@pytest.fixture(params=["compatible", "vllm", "anthropic"])
def service(request: pytest.FixtureRequest, url: str) -> Any:
    if request.param == "anthropic":
        return Anthropic(MODEL, base_url=url)
    return OpenAI(MODEL, base_url=url + "/v1", flavor=request.param)


@function
def chat(s: Any) -> None:
    s += system("You are a helpful assistant.")
    s += user("What is the capital of France?") + assistant(gen("answer", max_tokens=12, stop=["."]))
    s += user("And of Italy?") + assistant(gen("more", max_tokens=12))


def test_texts_are_those_of_the_servers_own_calls(service: Any, url: str):
    ours = chat.run(backend=Endpoint(url), temperature=0)
    theirs = chat.run(backend=service, temperature=0)
    for name in ("answer", "more"):
        assert theirs[name] == ours[name]
        mine, other = ours.get_meta_info(name), theirs.get_meta_info(name)
        assert other["prompt_tokens"] == mine["prompt_tokens"]
        assert other["finish_reason"]["type"] == mine["finish_reason"]["type"]


def test_a_stream_is_the_whole(service: Any):
    whole = chat.run(backend=service, temperature=0)
    grown = chat.run(backend=service, temperature=0, stream=True)
    assert "".join(grown.text_iter("more")) == whole["more"]
    assert grown.get_meta_info("more")["completion_tokens"] == whole.get_meta_info("more")["completion_tokens"]


def test_outputs_keep_to_their_forms(service: Any):
    facts = {"type": "object", "properties": {"name": {"type": "string", "enum": ["a", "b"]}}, "required": ["name"]}

    @function
    def forms(s: Any) -> None:
        s += user("A number?") + assistant(gen("number", dtype=int))
        s += user("Yes?") + assistant(gen("yes", dtype=bool))
        s += user("Facts?") + assistant(gen("facts", json_schema=facts))
        s += user("Which?") + assistant(select("which", choices=["red", "green"]))

    state = forms.run(backend=service, temperature=0)
    assert state.error() is None
    assert isinstance(state["number"], int) and isinstance(state["yes"], bool)
    assert state["facts"].replace(" ", "") in ('{"name":"a"}', '{"name":"b"}')
    assert state["which"] in ("red", "green")


def test_a_turn_is_gone_on_with(url: str):
    @function
    def going_on(s: Any) -> None:
        s += user("What is the capital of France?") + assistant("The capital of" + gen("answer", max_tokens=8))

    vllm, anthropic = OpenAI(MODEL, base_url=url + "/v1", flavor="vllm"), Anthropic(MODEL, base_url=url)
    ours = going_on.run(backend=Endpoint(url), temperature=0)["answer"]
    assert going_on.run(backend=vllm, temperature=0)["answer"] == ours
    assert going_on.run(backend=anthropic, temperature=0)["answer"] == ours


def test_a_batch_speculates_on_a_server(url: str):
    @function(num_api_spec_tokens=40)
    def two(s: Any, number: int) -> None:
        s += f"{number}. Paris is the capital of" + gen("one", stop=".", max_tokens=24)
        s += gen("two", stop=".", max_tokens=24)

    plain = function(two.function)
    numbers = [{"number": number} for number in range(8)]
    backend = OpenAI(MODEL, base_url=url + "/v1", flavor="compatible")
    fast = two.run_batch(numbers, backend=backend, temperature=0)
    slow = plain.run_batch(numbers, backend=backend, temperature=0)
    assert [state["one"] for state in fast] == [state["one"] for state in slow]
    for state in fast:
        assert 1 <= state.saved.calls <= 3
