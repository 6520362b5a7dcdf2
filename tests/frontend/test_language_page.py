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
def names() -> Iterator[dict[str, Any]]:
    """What the blocks before have defined. The page's server runs meanwhile."""
    before = list(chosen._default)
    with Live(max_total_tokens=16384) as server:
        yield {"__name__": "page", "URL": server.url}
    chosen._default[:] = before


def test_all_code_of_the_page_is_found():
    assert len(BLOCKS) == PAGE.read_text().count("```python\n") == 20
    assert [code for code, printed in BLOCKS if "print(" in code and not printed] == []


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_prints_what_the_page_says(
    names: dict[str, Any], number: int, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
):
    monkeypatch.chdir(tmp_path)
    code, printed = BLOCKS[number]
    source = str(PAGE)
    exec(compile(code.replace(URL, names["URL"]), source, "exec"), names)
    assert capsys.readouterr().out == printed


def test_the_readme_s_program_prints_what_it_says(names: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    section = (ROOT / "README.md").read_text().split("## Programs\n")[1].split("\n## ")[0]
    ((code, printed),) = BLOCK.findall(section)
    exec(compile(code.replace(URL, names["URL"]), "README.md", "exec"), {})
    assert capsys.readouterr().out == printed
