"""Rendering a conversation: what fails names the client's field, what is enormous is refused, templates are checked."""

import time
from typing import Any

import pytest
from effort import num_calls
from jinja2 import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.text import chat_template
from ramet.runtime.text.chat_template import ChatTemplate, RenderLimits
from ramet.runtime.text.context import TooManyBytes
from ramet.runtime.text.template_files import TemplateSources

HELLO = [{"role": "user", "content": "Hello"}]
UNFINISHED = [*HELLO, {"role": "assistant", "content": "Good d"}]
PLAIN = (
    "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}{{ '[assistant: ' if add_generation_prompt }}"
)


def template(source: str, **tokens: str) -> ChatTemplate:
    return ChatTemplate(TemplateSources(source, {}, tokens))


def refusal(source: str, messages: list[dict[str, Any]] = HELLO, **options: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        template(source).render(messages, **options)
    assert caught.value.status == 400
    return caught.value


def test_a_reply_is_asked_for_unless_told_otherwise() -> None:
    assert template(PLAIN).render(HELLO) == "[user: Hello][assistant: "
    assert template(PLAIN).render(HELLO, add_generation_prompt=False) == "[user: Hello]"


def test_kwargs_are_variables_and_win_over_special_tokens() -> None:
    source = "{{ bos_token }}{{ mood }}{{ documents }}"
    assert template(source, bos_token="<s>").render(HELLO, kwargs={"mood": "calm"}) == "<s>calmNone"
    assert template(source, bos_token="<s>").render(HELLO, kwargs={"bos_token": ""}) == "None"
    assert template("{{ documents[0].a }}").render(HELLO, kwargs={"documents": [{"a": 1}]}) == "1"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "continue_final_message"])
def test_kwargs_cannot_stand_for_fields_of_the_request(name: str) -> None:
    error = refusal(PLAIN, kwargs={name: None})
    assert error.place == "chat_template_kwargs" and repr(name) in error.fact


def test_a_client_cannot_send_a_template() -> None:
    assert refusal(PLAIN, kwargs={"chat_template": "{{ 1 }}"}).place == "chat_template_kwargs"


def test_documents_must_be_objects() -> None:
    assert refusal(PLAIN, kwargs={"documents": ["a"]}).place == "chat_template_kwargs.documents"


def test_no_messages_are_refused() -> None:
    assert refusal(PLAIN, []).place == "messages"


def test_a_model_without_a_template_says_what_to_do() -> None:
    with pytest.raises(ClientError, match=r"^messages need a chat template \(.*--chat-template"):
        ChatTemplate(TemplateSources()).render(HELLO)
    only_tools = ChatTemplate(TemplateSources(None, {"tool_use": "T"}))
    assert only_tools.render(HELLO, []) == "T"
    with pytest.raises(ClientError, match="only has tool_use"):
        only_tools.render(HELLO)


def test_the_templates_own_refusal_is_passed_on() -> None:
    error = refusal("{{ raise_exception('roles must alternate') }}")
    assert str(error) == "messages are refused by the chat template: roles must alternate"


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("{{ 'a' + messages[0].nothing }}", "TypeError|UndefinedError"),
        ("{{ messages[9].role }}", "UndefinedError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "RecursionError"),
        ("{{ namespace(__class__=1) }}", "SecurityError"),
        ("{% include 'other' %}", "TypeError"),
        ("{{ range(10 ** 9) | list }}", "OverflowError"),
        ("{{ 'x' * 10 ** 10 }}", "OverflowError"),
        ("{{ 10 ** 10 * messages }}", "OverflowError"),
        ("{{ 10 ** (10 ** 10) }}", "OverflowError"),
        ("{{ '%9999999999999999d' % 1 }}", "OverflowError|it needs more memory than|ValueError"),
    ],
)
def test_what_fails_on_these_messages_names_the_cause(source: str, cause: str) -> None:
    error = refusal(source)
    assert error.place == "messages"
    assert any(f"cannot be rendered by the chat template: {name}" in error.fact for name in cause.split("|")), error


def test_deeply_nested_values_are_the_clients_fault() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert "RecursionError" in refusal("{{ kwarg | tojson }}", kwargs={"kwarg": nested}).fact


def test_small_products_are_left_alone() -> None:
    source = "{{ '-' * 3 }}{{ 2 * [1] }}{{ 2 ** 10 }}{{ 3 * 4 }}{{ 1.5 * 2 }}{{ 2 ** -1 }}{{ 'a' * -1 }}"
    assert template(source).render(HELLO) == "---[1, 1]1024123.00.5"


def test_a_long_rendering_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_CHARACTERS", 1000)
    source = "{% for i in range(n) %}{% for j in range(n) %}xxxx{% endfor %}{% endfor %}"
    assert template(source).render(HELLO, kwargs={"n": 15}) == "xxxx" * 225

    def refuse() -> None:
        assert "more than 1000 characters" in refusal(source, kwargs={"n": 100_000}).fact

    assert num_calls(refuse) < 100_000  # all of it would be ten thousand million pieces


@pytest.mark.parametrize("max_bytes", [10, 19])
def test_a_text_that_is_too_long_already_is_not_written_to_its_end(max_bytes: int) -> None:
    late = "{% if loop.index > 5 %}{{ raise_exception('late') }}{% endif %}"
    source = f"{{% for m in messages %}}{{{{ m.content }}}}{late}{{% endfor %}}"
    template, messages = ChatTemplate(TemplateSources(source)), [{"role": "user", "content": "four"}] * 5
    assert template.render(messages, max_bytes=20) == 5 * "four"
    with pytest.raises(TooManyBytes):
        template.render(messages, max_bytes=max_bytes)
    with pytest.raises(TooManyBytes):
        template.render(messages * 100, max_bytes=max_bytes)
    with pytest.raises(ClientError, match="late"):
        template.render(messages * 100)


