"""Members with long numbers stay JSON at some paths, and nothing is rounded, wherever a number stands."""

import json
from collections.abc import Collection
from decimal import Decimal
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.exact_json import compact, loads, read
from ramet.runtime.intake.unread_json import ITEMS, MAX_LOOKS, Path, with_unread
from tests.fakes.effort import num_calls
from tests.fakes.samples import examples

LONG = "1.00000000000000001"
PATHS = ((ITEMS, "a"), (ITEMS, "b", ITEMS), ("c",), ("a", "b"))
NUMBERS = st.sampled_from([LONG, "12345678901234567890", "1.5", "7", "1e5", "-0.0", "2.50e-7", "0.1234567890123456"])


def texts_of(inner: "st.SearchStrategy[str]") -> "st.SearchStrategy[str]":
    lists = st.lists(inner, max_size=3).map(lambda parts: f"[ {', '.join(parts)}]")
    members = st.lists(st.tuples(st.sampled_from(['"a"', '"b"', '"c"']), inner), max_size=3)
    return lists | members.map(lambda parts: f"{{{', '.join(f'{name}: {part}' for name, part in parts)} }}")


TEXTS = st.recursive(NUMBERS | st.sampled_from(['"x"', f'"[{LONG}]"', "null"]), texts_of, max_leaves=20)


def partly_read(text: str, paths: Collection[Path] = ((),)) -> Any:
    return with_unread(orjson.loads(text), text.encode(), paths)


def all_read(value: Any) -> Any:
    """A value without anything unread."""
    value = read(value)
    if isinstance(value, dict):
        return {name: all_read(each) for name, each in value.items()}
    return [all_read(each) for each in value] if isinstance(value, list) else value


@given(TEXTS)
@examples(200, 5000)
def test_numbers_are_exact_wherever_they_stand(text: str) -> None:
    for paths in (PATHS, ((),), ()):
        found = all_read(partly_read(text, paths))
        assert repr(found) == repr(loads(text))


@given(TEXTS)
@examples(100, 2000)
def test_compact_json_has_the_same_numbers(text: str) -> None:
    unread = partly_read(text)
    kept = {"parse_float": Decimal}
    assert json.loads(compact(unread), **kept) == json.loads(compact(loads(text)), **kept)


def test_numbers_that_are_only_written_again_stay_as_they_are_spelt() -> None:
    spelt = f"[{LONG},1.50,-0.0,{'1' * 400}.5]"
    assert compact(msgspec.Raw(spelt.encode())) == spelt
    numbers = msgspec.Raw(f"[{','.join([LONG] * 1000)}]".encode())
    compact(numbers)
    assert num_calls(lambda: compact(numbers)) < 4500
    with pytest.raises(ValueError, match="is beyond 1e9999"):
        compact(msgspec.Raw(b"[1e99999]"))


def test_members_with_long_numbers_stay_json() -> None:
    found = partly_read(f'[{{"a":{{"b":[{LONG}],"c":[1.5]}},"c":{LONG}}}]', PATHS)
    assert isinstance(found[0]["a"]["b"], msgspec.Raw)
    assert found[0]["a"]["c"] == [1.5]
    assert found[0]["c"] == Decimal(LONG)


@pytest.mark.parametrize("num", [1, MAX_LOOKS + 1])
def test_many_values_are_read_at_once(num: int) -> None:
    one = f'{{"a":{{"b":{LONG}}}}}'
    text = f"[{','.join([one] * num)}]"
    assert all_read(partly_read(text, PATHS)) == [{"a": {"b": Decimal(LONG)}}] * num
    assert num_calls(lambda: partly_read(text, PATHS)) < 12 * (num + MAX_LOOKS)
