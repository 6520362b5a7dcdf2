"""The bundled model answers through a running server: what the README promises, and the demo model's evaluation."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from live import Live

from ramet.runtime.config import BUNDLED_MODEL
from scripts.demo_model.cases import TARGETS, all_cases
from scripts.demo_model.evaluate import ask, shares

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
EVERY = 4  # of the cases that have a target, in `make test`


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live() as live:
        yield live


def test_the_capital_of_france_is_paris(server: Live):
    params = {"temperature": 0, "max_new_tokens": 16}
    reply = server.generate(text="The capital of France is", sampling_params=params).json()
    assert reply["text"] == " Paris." and reply["meta_info"]["finish_reason"]["type"] == "stop"


def test_a_share_of_the_evaluation_reaches_its_targets(server: Live):
    cases = [case for case in all_cases() if case.row in TARGETS][::EVERY]
    found = shares(cases, ask(server.url, cases))
    assert found.keys() == TARGETS.keys()
    missed = {row: share for row, share in found.items() if share[0] < TARGETS[row] * share[1]}
    assert not missed


@pytest.mark.slow
def test_the_whole_evaluation_passes_in_both_dtypes():
    command = [sys.executable, "-m", "scripts.demo_model", "evaluate", str(BUNDLED_MODEL), "--failures", "3"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def readme_blocks(language: str) -> list[tuple[str, str]]:
    """(example, what the README says that it prints) of each block that a block of text follows."""
    pattern = rf"```{language}\n((?:(?!```).)*)```\n\nprints\n\n```text\n(.*?)```"
    return re.findall(pattern, README, re.DOTALL)


def test_the_readme_s_python_prints_what_the_readme_says(server: Live):
    blocks = readme_blocks("python")
    assert len(blocks) >= 2
    for code, printed in blocks:
        here = code.replace("http://127.0.0.1:30000", server.url)
        ran = subprocess.run([sys.executable, "-c", here], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert (ran.returncode, ran.stdout) == (0, printed), ran.stderr


def test_the_readme_s_curl_is_answered_as_the_readme_says(server: Live):
    ((command, printed),) = readme_blocks("sh")
    path = re.search(r"http://127\.0\.0\.1:30000(/\S+)", command)
    body = re.search(r"-d '(.*)'", command)
    assert path and body
    answer = requests.post(server.url + path.group(1), json=json.loads(body.group(1)), timeout=60)
    assert printed.endswith("...\n") and answer.text.startswith(printed.removesuffix("...\n"))
