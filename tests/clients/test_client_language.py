"""Our own language by way of LiteLLM's library: a program gets what it gets from the server itself."""

from typing import Any

import litellm
import pytest
from asked import MODEL
from live import Live

from ramet import CallFailed, Endpoint, LiteLLM, assistant, function, gen, select, system, user

litellm.suppress_debug_info = True


@function
def chat(s: Any) -> None:
    s += system("You are a helpful assistant.")
    s += user("What is the capital of France?") + assistant(gen("answer", max_tokens=12, stop=["."]))
    s += user("And of Italy?") + assistant(gen("more", max_tokens=12))
    s += user("A number?") + assistant(gen("number", dtype=int))
    s += user("Which?") + assistant(select("which", choices=["red", "green"]))


@pytest.fixture(params=["openai/", "hosted_vllm/"])
def backend(server: Live, request: pytest.FixtureRequest) -> LiteLLM:
    return LiteLLM(request.param + MODEL, api_base=server.url + "/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_program_is_answered_as_by_the_server_itself(server: Live, backend: LiteLLM, streaming: bool):
    ours = chat.run(backend=Endpoint(server.url), temperature=0)
    theirs = chat.run(backend=backend, temperature=0, stream=streaming)
    for name in ("answer", "more"):
        assert theirs[name] == ours[name]
    assert isinstance(theirs["number"], int) and theirs["which"] in ("red", "green")
    assert theirs.get_meta_info("answer")["prompt_tokens"] == ours.get_meta_info("answer")["prompt_tokens"]


def test_an_error_of_the_server_keeps_its_status(server: Live):
    backend = LiteLLM("openai/nobody", api_base=server.url + "/v1", api_key="none", max_retries=0)
    state = chat.run(backend=backend)
    with pytest.raises(CallFailed, match="nobody"):
        state["answer"]
    assert state.error().reason.status == 404
