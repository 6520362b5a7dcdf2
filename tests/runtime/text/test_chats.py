"""Chats as the tokenizer process gets them: from JSON to text, by the right template, or refused."""

import msgspec
import pytest

from ramet.ipc.media import MediaKind, MediaToken
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


# -- media -------------------------------------------------------------------------------------------------------------

MEDIA = {kind: MediaToken(f"<{kind.value}>", f"<{kind.value}>", 5) for kind in (MediaKind.IMAGE, MediaKind.VIDEO)}
EACH = "{% for m in messages %}[{{ m.role }}]BODY{% endfor %}{{ '[assistant]' if add_generation_prompt }}"
PART = "{{ '<image>' if p.type == 'image' else '<video>' if p.type == 'video' else p.text }}"
PARTS = f"{{% for p in m.content %}}{PART}{{% endfor %}}"
OF_PARTS = EACH.replace("BODY", PARTS)
OF_BOTH = EACH.replace("BODY", f"{{% if m.content is string %}}{{{{ m.content }}}}{{% else %}}{PARTS}{{% endif %}}")
PICTURES_FIRST = EACH.replace(  # as LLaVA's: pictures, then texts, and nothing of a content that is a text
    "BODY",
    "{% for p in m.content | selectattr('type', 'equalto', 'image') %}<image>{% endfor %}"
    "{% for p in m.content | selectattr('type', 'equalto', 'text') %}{{ p.text }}{% endfor %}",
)
PICTURES_ALONE = OF_PARTS.replace("'<video>' if p.type == 'video' else ", "'?' if p.type == 'video' else ")
OF_USERS = EACH.replace("BODY", f"{{% if m.role == 'user' %}}{PARTS}{{% else %}}{{{{ m.content }}}}{{% endif %}}")
SEEN = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]


def shown(source: str, *contents: object, role: str = "user", **options: bool) -> str:
    chats = Chats(TemplateSources(default=source)).with_media(MEDIA)
    turns = [{"role": role, "content": content} for content in contents]
    return chats.render(Chat(turns, **{"add_generation_prompt": False, **options}))


@pytest.mark.parametrize(("source", "parts", "text"), [
    (SOURCE, "a<image>b", "hi"),  # what stands for a picture is put among the texts of a template for texts
    (OF_PARTS, "a<image>b", "hi"),
    (OF_BOTH, "a<image>b", "hi"),
    (PICTURES_FIRST, "<image>ab", "hi"),
    (PICTURES_ALONE, "a<image>b", "hi"),
])  # fmt: skip
def test_a_template_gets_messages_in_the_form_that_it_shows(source: str, parts: str, text: str) -> None:
    assert shown(source, SEEN, "hi") == f"[user]{parts}[user]{text}"


def test_a_kind_that_a_template_does_not_show_stands_among_its_texts() -> None:
    film = [{"type": "text", "text": "a"}, {"type": "video"}]
    assert shown(PICTURES_ALONE, film) == "[user]a<video>"
    assert shown(OF_PARTS, film) == "[user]a<video>"


def test_each_role_has_the_form_that_its_turns_show() -> None:
    assert shown(OF_USERS, SEEN) == "[user]a<image>b"
    assert shown(OF_USERS, SEEN, role="system") == "[system]a<image>b"


@pytest.mark.parametrize("source", [SOURCE, OF_PARTS, OF_BOTH])
def test_a_turn_with_a_picture_goes_on_where_it_ended(source: str) -> None:
    assert shown(source, "hi", SEEN, continue_final_message=True) == "[user]hi[user]a<image>b"
    with pytest.raises(ClientError, match="continue_final_message is true"):
        shown(OF_PARTS, [{"type": "image"}], continue_final_message=True)


def test_a_model_of_texts_gives_its_template_texts() -> None:
    assert render(Chat([{"role": "user", "content": "a"}], add_generation_prompt=False), default=OF_BOTH) == "[user]a"
