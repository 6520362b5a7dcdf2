"""What is too large is refused before it is looked at: the first error is the size, not the last entry."""

import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from ramet.ipc.messages import Limits
from ramet.ipc.params import SamplingParams, parse, shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.calls import CallDefaults, GenerateBody, num_asked, read_generate
from ramet.runtime.intake.limits import KEYS_SHARE, MAX_SEQUENCES, OPENED_SHARE
from ramet.runtime.intake.prompts import pack_checked, pack_embeds, pack_to_decode
from ramet.runtime.text.context import MAX_CALL_IDS
from tests.fakes.bodies import MAX_ITEMS, parsed

LIMITS = Limits(context_length=100, max_total_tokens=1000, vocab_size=50, max_running_requests=4, hidden_size=2)
DEFAULTS = CallDefaults(SamplingParams(), LIMITS, False)

MAX_KEYS, MAX_OPENED = MAX_ITEMS // KEYS_SHARE, MAX_ITEMS // OPENED_SHARE


def refusal(call: Callable[[], object]) -> ClientError:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value


def refused_body(**body: Any) -> ClientError:
    return refusal(lambda: read_generate(convert(body, GenerateBody), "r", DEFAULTS))


def num_calls(call: Callable[[], object]) -> int:
    """Python functions that run, each step of a generator included."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "unit", "most"),
    [
        (b'{"a": [' + b"1," * (MAX_ITEMS + 1), "entries of lists and objects", MAX_ITEMS),
        (b'{"a": {' + b'"k":1,' * (MAX_KEYS + 1), "keys", MAX_KEYS),
        (b'{"a": [' + b"[" * (MAX_OPENED + 1), "lists and objects", MAX_OPENED),
        (b'{"a": ["' + b'","' * (MAX_ITEMS + MAX_KEYS), "strings", MAX_ITEMS + MAX_KEYS),
    ],
)
def test_too_many_values_are_counted_before_they_are_read(body: bytes, unit: str, most: int) -> None:
    error = refusal(lambda: parsed(body))  # which is no JSON either
    assert error.place == "body" and unit in error.fact and f"at most {most}" in error.fact


def test_as_many_values_as_a_body_may_have() -> None:
    body = {"values": [0] * (MAX_ITEMS - MAX_KEYS), "keys": {str(i): 0 for i in range(MAX_KEYS - 10)}}
    assert parsed(orjson.dumps(body)) == body


@pytest.mark.parametrize("piece", [",", ":", "[", "{", '"', '\\",', "\\"])
def test_what_a_text_is_made_of_counts_for_nothing(piece: str) -> None:
    body = {"text": piece * (MAX_ITEMS + 10)}
    assert parsed(orjson.dumps(body)) == body


# -- prompts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("more", "specs"), [({}, 1), ({"cache_salt": ["a", "b", "c"]}, 3)])
def test_prompts_that_ask_the_same_have_one_spec(more: dict[str, Any], specs: int) -> None:
    prompts, _ = read_generate(convert({"text": ["x", "y", "z"], **more}, GenerateBody), "r", DEFAULTS)
    assert len({id(prompt.spec) for prompt in prompts}) == specs


def test_a_prompt_is_measured_before_its_ids_are_looked_at() -> None:
    error = refused_body(input_ids=[1] * 100 + [-1])
    assert (error.place, error.code) == ("input_ids", "context_length_exceeded")
    assert error.fact.startswith("has 101 tokens, must have at most 99, or 100 if nothing is generated: this model's")


def test_every_prompt_of_a_batch_is_measured_before_any_is_looked_at() -> None:
    assert refused_body(input_ids=[[-1], [1] * 101]).place == "input_ids[1]"


def test_embeddings_are_measured_before_they_are_looked_at() -> None:
    error = refused_body(input_embeds=[[1]] + [[0.5, 0.5]] * 100)
    assert (error.place, error.code) == ("input_embeds", "context_length_exceeded")


@pytest.mark.parametrize(("name", "prompt"), [("text", "a"), ("input_ids", [50])])
def test_prompts_are_counted_before_they_are_looked_at(name: str, prompt: Any) -> None:
    body = convert({name: [prompt] * (MAX_SEQUENCES + 1)}, GenerateBody)
    error = refusal(lambda: read_generate(body, "r", DEFAULTS))
    assert error.place == name and str(MAX_SEQUENCES + 1) in error.fact and f"at most {MAX_SEQUENCES}" in error.fact
    assert num_calls(lambda: refusal(lambda: read_generate(body, "r", DEFAULTS))) < 100


def test_samples_are_counted_before_their_ids_are_compared() -> None:
    rids = [f"{i}" for i in range(129)]
    body = convert({"text": ["a"] * 129, "rid": rids, "sampling_params": {"n": 128}}, GenerateBody)
    assert refusal(lambda: read_generate(body, "r", DEFAULTS)).fact.startswith("asks for 16512 sequences")
    assert num_calls(lambda: refusal(lambda: read_generate(body, "r", DEFAULTS))) < 20 * 129


@pytest.mark.parametrize(("text", "fact"), [
    ("a", "is a list, must be one value for one prompt"),
    (["a"] * 3, "has 9 entries, must have one for each of the 3 prompts"),
])  # fmt: skip
def test_parameters_are_counted_before_they_are_read(text: Any, fact: str) -> None:
    error = refusal(lambda: num_asked({"text": text, "sampling_params": ["not read"] * 9}))
    assert error.place == "sampling_params" and error.fact == fact
    assert num_asked({"text": ["a"] * 3, "sampling_params": [{"n": 2}] * 3}) == ("text", 6)


def test_embeddings_are_counted_before_they_are_looked_at() -> None:
    error = refused_body(input_embeds=[[[0.5]]] * (MAX_SEQUENCES + 1))
    assert error.place == "input_embeds" and str(MAX_SEQUENCES + 1) in error.fact


def test_ids_to_decode_are_counted_before_they_are_looked_at() -> None:
    error = refusal(lambda: pack_to_decode("tokens", [1] * MAX_CALL_IDS + ["x"], 50))
    assert error.place == "tokens" and f"at most {MAX_CALL_IDS}" in error.fact


@pytest.mark.parametrize("wrong", [-1, 50, 1 << 40, 1.5, None, "x"])
@pytest.mark.parametrize("at", [0, 3, 7])
def test_the_first_wrong_id_is_named(wrong: Any, at: int) -> None:
    ids = [*range(at), wrong, *[49] * (6 - at), wrong]
    error = refusal(lambda: pack_checked("prompt", ids, 50))
    assert error.place == f"prompt[{at}]" and error.fact == f"is {shown(wrong)}, must be a token id in [0, 50)"


@pytest.mark.parametrize("wrong", [1e5, -1e5, float("nan"), float("inf")])
@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.parametrize("column", [0, 1])
def test_a_number_that_no_embedding_has_is_refused_wherever_it_stands(wrong: float, row: int, column: int) -> None:
    rows = [[0.5, 0.5] for _ in range(3)]
    rows[row][column] = wrong
    assert refusal(lambda: pack_embeds("e", rows, LIMITS)).place == f"e[{row}]"


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stop", "stop_regex"])
def test_texts_are_counted_before_they_are_looked_at(name: str) -> None:
    assert "33 entries" in refusal(lambda: parse({name: ["a"] * 32 + [5]})).fact


@pytest.mark.parametrize("given", [{"stop": "é" * 512}, {"stop_token_ids": list(range(1024))}])
def test_no_python_runs_for_each_character_or_id(given: dict[str, Any]) -> None:
    parse(given)
    assert num_calls(lambda: parse(given)) < 40


class Counting:
    num = 0

    def __repr__(self) -> str:
        Counting.num += 1
        return "Counting()"


def test_of_a_long_value_only_what_is_shown_is_written() -> None:
    assert shown([Counting() for _ in range(1000)]) == repr([Counting()] * 9)[:77] + "..."
    assert Counting.num < 30
