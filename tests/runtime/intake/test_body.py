"""What is too deep agrees with a walk over the parsed value, and what is of the wrong type is named."""

from typing import Annotated, Any, Literal

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.body_items import nests_deeper
from ramet.runtime.intake.limits import MAX_DEPTH
from tests.fakes.bodies import parsed

VALUES = st.recursive(
    st.none() | st.integers(-5, 5) | st.text('[]{}"\\ab', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=3), inner, max_size=3),
    max_leaves=30,
)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(VALUES, st.integers(0, 6))
def test_what_nests_deeper_agrees_with_a_walk(value: Any, levels: int) -> None:
    assert nests_deeper(levels, orjson.dumps(value)) == (depth(value) > levels)


def nested(levels: int) -> bytes:
    return b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


def test_the_limit_itself_is_accepted() -> None:
    assert depth(parsed(nested(MAX_DEPTH))) == MAX_DEPTH
    with pytest.raises(ClientError, match="64 levels"):
        parsed(nested(MAX_DEPTH + 1))


def test_brackets_within_text_are_no_depth() -> None:
    assert parsed(orjson.dumps({"text": "[" * 1000 + '\\"' + "{" * 1000}))


def test_a_syntax_error_shows_where() -> None:
    with pytest.raises(ClientError, match="temperature"):
        parsed(b'{"text": "\xc3\xa4\xc3\xb6", "sampling_params": {"temperature": NaN}}')


@pytest.mark.parametrize(("body", "place", "number"), [
    ('{"temperature": 1e400}', "temperature", "1e400"),
    ('{"text": "\u00e4", "sampling_params": {"top_p": -1E+999, "n": 1}}', "sampling_params.top_p", "-1E+999"),
    ('{"text": "1e400", "tools": [{}, {"x": [1, 1.8e308]}]}', "tools[1].x[1]", "1.8e308"),
    ('{"a": ' + '{"a": ' * 20 + "1e400" + "}" * 21, ".".join("a" * 8), "1e400"),
    (f'{{"seed": {"9" * 400}}}', "seed", "9" * 77 + "..."),
    ('{"tools": [{"a b": 1e400}]}', "tools[0]", "1e400"),
    ('{"x": [' + "0, " * 30_000 + "1e400]}", "x", "1e400"),
    (f'{{"{"k" * 100}": 1e400}}', "body", "1e400"),
    ('{"text": 1e400, "text": "a"}', "body", "1e400"),
    ('{"text": 1e400, ', "body", "1e400"),
    ("[1e400]", "[0]", "1e400"),
])  # fmt: skip
def test_a_number_beyond_float64_is_shown_with_its_place_and_position(body: str, place: str, number: str) -> None:
    with pytest.raises(ClientError) as caught:
        parsed(body.encode())
    at = 9 if number.endswith("...") else body.rindex(number)
    assert caught.value.place == place and caught.value.status == 400
    assert caught.value.fact == (
        f"has the number {number} at character {at} of the body, must be in [-1.7976931348623157e308, "
        "1.7976931348623157e308]"
    )


class Tool(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")]
    count: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Cat(msgspec.Struct, tag_field="kind", tag="cat"):
    lives: Annotated[int, msgspec.Meta(ge=0, le=9)]


class Dog(msgspec.Struct, tag_field="kind", tag="dog"):
    lives: str


class Body(msgspec.Struct):
    tools: list[Tool]
    pet: Cat | Dog | Literal["none"] | None = None
    pets: list[Cat | Dog] = []
    words: Annotated[str, msgspec.Meta(max_length=3)] | Annotated[list[str], msgspec.Meta(min_length=1)] = "a"


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        ({}, "tools", "tools is missing"),
        ({"tools": [{"name": "a"}, {}]}, "tools[1].name", "tools[1].name is missing"),
        ({"tools": [{"name": "A b"}]}, "tools[0].name", "'A b', must be a string matching regex '^[a-z]+$'"),
        ({"tools": [{"name": "a", "count": 0}]}, "tools[0].count", "is 0, must be an integer >= 1"),
        ({"tools": [{"name": "a", "count": "x"}]}, "tools[0].count", "is 'x', must be an integer"),
        ({"tools": 5}, "tools", "is 5, must be a list"),
        ({"tools": ["a"]}, "tools[0]", "is 'a', must be an object with name"),
        ({"tools": [], "pet": "some"}, "pet", "is 'some', must be an object with kind or 'none'"),
        ({"tools": [], "pet": {"kind": "cow"}}, "pet.kind", "is 'cow', must be 'cat' or 'dog'"),
        ({"tools": [], "pet": {}}, "pet.kind", "is missing, must be 'cat' or 'dog'"),
        ({"tools": [], "pets": [{"kind": "cat", "lives": 10}]}, "pets[0].lives", "is 10, must be an integer in [0, 9]"),
        ({"tools": [], "pets": [{"kind": "dog", "lives": 1}]}, "pets[0].lives", "is 1, must be a string"),
        ({"tools": [], "pets": [{"kind": "cat", "lives": 10**30}]}, "pets[0].lives", "must be an integer in [0, 9]"),
        ({"tools": [], "words": "abcd"}, "words", "has 4 characters, must be a string of at most 3 characters"),
        ({"tools": [], "words": []}, "words", "is [], must not be empty: at least one entry"),
        ({"tools": [], "words": [5]}, "words[0]", "is 5, must be a string"),
    ],
)
def test_a_wrong_field_is_named_wherever_it_is(body: Any, place: str, message: str) -> None:
    with pytest.raises(ClientError) as caught:
        convert(body, Body)
    assert caught.value.place == place and message in str(caught.value)
