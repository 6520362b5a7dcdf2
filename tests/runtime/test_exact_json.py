"""Numbers of any size keep their digits through JSON and back, and ordinary ones stay floats."""

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from effort import num_calls
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime import exact_json
from ramet.runtime.exact_json import compact, dumps, dumps_each, encode, has_no_number, loads, may_round, ordinary

LONG = [
    "18446744073709551616", "-9223372036854775809", "9" * 300, "0.12345678901234567890", "-123456789012345678901.5",
    "1E+400", "1E-400",
]  # fmt: skip
SHORT = ["0", "-1", "18446744073709551615", "0.1", "1.0", "1e5", "-0.0", "1e22", "2.5E-7"]
DIGITS = st.text("0123456789", min_size=1, max_size=30)
EXPONENTS = st.just("") | st.integers(-500, 500).map("e{}".format)
NUMBERS = st.builds("{}{}.{}{}".format, st.sampled_from(["", "-"]), DIGITS.map(int), DIGITS, EXPONENTS)


@pytest.mark.parametrize("number", LONG)
def test_a_long_number_keeps_its_digits(number: str) -> None:
    text = f'{{"a": [{number}, "{number}"]}}'
    assert dumps(loads(text)) == text and encode(loads(text)).decode() == text.replace(" ", "")
    assert may_round(text.encode())


@pytest.mark.parametrize("number", SHORT)
def test_other_numbers_are_what_they_are_to_python(number: str) -> None:
    value = loads(number)
    assert value == json.loads(number) and type(value) is type(json.loads(number))


@examples(100, 3000)
@given(NUMBERS)
def test_a_number_is_the_same_number_again(number: str) -> None:
    value = loads(number)
    assert Decimal(dumps(value)) == Decimal(number) == Decimal(encode(value).decode())
    if isinstance(value, Decimal):
        assert may_round(number.encode())


@pytest.mark.parametrize("options", [{"indent": 2}, {"sort_keys": True}, {"ensure_ascii": False}, {}])
def test_what_has_no_long_numbers_is_written_as_ever(options: dict[str, Any]) -> None:
    value = {"é": [1, 0.5, None, True, "1"], "a": {"b": "NUMBER_"}}
    assert dumps(value, **options) == json.dumps(value, **options)
    long = dumps({**value, "x": Decimal("0.12345678901234567890")}, **options)
    assert long.replace("0.12345678901234567890", "7") == json.dumps({**value, "x": 7}, **options)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.just("null"), inner, max_size=4),
    max_leaves=20,
)


def has_large(value: Any) -> bool:
    """Whether it has an integer beyond 64 bits."""
    if isinstance(value, int):
        return not -(2**63) <= value < 2**64
    return any(map(has_large, value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()))


@examples(200, 3000)
@given(VALUES)
def test_an_ordinary_value_is_written_as_any_other(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    assert compact(value) == text
    quick = ordinary(value)
    assert (quick is None) == has_large(value)
    assert quick is None or json.loads(quick) == value


def test_no_number_is_found_beside_what_messagepack_cannot_hold() -> None:
    class Text(str):
        pass

    for beside in (Text("x"), 2**70, Decimal("1.5")):
        assert has_no_number([beside, {"a": [None, math.nan]}])
        assert not has_no_number([beside, {Text("a"): (None, 1.5)}])


@pytest.mark.parametrize(
    "value",
    [math.nan, [math.inf], [None, -math.inf], {"a": Decimal("1.5")}, 2**64, {1: 2}, "\ud800", b"x", object()],
)
def test_what_is_not_ordinary_is_left_to_the_slower_way(value: Any) -> None:
    assert ordinary(value) is None


@pytest.mark.parametrize(
    "values", [[], [{}], [{"a": 1}] * 3, [{"é": [1, Decimal("0.12345678901234567890")]}, {"b": ", "}]]
)
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_several_values_are_written_as_each_by_itself(values: list[Any], ensure_ascii: bool) -> None:
    assert dumps_each(values, ensure_ascii) == [dumps(value, ensure_ascii=ensure_ascii) for value in values]


@pytest.mark.parametrize("number", ["1e999", "1E999", "-1e-999", "1234567890123456", "1e308"])
def test_short_texts_are_looked_at_as_long_ones(number: str) -> None:
    assert may_round(number.encode()) and may_round(f" {number} ".encode())


def test_what_is_no_json_is_refused() -> None:
    for text in ("NaN", "1e99999", "1e99999999999999999999", "[1,]", '"\\ud800"', "9" * 5000, ""):
        with pytest.raises(ValueError):
            loads(text)
    for value in ({1, 2}, b"x", object()):
        with pytest.raises(TypeError):
            dumps(value)


def test_numbers_without_digits_to_lose_are_not_read_again() -> None:
    assert not may_round(b'{"a": [0.5, 123456789012345, 1e99, "2026-11-28"], "b": "' + b"abc 1e1 " * 1000 + b'"}')


def test_each_part_of_a_text_is_looked_at_once_for_long_numbers() -> None:
    data = b'{"messages": "' + b"1.5 e-" * (1 << 20) + b'"}'
    assert not may_round(data)
    assert num_calls(lambda: may_round(data)) < 10 + 2 * len(data) / exact_json.AT_ONCE


@pytest.mark.parametrize("number", ["1234567890123456", "-1.234567890123456", "1e-1000", "1E+9999"])
def test_long_numbers_are_found_wherever_a_text_is_cut(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_json, "AT_ONCE", 64)
    for before in range(80):
        assert exact_json.may_round(b'["%b", %b, 1, 2]' % (b"a" * before, number.encode()))
        assert not exact_json.may_round(b'["%b", 123456789012345, 1e99, 2]' % (b"a" * before))


@pytest.mark.parametrize("number", ["1e-99999999999999999999", "0e99999999999999999999", "0E10005", "1.5e-99999"])
def test_a_number_that_no_decimal_can_hold_is_read_if_a_float_can(number: str) -> None:
    assert loads(number) == loads(f"[{number}]")[0] == 0.0


def test_a_number_that_neither_can_hold_is_refused() -> None:
    for number in ("1e10000", "-1e99999999999999999999"):
        with pytest.raises(ValueError, match="is beyond 1e9999"):
            loads(number)
