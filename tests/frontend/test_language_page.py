"""docs/language.md is right: its examples run in their order, and print what it says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live import Live

from ramet.frontend.backends import chosen

PAGE = Path(__file__).resolve().parents[2] / "docs" / "language.md"
URL = "http://127.0.0.1:30000"
BLOCKS = re.findall(r"```python\n(.*?)```\n(?:\nprints\n\n```text\n(.*?)```)?", PAGE.read_text(), re.DOTALL)


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
