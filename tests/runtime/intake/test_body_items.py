"""A body's keys, entries, lists and objects are counted as a parser would, whatever its strings hold."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.errors import ClientError
from ramet.runtime.intake import body_items
from ramet.runtime.intake.body_items import ItemCount
from ramet.runtime.intake.limits import KEYS_SHARE, OPENED_SHARE
from tests.fakes.samples import examples

TEXTS = st.text(alphabet='[]{},:"\\aé', max_size=12)
VALUES = st.recursive(
    st.none() | st.integers(-5, 5) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def is_refused(data: bytes, most: int, pieces: int = 7) -> bool:
    count = ItemCount(most)
    for start in range(0, len(data), pieces):
        count.add(data[start : start + pieces])
    try:
        count.check(data)
    except ClientError as error:
        assert error.place == "body" and "--max-body-items" in error.hint
        return True
    return False


def num_commas(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return max(0, len(inner) - 1) + sum(map(num_commas, inner))


@pytest.mark.parametrize("at_once", [1, 5])
@given(value=VALUES)
@examples(40, 1000)
def test_entries_are_counted_outside_of_strings_wherever_the_body_is_cut(at_once: int, value: Any) -> None:
    data = orjson.dumps(value)
    before, body_items.AT_ONCE = body_items.AT_ONCE, at_once
    try:
        texts = orjson.dumps(["[{,:" * 50, value])  # its text alone is more than any bound
        for most in {num_commas(value), max(0, num_commas(value) - 1)}:
            body = texts if most else data
            expected = num_commas(value) + (body is texts) > most
            count = ItemCount(1 << 20)
            count._bounds = ((b"", "", 1 << 30), (b",", "entries of lists and objects", most), (b"", "", 1 << 30))
            count._most_strings = 1 << 30
            count.add(body)
            try:
                count.check(body)
            except ClientError:
                assert expected
            else:
                assert not expected
    finally:
        body_items.AT_ONCE = before


@pytest.mark.parametrize(("piece", "share"), [(b"1,", 1), (b'"a":1,', KEYS_SHARE), (b"[],", OPENED_SHARE)])
def test_each_bound_is_a_share_of_the_option(piece: bytes, share: int) -> None:
    most = 1 << 12
    number = most // share
    assert not is_refused(piece * (number - 1), most)
    assert is_refused(piece * (number + 1), most)


@pytest.mark.parametrize("text", [b"\\" * 2, b'\\"', b"[{,:", b"a"])
def test_strings_hold_what_they_like(text: bytes) -> None:
    body = b'{"a": "' + text * (body_items.AT_ONCE // 2) + b'", "b": [1]}'
    assert not is_refused(body, 1 << 12, 1 << 16)


@pytest.mark.parametrize("at_once", [2, 3, 5])
@pytest.mark.parametrize("text", [b" 12,-3, 4e-5 ,[6,+7]", b" -1,-2,-3,-4,-5,-6", b" 1.5,22,333,4444 ,5"])
def test_numbers_are_counted_once_wherever_a_text_is_cut(
    text: bytes, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = body_items._num_tokens(text)
    monkeypatch.setattr(body_items, "AT_ONCE", at_once)
    assert body_items._num_tokens(text) == whole


@pytest.mark.parametrize("at_once", [1, 2, 7])
def test_brackets_are_those_outside_of_strings_wherever_a_text_is_cut(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_items, "AT_ONCE", at_once)
    assert body_items.brackets_in(b'[{"a]": "\\"{", "\\\\": ["}"]}, {"[": "\\\\\\"]"}]') == b"[{[]}{}]"
