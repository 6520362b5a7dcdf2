"""A wrong call of a program: an error names the place, the value and what it must be. Numbers may be numpy's."""

import math
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from ramet.runtime.errors import ClientError, ConfigError, EngineClosed
from ramet.runtime.llm import LLM

ONE = {"max_new_tokens": 1, "temperature": 0}
HI = [{"role": "user", "content": "hi"}]
SCORED = {"return_logprob": True}
VOCABULARY = 4096


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_total_tokens=2048, context_length=512, num_threads=1, random_seed=1, log_level="error") as made:
        assert made.tokenizer.vocab_size == VOCABULARY
        yield made


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value)


NO_PROMPT = "must be a text, token ids, or a floating array of embeddings [tokens, hidden size]"
NO_ID = f"must be a token id in [0, {VOCABULARY})"


@pytest.mark.parametrize(("prompts", "message"), [
    (["a", None], f"text[1] is None, {NO_PROMPT}"),
    (["a", 5], f"text[1] is 5, {NO_PROMPT}"),
    ([b"a"], f"text[0] is b'a', {NO_PROMPT}"),
    ([{"a": 1}], f"text[0] is {{'a': 1}}, {NO_PROMPT}"),
    ([2**70], f"input_ids[0] is {2**70}, {NO_ID}"),
    ([[1, 2**70]], f"input_ids[0][1] is {2**70}, {NO_ID}"),
    ([[1], [1, "x"]], f"input_ids[1][1] is 'x', {NO_ID}"),
    ([1, "x"], f"input_ids[1] is 'x', {NO_ID}"),
    ([1, -1], f"input_ids[1] is -1, {NO_ID}"),
    ([True], f"input_ids[0] is True, {NO_ID}"),
    ([[5, True]], f"input_ids[0][1] is True, {NO_ID}"),
    (np.array([5.5, 6]), f"input_ids[0] is np.float64(5.5), {NO_ID}"),
    ([np.array([True])], f"input_ids[0][0] is np.True_, {NO_ID}"),
    ([1] * 512 + ["x"], "input_ids has 513 tokens, must have at most 511, or 512 if nothing is generated: this model's "
     "maximum context length is 512 tokens"),
])  # fmt: skip
def test_what_is_no_prompt_is_named(llm: LLM, prompts: Any, message: str) -> None:
    assert refusal(lambda: llm.generate(prompts, ONE)).startswith(message)


@pytest.mark.parametrize("max_new_tokens", [0, 1])
def test_a_prompt_fills_the_context_but_for_what_is_generated(llm: LLM, max_new_tokens: int) -> None:
    num, params = 512 - max_new_tokens, {"max_new_tokens": max_new_tokens, "temperature": 0}
    ids = [5 + i % 50 for i in range(num)]
    [done] = llm.generate([ids], params, return_logprob=True, logprob_start_len=0)
    info = done["meta_info"]
    assert (len(info["input_token_logprobs"]), info["completion_tokens"]) == (num, max_new_tokens)
    assert f"has {num + 1} tokens" in refusal(lambda: llm.generate([*ids, 5], params))


@pytest.mark.parametrize("num", [511, 512])
def test_a_text_that_is_embedded_may_fill_the_context(llm: LLM, num: int) -> None:
    ids = [5 + i % 50 for i in range(num)]
    assert len(llm.embed([ids])) == 1
    assert "must have at most 512: this" in refusal(lambda: llm.embed([[5] * 513]))


@pytest.mark.parametrize(("prompt", "message"), [
    (None, f"text is None, {NO_PROMPT}"),
    (5, f"text is 5, {NO_PROMPT}"),
    (["a", "b"], "text is ['a', 'b'], must be one prompt: a text, token ids, or a floating array"),
    ([[1], [2]], "text is [[1], [2]], must be one prompt: a text, token ids, or a floating array"),
])  # fmt: skip
def test_a_stream_is_of_one_prompt(llm: LLM, prompt: Any, message: str) -> None:
    assert refusal(lambda: list(llm.stream(prompt, ONE))).startswith(message)


@pytest.mark.parametrize(("ids", "message"), [
    ([5, True], f"tokens[1] is True, {NO_ID}"), ([5, "x"], f"tokens[1] is 'x', {NO_ID}"),
    ([-1], f"tokens[0] is -1, {NO_ID}"),
    ([2**70], f"tokens[0] is {2**70}, {NO_ID}"), (None, "tokens is None, must be a list of token ids"),
    ("abc", "tokens is 'abc', must be a list of token ids"),
])  # fmt: skip
def test_what_is_no_id_to_decode_is_named(llm: LLM, ids: Any, message: str) -> None:
    assert refusal(lambda: llm.detokenize(ids)) == message


