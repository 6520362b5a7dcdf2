"""The in-process runtime on the bundled model: texts and ids in, replies in order out, streams that can be left."""

import json
import signal
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.llm import LLM

VOCABULARY = json.loads((BUNDLED_MODEL / "config.json").read_text())["vocab_size"]
GREEDY = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    options: dict[str, Any] = {"dtype": "float32", "max_total_tokens": 4096, "num_threads": 1, "check_invariants": True}
    with LLM(random_seed=1, **options) as made:
        yield made


def idle_state(llm: LLM) -> dict[str, Any]:
    """The scheduler's state once all that was left has been aborted."""
    states = (llm.state() for _ in range(10_000))
    return next(state for state in states if not state["running_requests"] and not state["waiting_requests"])


@pytest.fixture(autouse=True)
def nothing_is_left(llm: LLM) -> Iterator[None]:
    yield
    state = idle_state(llm)
    assert state["running_requests"] == state["waiting_requests"] == state["leased_tokens"] == 0


def test_a_text_gives_one_reply_with_its_usage(llm: LLM):
    (reply,) = llm.generate("Once upon a time", GREEDY)
    meta = reply["meta_info"]
    assert len(reply["output_ids"]) == meta["completion_tokens"] == 6
    assert reply["text"] == llm.tokenizer.decode(reply["output_ids"])
    assert meta["prompt_tokens"] == len(llm.tokenizer.encode("Once upon a time"))
    assert meta["finish_reason"] == {"type": "length", "length": 6}


def test_ids_give_what_their_text_gives(llm: LLM):
    ids = llm.tokenizer.encode("Once upon a time")
    texts = llm.generate("Once upon a time", GREEDY)
    assert llm.generate(ids, GREEDY)[0]["output_ids"] == texts[0]["output_ids"]


def test_a_list_is_answered_in_its_order(llm: LLM):
    prompts = ["The sea", llm.tokenizer.encode("A house"), "One, two, three, four, five", "The sea"]
    alone = [llm.generate(prompt, GREEDY)[0]["output_ids"] for prompt in prompts]
    assert [reply["output_ids"] for reply in llm.generate(prompts, GREEDY)] == alone
    assert alone[0] == alone[3] != alone[1]


def test_a_list_of_lists_of_ids_is_several_prompts(llm: LLM):
    replies = llm.generate([[8, 9, 10], [8, 9, 10, 11]], GREEDY)
    assert [reply["meta_info"]["prompt_tokens"] for reply in replies] == [3, 4]


def test_every_prompt_may_have_its_own_parameters(llm: LLM):
    replies = llm.generate(["a", "b"], [{**GREEDY, "max_new_tokens": 2}, {**GREEDY, "max_new_tokens": 5}])
    assert [len(reply["output_ids"]) for reply in replies] == [2, 5]


def test_every_reply_of_a_stream_has_all_logprobs_so_far(llm: LLM):
    asked = {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 90, "token_ids_logprob": [1, 2]}
    (whole,) = llm.generate("Once upon a time", GREEDY, **asked)
    replies = list(llm.stream("Once upon a time", GREEDY, **asked))
    names = [name for name in whole["meta_info"] if name.endswith("logprobs")]
    assert len(names) == 6 and len(replies) > 1
    for reply in replies:
        meta = reply["meta_info"]
        for name in names:
            expected = whole["meta_info"][name]
            assert meta[name] == (expected if name.startswith("input") else expected[: meta["completion_tokens"]])
        assert list(meta) == [name for name in whole["meta_info"] if name in meta]


def test_samples_come_prompt_by_prompt(llm: LLM):
    asked = {"temperature": 1.0, "sampling_seed": 7, "max_new_tokens": 10, "ignore_eos": True}
    first, second = (llm.generate(prompt, {**asked, "n": 3}) for prompt in ("The sea", "A tall house"))
    both = llm.generate(["The sea", "A tall house"], {**asked, "n": 3})
    assert [r["output_ids"] for r in both] == [r["output_ids"] for r in (*first, *second)]
    lengths = [len(llm.tokenizer.encode(prompt)) for prompt in ("The sea", "A tall house")]
    assert [r["meta_info"]["prompt_tokens"] for r in both] == [lengths[0]] * 3 + [lengths[1]] * 3


def test_typical_p_leaves_tokens_out_of_the_rows_that_ask_for_it_alone(llm: LLM):
    asked = {"temperature": 1.0, "sampling_seed": 7, "max_new_tokens": 10, "ignore_eos": True}
    plain = [reply["output_ids"] for reply in llm.generate("The sea", {**asked, "n": 2})]
    typical = {**asked, "n": 4, "typical_p": 1e-9}  # one token stays, whatever the seed
    found = [reply["output_ids"] for reply in llm.generate(["The sea"] * 2, [{**asked, "n": 2}, typical])]
    assert found[:2] == plain and plain[0] != plain[1]
    assert all(each == found[2] for each in found[3:])


