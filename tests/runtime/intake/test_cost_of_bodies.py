"""No shape of a body costs more than a few times as much as plain text of the same size."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
from msgspec import Struct

from ramet.ipc.messages import Limits
from ramet.ipc.params import SamplingParams
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.calls import CallDefaults, GenerateBody, read_generate
from ramet.runtime.intake.misspelt import MAX_COMPARED
from ramet.runtime.server.openai.types import ChatBody
from tests.fakes.bodies import MAX_ITEMS, parsed
from tests.fakes.effort import num_calls

SIZE = 1 << 20
MAX_TIMES = 300  # times the cost of plain text, about 2 ms for a MiB; keys take 25 times that, and used to take 3600
LIMITS = Limits(context_length=4096, max_total_tokens=1 << 20, vocab_size=1000, max_running_requests=4, hidden_size=4)
DEFAULTS = CallDefaults(SamplingParams(), LIMITS, False)
USER = {"role": "user", "content": "Hello"}


def keys(number: int, name: str = "k{}", value: Any = 1) -> dict[str, Any]:
    return {name.format(i): value for i in range(number)}


def padded(body: dict[str, Any]) -> bytes:
    """A body of SIZE bytes, padded by an unknown name."""
    data = orjson.dumps(body)
    return orjson.dumps({**body, "padding": "a" * max(0, SIZE - len(data))})


def thread_s(act: Callable[[], object]) -> float:
    """The shortest time of three runs."""
    taken = []
    for _ in range(3):
        began_s = time.thread_time()
        act()
        taken.append(time.thread_time() - began_s)
    return min(taken)


def read(data: bytes, type_: type[Struct]) -> None:
    try:
        body = convert(parsed(data), type_)
        if isinstance(body, GenerateBody):
            read_generate(body, "r", DEFAULTS)
    except ClientError:
        pass


SHAPES: dict[str, tuple[type[Struct], dict[str, Any]]] = {
    "unknown keys": (GenerateBody, {"text": "a", **keys(25_000)}),
    "as many keys as there may be": (GenerateBody, {"text": "a", **keys(60_000)}),
    "unknown keys of sampling_params": (GenerateBody, {"text": "a", "sampling_params": keys(25_000)}),
    "unknown keys that are nearly constraints": (GenerateBody, {"text": "a", **keys(25_000, "reg{}ex")}),
    "a long unknown key": (GenerateBody, {"text": "a", "json_schem" + "a" * SIZE: 1}),
    "a long unknown key of sampling_params": (GenerateBody, {"text": "a", "sampling_params": {"regex" * 200_000: 1}}),
    "a long key where none may be unknown": (GenerateBody, {"text": "a", "session_params": {"ri" + "d" * SIZE: 1}}),
    "ids": (GenerateBody, {"input_ids": [12345] * (SIZE // 6)}),
    "lists of ids": (GenerateBody, {"input_ids": [[1]] * (SIZE // 4)}),
    "short texts": (GenerateBody, {"text": ["a"] * (SIZE // 4)}),
    "no media": (GenerateBody, {"text": "a", "image_data": [None] * (SIZE // 5)}),
    "nested lists": (GenerateBody, {"text": "a", "custom_labels": {"a": [[[[[[[[1]]]]]]]] * (SIZE // 20)}}),
    "stops": (GenerateBody, {"text": "a", "sampling_params": {"stop": ["a"] * (SIZE // 4)}}),
    "biases": (GenerateBody, {"text": "a", "sampling_params": {"logit_bias": keys(60_000, "{}")}}),
    "a long stop": (GenerateBody, {"text": "a", "sampling_params": {"stop": ["a" * SIZE]}}),
    "messages": (ChatBody, {"messages": [USER] * 10_000}),
    "pieces of a message": (
        ChatBody,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 20_000}]},
    ),
    "keys of a piece": (
        ChatBody,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", **keys(60_000)}]}]},
    ),
    "numbers that keep their digits": (
        ChatBody,
        {"messages": [USER], "documents": [{"a": [0.1] * 250_000 + [0.12345678901234567891]}]},
    ),
    "tools": (ChatBody, {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f"}}] * 10_000}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_costs_a_few_times_what_plain_text_does(shape: str) -> None:
    type_, body = SHAPES[shape]
    data, plain = (
        padded(body).replace(b"0.12345678901234568", b"0.12345678901234567891"),
        orjson.dumps({"text": "Hello, you. " * (SIZE // 12)}),
    )
    read(data, type_)  # anything that is made once is made now
    text_s = thread_s(lambda: read(plain, GenerateBody)) * len(data) / len(plain)
    assert thread_s(lambda: read(data, type_)) < MAX_TIMES * text_s


def test_names_are_compared_a_bounded_number_of_times() -> None:
    """Above the bound, names are taken to be data."""
    few, many = (keys(number, "reg{}ez") for number in (MAX_COMPARED - 1, MAX_COMPARED + 1))
    assert num_calls(lambda: convert({"text": "a", "sampling_params": many}, GenerateBody)) < 10 * len(many)
    assert num_calls(lambda: convert({"text": "a", "sampling_params": few}, GenerateBody)) > 20 * len(few)


def test_known_names_of_many_parameters_are_seen_at_a_glance() -> None:
    num = 1000
    body = {"text": ["a"] * num, "sampling_params": [{"temperature": 0.5, "n": 1}] * num}
    convert(body, GenerateBody)
    types_alone = num_calls(lambda: msgspec.convert(body, GenerateBody))
    assert num_calls(lambda: convert(body, GenerateBody)) < types_alone + 3 * num


def test_a_name_that_stands_in_many_objects_is_compared_once() -> None:
    num = 4 * MAX_COMPARED
    body = {"text": ["a"] * num, "sampling_params": [{"regx": "a"}] * num}
    with pytest.raises(ClientError, match=r"^sampling_params\[0\].regx is not a known name"):
        convert(body, GenerateBody)
    other = {"text": ["a"] * num, "sampling_params": [{"regeyez": "a"}] * num}
    types_alone = num_calls(lambda: msgspec.convert(other, GenerateBody))
    assert num_calls(lambda: convert(other, GenerateBody)) < types_alone + 20 * num


@pytest.mark.parametrize("number", [0, 1, MAX_COMPARED + 1])
def test_what_others_call_a_constraint_is_found_among_any_number_of_names(number: int) -> None:
    with pytest.raises(ClientError) as caught:
        convert({"text": "a", "sampling_params": {**keys(number), "pattern": "a"}}, GenerateBody)
    assert str(caught.value).startswith("sampling_params.pattern is not a known name")


def test_a_million_ids_are_parsed() -> None:
    assert len(parsed(orjson.dumps({"input_ids": [12345] * 1_000_000}))["input_ids"]) < MAX_ITEMS


@pytest.mark.parametrize("body", [
    {"text": "a", "session_params": {"rid" * 100_000: 1}},
    {"text": "a", "rid": "r" * 1_000_000},
    {"text": "a", "sampling_params": {"grammar_backend": "b" * 1_000_000}},
    {"text": "a", "sampling_params": {"logit_bias": {"9" * 1_000_000: 1}}},
    {"text": "a", "b" * 1_000_000: 1, "sampling_params": {"stop": [{"c" * 1_000_000: 1}]}},
])  # fmt: skip
def test_no_error_repeats_a_long_name_or_value(body: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as caught:
        read_generate(convert(parsed(orjson.dumps(body)), GenerateBody), "r", DEFAULTS)
    assert len(str(caught.value)) < 700