def test_no_prompts_have_no_replies(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_numbers_of_numpy_are_numbers(llm: LLM) -> None:
    by_python = {"top_p": 0.5, "top_k": 5, "n": 2, "sampling_seed": 3, "stop_token_ids": [3, 4], "ignore_eos": True}
    by_numpy = {
        "top_p": np.float32(0.5), "top_k": np.int64(5), "n": np.uint8(2), "sampling_seed": np.int32(3),
        "stop_token_ids": np.array([3, 4]), "ignore_eos": np.bool_(True),
    }  # fmt: skip
    asked = {**ONE, "temperature": 1.0, "max_new_tokens": 8}
    replies = [
        llm.generate(["a", "b"], {**asked, **params}, priority=priority, top_logprobs_num=top, **SCORED)
        for params, priority, top in ((by_python, [1, 2], 2), (by_numpy, np.array([1, 2]), np.int64(2)))
    ]
    first, second = [[(r["output_ids"], r["meta_info"]["output_top_logprobs"]) for r in each] for each in replies]
    assert first == second and len(first) == 4


@pytest.mark.parametrize(("asked", "message"), [
    ({"sampling_params": {1: 2}}, "sampling_params has the key 1, must have strings as keys"),
    ({"sampling_params": [{}, {None: 2}]}, "sampling_params[1] has the key None, must have strings as keys"),
    ({"sampling_params": {"temperature": float("inf")}}, "sampling_params.temperature is inf, must be finite and >= 0"),
    ({"sampling_params": {"top_p": float("nan")}}, "sampling_params.top_p is nan, must be finite, in (0, 1]"),
    ({"cache_salt": ["a", "\ud800"]}, "cache_salt[1] has half a surrogate pair, must be valid Unicode"),
    ({"custom_logit_processor": [None, "p"]}, "custom_logit_processor[1] is 'p', but this server takes no logit"),
    ({**SCORED, "logprob_start_len": [1, 9]}, "logprob_start_len[1] is 9, must be at most the prompt's 1 tokens"),
    (
        {**SCORED, "logprob_start_len": 3},
        "logprob_start_len is 3, must be at most the prompt's 1 tokens; the prompt is text[1]",
    ),
    ({**SCORED, "token_ids_logprob": [[1], [2, 9999]]}, f"token_ids_logprob[1][1] is 9999, {NO_ID}"),
])  # fmt: skip
def test_what_is_wrong_of_one_prompt_is_named_with_its_place(llm: LLM, asked: dict[str, Any], message: str) -> None:
    given = {"sampling_params": ONE, **asked}
    assert refusal(lambda: llm.generate(["a b c d", "b"], **given)).startswith(message)


class NoJson:
    def __repr__(self) -> str:
        return "NoJson()"


X = NoJson()
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"a": [1, X]}}}
WHY = "which cannot be written as JSON"


@pytest.mark.parametrize(("messages", "asked", "message"), [
    (HI, {"tools": [TOOL]}, f"tools[0].function.parameters.a[1] is NoJson(), {WHY}"),
    (HI, {"documents": [{"a": X}]}, f"documents[0].a is NoJson(), {WHY}"),
    (HI, {"chat_template_kwargs": {"a": {"b": X}}}, f"chat_template_kwargs.a.b is NoJson(), {WHY}"),
    (HI, {"chat_template_kwargs": {"a": {1: 2}}}, f"chat_template_kwargs.a is {{1: 2}}, {WHY}"),
    (HI, {"chat_template_kwargs": {"b": 2**70, "a": {1: 2}}}, f"chat_template_kwargs.a is {{1: 2}}, {WHY}"),
    (HI, {"documents": [{"a": Decimal("NaN")}]}, f"documents[0].a is Decimal('NaN'), {WHY}"),
    (HI, {"documents": [{"a": [None, math.nan]}]}, f"documents[0].a[1] is nan, {WHY}"),
    (HI, {"chat_template_kwargs": {"a": -math.inf}}, f"chat_template_kwargs.a is -inf, {WHY}"),
    (HI, {"chat_template_kwargs": {"a": Decimal("1e10000")}}, f"chat_template_kwargs.a is Decimal('1E+10000'), {WHY}"),
    ([{**HI[0], "own": {"a": math.nan, "b": 2**70}}], {}, f"messages[0].own.a is nan, {WHY}"),
    ([{**HI[0], "own": [X]}], {}, f"messages[0].own[0] is NoJson(), {WHY}"),
    ([HI, [{**HI[0], "own": X}]], {}, f"chat 1: messages[0].own is NoJson(), {WHY}"),
    (HI, {"chat_template_kwargs": {1: 2}}, "chat_template_kwargs has the key 1, must have strings as keys"),
    ([{**HI[0], 1: 2}], {}, "messages[0] has the key 1, must have strings as keys"),
    ([HI, [{**HI[0], 1: 2}]], {}, "chat 1: messages[0] has the key 1, must have strings as keys"),
    ([HI, [{"role": "nobody", "content": "a"}]], {}, "chat 1: messages[0].role is 'nobody'"),
    ([HI, [{"role": "user", "content": "a b " * 600}]], {}, "chat 1: messages has "),
    ([HI, HI], {**SCORED, "logprob_start_len": [1, 99]}, "logprob_start_len[1] is 99, must be at most the prompt's"),
    (
        [[{"role": "user", "content": "a b " * 50}], HI],
        {**SCORED, "logprob_start_len": 50},
        "logprob_start_len is 50, must be at most the prompt's 9 tokens; the prompt is chat 1: messages",
    ),
    (
        [HI, HI],
        {"sampling_params": [{}, {"logit_bias": {"9999": 1}}]},
        f"sampling_params[1].logit_bias has the key 9999, {NO_ID}",
    ),
])  # fmt: skip
def test_what_is_wrong_of_a_chat_is_named_with_its_place(
    llm: LLM, messages: Any, asked: dict[str, Any], message: str
) -> None:
    given = {"sampling_params": ONE, **asked}
    assert refusal(lambda: llm.chat(messages, **given)).startswith(message)


