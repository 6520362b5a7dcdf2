"""JSON that is parsed in pieces has the value, or the error, that it has when it is parsed at once."""

from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.intake import json_pieces
from tests.fakes.samples import examples

PIECES = pytest.mark.parametrize("piece", [1, 7, 40])


class Members(tuple[Any, ...]):
    """Of an object, in which keys may stand several times."""


KEYS = st.sampled_from(["", "a", "b", '"', "\\", "a long name of a key"])
SCALARS = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(alphabet='[]{},:"\\aé\U0001f600 ')
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=6) | st.lists(st.tuples(KEYS, inner), max_size=5).map(Members),
    max_leaves=30,
)


def written(value: Any, space: str) -> str:
    match value:
        case Members():
            members = (f"{space}{orjson.dumps(k).decode()}{space}:{space}{written(v, space)}" for k, v in value)
            return "{" + f"{space},".join(members) + space + "}"
        case list():
            return "[" + f"{space},".join(space + written(each, space) for each in value) + space + "]"
    return orjson.dumps(value).decode()


def outcome(parse: Any, data: bytes) -> Any:
    try:
        value = parse(data)
    except orjson.JSONDecodeError as error:
        return error.msg, error.pos, error.doc
    return repr(value)  # with the order of the keys


def in_pieces(data: bytes, piece: int) -> Any:
    before = json_pieces.PIECE, json_pieces.FEW_MARKS
    json_pieces.PIECE, json_pieces.FEW_MARKS = piece, 0
    try:
        return json_pieces.loads(data, 1)
    finally:
        json_pieces.PIECE, json_pieces.FEW_MARKS = before


@PIECES
@given(value=VALUES, space=st.sampled_from(["", " ", "\n\t "]))
@examples(150, 3000)
def test_the_value_is_that_of_the_whole_text(piece: int, value: Any, space: str) -> None:
    data = written(value, space).encode()
    assert outcome(partial(in_pieces, piece=piece), data) == outcome(orjson.loads, data)


@PIECES
@given(value=VALUES, space=st.sampled_from(["", " "]), at=st.floats(0, 1), put=st.sampled_from(',"[]{}\\:1 \x01'))
@examples(150, 3000)
def test_what_is_no_json_is_refused_with_the_words_and_the_place_of_the_whole_text(
    piece: int, value: Any, space: str, at: float, put: str
) -> None:
    text = written(value, space)
    place = int(at * len(text))
    for data in (text[:place], text[:place] + put + text[place:], text[:place] + text[place + 1 :]):
        found = outcome(partial(in_pieces, piece=piece), data.encode())
        expected = outcome(orjson.loads, data.encode())
        assert isinstance(found, str) == isinstance(expected, str)
        assert found == expected or not isinstance(expected, str)


@PIECES
@pytest.mark.parametrize(
    "text",
    [
        "[1,,2]", "[1,]", "[,1]", "[1 ,{ ,}]", '{"a":1,}', '{"a":1,,"b":2}', '{,"a":1}', "[1,2", '{"a":[1,2',
        "[1,2]],3", "[1,2},3]", '[1,"a', "[1,2] x", "[[1,2],3", '{"a":1 "b":2,"c":3}', "[1,2,", "[[],[],[1,]]", "1,2",
        "[1e999,2]", "[1,         ]", "[1,{         ,}]", "[1,         ,2]",
    ],
)  # fmt: skip
def test_each_wrong_comma_and_bracket_is_refused_where_it_stands(text: str, piece: int) -> None:
    data = text.encode()
    expected = outcome(orjson.loads, data)
    assert outcome(partial(in_pieces, piece=piece), data) == expected and not isinstance(expected, str)


@PIECES
def test_bytes_that_are_no_text_are_refused_as_such(piece: int) -> None:
    data = b'["a", "b", "\xff", 1,,]'
    assert outcome(partial(in_pieces, piece=piece), data) == outcome(orjson.loads, data)


@PIECES
def test_an_object_that_comes_again_is_the_newest_one(piece: int) -> None:
    data = b'{"a": {"x": [1, 2]}, "b": {"x": [3]}, "a": {"x": [4, 5, 6, {"y": 7}]}, "c": 8}'
    assert repr(in_pieces(data, piece)) == repr(orjson.loads(data))
