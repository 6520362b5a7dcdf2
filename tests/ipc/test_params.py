"""Sampling parameters: defaults, completion, and errors that name parameter, value and range."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.ipc.errors import ClientError
from ramet.ipc.params import SamplingParams, parse, shown

NAMES = list(SamplingParams.__struct_fields__)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def test_nothing_given_is_all_defaults():
    assert parse({}) == SamplingParams()
    assert parse(dict.fromkeys(NAMES)) == SamplingParams()  # null means default


def test_given_values_complete_the_defaults_of_the_model():
    model = SamplingParams(temperature=0.6, top_p=0.9)
    assert parse({"top_p": 0.5}, model) == SamplingParams(temperature=0.6, top_p=0.5)


def test_neutral_values_are_the_defaults():
    given = {"frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1, "logit_bias": {}}
    assert parse(given) == SamplingParams()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_must_be_finite(value: float):
    for name in ("temperature", "top_p", "min_p", "frequency_penalty"):
        with pytest.raises(ClientError, match=name):
            parse({name: value})


def test_a_temperature_near_zero_is_greedy():
    assert parse({"temperature": 9e-7}).greedy and not parse({"temperature": 2e-6}).greedy


def test_min_new_tokens_may_equal_max_new_tokens_and_not_exceed_it():
    assert parse({"min_new_tokens": 5, "max_new_tokens": 5}).min_new_tokens == 5
    with pytest.raises(ClientError, match=r"min_new_tokens is 6, must be in \[0, max_new_tokens\] = \[0, 5\]"):
        parse({"min_new_tokens": 6, "max_new_tokens": 5})


def test_one_stop_string_may_stand_alone_and_empty_ones_are_nothing():
    assert parse({"stop": "a"}).stop == ("a",) and parse({"stop": ["", "b", "b"]}).stop == ("b",)


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
def test_any_json_value_is_taken_or_refused_by_name(raw: dict):
    try:
        params = parse(raw)
    except ClientError as error:
        assert error.place.split(".")[1].split("[")[0] in raw or "min_new_tokens" in error.place
        assert len(str(error)) < 500
    else:
        json.dumps([params.temperature, params.n], allow_nan=False)
        assert 1 <= params.n <= 128 and 0 < params.top_p <= 1 and params.min_new_tokens <= params.max_new_tokens


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\\d+", r"'a\d+'"),
        (["\\s", {"\\w": "\\\\"}], r"['\s', {'\w': '\\'}]"),
        ("it's\\", '"it\'s\\"'),
        ("line\nbreak\x00", r"'line\nbreak\x00'"),  # nothing that a terminal or a log would obey
    ],
)
def test_a_shown_value_has_as_many_backslashes_as_the_value(value: Any, text: str):
    assert shown(value) == text
