"""No text of a conversation is lost or refused by a template that drops or refuses some turns: one for each rule."""

import re
from typing import Any

import pytest

from ramet.ipc.media import MediaKind, MediaToken
from ramet.ipc.messages import Chat
from ramet.runtime.errors import ClientError
from ramet.runtime.text.chat_messages import normalise
from ramet.runtime.text.chat_template import ChatTemplate
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.fit_turns import fitted
from ramet.runtime.text.template_files import TemplateSources
from ramet.runtime.text.template_rules import TemplateRules

CALLS = "{% for c in m.tool_calls %}<{{ c.function.name }} {{ c.function.arguments | tojson }}>{% endfor %}"
TURN = f"[{{{{ m.role }}}}]{{{{ m.content }}}}{CALLS}"
LEAD = "{% set lead = messages[0].role == 'system' %}{% if lead %}[system]{{ messages[0].content }}{% endif %}"
END = "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
ALTERNATE = (
    "{% set n = namespace(i=0) %}{% for m in messages %}"
    "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
    "{% if (m.role == 'user') != (n.i % 2 == 0) %}{{ raise_exception('user and assistant must alternate') }}{% endif %}"
    "{% set n.i = n.i + 1 %}{% endif %}{% endfor %}"
)
TEMPLATES = {
    "all shown": f"{{% for m in messages %}}{TURN}{END}",
    "system first only": (
        f"{LEAD}{{% for m in messages %}}{{% if m.role in ['user', 'assistant', 'tool'] %}}{TURN}{{% endif %}}{END}"
    ),
    "system merged into the first user turn": (
        "{% set lead = messages[0].role == 'system' %}{% for m in (messages[1:] if lead else messages) %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "[{{ m.role }}]{{ messages[0].content + '\n\n' if lead and loop.first }}{{ m.content | trim }}" + END
    ),
    "other roles raise": (
        f"{LEAD}{{% for m in (messages[1:] if lead else messages) %}}{{% if m.role not in ['user', 'assistant'] %}}"
        f"{{{{ raise_exception('only user and assistant') }}}}{{% endif %}}[{{{{ m.role }}}}]{{{{ m.content }}}}{END}"
    ),
    "other roles dropped": (
        "{% for m in messages %}{% if m.role == 'user' %}[user]{{ m.content }}"
        "{% elif m.role == 'assistant' %}[assistant]{{ m.content }}{% endif %}" + END
    ),
    "strict alternation": (
        f"{LEAD}{{% set messages = messages[1:] if lead else messages %}}{ALTERNATE}"
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('system must be first') }}{% endif %}"
        "{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('ids have length 9') }}{% endif %}"
        f"{{% endfor %}}{TURN}{END}"
    ),
    "one call a turn": (
        f"{LEAD}{{% for m in (messages[1:] if lead else messages) %}}{{% if m.tool_calls %}}"
        "{% if m.tool_calls | length != 1 %}{{ raise_exception('only single calls at once') }}{% endif %}"
        f"[call]{CALLS}{{% else %}}[{{{{ m.role }}}}]{{{{ m.content | trim }}}}{{% endif %}}{END}"
    ),
    "trimmed": "{% for m in messages %}{% set said = m.content | trim %}[{{ m.role }}]\n\n{{ said }}" + CALLS + END,
    "date and tools in the system turn": (
        "[system]Today is {{ date_string or 'Monday' }}.{% if tools %} Tools: {{ tools | tojson }}{% endif %}"
        "{% if messages[0].role == 'system' %} {{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}"
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('system must be first') }}{% endif %}"
        f"{TURN}{END}"
    ),
    "arguments are appended to a text": (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
        "{% for c in m.tool_calls %}{{ '<' + c.function.name + ' ' + c.function.arguments + '>' }}{% endfor %}" + END
    ),
    "system text in a last user turn": (
        "{% set lead = messages[0].role == 'system' %}{% for m in (messages[1:] if lead else messages) %}"
        "{% if m.role == 'system' %}{{ raise_exception('system must be first') }}{% endif %}[{{ m.role }}]"
        "{{ messages[0].content + '\n\n' if lead and loop.last and m.role == 'user' }}{{ m.content }}" + CALLS + END
    ),
    "texts beside calls dropped": (
        f"{LEAD}{{% set messages = messages[1:] if lead else messages %}}{ALTERNATE}{{% for m in messages %}}"
        "{% if m.role == 'system' %}{{ raise_exception('system must be first') }}{% endif %}"
        f"{{% if m.tool_calls %}}[call]{CALLS}{{% else %}}[{{{{ m.role }}}}]{{{{ m.content }}}}{{% endif %}}{END}"
    ),
    "system merged with whatever is second": (
        "{% if messages[0].role == 'system' %}[user]{{ messages[0].content + ' ' + messages[1].content }}"
        "{% set messages = messages[2:] %}{% endif %}{% for m in messages %}"
        "{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('only user and assistant') }}{% endif %}"
        "[{{ m.role }}]{{ m.content }}" + END
    ),
    "system refused": (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TURN + END
    ),
}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "", "parameters": PARAMETERS}}]
# system, developer, user, assistant, call, calls (two), text with call, Text with two calls, result, result of the last
SHAPES = [
    "u", "su", "du", "sdu", "dsu", "ssu", "ssdsu", "s", "sd", "usau", "uas", "suadu", "usdau", "uadsu", "uu", "suuau",
    "uaau", "uaaau", "uctau", "sucta", "suct", "suctu", "uctuau", "uctsau", "ucts", "uCrrau", "uCttau", "uCtt", "uxtau",
    "sduXttsuu", "suXrrau", "uactau", "uC", "sduCttsadxrs", "uctctctau", "sua",
]  # fmt: skip