@pytest.mark.parametrize(("option", "value", "valid"), [
    pytest.param("request_timeout_s", 10**5000, "an integer of 16610 bits, must be", id="request_timeout_s-huge"),
    ("max_total_tokens", "x", "'x', must be an integer in [16, 67108864], or none"),
    ("max_total_tokens", 3, "3, must be an integer in [16, 67108864], or none"),
    ("schedule_policy", "zz", "'zz', must be one of dfs-weight, fcfs, lof, lpm, random"),
    ("max_wait_s", -1, "-1, must be a number in (0, 86400]"),
    ("api_key", 5, "hidden, must be text"),
])  # fmt: skip
def test_a_wrong_option_is_named_with_its_value_and_what_it_must_be(option: str, value: Any, valid: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LLM(**{option: value})
    assert str(caught.value).startswith(f"{option} is {valid}")


LOOP: list[Any] = []
LOOP += [LOOP, LOOP]
DEEP = "is nested deeper than 64 levels"
NO_CYCLES = [
    (lambda llm: llm.generate("a", {"stop": LOOP}), f"sampling_params {DEEP}"),
    (lambda llm: llm.generate("a", {"custom_params": {"x": LOOP}}), f"sampling_params {DEEP}"),
    (lambda llm: llm.generate("a", token_ids_logprob=LOOP), f"token_ids_logprob {DEEP}"),
    (lambda llm: llm.generate(LOOP), "input_ids[0][0] is [[["),
    (lambda llm: llm.chat(LOOP), f"chat 0: messages {DEEP}"),
    (lambda llm: llm.chat([{"role": "user", "content": LOOP}]), f"messages {DEEP}"),
    (lambda llm: llm.chat([{"role": "user", "content": "a"}], tools=[{"x": LOOP}]), f"tools {DEEP}"),
    (lambda llm: llm.chat([{"role": "user", "content": "a"}], chat_template_kwargs={"x": LOOP}), DEEP),
    (lambda llm: llm.embed(LOOP), f"input {DEEP}"),
    (lambda llm: llm.score("a", LOOP, [1]), f"items {DEEP}"),
    (lambda llm: llm.detokenize(LOOP), "tokens[0] is [[["),
]


@pytest.mark.parametrize(("call", "message"), NO_CYCLES)
def test_a_list_that_contains_itself_is_refused(llm: LLM, call: Callable[[LLM], Any], message: str) -> None:
    assert message in refusal(lambda: call(llm))


def test_a_text_of_numpy_is_a_text(llm: LLM) -> None:
    (of_numpy,), (own,) = llm.generate([np.str_("a b")], ONE), llm.generate(["a b"], ONE)
    assert of_numpy["output_ids"] == own["output_ids"]


@pytest.mark.parametrize("seconds", [10**400, -1, math.inf, math.nan, True, "5", None])
def test_how_long_a_flush_waits_is_checked(llm: LLM, seconds: Any) -> None:
    assert "must be a number of seconds in [0, 3600]" in refusal(lambda: llm.flush_cache(seconds))


def test_a_flush_waits_for_as_long_as_a_number_of_numpy_says(llm: LLM) -> None:
    llm.flush_cache(np.float32(1))


def test_a_bias_of_a_token_id_of_thousands_of_digits_is_refused(llm: LLM) -> None:
    assert "must be a token id" in refusal(lambda: llm.generate("a", {"logit_bias": {10**5000: 1}}))


def test_a_forked_child_cannot_use_it(llm: LLM) -> None:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        said = "nothing"
        try:
            llm.generate("a", ONE)
        except EngineClosed as error:
            said = str(error)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read().startswith(f"The engine is one of process {os.getpid()}; after os.fork()")
    os.waitpid(child, 0)
    assert len(llm.generate("a", ONE)) == 1
