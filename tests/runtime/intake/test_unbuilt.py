"""What is not built is refused from the field's own marker, wherever it stands; what asks for nothing is taken."""

from typing import Annotated, Any

import msgspec
import pytest

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import Checked, UnbuiltType, convert
from ramet.runtime.intake.fields import unbuilt


class Picture(UnbuiltType, frozen=True, tag="picture"):
    pass


class Words(msgspec.Struct, frozen=True, tag_field="type", tag="words"):
    text: str


class Inner(Checked, frozen=True):
    form: Annotated[str | None, unbuilt("a form", neutral=("", "plain"))] = None


class Body(Checked, frozen=True):
    parts: list[Words | Picture] | None = None
    inner: Inner | list[Inner | None] | None = None
    count: Annotated[int | list[int | None] | None, unbuilt("a count", neutral=(0,), hint="leave it", code="no")] = None
    free: Annotated[Any, unbuilt("anything", neutral=(False,))] = None


def refusal(body: dict[str, Any]) -> ClientError:
    with pytest.raises(ClientError) as caught:
        convert(body, Body)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        {"count": 0}, {"count": None}, {"count": []}, {"count": [0, None, 0]}, {"free": False}, {"free": None},
        {"inner": {"form": "plain"}}, {"inner": [None, {"form": ""}, {}]}, {"parts": [{"type": "words", "text": "a"}]},
    ],
)  # fmt: skip
def test_what_asks_for_nothing_is_taken(body: dict[str, Any]) -> None:
    convert(body, Body)


@pytest.mark.parametrize(
    ("body", "place", "shown"),
    [
        ({"count": 3}, "count", "is 3"),
        ({"count": [0, 3]}, "count", "is [0, 3]"),
        ({"free": 0}, "free", "is 0"),
        ({"inner": {"form": "x"}}, "inner.form", "is 'x'"),
        ({"inner": [None, {"form": "x"}]}, "inner[1].form", "is 'x'"),
    ],
)
def test_any_other_value_is_refused_where_it_stands(body: dict[str, Any], place: str, shown: str) -> None:
    error = refusal(body)
    assert error.place == place and error.fact == f"{shown}, but this feature is not built yet"


def test_a_type_that_is_not_built_is_refused_by_its_name_and_not_offered() -> None:
    error = refusal({"parts": [{"type": "words", "text": "a"}, {"type": "picture", "url": "x"}]})
    assert (error.place, error.fact) == ("parts[1]", "is of type 'picture', but this feature is not built yet")
    assert refusal({"parts": [{"type": "song"}]}).fact == "is 'song', must be 'words'"


def test_a_marker_says_the_way_out() -> None:
    error = refusal({"count": 3})
    assert (error.hint, error.code) == ("leave it", "no")
