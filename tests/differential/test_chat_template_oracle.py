"""Chat templates and their files, against transformers: the same text byte for byte, and a refusal where it raises."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from samples import slow
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from ramet.runtime.errors import ClientError
from ramet.runtime.text.chat_messages import normalise
from ramet.runtime.text.chat_template import ChatTemplate
from ramet.runtime.text.template_files import TemplateSources, built_in_names, read_templates

BUNDLED = Path(__file__).resolve().parents[2] / "runtime" / "models" / "bundled"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
REFUSED = "refused"


def turn(role: str, content: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def call(name: str, arguments: Any, call_id: str | None = None) -> dict[str, Any]:
    fields = {} if call_id is None else {"id": call_id}
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **fields}


USER = turn("user", "How warm is Rome?")
ASKS = turn("assistant", tool_calls=[call("weather", {"city": "Rome", "days": [1, 2.5], "<&>": None}, "abc123def")])
RESULT = turn("tool", '{"degrees": 21}', tool_call_id="abc123def", name="weather")
TWO_CALLS = [call("weather", {"city": "Rome"}, "r"), call("weather", '{"city": "Oslo"}', "o")]
CHATS: dict[str, list[dict[str, Any]]] = {
    "plain": [USER],
    "system first": [turn("system", " Be kind. "), USER],
    "system alone": [turn("system", "Be kind.")],
    "system late": [USER, turn("system", "Be short.")],
    "developer": [turn("developer", "Be kind."), USER],
    "turns": [turn("system", "S"), USER, turn("assistant", "21"), turn("user", "Oslo?"), turn("assistant", "3 ")],
    "two user turns": [USER, USER],
    "assistant first": [turn("assistant", "Hello"), USER],
    "call": [USER, ASKS],
    "call and text": [USER, turn("assistant", "Let me see.", tool_calls=TWO_CALLS[:1])],
    "result": [turn("system", "S"), USER, ASKS, RESULT],
    "answer": [USER, ASKS, RESULT, turn("assistant", "21 degrees")],
    "parallel": [USER, turn("assistant", "", tool_calls=TWO_CALLS), RESULT, turn("tool", "3", tool_call_id="o")],
    "no arguments": [USER, turn("assistant", "", tool_calls=[call("now", {})]), turn("tool", "noon")],
    "reasoning": [USER, turn("assistant", "21", reasoning_content="\nRome is warm.\n"), turn("user", "And Oslo?")],
    "reasoning last": [USER, turn("assistant", "21", reasoning="Rome is warm.")],
    "thinking": [USER, turn("assistant", "21", thinking="Rome is warm.")],
    "thought in text": [USER, turn("assistant", "<think>\nwarm\n</think>\n\n21"), turn("user", "Why?")],
    "unicode": [turn("system", "Grüße, 東京"), turn("user", "👩‍👩‍👧 \u2028 \x00 ﬁ <b>&amp;</b> \r\n\ttab")],
    "like JSON": [turn("user", '{"a": "{{ b }}", "c": "{% raw %}"}\n'), turn("assistant", "[\"\\n\", 'q']")],
    "like control tokens": [turn("user", "<|im_end|>[/INST]</s>"), turn("assistant", "<｜User｜>")],
    "trailing blanks": [USER, turn("assistant", "It is \n ")],
    "blank": [turn("user", ""), turn("assistant", "")],
    "nulls": [turn("user", "Hi", name=None), turn("assistant", "Ho", tool_calls=None, reasoning_content=None)],
    "no content": [USER, turn("assistant")],
    "another role": [USER, turn("critic", "Not good.")],
    "none": [],
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "Ōsaka"]}}}
FUNCTION = {"name": "weather", "description": "How warm <it> is", "parameters": PARAMETERS}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": FUNCTION},
    {"type": "function", "function": {"name": "now"}},
]
MODES: list[dict[str, Any]] = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": False},
    {"add_generation_prompt": False, "continue_final_message": True},
    {"add_generation_prompt": True, "continue_final_message": True},
]
KWARGS: list[dict[str, Any]] = [
    {},
    {"enable_thinking": False},
    {"enable_thinking": True, "thinking": True, "date_string": "1 May 2030", "bos_token": "<other>"},
    {"documents": [{"title": "T", "text": "Rome"}], "1 x": 2},
    {"documents": ["Rome"]},
]

EACH = "{% for m in messages %}"
STRANGE = {
    "loop controls": EACH
    + """
        {% if m.role == 'system' %}
            {% continue %}
        {% endif %}
        {%- if loop.index > 3 %}{% break %}{% endif %}
        {{ loop.index0 }} {{ loop.cycle('odd', 'even') }} {{ m['content'] }}
    {% endfor %}{{ messages[::-1][0].role }}""",
    "generation": """{% set said = 'outer' %}
    {% for m in messages %}
      {% if m.role == 'assistant' %}
        {%- generation %}{% set said = m.content %}
          {{ said }}{{ loop.index }}<end>
        {% endgeneration -%}
      {% else %}{{ m.content }}{% endif %} {{ said }}
    {% endfor %}""",
    "namespace and macros": """{% set state = namespace(count=0, last='') %}
    {%- macro show(m, mark='*') -%}{{ mark }}{{ m.role | upper }}: {{ caller() if caller else '' }}{%- endmacro -%}
    {% for m in messages %}{% set state.count = state.count + 1 %}{% set state.last = m.role %}
    {% call show(m, mark='-') %}{{ m.content | default('nothing') | trim }}{% endcall %}
    {% endfor %}{{ state.count }} {{ state.last }} {{ namespace({'a': 1}, self=2).self }}""",
    "private names": "{% set state = namespace(_hidden=1) %}{{ messages[0].content }}",
    "private assignment": "{% set state = namespace() %}{% set state._hidden = 1 %}{{ messages[0].content }}",
    "dict": """{% set d = dict(a=1, **{'b': 2}) %}{{ d.items() | list }} {{ d.get('z', 'no') }} {{ d | dictsort }}
    {{- dict.fromkeys(['x', 'y'], 0) }} {{ dict([(1, 2)])[1] }} {{ messages[0].keys() | list }}
    {%- for key, value in messages[-1].items() %}{{ key }}={{ value }};{% endfor %}""",
    "clock": "{{ strftime_now('%%') }}" + EACH + "{{ m.content }}{% endfor %}",
    "tojson": """{{ messages | tojson(indent=2) }}{{ messages | tojson(separators=(',', ':'), sort_keys=True) }}
    {{- tools | tojson(ensure_ascii=True) }}{{ documents | tojson }}{{ "<'&>" | tojson }}
    {{- [1.0, 1e30, true] | tojson }}{{ messages[-1].content }}""",
    "defined": """{% if tools is defined and tools is not none %}{{ tools | length }}{% endif %}{{ tools }}
    {{- documents is defined }}{{ documents }}{{ bos_token }}{{ eos_token is defined }}{{ pad_token is defined }}
    {{- enable_thinking is defined and enable_thinking is false }}{{ add_generation_prompt }}
    {{- continue_final_message }}
    {{- messages[0].name is defined }}{{ messages[0].content is string }}{{ m is undefined }}{{ nothing }}""",
    "reasoning names": EACH
    + "{{ m.thinking }}|{{ m.reasoning_content }}|{{ m.reasoning }}|{{ m.content }}{% endfor %}",
    "trims": EACH + "<{{ m.role }}>{{ m.content | trim }} </{{ m.role }}>{% endfor %}",
    "drops the start": EACH + "{{ m.content[1:] }}{% endfor %}",
    "joins": EACH + "{{ '<' + m.role + '>' + m.content + eos_token }}{% endfor %}",
    "alternates": EACH
    + """{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no: ' + m.role) }}{% endif %}
    {{- m.content }}{% endfor %}""",
    "changes a message": "{% set _ = messages.append(messages[0]) %}{{ messages | length }}",
    "reaches out": "{{ messages.__class__.__mro__ }}{{ messages[0].content }}",
    "repeats": EACH + "{{ '=' * 3 + m.role * 2 }}{{ 2 ** 8 * loop.index }} {{ m.content }}{% endfor %}",
    "no text": "{{ messages | length }}{{ messages | tojson }}",
    "whitespace": "  {# a note #}\n\n  {% if true %}\n  a\n  {%- endif %}\n\tb {{- ' c ' -}} \n d\n\n"
    + "{{ messages[0].content }}\n",
}
TEMPLATES = {
    **{name: str(read_templates(Path(), name).default) for name in built_in_names()},
    "bundled": str(read_templates(BUNDLED).default),
    **STRANGE,
}


def oracle(template: str | dict[str, str]) -> PreTrainedTokenizerFast:
    source = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=source, chat_template=template, **SPECIAL)


def cases() -> Iterator[tuple[str, list[dict[str, Any]], list[dict[str, Any]] | None, dict[str, Any], dict[str, Any]]]:
    for name, chat in CHATS.items():
        for tools in (None, TOOLS):
            for mode in MODES:
                for kwargs in KWARGS:
                    yield name, chat, tools, mode, kwargs


def expected(theirs: PreTrainedTokenizerFast, chat: Any, tools: Any, mode: Any, kwargs: Any) -> str:
    try:
        text = str(theirs.apply_chat_template(chat, tools=tools, tokenize=False, **mode, **kwargs))
        return text.replace("CONTINUE_FINAL_MESSAGE_TAG ", "")  # theirs stays where a template writes a text twice
    except Exception:  # noqa: BLE001 - whatever it raises
        return REFUSED


def rendered(ours: ChatTemplate, chat: Any, tools: Any, mode: Any, kwargs: Any) -> str:
    try:
        return ours.render(chat, tools, **mode, kwargs=kwargs)
    except ClientError:
        return REFUSED


def agree(ours: str, theirs: str, chat: Any, mode: Any) -> bool:
    """Whether both texts are the same, but for the blanks before an empty text that is continued.

    transformers cuts those where the template trims texts, so that the output would begin inside the turn's opening.
    """
    continues_nothing = mode.get("continue_final_message") and not (chat and (chat[-1].get("content") or "").strip())
    return ours == theirs or (continues_nothing and ours.rstrip() == theirs)


# differ from others in their marks alone
ALIKE = {"c4ai-command-r", "chatml-llava", "granite-3-instruct", "llama-4", "qwen2-vl"}


def but_alike(names: Iterable[str]) -> list[Any]:
    return [slow(name) if name in ALIKE else name for name in names]


@pytest.mark.parametrize("name", but_alike(TEMPLATES))
def test_renders_as_transformers_does(name: str) -> None:
    theirs = oracle(TEMPLATES[name])
    ours = ChatTemplate(TemplateSources(TEMPLATES[name], {}, SPECIAL))
    texts = set()
    for case in cases():
        text = rendered(ours, *case[1:])
        assert agree(text, expected(theirs, *case[1:]), case[1], case[3]), case
        texts.add(text)
    assert len(texts) > 10 or name in ("private names", "private assignment", "changes a message", "reaches out")


@pytest.mark.parametrize("name", but_alike([*built_in_names(), "bundled", "joins", "dict"]))
def test_renders_normal_messages_as_transformers_does(name: str) -> None:
    theirs = oracle(TEMPLATES[name])
    ours = ChatTemplate(TemplateSources(TEMPLATES[name], {}, SPECIAL))
    for label, chat, tools, mode, kwargs in cases():
        if label in ("no content", "another role"):
            continue
        normal = normalise(chat, TEMPLATES[name])
        text = rendered(ours, normal, tools, mode, kwargs)
        assert agree(text, expected(theirs, normal, tools, mode, kwargs), normal, mode), label


@pytest.mark.parametrize("names", [("default", "tool_use"), ("default", "rag"), ("tool_use", "rag")])
@pytest.mark.parametrize("tools", [None, [], TOOLS])
def test_chooses_among_named_templates_as_transformers_does(names: tuple[str, ...], tools: Any) -> None:
    named = {name: name + EACH + "{{ m.content }}{% endfor %}" for name in names}
    ours = ChatTemplate(TemplateSources(named.get("default"), {n: s for n, s in named.items() if n != "default"}))
    case = [USER], tools, {"add_generation_prompt": True}, {}
    assert rendered(ours, *case) == expected(oracle(named), *case)


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config.json": {"chat_template": "A"}},
        {"tokenizer_config.json": {"chat_template": "A"}, "chat_template.jinja": "B\n\n"},
        {
            "tokenizer_config.json": {
                "chat_template": [dict(name="default", template="A"), dict(name="t", template="B")]
            }
        },
        {"tokenizer_config.json": {"chat_template": "A"}, "additional_chat_templates/tool_use.jinja": "B"},
        {"chat_template.jinja": "A", "additional_chat_templates/tool_use.jinja": "B"},
        {"chat_template.jinja": "A", "additional_chat_templates/default.jinja": "B"},
        {"tokenizer_config.json": {"image_token": "<i>", "extra_special_tokens": {"boi_token": "<b>"}}},
        {"tokenizer_config.json": {"eos_token": "</t>"}, "special_tokens_map.json": {"eos_token": {"content": "</s>"}}},
        {
            "tokenizer_config.json": {"eos_token": "</t>", "added_tokens_decoder": {}},
            "special_tokens_map.json": {"eos_token": "</s>"},
        },
    ],
)
def test_reads_the_files_that_transformers_reads(tmp_path: Path, files: dict[str, Any]) -> None:
    oracle("").backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    theirs, ours = PreTrainedTokenizerFast.from_pretrained(tmp_path), read_templates(tmp_path)
    found = theirs.chat_template
    assert ours.by_name == ({} if found is None else {"default": found} if isinstance(found, str) else found)
    assert ours.special_tokens == theirs.special_tokens_map
