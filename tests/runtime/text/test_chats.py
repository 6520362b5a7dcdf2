"""Chats as the tokenizer process gets them: from JSON to text, by the right template, or refused."""

import msgspec
import pytest

from ramet.ipc.messages import Chat
from ramet.runtime.errors import ClientError
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.template_files import TemplateSources

SOURCE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ '[assistant]' if add_generation_prompt }}"
TOOLS = "tools: {{ tools | length }}"
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def render(chat: Chat, **sources: str) -> str:
    named = {"tool_use": sources["tool_use"]} if "tool_use" in sources else {}
    chats = Chats(TemplateSources(default=sources.get("default", SOURCE), named=named))
    return chats.render(msgspec.json.decode(msgspec.json.encode(chat), type=Chat))


def test_a_chat_becomes_its_prompt():
    assert render(Chat([{"role": "user", "content": [{"type": "text", "text": "a"}]}])) == "[user]a[assistant]"


def test_the_template_for_tools_is_taken_where_there_are_some():
    user = {"role": "user", "content": "a"}
    assert render(Chat([user], [{"type": "function", "function": {"name": "f"}}]), tool_use=TOOLS) == "tools: 1"
    assert render(Chat([user], None), tool_use=TOOLS) == "[user]a[assistant]"


def test_a_turn_goes_on_where_it_ended():
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "It is"}]
    chat = Chat(turns, add_generation_prompt=False, continue_final_message=True)
    assert render(chat) == "[user]a[assistant]It is"


def test_a_turn_that_ends_with_calls_cannot_go_on():
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}]
    with pytest.raises(ClientError, match=r"messages\[1\]\.tool_calls .* results of its calls"):
        render(Chat(turns, add_generation_prompt=False, continue_final_message=True))
