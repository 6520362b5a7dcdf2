"""A chat of thousands of turns, items or pieces costs few calls of functions for each of them."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.chat import Style, _check_arguments, arguments_in, chosen_chat, write_chat
from ramet.runtime.intake.limits import MAX_TOOLS
from ramet.runtime.intake.media import taken_out, with_sources
from ramet.runtime.intake.other_tools import without_others
from ramet.runtime.server.anthropic import chat as anthropic
from ramet.runtime.server.openai.responses_chat import ResponsesBody, items_to_store, messages_in, read_chat, with_items
from ramet.runtime.server.openai.scores import ScoreBody, _label_scores, _pairs
from ramet.runtime.server.openai.types import ChatBody
from ramet.runtime.text.chat_messages import normalise
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.fit_turns import fitted
from ramet.runtime.text.template_files import TemplateSources
from ramet.runtime.text.template_rules import TemplateRules
from tests.fakes.effort import num_bytes, num_calls

NUM = 5000
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
STYLE = Style(has_template=True)
USER = {"role": "user", "content": "Hello"}
TURNS = {"messages": [USER, {"role": "assistant", "content": "Hi"}] * (NUM // 2)}
USERS = {"messages": [USER] * NUM}
PIECES = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * NUM}]}
PIECE_TURNS = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}] * NUM}
ITEMS = {"input": TURNS["messages"]}
PARTS = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}] * NUM}]}
TOOLS = {"tools": [{"type": "function", "function": {"name": "f"}}] * NUM}
OTHER_TOOLS = {"tools": [{"type": f"fonction{i}"} for i in range(NUM)]}


CALL = {"function": {"name": "f", "arguments": '{"a": 1}'}}
CALLS = {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}] * NUM}
CALL_ITEMS = {
    "input": [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "a"},
    ]
    * NUM
}
CALL_BLOCKS = {
    "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a"}]},
    ]
    * (NUM // 2)
}
SHELL_OUTPUT = {"input": [{"type": "shell_call_output", "call_id": "c", "output": [{"a": 1}] * NUM}]}
CODE_OUTPUT = {"input": [{"type": "code_interpreter_call", "id": "c", "outputs": [{"a": 1}] * NUM}]}
SHELL_OUTPUTS = {"input": [{"type": "shell_call_output", "call_id": "c", "output": [{"a": 1}]}] * NUM}
CODE_OUTPUTS = {"input": [{"type": "code_interpreter_call", "id": "c", "outputs": [{"logs": "x"}, {"a": 1}]}] * NUM}
PICTURE = {"type": "image_url", "image_url": {"url": "x"}}
PICTURES = {"messages": [{"role": "user", "content": [PICTURE] * NUM}]}


def read_messages(written: dict[str, Any]) -> None:
    body = convert(written, ChatBody)
    sourced = with_sources(written, body)
    chat, _ = chosen_chat(sourced, None, STYLE, (), parallel=True)
    write_chat(chat, {}, has_media=sourced is not written)


def read_items(written: dict[str, Any]) -> None:
    sent = with_items(written)
    body = convert(sent, ResponsesBody)
    said = messages_in(body.input)
    chat, _ = read_chat(body, said, STYLE)
    write_chat(chat, {}, has_media=said.has_media, arguments=said.arguments)


def store_items(written: dict[str, Any]) -> None:
    items_to_store(written)


def read_turns(written: dict[str, Any]) -> None:
    chat, _ = anthropic.read_chat(convert(written, anthropic.CountBody), STYLE)
    taken_out(chat.messages, {})


def read_tools(written: dict[str, Any]) -> None:
    without_others({**written, "tool_choice": "none"}, schema="function")  # any number of them is allowed then


def made_ready(written: dict[str, Any]) -> None:
    """What is done with a chat before its template sees it."""
    rules = TemplateRules(lambda turns: Chats(TemplateSources(TEMPLATE))._template.render(turns, None))
    fitted(normalise(written["messages"], TEMPLATE), rules)


def count_arguments(written: dict[str, Any]) -> None:
    _check_arguments(arguments_in(written["messages"]), "messages")


def read_pictures(written: dict[str, Any]) -> None:
    with_sources(written, convert(written, ChatBody))


class Cost(NamedTuple):
    act: Callable[[dict[str, Any]], None]
    written: dict[str, Any]
    most: int  # calls for each turn, item or piece


@pytest.mark.parametrize(
    "cost",
    [
        Cost(read_messages, TURNS, 1),
        Cost(read_messages, USERS, 1),
        Cost(read_messages, CALLS, 6),
        Cost(read_messages, PIECES, 1),
        Cost(read_messages, PIECE_TURNS, 2),
        Cost(read_items, ITEMS, 2),
        Cost(read_items, PARTS, 1),
        Cost(read_items, CALL_ITEMS, 5),
        Cost(read_items, SHELL_OUTPUT, 0),
        Cost(read_items, CODE_OUTPUT, 3),
        Cost(read_items, SHELL_OUTPUTS, 8),
        Cost(read_items, CODE_OUTPUTS, 17),
        Cost(store_items, ITEMS, 4),
        Cost(store_items, CALL_ITEMS, 2),
        Cost(read_pictures, PICTURES, 18),
        Cost(count_arguments, CALLS, 4),
        Cost(read_turns, TURNS, 4),
        Cost(read_turns, PIECES, 1),
        Cost(read_turns, CALL_BLOCKS, 12),
        Cost(read_tools, TOOLS, 4),
        Cost(read_tools, OTHER_TOOLS, 16),
        Cost(made_ready, TURNS, 5),
        Cost(made_ready, USERS, 5),
        Cost(made_ready, CALLS, 63),
    ],
)
def test_each_turn_costs_few_calls(cost: Cost) -> None:
    cost.act(cost.written)  # what is made once is made
    assert num_calls(lambda: cost.act(cost.written)) < cost.most * NUM + 3000


@pytest.mark.parametrize("choice", [None, "auto", "required"])
def test_tools_are_counted_before_they_are_checked(choice: str | None) -> None:
    with pytest.raises(ClientError, match=f"tools has {MAX_TOOLS + 1} entries"):
        without_others({"tools": [{"type": "function"}] * (MAX_TOOLS + 1), "tool_choice": choice})


THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "b"}]}
LONG_THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a" * 100_000}]}


def test_a_long_thought_is_not_copied_for_each_that_follows() -> None:
    written = {"input": [LONG_THOUGHT, *[THOUGHT] * 200, USER]}
    assert num_bytes(lambda: read_items(written)) < 20 * 100_000


def test_pairs_of_texts_are_counted_before_they_are_paired() -> None:
    body = convert({"text_1": "q", "text_2": ["x"] * 100_000}, ScoreBody)

    def refused() -> None:
        with pytest.raises(ClientError, match="text_2 asks for 100000 sequences"):
            _pairs(body)

    assert num_calls(refused) < 1000


def test_items_to_score_are_counted_before_their_bytes_are() -> None:
    body = convert({"query": "q", "items": ["x"] * 100_000, "label_token_ids": [1]}, ScoreBody)

    def refused() -> None:
        with pytest.raises(ClientError, match="items asks for 100000 sequences"):
            asyncio.run(_label_scores(None, None, "", "", body))  # type: ignore[arg-type]

    assert num_calls(refused) < 2000