@pytest.mark.parametrize("seed", [0, 11, -3])
def test_samples_differ_and_the_first_is_that_of_one(llm: LLM, seed: int):
    asked = {"temperature": 1.0, "sampling_seed": seed, "max_new_tokens": 24, "ignore_eos": True}
    (one,) = llm.generate("The", asked)
    samples = [tuple(reply["output_ids"]) for reply in llm.generate("The", {**asked, "n": 8})]
    assert len(set(samples)) == 8
    assert samples[0] == tuple(one["output_ids"])


def test_without_a_seed_two_runs_differ(llm: LLM):
    asked = {"temperature": 1.0, "max_new_tokens": 24, "ignore_eos": True}
    outputs = {tuple(llm.generate("The", asked)[0]["output_ids"]) for _ in range(4)}
    assert len(outputs) == 4


@pytest.mark.parametrize(
    ("prompts", "params", "place", "fact"),
    [
        ("x", {"top_p": 0}, "sampling_params.top_p", "must be in (0, 1]"),
        ("x", {"max_new_tokens": -1}, "sampling_params.max_new_tokens", "-1"),
        ("x", {"stop_token_ids": [-1]}, "sampling_params.stop_token_ids", "-1"),
        ("", {}, "text", "no tokens"),
        ([[]], {}, "input_ids", "at least 1"),
        ([[VOCABULARY]], {}, "input_ids", str(VOCABULARY)),
        (["x", "y"], [{}], "sampling_params", "has 1 entries, must have one for each of the 2 prompts"),
        ([8] * 5000, {}, "input_ids", "5000 tokens"),
    ],
)
def test_bad_values_raise_and_name_the_place(llm: LLM, prompts: Any, params: Any, place: str, fact: str):
    with pytest.raises(ClientError) as caught:
        llm.generate(prompts, params)
    assert caught.value.place.startswith(place) and fact in caught.value.fact
    assert caught.value.status == 400


def test_one_bad_prompt_runs_none_of_the_list(llm: LLM):
    before = llm.phase_seconds()["steps"]
    with pytest.raises(ClientError):
        llm.generate(["fine", [VOCABULARY]], GREEDY)
    llm.generate("fine", {**GREEDY, "max_new_tokens": 1})
    assert llm.phase_seconds()["steps"] == before + 1


