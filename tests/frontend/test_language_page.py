"""docs/language.md and the README's program are right: examples run in their order, and print what the page says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live import Live

from ramet.frontend.backends import chosen

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "language.md"
URL = "http://127.0.0.1:30000"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\nprints\n\n```text\n(.*?)```)?", re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text())


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(max_total_tokens=16384) as live:
        yield live


@pytest.fixture(autouse=True)
def default_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was before, after each test."""
    monkeypatch.setattr(chosen, "_default", [])


def test_all_code_of_the_page_is_found():
    assert len(BLOCKS) == PAGE.read_text().count("```python\n") > 20
    assert [code for code, printed in BLOCKS if "print(" in code and not printed] == []


def test_the_examples_print_what_the_page_says(
    server: Live, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In their order, for each goes on from those before."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for code, printed in BLOCKS:
        exec(compile(code.replace(URL, server.url), str(PAGE), "exec"), names)
        assert capsys.readouterr().out == printed, code


def test_the_readme_s_program_prints_what_it_says(server: Live, capsys: pytest.CaptureFixture[str]):
    section = (ROOT / "README.md").read_text().split("## Programs\n")[1].split("\n## ")[0]
    ((code, printed),) = BLOCK.findall(section)
    exec(compile(code.replace(URL, server.url), "README.md", "exec"), {})
    assert capsys.readouterr().out == printed
