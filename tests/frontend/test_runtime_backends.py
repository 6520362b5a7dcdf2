"""Programs on our own runtime: an LLM in this process, and a server; both give the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from live import Live

from ramet import LLM, CallFailed, Endpoint, Replay, assistant, function, gen, select, system, user
from ramet.frontend.backends.chosen import as_backend

PREFIX = "These words are shared by everything that follows, and they are long enough to be held. "


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(check_invariants=True, dtype="float32") as llm:
        yield llm


@pytest.fixture(scope="module")
def server() -> Iterator[Endpoint]:
    with Live(dtype="float32") as live:
        yield Endpoint(live.url)


@function
def everything(s: Any) -> None:
    s += system("You are a helpful assistant.")
    s += user("What is the capital of France?")
    s += assistant("Well: " + gen("answer", max_tokens=12, stop=["\n"]) + " And " + gen("more", max_tokens=6))
    s += user("A number?")
    with s.assistant():
        s += gen("number", dtype=int)
    s += user("Yes or no?") + assistant(select("choice", ["yes", "no", "yes and no"]))
    forks = s.fork(3)
    forks += [user(f"Aspect {i}?") for i in range(3)]
    forks += assistant(gen("aspect", max_tokens=8))
    forks.join()


def test_a_server_and_an_llm_give_the_same(llm: LLM, server: Endpoint):
    one, other = everything.run(backend=llm, temperature=0), everything.run(backend=server, temperature=0)
    for name in ("answer", "more", "number", "choice", "aspect"):
        assert one[name] == other[name], name
    assert one.text() == other.text() and one.messages() == other.messages()
    both = [state.get_meta_info("choice")["probabilities"] for state in (one, other)]
    assert both[0] == pytest.approx(both[1], rel=1e-4)  # small ones too: as near as their log-probabilities are
    assert isinstance(one["number"], int) and len(one["aspect"]) == 3
    assert "<|im_start|>assistant\nWell: " in one.text()


def test_calls_of_an_llm_are_recorded_and_replayed(llm: LLM, tmp_path: Path):
    @function
    def program(s: Any) -> None:
        s += "Two documents."
        forks = s.fork(2)
        forks += [" The first one.", " The second one."]
        forks.join("concate_and_append")
        s += " They say" + gen("what", max_tokens=8)

    path = tmp_path / "calls.jsonl"
    for each, name in ((everything, "aspect"), (program, "what")):
        recorded = each.run(backend=Replay(path, record=llm), temperature=0)
        assert recorded.error() is None
        assert each.run(backend=Replay(path), temperature=0)[name] == recorded[name]


@pytest.mark.parametrize("where", ["llm", "server"])
def test_texts_as_they_grow_are_the_whole(where: str, request: pytest.FixtureRequest):
    backend = request.getfixturevalue(where)
    whole = everything.run(backend=backend, temperature=0)
    grown = everything.run(backend=backend, temperature=0, stream=True)
    pieces = list(grown.text_iter("answer"))
    assert "".join(pieces) == whole["answer"] and len(pieces) > 1
    assert grown.get_meta_info("answer")["completion_tokens"] == whole.get_meta_info("answer")["completion_tokens"]
    assert grown.text() == whole.text()


OF_ONE_CALL = {"id", "e2e_latency", "cached_tokens"}


@pytest.mark.parametrize("where", ["llm", "server"])
@pytest.mark.parametrize("n", [1, 2])
def test_a_call_that_is_streamed_is_told_of_as_any_other(where: str, n: int, request: pytest.FixtureRequest):
    @function
    def program(s: Any) -> None:
        s += "Once upon a time" + gen(
            "x", n=n, max_tokens=6, ignore_eos=True, return_logprob=True, logprob_start_len=0, top_logprobs_num=2,
            token_ids_logprob=[5, 6], return_text_in_logprobs=True, return_hidden_states=True,
        )  # fmt: skip

    backend = request.getfixturevalue(where)
    plain, streamed = (
        [meta] if isinstance(meta, dict) else meta
        for meta in (
            program.run(backend=backend, temperature=0, stream=stream).get_meta_info("x") for stream in (False, True)
        )
    )
    assert len(streamed) == n
    for one, other in zip(plain, streamed, strict=True):
        assert len(other["output_token_logprobs"]) == 6
        assert one.keys() == other.keys()
        for name in one.keys() - OF_ONE_CALL:
            assert alike(one[name], other[name]), name


def alike(one: Any, other: Any) -> bool:
    """Numbers may come from steps that add in another order: log-probabilities agree to 1e-4 in float32."""
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == pytest.approx(other, rel=1e-4, abs=1e-4) if isinstance(one, float) else bool(one == other)


def test_a_fork_finds_its_prefix_cached_and_lets_it_go(llm: LLM):
    @function
    def program(s: Any) -> None:
        s += PREFIX
        forks = s.fork(4)
        forks += [f"Number {i}" for i in range(4)]
        forks += gen("x", max_tokens=4)
        forks.join()

    llm.flush_cache()
    state = program.run(backend=llm)
    metas = state.get_meta_info("x")
    assert len(metas) == 4 and all(meta["cached_tokens"] >= meta["prompt_tokens"] - 8 for meta in metas)
    as_backend(llm).loop.start(_nothing()).result()
    while llm.state()["prefix_leases"]:  # the last word of each lease is on its way
        pass
    without = program.run(backend=llm, hints=False)
    assert without["x"] and llm.state()["prefix_leases"] == 0


async def _nothing() -> None:
    pass


def test_programs_of_a_batch_share_what_they_begin_with(llm: LLM):
    @function
    def program(s: Any, i: int) -> None:
        s += f"{PREFIX} Question {i}:" + gen("x", max_tokens=4)

    llm.flush_cache()
    before = llm.state()["prefill_tokens"]
    states = program.run_batch([(i,) for i in range(50)], backend=llm)
    computed = llm.state()["prefill_tokens"] - before
    prompts = sum(state.get_meta_info("x")["prompt_tokens"] for state in states)
    assert computed < prompts / 4
    while llm.state()["prefix_leases"]:
        pass


@pytest.mark.parametrize("where", ["llm", "server"])
@pytest.mark.parametrize(
    ("node", "words"),
    [
        (gen("x", regex="(?=a)b"), "regex"),
        (gen("x", ebnf="no grammar"), "ebnf"),
        (gen("x", json_schema='{"type": "nothing"}'), "json_schema"),
        (gen("x", min_tokens=129), "min_new_tokens is 129"),  # more than the run's max_new_tokens
        (gen("x", token_ids_logprob=[10**9], return_logprob=True), "token_ids_logprob"),
    ],
)
def test_what_the_runtime_refuses_is_named(where: str, node: Any, words: str, request: pytest.FixtureRequest):
    @function
    def program(s: Any) -> None:
        s += "Once " + node

    state = program.run(backend=request.getfixturevalue(where))
    with pytest.raises(CallFailed, match=words) as caught:
        state["x"]
    assert "test_runtime_backends.py" in str(caught.value)


def test_several_samples_are_a_list_and_the_first_goes_on(llm: LLM):
    @function
    def program(s: Any) -> None:
        s += "Once upon a time" + gen("x", n=3, max_tokens=6, temperature=1.0)

    state = program.run(backend=llm)
    assert len(state["x"]) == 3 and len(state.get_meta_info("x")) == 3
    assert state.text() == "Once upon a time" + state["x"][0]


def test_types_of_outputs(llm: LLM):
    class Town(msgspec.Struct):
        name: str
        people: int

    @function
    def program(s: Any) -> None:
        s += "A town: " + gen("town", json_schema=Town, max_tokens=60)
        s += " True? " + gen("flag", dtype=bool) + " A number: " + gen("number", dtype=float)

    state = program.run(backend=llm, temperature=0.5, seed=3)
    assert isinstance(state["flag"], bool) and isinstance(state["number"], float)
    assert isinstance(state["town"], Town)


@function
def short(s: Any, i: int) -> None:
    s += f"{PREFIX} Number {i}:" + gen("x", max_tokens=4, ignore_eos=True)


def test_a_fork_of_a_thousand_on_the_runtime():
    @function
    def program(s: Any) -> None:
        s += PREFIX
        forks = s.fork(1000)
        forks += [f"Number {i}:" for i in range(1000)]
        forks += gen("x", max_tokens=4, ignore_eos=True)
        forks.join()

    with LLM(runner="scripted", context_length=10_000, max_total_tokens=100_000, check_invariants=True) as llm:
        state = program.run(backend=llm)
        assert len(state["x"]) == 1000 and all(state["x"])
        assert llm.state()["prefill_tokens"] < 1000 * 20


@pytest.mark.slow
def test_ten_thousand_programs_on_the_runtime():
    with LLM(runner="scripted", context_length=10_000, max_total_tokens=100_000) as llm:
        states = short.run_batch([(i,) for i in range(10_000)], backend=llm)
        assert all(state["x"] and f"Number {i}:" in state.text() for i, state in enumerate(states))


def test_joined_forks_are_read_apart_from_each_other_and_words_behind_them_are_healed(llm: LLM, server: Endpoint):
    @function
    def program(s: Any, mode: str) -> None:
        s += "Read this. "
        forks = s.fork(3)
        forks += ["The capital of Peru is Lima. ", "Ada lives in Oslo. ", "Two and two are four. "]
        forks.join(mode)
        s += "Question: What is the capital of Peru?\nAns" + gen("x", max_tokens=8, return_logprob=True)

    apart, again = (program.run("concate_and_append", backend=each, temperature=0) for each in (llm, server))
    whole = program.run("gather_variable", backend=llm, temperature=0)
    assert apart["x"] == again["x"] and apart["x"].startswith("wer:") and "Lima" in apart["x"]
    meta = apart.get_meta_info("x")
    assert meta["prompt_tokens"] > whole.get_meta_info("x")["prompt_tokens"]
    inside = "Read this. The capital of Peru is Lima. Ada lives in Oslo. Two and two are four. Question:"
    assert apart.text().startswith(inside)

    @function
    def in_sequence(s: Any) -> None:
        s += inside + " What is the capital of Peru?\nAns" + gen("x", max_tokens=8, return_logprob=True)

    read = in_sequence.run(backend=llm, temperature=0).get_meta_info("x")
    assert read["output_token_logprobs"][0][0] != meta["output_token_logprobs"][0][0], "attention to other forks shows"


def test_a_call_may_follow_joined_forks_at_once(llm: LLM, server: Endpoint):
    @function
    def program(s: Any) -> None:
        forks = s.fork(2)
        forks += ["The capital of Peru is Lima. ", "Ada lives in Oslo. The capital of Peru is"]
        forks.join("concate_and_append")
        s += gen("x", max_tokens=4) + " or " + select("y", [" Lima", " Oslo"])

    states = [program.run(backend=each, temperature=0) for each in (llm, server)]
    assert states[0]["x"] == states[1]["x"] and states[0]["y"] == states[1]["y"]
