"""A client's messages in one form: what is accepted, what is changed, and how each mistake is named."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.messages import ChatFields
from ramet.runtime.text import chat_messages

SOURCE = "{% for m in messages %}{% if m.role in ['ipython', \"critic\"] %}{{ m.content }}{% endif %}{% endfor %}"
USER = {"role": "user", "content": "Hi"}

TEXTS = st.sampled_from(
    ["", "a", "user", "assistant", "tool", "text", "function", "{}", '{"a": [1]}', '{"a": "\\ud800"}']
)
FIELDS = (
    *("role", "content", "type", "text", "refusal", "tool_calls", "function_call", "function", "name", "arguments"),
    *("id", "tool_call_id", "reasoning", "reasoning_content"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inside, max_size=4),
    max_leaves=12,
)
CALLS = st.lists(st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": TEXTS, "arguments": JSON})}))
MESSAGES = st.fixed_dictionaries(
    {"role": TEXTS, "content": TEXTS | JSON},
    optional={"tool_calls": CALLS | JSON, **dict.fromkeys(("reasoning", "name", "tool_call_id"), TEXTS | JSON)},
)


def normalise(messages: Any, source: str) -> list[dict[str, Any]]:
    """What comes of a chat that intake has checked."""
    convert({"messages": messages}, ChatFields)
    return chat_messages.normalise(messages, source)


def one(message: dict[str, Any], source: str = SOURCE) -> dict[str, Any]:
    return normalise([message], source)[0]


def refusal(*messages: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        normalise(list(messages), SOURCE)
    return caught.value


def calling(**call: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call]}


def arguments_of(sent: Any) -> Any:
    turn = one(calling(id="a", type="function", function={"name": "f", "arguments": sent}))
    return turn["tool_calls"][0]["function"]["arguments"]


def test_a_plain_conversation_stays_as_it_is() -> None:
    messages = [{"role": "system", "content": "S"}, {**USER, "name": "Ann"}, {"role": "assistant", "content": ""}]
    assert normalise(messages, SOURCE) == messages


def test_the_clients_messages_are_not_changed() -> None:
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "reasoning": "r", "function_call": {"name": "f", "arguments": "{}"}, "content": None},
    ]
    before = copy.deepcopy(messages)
    normalise(messages, SOURCE)
    assert messages == before


def test_developer_is_system_where_the_template_does_not_know_it() -> None:
    developer = {"role": "developer", "content": "S"}
    assert one(developer)["role"] == "system"
    assert one(developer, "{% if m['role'] == 'developer' %}")["role"] == "developer"
    assert one(developer, "{# a developer wrote this #}")["role"] == "system"


def test_roles_of_the_template_itself_pass() -> None:
    assert [one({"role": role, "content": "x"})["role"] for role in ("ipython", "critic")] == ["ipython", "critic"]


@pytest.mark.parametrize("role", ["bot", "", "User", None, 3, ["user"], "m", "content"])
def test_an_unknown_role_is_named_with_the_known_ones(role: Any) -> None:
    error = refusal(USER, {"role": role, "content": "x"})
    assert error.place == "messages[1].role"
    assert "must be one of system, developer, user, assistant, tool, function" in error.fact


@pytest.mark.parametrize("message", ["Hi", None, ["user", "Hi"]])
def test_a_message_must_be_an_object(message: Any) -> None:
    assert refusal(message).place == "messages[0]"


def test_text_parts_are_joined() -> None:
    parts = [
        {"type": "text", "text": "a"},
        {"type": "input_text", "text": "b "},
        {"type": "output_text", "text": ""},
        {"type": "refusal", "refusal": "c"},
    ]
    assert one({"role": "assistant", "content": parts})["content"] == "ab c"
    assert one({"role": "user", "content": []})["content"] == ""


@pytest.mark.parametrize("kind", ["input_file", "file", "document"])
def test_files_are_refused(kind: str) -> None:
    error = refusal({"role": "user", "content": [{"type": "text", "text": "see"}, {"type": kind, kind: {"url": "x"}}]})
    fact = f"is of type {kind!r}, but this feature is not built yet"
    assert (error.place, error.fact) == ("messages[0].content[1]", fact)


def test_what_stands_for_media_keeps_its_place_among_texts() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "image"}, {"type": "refusal", "refusal": "b"}]
    (turn,) = chat_messages.normalise([{"role": "user", "content": parts}], SOURCE)
    assert turn["content"] == [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ("a", "messages[0].content[0]"),
        ({"text": "a"}, "messages[0].content[0].type"),
        ({"type": 3}, "messages[0].content[0].type"),
        ({"type": "thought", "text": "a"}, "messages[0].content[0].type"),
        ({"type": "text"}, "messages[0].content[0].text"),
        ({"type": "text", "text": ["a"]}, "messages[0].content[0].text"),
        ({"type": "refusal", "text": "a"}, "messages[0].content[0].refusal"),
    ],
)
def test_a_part_of_a_wrong_shape_is_named(part: Any, place: str) -> None:
    assert refusal({"role": "user", "content": [part]}).place == place


@pytest.mark.parametrize("content", [3, {"type": "text", "text": "a"}, True])
def test_content_is_a_text_or_parts(content: Any) -> None:
    assert refusal({"role": "user", "content": content}).place == "messages[0].content"


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("message", [{}, {"content": None}])
def test_a_message_needs_content(role: str, message: dict[str, Any]) -> None:
    assert refusal({"role": role, **message}).place == "messages[0].content"


@pytest.mark.parametrize(
    "what",
    [
        {"tool_calls": [{"function": {"name": "f"}}]},
        {"function_call": {"name": "f"}},
        {"reasoning": "Hm"},
        {"reasoning_content": "Hm"},
    ],
)
def test_calls_or_reasoning_need_no_content_and_never_print_none(what: dict[str, Any]) -> None:
    assert one({"role": "assistant", "content": None, **what})["content"] == ""
    assert one({"role": "assistant", **what})["content"] == ""


def test_a_refusal_is_what_was_said() -> None:
    assert one({"role": "assistant", "content": None, "refusal": "No."})["content"] == "No."


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ('{"city": "Rome", "n": 1.0}', {"city": "Rome", "n": 1.0}),
        ({"city": "Rome"}, {"city": "Rome"}),
        (None, {}),
        ("", {}),
        (" ", {}),
        ("[1]", "[1]"),
        ('"Rome"', '"Rome"'),
        ('{"city": ', '{"city": '),
        ('{"a": "\\ud800"}', '{"a": "\\ud800"}'),
        ("[" * 100_000, "[" * 100_000),
        ('{"n": ' + "9" * 5000 + "}", '{"n": ' + "9" * 5000 + "}"),
    ],
)
def test_arguments_that_are_an_object_are_decoded(sent: Any, kept: Any) -> None:
    assert arguments_of(sent) == kept


def test_a_call_has_one_form() -> None:
    sent = {"id": "a", "index": 0, "type": None, "function": {"name": "f", "arguments": "{}"}}
    kept = {"id": "a", "index": 0, "type": "function", "function": {"name": "f", "arguments": {}}}
    assert one(calling(**sent))["tool_calls"] == [kept]


def test_no_calls_are_no_field() -> None:
    for none in ([], None):
        assert "tool_calls" not in one({"role": "assistant", "content": "x", "tool_calls": none})


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("f", ""),
        ({}, ".function"),
        ({"function": "f"}, ".function"),
        ({"function": {}}, ".function.name"),
        ({"function": {"name": ""}}, ".function.name"),
        ({"function": {"name": "f", "arguments": [1]}}, ".function.arguments"),
        ({"function": {"name": "f"}, "id": 3}, ".id"),
        ({"type": "custom", "custom": {"name": "f"}}, ".custom.input"),
        ({"type": "custom"}, ".function"),
        ({"type": "other", "function": {"name": "f"}}, ".type"),
    ],
)
def test_a_call_of_a_wrong_shape_is_named(call: Any, place: str) -> None:
    assert refusal(USER, {"role": "assistant", "tool_calls": [call]}).place == f"messages[1].tool_calls[0]{place}"


def test_a_call_of_a_custom_tool_has_its_input_as_an_argument() -> None:
    call = {"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}
    (made,) = one({"role": "assistant", "content": None, "tool_calls": [call]})["tool_calls"]
    assert made == {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"input": "x"}}}


def test_calls_are_a_list_in_an_assistant_message() -> None:
    assert refusal({"role": "assistant", "tool_calls": {"name": "f"}}).place == "messages[0].tool_calls"
    assert refusal({**USER, "tool_calls": []}).place == "messages[0].tool_calls"
    assert refusal({"role": "assistant", "function_call": "f"}).place == "messages[0].function_call"


def test_the_older_call_and_its_result_become_the_newer() -> None:
    turns = normalise(
        [
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}},
            {"role": "function", "name": "f", "content": "2"},
        ],
        SOURCE,
    )
    function = {"name": "f", "arguments": {"a": 1}}
    assert turns == [
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "name": "f", "content": "2"},
    ]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "thinking"])
def test_reasoning_has_one_name(name: str) -> None:
    turn = one({"role": "assistant", "content": "x", name: "Hm"})
    assert turn == {"role": "assistant", "content": "x", "reasoning_content": "Hm"}
    assert refusal({"role": "assistant", "content": "x", name: ["Hm"]}).place == f"messages[0].{name}"


def test_a_result_gets_the_name_of_its_call() -> None:
    turns = normalise(
        [
            {"role": "tool", "tool_call_id": "b", "content": "too early"},
            calling(id="a", function={"name": "f"}),
            calling(id="b", function={"name": "g"}),
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "name": "mine", "content": "2"},
            {"role": "tool", "tool_call_id": "c", "content": "3"},
            {"role": "tool", "content": "4"},
        ],
        SOURCE,
    )
    assert [turn.get("name") for turn in turns if turn["role"] == "tool"] == [None, "f", "mine", None, None]
    assert turns[3]["tool_call_id"] == "a"


@pytest.mark.parametrize("name", ["name", "tool_call_id"])
def test_names_are_texts(name: str) -> None:
    assert refusal({"role": "tool", "content": "x", name: 3}).place == f"messages[0].{name}"


@examples(100, 2000)
@given(st.lists(MESSAGES | JSON, min_size=1, max_size=4))
def test_whatever_comes_is_refused_or_in_one_form(messages: list[Any]) -> None:
    try:
        turns = normalise(messages, SOURCE)
    except ClientError as error:
        error.fact.encode()
        assert error.place.startswith("messages[")
        return
    assert len(turns) == len(messages)
    for turn in turns:
        assert isinstance(turn["role"], str) and isinstance(turn["content"], str)
        assert all(call["function"]["name"] for call in turn.get("tool_calls", ()))
    assert normalise(turns, SOURCE) == turns
