"""Which file a chat template is read from, what --chat-template may be, and which tokens a template may name."""

import json
import re
from pathlib import Path

import pytest

from ramet.frontend.backends.templates import TEMPLATES
from ramet.runtime.errors import ConfigError
from ramet.runtime.text.template_files import SYNONYMS, TemplateSources, built_in_names, read_templates

ROOT = Path(__file__).resolve().parents[3]


def folder_with(folder: Path, **files: object) -> Path:
    """A name is a path, "/" spelled "__" and without its ending: a text is a .jinja file, all else is JSON."""
    for name, content in files.items():
        path = folder / (name.replace("__", "/") + (".jinja" if isinstance(content, str) else ".json"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def test_a_folder_without_templates_has_none(tmp_path: Path) -> None:
    assert read_templates(tmp_path) == TemplateSources()
    assert read_templates(tmp_path).of(has_tools=True) is None


@pytest.mark.parametrize(
    ("files", "default", "named"),
    [
        ({"tokenizer_config": {"chat_template": "A"}}, "A", {}),
        ({"tokenizer_config": {"chat_template": "A"}, "chat_template": "B"}, "B", {}),
        ({"chat_template": "B", "additional_chat_templates__tool_use": "C"}, "B", {"tool_use": "C"}),
        ({"chat_template": "B", "additional_chat_templates__default": "C"}, "C", {}),
        ({"tokenizer_config": {"chat_template": "A"}, "additional_chat_templates__rag": "C"}, None, {"rag": "C"}),
        (
            {"tokenizer_config": {"chat_template": [dict(name="default", template="A"), dict(name="t", template="B")]}},
            "A",
            {"t": "B"},
        ),
    ],
)
def test_the_first_file_that_has_templates_counts(
    tmp_path: Path, files: dict, default: str | None, named: dict[str, str]
) -> None:
    found = read_templates(folder_with(tmp_path, **files))
    assert (found.default, found.named) == (default, named)


def test_a_processors_file_counts_last(tmp_path: Path) -> None:
    (tmp_path / "chat_template.json").write_text('{"chat_template": "P"}')
    assert read_templates(tmp_path).default == "P"
    assert read_templates(folder_with(tmp_path, tokenizer_config={"chat_template": "A"})).default == "A"


def test_tools_choose_the_template_that_is_named_for_them() -> None:
    sources = TemplateSources("A", {"tool_use": "B", "rag": "C"})
    assert (sources.of(has_tools=False), sources.of(has_tools=True)) == ("A", "B")
    assert TemplateSources("A", {"rag": "C"}).of(has_tools=True) == "A"
    assert sources.by_name == {"default": "A", "tool_use": "B", "rag": "C"}


def test_override_is_a_file_an_own_name_or_a_built_in_one(tmp_path: Path) -> None:
    own = [dict(name="default", template="A"), dict(name="tool_use", template="B"), dict(name="phi", template="mine")]
    model = folder_with(tmp_path / "model", tokenizer_config={"chat_template": own})
    folder_with(tmp_path, plain="F", inside={"chat_template": "J"})

    def chosen(override: str) -> TemplateSources:
        return read_templates(model, override)

    assert chosen(str(tmp_path / "plain.jinja")) == TemplateSources("F")
    assert chosen(str(tmp_path / "inside.json")) == TemplateSources("J")
    assert chosen("tool_use") == TemplateSources("B")
    assert chosen("default") == TemplateSources("A")  # then also where there are tools
    assert chosen("phi").default == "mine"
    assert "<|im_start|>" in (chosen("chatml").default or "")


@pytest.mark.parametrize("override", ["nonsense", "x" * 5000, "/"])
def test_an_unknown_override_is_answered_with_the_names(tmp_path: Path, override: str) -> None:
    model = folder_with(tmp_path, chat_template="A", additional_chat_templates__rag="B")
    with pytest.raises(
        ConfigError, match=r"\(default, rag\).*chatml, chatml-llava, deepseek, deepseek-v3, .*vicuna_v1.1$"
    ):
        read_templates(model, override)
    with pytest.raises(ConfigError, match="the model has none of its own"):
        read_templates(tmp_path / "nowhere", override)


@pytest.mark.parametrize(
    ("content", "message"),
    [(3, "is a int"), ([3], "lists 3"), ([{"name": "a"}], "not a string"), ({"default": 1}, "not a string")],
)
def test_a_template_of_the_wrong_shape_names_its_file(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"tokenizer_config\.json.* {message}"):
        read_templates(folder_with(tmp_path, tokenizer_config={"chat_template": content}))


def test_a_file_that_holds_no_template_is_named(tmp_path: Path) -> None:
    folder_with(tmp_path, settings={"a": 1})
    with pytest.raises(ConfigError, match=r"settings\.json is JSON without a template"):
        read_templates(tmp_path, str(tmp_path / "settings.json"))
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"chat_template\.jinja cannot be read"):
        read_templates(tmp_path)


def test_special_tokens_are_plain_texts(tmp_path: Path) -> None:
    settings = {
        "bos_token": {"content": "<s>", "special": True},
        "eos_token": "</s>",
        "pad_token": None,
        "add_bos_token": True,
        "image_token": "<img>",
        "extra_special_tokens": {"boi_token": "<boi>", "eoi": {"content": "<eoi>"}},
        "added_tokens_decoder": {},
    }
    expected = {"bos_token": "<s>", "eos_token": "</s>", "image_token": "<img>", "boi_token": "<boi>", "eoi": "<eoi>"}
    model = folder_with(tmp_path, tokenizer_config=settings, special_tokens_map={"eos_token": "<end>"})
    assert read_templates(model).special_tokens == expected
    del settings["added_tokens_decoder"]
    folder_with(tmp_path, tokenizer_config=settings)
    assert read_templates(model).special_tokens == expected | {"eos_token": "<end>"}


@pytest.mark.parametrize("name", sorted(TEMPLATES.keys() - {"default", "claude", "llama-3-instruct-llava"}))
def test_the_names_of_the_language_s_templates_are_names_here(name: str, tmp_path: Path) -> None:
    """But for those of no model that is served so, and one whose pictures llama-3 has no line for."""
    template = read_templates(tmp_path, name).default
    assert template == read_templates(tmp_path, SYNONYMS.get(name, name)).default
    first = TEMPLATES[name].marks["assistant"][0].strip() or "[/INST]"
    assert first.split("assistant")[0].split("CHATBOT")[0] in template


def test_built_in_templates_travel_with_the_package() -> None:
    from setuptools import find_namespace_packages

    assert built_in_names() == [
        "c4ai-command-r", "chatml", "chatml-llava", "deepseek", "gemma", "granite-3-instruct", "llama-2-chat",
        "llama-3", "llama-4", "mistral", "phi", "qwen", "qwen2-vl", "vicuna_v1.1",
    ]  # fmt: skip
    assert "ramet.runtime.text.templates" in find_namespace_packages(str(ROOT), include=["ramet*"])
    assert re.search(r'"\*" = \[.*"\*\.jinja"', (ROOT / "pyproject.toml").read_text())
