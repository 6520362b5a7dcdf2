"""When the demo model's evaluation counts an answer as right, and what its table says of a missed target."""

from collections.abc import Callable

import pytest

from scripts.demo_model.cases import Case, Reply, all_cases, first_lines, same_shape, says, shaped_like, starts_with
from scripts.demo_model.evaluate import Answers, table
from scripts.demo_model.vocabulary import END_OF_TURN

RECORD = {"name": "Ada", "age": 3, "tags": ["x"], "at": {"city": "Rome"}, "pet": None}


def reply(text: str, ended_by: int | None = None) -> Reply:
    return Reply(text, ended_by)


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (starts_with("Paris"), [" Paris.", "Paris", " Paris\nQuestion"], [" Parisian", "The Paris", ""]),
        (starts_with("95"), [" 95", " 95, then"], [" 951", " 9", " 95.5", " 95,000"]),
        (says("Ada"), ["It is Ada.", "Ada", "Ada's"], ["It is Adam.", "Canada", ""]),
        (says("6:00"), ["At 6:00.", "6:00, I think"], ["At 16:00.", "6:005"]),
        (first_lines(" lamp"), [" lamp", " lamp\n\nText: more"], [" lamp post", " lamps", "", " a\nlamp"]),
    ],
)
def test_what_counts_as_the_answer(check: Callable[[Reply], bool], right: list[str], wrong: list[str]) -> None:
    assert all(check(reply(text)) for text in right)
    assert not any(check(reply(text)) for text in wrong)


def test_a_shape_is_keys_and_types() -> None:
    assert same_shape(RECORD | {"name": "Bob", "age": 70, "tags": [], "at": {"city": ""}}, RECORD)
    for wrong in ({"age": "3"}, {"age": True}, {"tags": "x"}, {"tags": [1]}, {"at": {}}, {"pet": "cat"}, {"more": 1}):
        assert not same_shape(RECORD | wrong, RECORD), wrong
    assert not same_shape({"name": "Ada"}, RECORD)
    right = shaped_like({"a": 1})
    assert right(reply(' {"a": 7}\nmore')) and not right(reply('{"a": 7')) and not right(reply("none"))


def test_the_table_marks_a_missed_target_and_fails() -> None:
    row = "recall in turn three"
    cases = [Case(row, "p", starts_with("yes"), 4, ())] * 10
    good, bad = [reply("yes")] * 10, [reply("yes")] * 8 + [reply("no")] * 2
    lines, passed = table(cases, {row: 0.9}, [Answers("bfloat16", good, 1.0)])
    assert passed and "10/10" in lines[1] and "!" not in lines[1]
    lines, passed = table(cases, {row: 0.9}, [Answers("bfloat16", bad, 1.0)])
    assert not passed and "8/10" in lines[1] and "!" in lines[1]


def test_two_dtypes_that_answer_differently_fail() -> None:
    cases = [Case("seen only", "p", starts_with("yes"), 4, ())] * 10
    one = Answers("bfloat16", [reply("yes")] * 10, 1.0)
    other = Answers("float32", [reply("yes")] * 9 + [reply("yes, too")], 1.0)
    lines, passed = table(cases, {}, [one, other])
    assert not passed and "9/10 90.0%" in lines[-2]


def test_a_chat_turn_ends_by_its_token_alone() -> None:
    case = next(case for case in all_cases() if case.row == "chat turns that end")
    assert case.is_right(reply("anything", END_OF_TURN)) and not case.is_right(reply("anything", None))


def test_the_cases_are_the_same_at_every_call_and_enough() -> None:
    rows = [case.row for case in all_cases()]
    assert [case.prompt for case in all_cases()] == [case.prompt for case in all_cases()]
    assert rows.count("labels from five shots") >= 300 and rows.count("sums of two digits") >= 300
    assert rows.count("capitals, three phrasings") >= 450
