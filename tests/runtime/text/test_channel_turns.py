"""A history of GPT-OSS is written on its channels again: thoughts and texts beside calls, several calls."""

import json
from typing import Any

import pytest

from ramet.ipc.messages import Chat
from ramet.runtime.text.channel_turns import with_texts_in_thoughts
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.template_files import TemplateSources

# how the family's own template treats these turns
TEMPLATE = """{%- set called = namespace(name=none) %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- if "tool_calls" in message %}
            {%- set later = namespace(answer=false) %}
            {%- for other in messages[loop.index:] if other.role == 'assistant' and "tool_calls" not in other %}
                {%- set later.answer = true %}
            {%- endfor %}
            {%- set call = message.tool_calls[0].function %}
            {%- if message.content and message.thinking %}
                {{- raise_exception("content and thinking beside tool calls") }}
            {%- elif not later.answer and (message.content or message.thinking) %}
                {{- "<|start|>assistant<|channel|>analysis<|message|>" }}
                {{- (message.content or message.thinking) + "<|end|>" }}
            {%- endif %}
            {{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json<|message|>" }}
            {{- call.arguments | tojson }}{{- "<|call|>" }}
            {%- set called.name = call.name %}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
            {%- set called.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' %}
        {%- if called.name is none %}{{- raise_exception("a result without a call") }}{%- endif %}
        {{- "<|start|>functions." + called.name + " to=assistant<|channel|>commentary<|message|>" }}
        {{- message.content | tojson }}{{- "<|end|>" }}
    {%- elif message.role == 'user' %}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}
"""
USER = {"role": "user", "content": "Both?"}
TOOL = {"type": "function", "function": {"name": "warmth", "parameters": {"type": "object"}}}
THOUGHT, CALL = (
    "<|start|>assistant<|channel|>analysis<|message|>{}<|end|>",
    (
        '<|start|>assistant to=functions.warmth<|channel|>commentary json<|message|>{{"of": "{}"}}<|call|>'
        '<|start|>functions.warmth to=assistant<|channel|>commentary<|message|>"{}"<|end|>'
    ),
)


def called(*cities: str, **said: Any) -> list[dict[str, Any]]:
    """A turn with calls, and their results."""
    calls = [
        {"id": city, "type": "function", "function": {"name": "warmth", "arguments": json.dumps({"of": city})}}
        for city in cities
    ]
    results = [{"role": "tool", "tool_call_id": city, "content": city.lower()} for city in cities]
    return [{"role": "assistant", "content": None, **said, "tool_calls": calls}, *results]


@pytest.mark.parametrize(("turns", "shown"), [
    (called("Rome"), CALL.format("Rome", "rome")),
    (called("Rome", reasoning="Ask."), THOUGHT.format("Ask.") + CALL.format("Rome", "rome")),
    (called("Rome", content="Wait."), THOUGHT.format("Wait.") + CALL.format("Rome", "rome")),
    (called("Rome", content="Wait.", reasoning="Ask."), THOUGHT.format("Ask.\n\nWait.") + CALL.format("Rome", "rome")),
    (
        called("Rome", "Oslo", content="Wait.", reasoning="Ask."),
        THOUGHT.format("Ask.\n\nWait.") + CALL.format("Rome", "rome") + CALL.format("Oslo", "oslo"),
    ),
    (
        [*called("Rome", reasoning="Ask."), {"role": "assistant", "content": "Warm.", "reasoning": "So."}, USER],
        CALL.format("Rome", "rome") + "<|start|>assistant<|channel|>final<|message|>Warm.<|end|>"
        "<|start|>user<|message|>Both?<|end|>",
    ),
])  # fmt: skip
def test_a_history_goes_back_to_its_channels(turns: list[dict[str, Any]], shown: str) -> None:
    chats = Chats(TemplateSources(default=TEMPLATE))
    text = chats.render(Chat([USER, *turns], [TOOL]))
    assert text == f"<|start|>user<|message|>Both?<|end|>{shown}<|start|>assistant"


def test_what_was_said_beside_a_call_before_an_answer_is_still_there() -> None:
    turns = [USER, *called("Rome", content="Wait.", reasoning="Ask."), {"role": "assistant", "content": "Warm."}, USER]
    text = Chats(TemplateSources(default=TEMPLATE)).render(Chat(turns, [TOOL]))
    assert "final<|message|>Wait.<|end|>" in text and "Ask." not in text


def test_turns_for_other_templates_stay_as_they_are() -> None:
    turns = called("Rome", content="Wait.", reasoning="Ask.")
    assert with_texts_in_thoughts(turns, "{{ messages }}") is turns
