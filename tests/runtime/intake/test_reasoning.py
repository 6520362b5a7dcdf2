"""Where a thought begins and ends, and which white space belongs to nobody."""

import pytest

from ramet.runtime.errors import ConfigError
from ramet.runtime.intake.parsers.reasoning import (
    ReasoningParser,
    ReasoningStyle,
    detect_reasoning,
    make_reasoning,
    reasoning_names,
    reasoning_style,
    thought_of,
)


def split(parser: ReasoningParser, *pieces: str) -> tuple[str, str]:
    parts = [parser.push(piece) for piece in pieces] + [parser.close()]
    return "".join(reasoning for reasoning, _ in parts), "".join(content for _, content in parts)


def read(style: str, text: str, prompt_tail: str = "") -> tuple[str, str]:
    whole = split(make_reasoning(style, prompt_tail), text)
    assert split(make_reasoning(style, prompt_tail), *text) == whole
    return whole


def test_white_space_at_the_tags_belongs_to_nobody():
    assert read("qwen3", "\n<think>\n\n two  words\n</think>\n\nThe answer. \n") == ("two  words", "The answer. \n")


@pytest.mark.parametrize("text", ["", " ", "\n\nHi <think>x</think>", "<thin", "<thinking>", " </think>x", "a\n "])
def test_text_without_a_thought_passes_byte_for_byte(text: str):
    assert read("qwen3", text) == ("", text)


def test_thought_opened_by_the_prompt():
    assert read("qwen3", "so</think>yes", "<|im_start|>assistant\n<think>\n") == ("so", "yes")


def test_thought_closed_by_the_prompt():
    assert read("qwen3", "yes", "<think>\n\n</think>\n\n") == ("", "yes")


@pytest.mark.parametrize("text", ["so</think>yes", "<think>so</think>yes", "\n<think>\n<think> so </think> yes"])
def test_deepseek_thinks_whether_or_not_it_says_so(text: str):
    assert read("deepseek-r1", text) == ("so", "yes")


def test_mistral_has_its_own_tags():
    assert read("mistral", "[THINK]a <think> b[/THINK]c") == ("a <think> b", "c")
    assert reasoning_style("mistral").shows_special
    assert not reasoning_style("qwen3").shows_special


def test_thought_that_never_closes_takes_everything():
    assert read("qwen3", "<think>a\n\n</thin") == ("a\n\n</thin", "")


def test_empty_thought():
    assert read("qwen3", "<think>\n\n</think>\n\nyes") == ("", "yes")


def test_tag_that_opens_later_is_content():
    assert read("qwen3", "<think>a</think>b <think>c</think>") == ("a", "b <think>c</think>")


def test_certain_text_is_not_held_back():
    parser = make_reasoning("qwen3", "")
    assert parser.push("<think>so") == ("so", "")
    assert parser.push(" far<") == (" far", "")
    assert parser.push("b>") == ("<b>", "")


def test_endless_white_space_is_not_held_back():
    parser = make_reasoning("qwen3", "<think>")
    parser.push("a")
    assert len(parser.push("\n" * 10_000)[0]) > 9_000
    assert make_reasoning("qwen3", "").push("\n" * 10_000) == ("", "\n" * 10_000)


def test_thinking_until_the_answer():
    parser = make_reasoning("qwen3", "")
    assert parser.thinking
    parser.push("<think>a")
    assert parser.thinking
    parser.push("</think>")
    assert not parser.thinking


def test_styles_are_told_from_templates():
    assert detect_reasoning("{{ '[THINK]' }}") == "mistral"
    assert detect_reasoning("{{- '<think>\\n' }}") == "qwen3"
    assert detect_reasoning("{{ message.content.split('</think>')[-1] }}") == "qwen3"
    assert detect_reasoning("{{ '[THINK]' + message.content.split('</think>')[-1] }}") == "mistral"
    assert detect_reasoning("{{ messages }}") is None


def test_unknown_style_names_the_known_ones():
    with pytest.raises(ConfigError, match="deepseek-r1, gpt-oss, mistral, qwen3"):
        make_reasoning("none", "")


def test_a_style_is_an_entry_of_a_table(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ramet.runtime.intake.parsers.reasoning._STYLES", {"angle": ReasoningStyle("<<", ">>")})
    assert reasoning_names() == ["angle"]
    assert read("angle", "<<a>b>>c") == ("a>b", "c")


@pytest.mark.parametrize("name", ["qwen3", "deepseek-r1", "mistral"])
def test_a_thought_that_the_prompt_closed_is_over(name: str):
    style = reasoning_style(name)
    assert not make_reasoning(name, f"{style.open_tag}\n\n{style.close_tag}\n\n").starts_inside
    assert make_reasoning(name, f"assistant\n{style.open_tag}\n").starts_inside


@pytest.mark.parametrize("name", ["qwen3", "deepseek-r1", "mistral"])
def test_a_turn_that_goes_on_is_where_its_text_says(name: str):
    style = reasoning_style(name)
    assert not make_reasoning(name, "It is", "It is").starts_inside
    assert make_reasoning(name, "so it is", f"{style.open_tag}so it is").starts_inside
    assert not make_reasoning(name, "It is", f"{style.open_tag}so{style.close_tag}It is").starts_inside


@pytest.mark.parametrize(
    ("prompt_tail", "continued", "tags"),
    [
        ("<|assistant|>\n", None, ("<think>", "</think>")),
        ("<|assistant|>\n<think>\n", None, ("", "</think>")),
        ("<|assistant|>\n<think>\n\n</think>\n\n", None, ("", "")),
        ("The answer", "The answer", ("", "")),
        ("<think>Well", "<think>Well", ("", "</think>")),
        ("<|assistant|>\n", "", ("<think>", "</think>")),
    ],
)
def test_which_thought_an_output_may_begin_with(prompt_tail: str, continued: str | None, tags: tuple[str, str]):
    assert thought_of("qwen3", prompt_tail, continued) == tags