def chat(shape: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The chat's messages, and their texts in order."""
    marks: list[str] = []
    waiting: list[tuple[str, str]] = []  # ids of calls, and the texts of their results

    def mark() -> str:
        marks.append(f"(text {len(marks)})")
        return marks[-1]

    def call() -> dict[str, Any]:
        waiting.append((f"call-{len(marks)}", ""))
        function = {"name": "f", "arguments": f'{{"a": "{mark()}"}}'}
        return {"id": waiting[-1][0], "type": "function", "function": function}

    roles = {"s": "system", "d": "developer", "u": "user", "a": "assistant"}
    messages: list[dict[str, Any]] = []
    for kind in shape:
        if kind in roles:
            messages.append({"role": roles[kind], "content": mark()})
        elif kind in "tr":
            called, _ = waiting.pop(0 if kind == "t" else -1)
            messages.append({"role": "tool", "tool_call_id": called, "content": mark()})
        else:
            content = mark() if kind in "xX" else None
            calls = [call() for _ in range(2 if kind in "CX" else 1)]
            messages.append({"role": "assistant", "content": content, "tool_calls": calls})
    return messages, marks


def render(source: str, messages: list[dict[str, Any]], tools: Any = None, **options: bool) -> str:
    return Chats(TemplateSources(default=source)).render(Chat(messages, tools, **options))


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["without tools", "with tools"])
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=list(TEMPLATES))
def test_every_text_is_shown_once(source: str, tools: Any) -> None:
    chats = Chats(TemplateSources(default=source))
    for shape in SHAPES:
        messages, marks = chat(shape)
        shown = re.findall(r"\(text \d+\)", chats.render(Chat(messages, tools)))
        assert sorted(shown) == sorted(marks), shape
        # a result follows its call where a turn has one call alone
        if not set("CXr").intersection(shape) and source != TEMPLATES["system text in a last user turn"]:
            assert shown == marks, shape


def test_what_a_template_shows_stays_as_it_is() -> None:
    template = ChatTemplate(TemplateSources(default=TEMPLATES["all shown"]))
    rules = TemplateRules(template.render)
    for shape in SHAPES:
        turns = normalise(chat(shape)[0], "")
        assert fitted(turns, rules) == turns


@pytest.mark.parametrize("name, shape, text", [
    ("system first only", "sdu", "[system](text 0)\n\n(text 1)[user](text 2)"),
    ("system first only", "usau", "[user](text 0)\n\n(text 1)[assistant](text 2)[user](text 3)"),
    ("system first only", "uas", "[user](text 0)[assistant](text 1)[user](text 2)"),
    ("system merged into the first user turn", "sdu", "[user](text 0)\n\n(text 1)\n\n(text 2)"),
    ("system merged into the first user turn", "uadsu",
     "[user](text 0)[assistant](text 1)[user](text 2)\n\n(text 3)\n\n(text 4)"),
    ("system merged into the first user turn", "uctau",
     '[user](text 0)[assistant]{"name": "f", "arguments": {"a": "(text 1)"}}[user]Result of f:\n\n(text 2)'
     "[assistant](text 3)[user](text 4)"),
    ("system refused", "su", "[user](text 0)\n\n(text 1)"),
    ("other roles dropped", "s", "[user](text 0)"),
    ("strict alternation", "uaau", "[user](text 0)[assistant](text 1)\n\n(text 2)[user](text 3)"),
    ("strict alternation", "uctuau",
     '[user](text 0)[assistant]<f {"a": "(text 1)"}>[tool](text 2)\n\n(text 3)[assistant](text 4)[user](text 5)'),
    ("one call a turn", "uXttau",
     '[user](text 0)[assistant](text 1)[call]<f {"a": "(text 2)"}>[tool](text 4)[call]<f {"a": "(text 3)"}>'
     "[tool](text 5)[assistant](text 6)[user](text 7)"),
    ("one call a turn", "uCrr",
     '[user](text 0)[call]<f {"a": "(text 1)"}>[tool](text 4)[call]<f {"a": "(text 2)"}>[tool](text 3)'),
    ("texts beside calls dropped", "uxtau",
     '[user](text 0)[assistant](text 1)[user][call]<f {"a": "(text 2)"}>[tool](text 3)'
     "[assistant](text 4)[user](text 5)"),
    ("texts beside calls dropped", "uact",
     '[user](text 0)[assistant](text 1)[user][call]<f {"a": "(text 2)"}>[tool](text 3)'),
    ("system merged with whatever is second", "ssdsu",
     "[user](text 0)\n\n(text 1)\n\n(text 2)\n\n(text 3) (text 4)"),
    ("trimmed", "sdu", "[system]\n\n(text 0)[system]\n\n(text 1)[user]\n\n(text 2)"),
    ("date and tools in the system turn", "sdu", "[system]Today is Monday. (text 0)\n\n(text 1)[user](text 2)"),
    ("arguments are appended to a text", "uct", '[user](text 0)[assistant]<f {"a": "(text 1)"}>[tool](text 2)'),
])  # fmt: skip
def test_a_turn_that_a_template_does_not_take_goes_into_another_one(name: str, shape: str, text: str) -> None:
    assert render(TEMPLATES[name], chat(shape)[0], add_generation_prompt=False) == text


