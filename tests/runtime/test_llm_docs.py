"""The examples of docs/llm.md run, from the first to the last."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "llm.md"


def test_every_example_runs(capsys: pytest.CaptureFixture[str]):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 8
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "llm_examples"})
    printed = capsys.readouterr().out
    assert "Lima" in printed and "Paris" in printed and "sampling_params.top_p" in printed