def test_the_end_that_is_cut_off_a_continued_message_does_not_count() -> None:
    template = ChatTemplate(TemplateSources("{{ messages[0].content }}" + "<end>" * 100))
    given: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True, "max_bytes": 4}
    assert template.render([{"role": "user", "content": "four"}], **given) == "four"


def test_a_continued_message_has_no_end() -> None:
    assert template(PLAIN).render(UNFINISHED, add_generation_prompt=False, continue_final_message=True) == (
        "[user: Hello][assistant: Good d"
    )


def test_a_continued_message_that_is_written_twice_shows_no_mark() -> None:
    options: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    source = "{{ messages[-1].content }}{{ messages[-1].content | trim }}: {{ messages[-1].content }}]"
    assert template(source).render(UNFINISHED, **options) == "Good dGood d: Good d"


@pytest.mark.parametrize("text", ["", "  ", "\n\n"])
@pytest.mark.parametrize("filtered", ["", " | trim"])
def test_an_empty_message_is_continued_where_its_text_begins(filtered: str, text: str) -> None:
    source = f"{{% for m in messages %}}<{{{{ m.role }}}}>\n\n{{{{ m.content{filtered} }}}}<end>{{% endfor %}}"
    options: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    shown = template(source).render([*HELLO, {"role": "assistant", "content": text}], **options)
    assert shown.endswith("<end><assistant>\n\n" + ("" if filtered else text))


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        (PLAIN, [*HELLO, {"role": "assistant", "content": None}]),
        ("{{ messages[0].content }}", UNFINISHED),
        ("{{ messages[-1].content[1:] }}", UNFINISHED),
        ("{{ messages | tojson }}", UNFINISHED),
    ],
)
def test_a_message_that_cannot_be_continued_is_refused(source: str, messages: list[dict[str, Any]]) -> None:
    error = refusal(source, messages, add_generation_prompt=False, continue_final_message=True)
    assert error.place == "continue_final_message"


def test_a_new_reply_and_a_continued_one_exclude_each_other() -> None:
    assert refusal(PLAIN, UNFINISHED, continue_final_message=True).place == "continue_final_message"


@pytest.mark.parametrize("source", ["a\n{% if %}", "{% for x in y %}", "{{ 'a' | nofilter }}", "{% break %}"])
def test_a_template_that_does_not_compile_is_found_at_start(source: str) -> None:
    with pytest.raises(ConfigError, match="chat template 'tool_use' does not compile"):
        ChatTemplate(TemplateSources(PLAIN, {"tool_use": source})).check()


@pytest.mark.parametrize("name", ["role", "items", "get", "absent", "__class__", "_own", "format", "0"])
def test_what_a_message_has_is_found_as_the_sandbox_finds_it(name: str) -> None:
    message = {"role": "user", "items": "own", "_own": 1, "0": 2}
    environment, sandbox = template("").environment, ImmutableSandboxedEnvironment()

    def found(where: ImmutableSandboxedEnvironment) -> tuple[type, str]:
        value = where.getattr(message, name)
        return type(value), "undefined" if isinstance(value, Undefined) else str(value)

    assert found(environment) == found(sandbox)


def test_what_a_message_has_takes_few_calls() -> None:
    chat, roles = HELLO * 5000, template("{% for m in messages %}{{ m.role }}{% endfor %}")
    roles.render(HELLO)
    assert num_calls(lambda: roles.render(chat)) < 12 * len(chat) + 1000


def test_rendering_changes_no_message() -> None:
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": "Hm", "reasoning": "a", "name": None}]
    template(PLAIN).render(messages, add_generation_prompt=False, continue_final_message=True)
    assert messages == [{"role": "assistant", "content": "Hm", "reasoning": "a", "name": None}]


OVER = RenderLimits(timeout_s=-1.0)


def test_a_rendering_that_waits_for_the_cpu_does_not_take_too_long() -> None:
    slept = ChatTemplate(TemplateSources("{{ sleep(0.3) }}{{ sleep(0) }}"), RenderLimits(timeout_s=0.25))
    assert slept.render(HELLO, kwargs={"sleep": time.sleep}) == "NoneNone"


def test_a_rendering_ends_in_time() -> None:
    template = ChatTemplate(TemplateSources(default="{% for m in messages %}{{ m.content }}{% endfor %}"), OVER)
    with pytest.raises(ClientError, match="takes longer than"):
        template.render([{"role": "user", "content": "a"}])


def test_a_macro_that_says_nothing_ends_in_time() -> None:
    source = "{% macro m(x) %}{% for y in x %}{% set z = range(2) %}{% endfor %}{% endmacro %}{% set t = m(messages) %}"
    with pytest.raises(ClientError, match="takes longer than"):
        ChatTemplate(TemplateSources(default=source), OVER).render([{"role": "user", "content": "a"}])


@pytest.mark.parametrize("constant", ["'a' | center(10 ** 9)", "'a' | indent(10 ** 9, true)", "'a' * 10 ** 7", "1 / 0"])
def test_a_template_is_compiled_without_computing_it(constant: str) -> None:
    """Or what has no end would end the start of a server, and not one chat."""
    compiled = template("{{ " + constant + " }}")
    compiled.check()
    (made,) = compiled._compiled.values()
    assert not any(isinstance(each, str) and len(each) > 100 for each in made.root_render_func.__code__.co_consts)
