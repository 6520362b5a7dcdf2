"""`ramet backends`, and the page of the backends: both are made from the records."""

import subprocess
import sys
from pathlib import Path

import pytest

from ramet import Anthropic, Gemini, LiteLLM, Mock, OpenAI, Replay
from ramet.frontend.backends import table
from ramet.frontend.backends.base import Backend
from ramet.frontend.backends.flavors import FLAVORS

ROOT = Path(__file__).resolve().parents[2]


def test_the_command_prints_each_backend():
    ran = subprocess.run([sys.executable, "-m", "ramet", "backends"], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    for name, _ in table.records():
        assert f"{name}\n" in ran.stdout
    assert "  goes on in a turn  yes\n" in ran.stdout


def test_the_command_prints_markdown(capsys: pytest.CaptureFixture[str]):
    assert table.main(["--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list(table.records())) + 2
    assert len({line.count("|") for line in lines}) == 1


def test_other_words_are_refused(capsys: pytest.CaptureFixture[str]):
    assert table.main(["--json"]) == 2
    assert table.main(["--help"]) == 0
    assert "usage: ramet backends" in capsys.readouterr().out


def test_no_backend_of_a_name_is_missing():
    names = " ".join(name for name, _ in table.records())
    for backend in ("Endpoint", "LLM", "OpenAI", "Anthropic", "Gemini", "LiteLLM", "Mock", "Replay", "SGLang"):
        assert backend in names
    for flavor in FLAVORS:
        assert flavor in names.lower()


def test_the_records_are_those_of_the_backends():
    """A row is what an instance has, which is what refuses."""
    records = dict(table.records())
    made: dict[str, Backend] = {
        "OpenAI": OpenAI("gpt-4.1", api_key="k"),
        "OpenAI, models that think": OpenAI("o3", api_key="k"),
        "OpenAI, completion models": OpenAI("davinci-002", api_key="k"),
        "OpenAI(flavor='vllm')": OpenAI("m", base_url="http://127.0.0.1:9/v1", flavor="vllm"),
        "Anthropic, Claude to 4.1": Anthropic("claude-3-5-haiku-latest", api_key="k"),
        "Anthropic, Claude 4.5": Anthropic("claude-haiku-4-5", api_key="k"),
        "Anthropic, Claude 4.6": Anthropic("claude-opus-4-6", api_key="k"),
        "Anthropic, Claude from 4.7": Anthropic("claude-opus-5", api_key="k"),
        "Gemini": Gemini("gemini-2.5-flash", api_key="k"),
        "Mock": Mock(),
        "Replay": Replay([]),
    }
    for name, backend in made.items():
        assert records[name] == backend.capabilities, name
    assert records["LiteLLM"] == LiteLLM.capabilities


def test_all_but_models_of_texts_take_pictures():
    for name, can in table.records():
        assert ("image" in can.media) == can.chat, name
        assert can.media_roles in (None, frozenset({"user"})), name
