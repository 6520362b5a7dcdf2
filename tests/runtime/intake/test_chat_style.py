"""How the model writes calls and thoughts: what the options say, or else the template shows."""

import json
from pathlib import Path

import pytest

from ramet.runtime.config import make_args
from ramet.runtime.errors import ConfigError
from ramet.runtime.intake.chat import Style, style_of
from tests.fakes.server import Served, served


@pytest.mark.parametrize("options, style", [
    ({}, Style("hermes", "qwen3", True)),
    ({"chat_template": "llama-3"}, Style("llama3-json", None, True)),
    ({"chat_template": "mistral"}, Style("mistral", None, True)),
    ({"chat_template": "qwen"}, Style("hermes", "qwen3", True)),
    ({"chat_template": "deepseek"}, Style("deepseek", "qwen3", True)),
    ({"chat_template": "gemma"}, Style(None, None, True)),
    ({"chat_template": "chatml", "tool_call_parser": "pythonic"}, Style("pythonic", None, True)),
    ({"reasoning_parser": "none"}, Style("hermes", None, True)),
    ({"tool_call_parser": "gpt-oss", "reasoning_parser": "gpt-oss"}, Style("gpt-oss", "gpt-oss", True)),
    (
        {"tool_call_parser": "none", "reasoning_parser": "deepseek-r1"},
        Style(None, "deepseek-r1", True),
    ),
])  # fmt: skip
def test_options_go_before_what_the_template_shows(options: dict[str, str], style: Style):
    assert style_of(make_args(**options)) == style


@pytest.mark.parametrize("option", ["tool_call_parser", "reasoning_parser", "chat_template"])
def test_a_name_that_nobody_knows_is_refused_with_those_that_are_known(option: str):
    with pytest.raises(ConfigError, match=r"'nobody'.*(hermes|qwen3|chatml)"):
        style_of(make_args(**{option: "nobody"}))


@pytest.mark.parametrize("tools, reasoning", [("gpt-oss", "qwen3"), ("hermes", "gpt-oss")])
def test_what_reads_calls_and_thoughts_at_once_stands_beside_no_other_parser(tools: str, reasoning: str):
    with pytest.raises(ConfigError, match=f"is '{tools}' and --reasoning-parser '{reasoning}', but gpt-oss reads both"):
        style_of(make_args(tool_call_parser=tools, reasoning_parser=reasoning))


def test_a_folder_without_a_template_has_no_chats(tmp_path: Path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    style = style_of(make_args(model_path=str(tmp_path)))
    assert style == Style() and "no chat template" in style.line


def test_the_server_tells_what_the_options_came_to():
    async def check(server: Served) -> None:
        _, info = await server.get("/server_info")
        assert (info["tool_call_parser"], info["reasoning_parser"]) == ("mistral", "none")

    served(check, style=Style("mistral", None, True))