def test_an_id_that_a_template_refuses_is_another_one_in_call_and_result() -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('9') }}"
        "{% endif %}{{ c.id }} {{ c.function.arguments.a }} {% endfor %}{{ m.tool_call_id }} {{ m.content }}" + END
    )
    messages, _ = chat("uct")
    call_id, _, result_id = re.findall(r"(\b[a-z0-9]{9}\b) \(text 1\)( +)(\w+) \(text 2\)", render(source, messages))[0]
    assert call_id == result_id
    messages[1]["tool_calls"][0]["id"] = messages[2]["tool_call_id"] = "AbCdEf123"
    assert render(source, messages).count("AbCdEf123") == 2


def test_reasoning_and_media_stay_in_turns_that_become_one() -> None:
    source = (
        ALTERNATE + "{% for m in messages %}[{{ m.role }}]{{ '<' + m.reasoning_content + '>' if m.reasoning_content }}"
        "{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}{{ p.text if p.type == 'text' else '<image>' }}{% endfor %}{% endif %}" + END
    )
    chats = Chats(TemplateSources(default=source)).with_media({MediaKind.IMAGE: MediaToken("<image>", "<image>", 5)})
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "", "reasoning": "c"},
        {"role": "assistant", "content": "d", "reasoning": "e"},
    ]
    shown = chats.render(Chat(messages, add_generation_prompt=False))
    assert shown == "[user]a<image>\n\nb[assistant]<c\n\ne>d"


def test_the_output_goes_on_with_a_turn_of_two() -> None:
    options = {"add_generation_prompt": False, "continue_final_message": True}
    for shape in ("uaa", "su", "uas"):
        shown = render(TEMPLATES["strict alternation"], chat(shape)[0], **options)
        assert shown.endswith(chat(shape)[1][-1])


def test_each_conversation_of_marks_is_rendered_once_for_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[int] = []
    render_one = ChatTemplate.render

    def counted(self: ChatTemplate, messages: list[dict[str, Any]], *args: Any, **options: Any) -> str:
        rendered.append(len(messages))
        return render_one(self, messages, *args, **options)

    monkeypatch.setattr(ChatTemplate, "render", counted)
    chats = Chats(TemplateSources(default=TEMPLATES["strict alternation"]))
    for shape in SHAPES:
        chats.render(Chat(chat(shape)[0]))
    assert len(rendered) - len(SHAPES) <= 40 and max(rendered) < 15
    rendered.clear()
    for shape in SHAPES:
        chats.render(Chat(chat(shape)[0]))
    assert len(rendered) == len(SHAPES)


def test_a_chat_of_users_and_assistants_is_rendered_without_a_look_at_the_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rendered: list[int] = []
    render_one = ChatTemplate.render

    def counted(self: ChatTemplate, messages: list[dict[str, Any]], *args: Any, **options: Any) -> str:
        rendered.append(len(messages))
        return render_one(self, messages, *args, **options)

    monkeypatch.setattr(ChatTemplate, "render", counted)
    render(TEMPLATES["strict alternation"], chat("uauau")[0])
    assert rendered == [5]


def test_what_no_other_form_mends_is_refused_as_the_template_refuses_it() -> None:
    with pytest.raises(ClientError, match="user and assistant must alternate"):
        render(TEMPLATES["strict alternation"], chat("au")[0])
