"""What docs/clients says is so: each page's Python and curl, run against the server, print what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from live import Live

ROOT = Path(__file__).resolve().parents[2]
PAGES = {page.stem: page.read_text() for page in sorted((ROOT / "docs" / "clients").glob("*.md"))}
PYTHON = ("anthropic", "dspy", "instructor", "langchain", "litellm", "openai")
URL = "http://127.0.0.1:30000"


def blocks(page: str, language: str) -> list[tuple[str, str]]:
    """(example, what the page says that it prints) of each block that a block of text follows."""
    pattern = rf"```{language}\n((?:(?!```).)*)```\n\nprints\n\n```text\n(.*?)```"
    return re.findall(pattern, PAGES[page], re.DOTALL)


def test_every_page_is_tested_and_linked():
    assert PAGES.keys() == {*PYTHON, "README", "curl", "open-webui"}
    assert {f"{page}.md" for page in PAGES if page != "README"} <= set(re.findall(r"\((\S+)\)", PAGES["README"]))


@pytest.mark.parametrize("page", PYTHON)
def test_the_page_s_python_prints_what_it_says(server: Live, page: str):
    ((code, printed),) = blocks(page, "python")
    assert URL in code
    command = [sys.executable, "-W", "ignore", "-c", code.replace(URL, server.url)]
    environment = os.environ | {"DSPY_CACHEDIR": os.environ["DSPY_CACHEDIR"] + "/page"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, printed), ran.stderr


def test_the_page_s_curl_is_answered_as_it_says(server: Live):
    found = blocks("curl", "sh")
    assert len(found) == 2
    for command, printed in found:
        path = re.search(rf"{re.escape(URL)}(/\S+)", command)
        body = re.search(r"-d '(.*)'", command)
        assert path and body
        reply = requests.post(server.url + path.group(1), data=body.group(1), timeout=60)
        parts = printed.strip().split("...")
        assert len(parts) > 2 and re.fullmatch(".*".join(map(re.escape, parts)) + r"\s*", reply.text, re.DOTALL)


def test_open_webui_s_page_names_the_address_that_is_tested():
    assert f"OPENAI_API_BASE_URL={URL}/v1 " in PAGES["open-webui"]
