"""Which templates are rendered in the tokenizer: each step of them is bounded, or a worker renders the chat."""

from pathlib import Path
from typing import Any

import pytest

from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.text import bounded_rendering
from ramet.runtime.text.bounded_rendering import BoundedTemplate, NotHere, chats_here
from ramet.runtime.text.template_files import TemplateSources, built_in_names, read_templates

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
UNBOUNDED = [
    "{% if false %}{% macro lipsum(n) %}{% endmacro %}{% endif %}{{ lipsum(9) }}", "{% set range = namespace() %}",
    "{{ 'a'.center(9) }}", "{{ 'a' | center(9) }}", "{{ 'a'.zfill(9) }}", "{{ 'a'.ljust(9) }}",
    "{{ '%9d' | format(1) }}", "{{ '{:9}'.format(1) }}", "{{ 'a' | indent(9, true) }}",
    "{{ [1] | tojson(indent=10**9) }}", "{{ 2 ** 9 }}", "{{ [1] | tojson(indent=99) }}",
    "{{ [1] | tojson(indent=wide) }}", "{{ '\t'.expandtabs(9) }}", "{{ range(9) }}", "{% set f = range %}{{ f(9) }}",
    "{% for i in range(9) %}{% endfor %}", "{{ [1] | slice(9) | list }}", "{{ [1] | batch(9) | list }}",
    "{% set a = [messages, messages] %}", "{% set a = {'a': messages} %}", "{% set a = (messages, messages) %}",
    "{{ dict(a=messages) }}", "{{ dict.fromkeys(messages, 'a') }}", "{{ lipsum() }}",
    "{% set n = namespace() %}{% set m = namespace(a=n) %}", "{% set n = namespace() %}{% set n.a = n %}",
    "{% set n = namespace() %}{% set m = n %}", "{% set n = namespace(m) %}",
    "{% set namespace = lipsum %}{{ namespace() }}", "{% for m in messages %}{% set x = loop %}{% endfor %}",
    "{% for m in messages %}{{ loop.cycle(1) }}{% endfor %}",
    "{% for m in messages recursive %}{{ loop(m) }}{% endfor %}",
    "{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1) }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{% endcall %}",
    "{% macro m() %}{% endmacro %}{% set x = m %}", "{{ messages | map('default', 'a') | list }}",
    "{{ messages | map(attribute='a', default='b') | list }}", "{{ messages | map(name) | list }}",
    "{{ messages | select(name) | list }}", "{{ messages | selectattr('a', name) | list }}", "{{ 'a'.strip(text) }}",
    "{{ 'a' | trim(text) }}", "{{ 'a'.rfind(text) }}", "{{ 1.5 | round(9) }}", "{{ strftime_now('%9d') }}",
    "{{ strftime_now(form) }}", "{% include 'a' %}", "{% block a %}{% endblock %}",
    "{% filter upper %}a{% endfilter %}", "{{ messages[0].content.encode() }}", "{{ messages | sort | list }}",
    "{{ messages[0].content.join(messages) }}", "{{ m(*messages) }}", "{{ 'a'.split(**a) }}", "a" * (1 << 16) + "a",
]  # fmt: skip
# each is bounded by what a rendering here may take, and no step of it takes long
MUCH = [
    "{% macro m() %}" + "{{ text.split('a') }}" * 200 + "{% endmacro %}{{ m() }}",
    "{% macro m() %}{% endmacro %}{% set x = text.split('a') %}{{ m(" + "x[1:]," * 200 + ") }}",
    "{{ 1 " + "~ text.upper()" * 200 + " }}", "{{ 1 " + "~ (text | upper)" * 200 + " }}",
    "{% for a in text %}{% for b in text if text[:99] ~ b in text[1:] %}{% endfor %}{% endfor %}",
    "{% set n = namespace(a='a') %}{% for c in text %}{% set n.a = n.a ~ n.a %}{% endfor %}",
    "{% set n = namespace(a='a') %}{% for c in text %}{% set n.a = n.a + n.a %}{% endfor %}",
    "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% set n = namespace(a='a') %}"
    "{% for c in text %}{% set n.a = m(n.a) %}{% endfor %}",
    "{% set n = namespace(a='a') %}{% for c in text %}{% set n.a %}{{ n.a }}{{ n.a }}{% endset %}{% endfor %}",
    "{% for a in text %}{% for b in text %}{% for c in text %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in text %}{% for b in text if b == 'b' %}{% for c in text %}{% endfor %}{% endfor %}"
    "{% for b in text %}{% for c in text %}{% endfor %}{% endfor %}{% endfor %}",
    "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(x) %}{% if x %}{{ m(x[1:]) }}{{ m(x[1:]) }}{% endif %}{% endmacro %}{{ m(text) }}",
    "{{ '\"' " + "| tojson" * 40 + " }}", "{{ 'a' " + "| string | list" * 20 + " }}", "{{ 'a' * 10 }}",
    "{{ [1] * 10 }}", "{{ '%9d' % 1 }}", "{{ [1] + [1] }}", "{{ 3000 * ('a' ~ 'b') }}",
    "{{ 'a'" + ".replace('a', 'aaaaaaaaaa')" * 20 + " }}", "{{ 'a'" + " | replace('a', 'aaaaaaaaaa')" * 20 + " }}",
    "{% set x = text.replace('', text) %}{{ x.replace('', x) }}",
    "{{ text.split('a') | join(text) | replace('a', text) }}",
    "{% for a in text %}{% for b in text %}{{ text }}{% endfor %}{% endfor %}",
]  # fmt: skip


@pytest.mark.parametrize("name", [*built_in_names(), "bundled"])
def test_our_own_templates_are_bounded(name: str) -> None:
    sources = read_templates(BUNDLED_MODEL) if name == "bundled" else read_templates(Path(), name)
    assert chats_here(sources) is not None


@pytest.mark.parametrize("source", UNBOUNDED)
def test_a_template_with_a_step_that_may_take_long_is_not_bounded(source: str) -> None:
    assert chats_here(TemplateSources(source)) is None
    with pytest.raises(NotHere):
        BoundedTemplate(TemplateSources(source)).render(HELLO)


@pytest.mark.parametrize("source", MUCH)
def test_a_bounded_template_that_takes_much_is_left_to_a_worker(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_rendering, "MAX_TEXT", 1 << 14)
    monkeypatch.setattr(bounded_rendering, "MAX_MADE", 1 << 17)
    template = BoundedTemplate(TemplateSources(source))
    assert template.renders_some
    with pytest.raises(NotHere):
        template.render(HELLO, kwargs={"text": "a" * 1000})


def test_a_template_that_is_nested_too_deeply_is_not_bounded() -> None:
    assert chats_here(TemplateSources("{{ " + "-" * 300 + "1 }}")) is None


def test_one_bounded_template_of_two_renders_its_chats_alone() -> None:
    both = BoundedTemplate(TemplateSources("{{ messages[0].content }}", {"tool_use": "{{ range(9) }}"}))
    assert both.render(HELLO) == "Hello"
    with pytest.raises(NotHere):
        both.render(HELLO, [{}])