def test_a_stream_grows_to_what_generate_says(llm: LLM):
    asked = {"temperature": 1.0, "sampling_seed": 3, "max_new_tokens": 40, "stop": ["zq"], "ignore_eos": True}
    replies = list(llm.stream("Once upon a time", asked))
    texts = [reply["text"] for reply in replies]
    assert all(after.startswith(before) for before, after in pairwise(texts))
    assert len(set(texts)) > 5 and all(r["meta_info"]["finish_reason"] is None for r in replies[:-1])
    (whole,) = llm.generate("Once upon a time", asked)
    assert (texts[-1], replies[-1]["output_ids"]) == (whole["text"], whole["output_ids"])
    assert replies[-1]["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]


def test_leaving_a_stream_early_ends_its_request(llm: LLM):
    stream = llm.stream("Once", {**GREEDY, "max_new_tokens": 2000})
    next(stream)
    assert llm.state()["running_requests"] == 1
    stream.close()
    assert idle_state(llm)["owned_tokens"] == 0


def test_a_stream_between_others_disturbs_nobody(llm: LLM):
    (alone,) = llm.generate("The sea", {**GREEDY, "max_new_tokens": 20})
    stream = llm.stream("Once", {**GREEDY, "max_new_tokens": 2000})
    next(stream)
    (beside,) = llm.generate("The sea", {**GREEDY, "max_new_tokens": 20})
    stream.close()
    assert beside["output_ids"] == alone["output_ids"]


def test_a_flushed_cache_is_empty_and_answers_alike(llm: LLM):
    (first,) = llm.generate("A long way to the sea", GREEDY)
    (warm,) = llm.generate("A long way to the sea", GREEDY)
    llm.flush_cache()
    (cold,) = llm.generate("A long way to the sea", GREEDY)
    assert warm["meta_info"]["cached_tokens"] > 0 == cold["meta_info"]["cached_tokens"]
    assert first["output_ids"] == warm["output_ids"] == cold["output_ids"]


def test_several_streams_may_be_open_at_once(llm: LLM) -> None:
    params = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
    alone = {text: llm.generate(text, params)[0]["text"] for text in ("Hello", "The moon", "One")}
    first, second = llm.stream("Hello", params), llm.stream("The moon", params)
    last: dict[str, str] = {}
    for one, two in zip(first, second, strict=False):
        last["Hello"], last["The moon"] = one["text"], two["text"]
        assert llm.generate("One", params)[0]["text"] == alone["One"]
    for name, rest in (("Hello", first), ("The moon", second)):
        for reply in rest:
            last[name] = reply["text"]
    assert last == {name: alone[name] for name in last}


def test_an_interrupt_ends_what_it_was_asked_and_nothing_else(llm: LLM):
    params = {"max_new_tokens": 2000, "ignore_eos": True, "presence_penalty": 1}
    beside = llm.stream("c", params)
    next(beside)

    def interrupt() -> None:
        """Ctrl-C, once both prompts run."""
        states = (llm.state()["running_requests"] for _ in range(100_000))
        assert next(running for running in states if running == 3)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore the signal
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b"], params)
    thread.join()
    signal.signal(signal.SIGINT, handler)
    states = (llm.state() for _ in range(100_000))
    left = next(state for state in states if state["running_requests"] <= 1)
    assert left["running_requests"] == left["penalty_slots"] == 1 and next(beside)
    beside.close()
    assert llm.generate("c", {"max_new_tokens": 2})[0]["output_ids"]


def test_parameters_may_be_absent_and_must_be_dicts():
    with LLM(max_total_tokens=1024) as llm:
        first, second = llm.generate(["a", "b"], [None, {"max_new_tokens": 1}])
        assert len(second["output_ids"]) == 1 <= len(first["output_ids"])
        for wrong in (5, ["x"], [{}, 5]):
            with pytest.raises(ClientError, match="sampling_params"):
                llm.generate(["a", "b"], wrong)
        for no_ids in (np.array([5.0, 6.0]), [1.5]):
            with pytest.raises(ClientError, match="input_ids"):
                llm.generate(no_ids)
        with pytest.raises(ClientError, match=r"^text is b'abc', must be a text, token ids"):
            llm.generate(b"abc")
        ids = np.array([[5, 6], [7, 8]], dtype=np.int32)
        greedy = {"temperature": 0, "max_new_tokens": 3}
        by_array, by_list = (llm.generate(each, greedy) for each in (ids, ids.tolist()))
        assert [reply["output_ids"] for reply in by_array] == [reply["output_ids"] for reply in by_list]


@pytest.mark.parametrize("prompts", [None, 5, 2.5, {"text": "a"}, {"a"}], ids=repr)
def test_what_is_no_prompt_is_refused_by_name(llm: LLM, prompts: Any):
    with pytest.raises(ClientError, match=r"^text is .*, must be a text, token ids, "):
        llm.generate(prompts)


def test_replies_of_a_stream_with_several_samples_have_the_index_of_theirs(llm: LLM):
    params = {"max_new_tokens": 3, "temperature": 0, "ignore_eos": True}
    assert {reply["index"] for reply in llm.stream("a", {**params, "n": 2})} == {0, 1}
    assert all("index" not in reply for reply in llm.stream("a", params))


@pytest.mark.parametrize("seconds", ["1", None, -1.0, float("nan"), float("inf")], ids=repr)
def test_a_time_to_wait_that_is_none_is_refused_and_the_engine_goes_on(llm: LLM, seconds: Any):
    with pytest.raises(ClientError, match=r"^timeout_s is "):
        llm.flush_cache(seconds)
    llm.flush_cache(0)


@pytest.mark.parametrize("text", [3, None, b"a", ["a", "b"]])
def test_only_a_text_is_tokenized(llm: LLM, text: Any) -> None:
    with pytest.raises(ClientError, match=r"^text is .*, must be a string") as caught:
        llm.tokenize(text)
    assert caught.value.status == 400


def test_flags_of_tokenizing_are_true_or_false(llm: LLM) -> None:
    with pytest.raises(ClientError, match=r"^add_special_tokens is 'x', must be True or False"):
        llm.tokenize("a", add_special_tokens="x")  # type: ignore[arg-type]
    with pytest.raises(ClientError, match=r"^skip_special_tokens is 'x', must be True or False"):
        llm.detokenize([5], skip_special_tokens="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [3, 0.5])
def test_an_array_without_a_dimension_is_no_prompt(llm: LLM, number: float) -> None:
    with pytest.raises(ClientError, match=r"^text is .*, must be a text, token ids, "):
        llm.generate(np.array(number))


def test_a_set_with_what_is_no_part_is_refused_by_its_place(llm: LLM) -> None:
    with pytest.raises(ClientError, match=r"^messages\[0\]\.content\[0\] is 1, "):
        llm.chat([{"role": "user", "content": {1}}])


@pytest.mark.parametrize("model", [3, 3.5, []])
def test_a_model_that_is_no_folder_is_not_taken_for_the_bundled_one(model: Any) -> None:
    with pytest.raises(ConfigError, match=r"^model is .*, must be a model folder"):
        LLM(model)


def test_a_model_folder_may_be_a_path() -> None:
    with pytest.raises(ConfigError, match="/nowhere"):
        LLM(Path("/nowhere"))
