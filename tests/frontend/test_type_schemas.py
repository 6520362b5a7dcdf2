"""Types as `json_schema`: whatever the runtime draws under a type's schema is read as a value of the type."""

import datetime
import decimal
import enum
import typing
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import pytest

from ramet import LLM, gen
from ramet.frontend.values import wanted_schema


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Event:
    at: datetime.datetime
    until: datetime.time | None
    colors: set[Color]
    more: list["Event"] = field(default_factory=list)


class Meeting(msgspec.Struct, tag="meeting"):
    at: datetime.datetime
    lasts: datetime.timedelta


class Price(msgspec.Struct, tag="price", rename="upper"):
    value: decimal.Decimal


class Row(msgspec.Struct, array_like=True, tag=True):
    at: datetime.time
    counts: dict[int, int]


class Pair(typing.NamedTuple):
    at: datetime.datetime
    days: dict[Literal["a", "b"], datetime.timedelta]


class Named(typing.TypedDict):
    at: datetime.datetime | int | None


READ = [
    datetime.date,
    datetime.datetime,
    Annotated[datetime.datetime, msgspec.Meta(tz=True)],
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
    bytes,
    set[int],
    frozenset[str],
    dict[int, str],
    dict[Color, int],
    dict[Literal["a", "b"], list[datetime.time]],
    dict[str, datetime.time],
    tuple[datetime.time, int],
    tuple[datetime.timedelta, ...],
    Event,
    list[Meeting],
    Meeting | Price,
    Meeting | Price | int | None,
    Price | datetime.datetime | None,
    Row,
    Pair,
    Named,
]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_total_tokens=32768) as llm:
        yield llm


@pytest.mark.parametrize("kind", READ, ids=str)
def test_what_is_drawn_is_read(kind: Any, llm: LLM):
    wanted = wanted_schema(kind)
    params = {"temperature": 1.0, "n": 40, "max_new_tokens": 160, "json_schema": wanted.held.value, "sampling_seed": 7}
    replies = llm.generate("Value: ", params)
    ended = [reply["text"] for reply in replies if reply["meta_info"]["finish_reason"]["type"] != "length"]
    assert len(ended) >= 5, replies[0]
    assert wanted.read is not None
    for text in ended:
        wanted.read(text)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (dict[float, int], "such keys of a dict: float"),
        (list[dict[datetime.date, int]], "such keys of a dict: date"),
        (dict[Annotated[str, msgspec.Meta(pattern="^a")], int], "such keys of a dict: str"),
        (dict[Annotated[int, msgspec.Meta(ge=0)], int], "such keys of a dict: int"),
        (dict[Literal[1, 2], int], "such keys of a dict: literal"),
        (Annotated[datetime.datetime, msgspec.Meta(tz=False)], "a datetime without a time zone"),
        (Annotated[datetime.time, msgspec.Meta(tz=False)], "a time without a time zone"),
        (Annotated[set[int], msgspec.Meta(min_length=2)], "a set of at least 2"),
        (Annotated[bytes, msgspec.Meta(max_length=2)], "bytes of some length"),
        (complex, "custom types"),
    ],
)
def test_a_type_that_outputs_cannot_be_kept_to_is_refused_at_its_line(kind: Any, words: str):
    with pytest.raises(ValueError, match=f"^json_schema is .*, of which no JSON schema can be made: .*{words}"):
        gen("x", json_schema=kind)
