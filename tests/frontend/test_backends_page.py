"""docs/backends.md is right: its examples run and print what it says, and it names what there is."""

import re
from pathlib import Path
from typing import Any

import pytest

from ramet.frontend.backends.flavors import FLAVORS
from ramet.frontend.backends.http import BUSY, LONGEST_WAIT_S, MAX_CONNECTIONS, TRIES
from ramet.frontend.backends.templates import TEMPLATES
from ramet.frontend.speculation import TRIES as SPECULATED

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "backends.md").read_text()
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\nprints\n\n```text\n(.*?)```)?", re.DOTALL)


def test_the_examples_print_what_the_page_says(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("```python\n") == 2
    names: dict[str, Any] = {"__name__": "page"}
    for code, printed in blocks:
        exec(compile(code, "backends.md", "exec"), names)
        assert capsys.readouterr().out == printed


def test_names_and_numbers_are_those_of_the_code():
    said = " ".join(PAGE.split())
    assert ", ".join(f"`{name}`" for name in TEMPLATES) in said
    for flavor in FLAVORS:
        assert f"`{flavor}`" in said
    assert f"(status {', '.join(map(str, sorted(BUSY)))}) is tried up to {TRIES} times" in said
    assert f"{LONGEST_WAIT_S:g} s at most" in said
    assert f"A backend has {MAX_CONNECTIONS} connections" in said
    assert f"in {SPECULATED} tries" in said
