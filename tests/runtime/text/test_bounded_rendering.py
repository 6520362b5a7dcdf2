"""What the tokenizer renders is the text, or the error, that a worker renders."""

from pathlib import Path
from typing import Any

import pytest
from test_published_templates import CASES, NAMES

from ramet.ipc.messages import Chat
from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.errors import ClientError
from ramet.runtime.text.bounded_rendering import BoundedTemplate, chats_here
from ramet.runtime.text.chat_template import ChatTemplate
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.template_files import TemplateSources, built_in_names, read_templates

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
OURS = {name: read_templates(Path(), name).default for name in built_in_names()}
TEMPLATES = {
    **OURS,
    **dict(zip(NAMES, (source for source, _ in CASES))),
    "bundled": read_templates(BUNDLED_MODEL).default,
}
MEDIA = dict(zip(NAMES, (media for _, media in CASES)))
SCHEMA = {
    "type": "object", "required": ["of"],
    "properties": {"of": {"type": "string", "description": "a \"town\" <b>"}, "in": {"enum": ["C", "F"]}},
}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "warmth", "description": "It tells.\nMore.", "parameters": SCHEMA}}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "warmth", "arguments": '{"of": "Rome", "n": 1.50}'}}
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "Rome?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "abcdefghi", "content": " 21 "},
    {"role": "assistant", "content": "<think>\nsunny\n</think>\n\n21"},
    {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "Oslo?\U0001f600"}]},
]
HELLO = [{"role": "user", "content": "a"}]
CHATS = [
    Chat([{"role": "user", "content": ""}]),
    Chat([{"role": "system", "content": " Be kind. "}, {"role": "user", "content": "Rome?\r\n"}]),
    Chat([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], kwargs={"enable_thinking": False}),
    Chat([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": "odd", "content": "c"}]),
    Chat([*HELLO, {"role": "assistant", "content": "Once ", "reasoning": "r"}], None, {}, False, True),
    Chat([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], [TOOL], {"thinking": True}),
    Chat(CALLED, [TOOL, TOOL]),
    Chat(CALLED),
]  # fmt: skip


def outcome(chats: Chats, chat: Chat) -> str | tuple[Any, ...]:
    try:
        return chats.render(chat)
    except ClientError as error:
        return error.record.place, error.record.fact, error.record.status


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_chat_has_one_text_wherever_it_is_rendered(name: str) -> None:
    sources, media = TemplateSources(TEMPLATES[name], {}, TOKENS), MEDIA.get(name, {})
    here, there = chats_here(sources), Chats(sources)
    assert here is not None
    here, there = here.with_media(media), there.with_media(media)
    for chat in CHATS:
        assert outcome(here, chat) == outcome(there, chat)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}", "{{ nothing + 'a' }}", "{{ 'a' + nothing }}", "{{ nothing % 2 }}",
        "{{ 1 + 2 * 3 % 4 }}", "{{ nothing ~ 1 ~ none ~ [1, 'a'] ~ 2.50 }}", "{{ messages[0] | join }}",
        "{{ 7 | join(',') }}", "{{ 'abc' | join(1) }}", "{{ none | list }}", "{{ {'a': 1} | list }}",
        "{{ messages[0].content.replace('l', '') }}", "{{ 'aaa'.replace('a', 'b', 2) }}",
        "{{ 'aaa' | replace('a', 'b', 2) }}", "{{ 12 | replace(1, 2) }}", "{{ [1, 'a', {'b': none}] | string }}",
        "{{ none | tojson }}", "{{ messages | tojson(indent=2, ensure_ascii=true, separators=(',', ':')) }}",
        "{{ messages[0].content.split('l')[-1:] }}", "{{ raise_exception('no') }}",
        "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) ~ m(1, b=3) }}", "{{ 1 / 0 }}",
        "{% set x %}a{{ 1 }}{% endset %}{{ x }}",
        "{% for a, b in messages[0].items() %}{{ a }}{{ b }}{% else %}{% endfor %}",
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{% break %}{% endfor %}",
        "{% generation %}a{% endgeneration %}", "{{ dict.fromkeys(messages[0]) }}", "{{ x.y.z }}",
        "{{ messages[0].__class__ }}",
        "{{ messages | selectattr('role', 'in', ['user']) | map(attribute='content') | map('upper') | list }}",
        "{% set n = namespace(a=0) %}{% for m in messages %}{% set n.a = n.a + 1 %}{% endfor %}{{ n.a }}",
        "{{ messages[0]['content'][::-1] }}",
        "{% if messages is iterable and messages is not string %}{{ messages | length }}{% endif %}",
        "{{ (1, 'a', [2]) }}", "{{ -3 // 2 }}",
    ],
)  # fmt: skip
def test_an_expression_has_one_value_wherever_it_is_computed(source: str) -> None:
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "x"}]
    here, there = BoundedTemplate(TemplateSources(source)), ChatTemplate(TemplateSources(source))
    assert here.renders_some

    def rendered(template: Any) -> str:
        try:
            return str(template.render(turns))
        except ClientError as error:
            return str(error)

    assert rendered(here) == rendered(there)
