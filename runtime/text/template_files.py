"""Which chat templates a model folder has, and the special tokens they may name.

Decides which file counts, in the order of transformers 5, and what `--chat-template` stands for. A template is a text
here: its source can be looked at without Jinja. Knows no message.

    chat_template.jinja and additional_chat_templates/NAME.jinja: where there is one of these, nothing below counts
    tokenizer_config.json, "chat_template": a text, or a list of {"name": ..., "template": ...}
    chat_template.json, "chat_template": where processors used to keep it
"""

import json
import os.path
from pathlib import Path
from typing import Any

import msgspec

from ramet.runtime.errors import ConfigError
from ramet.runtime.text.files import read_json

BUILT_IN = Path(__file__).parent / "templates"
SYNONYMS = {  # names that SGLang's servers and programs use -> ours
    "deepseek-v3": "deepseek", "gemma-it": "gemma", "llama-2": "llama-2-chat", "llama-3-instruct": "llama-3",
}  # fmt: skip
DEFAULT, WITH_TOOLS = "default", "tool_use"
MORE_TOKENS = ("extra_special_tokens", "model_specific_special_tokens")  # objects of name: token


class TemplateSources(msgspec.Struct, frozen=True):
    """`named` are all but the default; `special_tokens` are variables of every template, by name."""

    default: str | None = None
    named: dict[str, str] = {}
    special_tokens: dict[str, str] = {}

    def of(self, has_tools: bool) -> str | None:
        """The template of a conversation; None when there is none for it."""
        return self.named.get(WITH_TOOLS, self.default) if has_tools else self.default

    @property
    def by_name(self) -> dict[str, str]:
        return self.named if self.default is None else {DEFAULT: self.default, **self.named}


def read_templates(folder: Path, override: str = "") -> TemplateSources:
    """`override`: a file, or a name; it stands for every conversation, with tools or without. Raises ConfigError."""
    templates, tokens = _own_templates(folder), _special_tokens(folder)
    if override:
        return TemplateSources(_chosen(override, templates), {}, tokens)
    named = {name: source for name, source in templates.items() if name != DEFAULT}
    return TemplateSources(templates.get(DEFAULT), named, tokens)


def built_in_names() -> list[str]:
    return sorted(path.stem for path in BUILT_IN.glob("*.jinja"))


def _own_templates(folder: Path) -> dict[str, str]:
    found = {path.stem: _read_text(path) for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        found.setdefault(DEFAULT, _read_text(alone))
    for name in () if found else ("tokenizer_config.json", "chat_template.json"):
        found = _by_name(read_json(folder / name).get("chat_template"), folder / name)
        if found:
            break
    return found


def _chosen(override: str, own: dict[str, str]) -> str:
    if os.path.isfile(override):  # unlike Path.is_file, False for a name that no file can have
        return _template_in(Path(override))
    if override in own:
        return own[override]
    if (name := SYNONYMS.get(override, override)) in built_in_names():
        return _read_text(BUILT_IN / f"{name}.jinja")
    mine = f"one of the model's own ({', '.join(sorted(own))})" if own else "(the model has none of its own)"
    names = ", ".join(sorted([*built_in_names(), *SYNONYMS]))
    raise ConfigError(f"--chat-template is {override!r}, must be a file, {mine}, or a built-in one: {names}")


def _template_in(path: Path) -> str:
    """A Jinja file, or a JSON file that has the template under "chat_template"."""
    text = _read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    found = _by_name(value.get("chat_template"), path) if isinstance(value, dict) else {}
    if DEFAULT not in found:
        raise ConfigError(f'{path} is JSON without a template, must have one under "chat_template"')
    return found[DEFAULT]


def _by_name(value: Any, path: Path) -> dict[str, str]:
    """The templates in a "chat_template" of a JSON file."""
    match value:
        case None:
            return {}
        case str():
            return {DEFAULT: value}
        case list():
            found = dict(_entry(entry, path) for entry in value)
        case dict():
            found = value
        case _:
            raise ConfigError(f"chat_template in {path} is a {type(value).__name__}, must be a text or a list")
    if not all(isinstance(source, str) for source in found.values()):
        raise ConfigError(f"chat_template in {path} has a template that is not a string")
    return found


def _entry(entry: Any, path: Path) -> tuple[str, Any]:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ConfigError(f'chat_template in {path} lists {entry!r:.80}, must list {{"name": ..., "template": ...}}')
    return entry["name"], entry.get("template")


def _special_tokens(folder: Path) -> dict[str, str]:
    settings = read_json(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in settings:  # an older layout: the map beside it has the last word
        settings = {**settings, **read_json(folder / "special_tokens_map.json")}
    named = {name: value for name, value in settings.items() if name.endswith("_token")}
    for key in MORE_TOKENS:
        more = settings.get(key)
        named.update(more if isinstance(more, dict) else {})
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
