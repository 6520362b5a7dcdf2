"""The examples of docs/llm.md run, from the first to the last, and that of docs/language-calls.md."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "llm.md"


def test_every_example_runs(capsys: pytest.CaptureFixture[str]):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 8
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "llm_examples"})
    printed = capsys.readouterr().out
    assert "Lima" in printed and "Paris" in printed and "sampling_params.top_p" in printed


def test_the_example_of_the_languages_calls_runs(capsys: pytest.CaptureFixture[str]):
    text = (DOCS / "language-calls.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(block, "language-calls.md", "exec"), {"__name__": "example"})
    first, _, told = capsys.readouterr().out.partition("\n")
    assert re.match(r" [45] \[[\d.e, -]+\]$", first) and len(told) > 20
