"""What docs/structured-output.md says is so: its examples print what it says, and its constraints are kept to.

Whether an output keeps to its constraint is decided here without any grammar backend.
"""

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from jsonschema import Draft202012Validator
from live import Live

from scripts.structured_examples import BEGIN, END, EXAMPLES, PAGE, PERSON, SERVED, Example, ask, placed, question_part

TEXT = PAGE.read_text()
HEAD = TEXT.split(BEGIN)[0]
URL = "http://127.0.0.1:30000"


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(**dict(zip((flag[2:] for flag in SERVED[::2]), SERVED[1::2], strict=True))) as live:
        yield live


def blocks(language: str) -> list[tuple[str, str]]:
    """(example, what the page says that it prints) of each block that a block of text follows."""
    return re.findall(rf"```{language}\n((?:(?!```).)*)```\n\nprints\n\n```text\n(.*?)```", HEAD, re.DOTALL)


def test_every_block_of_code_says_what_it_prints():
    assert len(blocks("python")) == HEAD.count("```python\n") == 6
    assert len(blocks("sh")) == HEAD.count("```sh\n") - 1 == 3  # `ramet grammar check` prints more than the page shows


@pytest.mark.parametrize("example", range(6))
def test_the_page_s_python_prints_what_it_says(server: Live, capsys: pytest.CaptureFixture[str], example: int):
    code, printed = blocks("python")[example]
    exec(compile(code.replace(URL, server.url), str(PAGE), "exec"), {"__name__": "structured_examples"})
    assert capsys.readouterr().out == printed


def test_the_page_s_curl_is_answered_as_it_says(server: Live):
    for command, printed in blocks("sh"):
        path = re.search(rf"{re.escape(URL)}(/\S+)", command)
        body = re.search(r"-d '(.*)'", command, re.DOTALL)
        assert path and body
        reply = requests.post(server.url + path[1], data=body[1].encode(), timeout=60)
        parts = printed.strip().split("...")
        assert re.fullmatch(".*".join(map(re.escape, parts)) + r"\s*", reply.text, re.DOTALL)


def test_ramet_grammar_check_prints_what_the_page_shows(tmp_path: Path):
    shown = re.search(
        r"```json\n([^`]*)```\n\nthe command\n\n"
        r"```sh\n\.venv/bin/ramet (grammar check .*)\n```\n\nprints among other lines\n\n```text\n(.*?)```",
        HEAD,
        re.DOTALL,
    )
    assert shown is not None
    assert json.loads(shown[1]) == PERSON
    (tmp_path / "person.json").write_text(shown[1])
    command = [sys.executable, "-m", "ramet", *shlex.split(shown[2])]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and shown[3] in ran.stdout, ran.stdout + ran.stderr


def test_the_page_has_the_script_s_questions_and_constraints():
    answers = TEXT.split(BEGIN)[1].split(END)[0]
    shown = [f"### {part}" for part in answers.split("\n### ")[1:]]
    assert len(shown) == len(EXAMPLES)
    for part, example in zip(shown, EXAMPLES, strict=True):
        assert part.startswith(question_part(example))
        assert (example.note == "") == part.rstrip().endswith("```")
        assert " ".join(part.split()).endswith(" ".join(example.note.split()))


def test_answers_are_placed_between_the_markers_and_nowhere_else():
    again = placed(placed(TEXT, "### New"), TEXT.split(BEGIN)[1].split(END)[0].strip("\n") + "\n")
    assert again == TEXT


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_an_answer_keeps_to_its_constraint(server: Live, example: Example):
    answer = ask(server.url, example, True)
    assert answer.finish_reason in ("stop", "tool_calls")
    assert keeps(example.constraint, answer.text), answer.text
    assert answer.num_steps <= answer.num_tokens
    parts = (f"### {part}" for part in TEXT.split(BEGIN)[1].split("\n### ")[1:])
    (part,) = (part for part in parts if part.startswith(question_part(example)))
    if answer.text in part:  # it may differ from processor to processor
        steps = f"{answer.num_steps} model step" + ("s" if answer.num_steps > 1 else "")
        assert f"With it ({answer.num_tokens} tokens, {steps}, " in part


def keeps(constraint: dict[str, Any], text: str) -> bool:
    match constraint:
        case {"regex": pattern}:
            return re.fullmatch(pattern, text) is not None
        case {"structured_outputs": {"choice": choices}}:
            return text in choices
        case {"structured_outputs": {"json": schema, "whitespace_pattern": r"\s*"}}:
            return is_valid(schema, text)
        case {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}:
            return is_valid(schema, text) and json.dumps(json.loads(text)) == text
        case {"response_format": {"type": "json_object"}}:
            return isinstance(json.loads(text), dict)
        case {"ebnf": _}:
            left, _, right = text.partition(" = ")
            return is_sum(ast.parse(left, mode="eval").body, left) and re.fullmatch("[0-9]+", right) is not None
        case {"structural_tag": _}:
            found = re.fullmatch("<person>(.*)</person>", text)
            return found is not None and is_valid(PERSON, found[1])
        case {"tool_choice": "required"}:
            found = re.fullmatch(r"get_weather\((.*)\)", text)
            return found is not None and [*json.loads(found[1])] == ["city"]
    raise AssertionError(f"no check for {constraint}")


def is_valid(schema: dict[str, Any], text: str) -> bool:
    return Draft202012Validator(schema).is_valid(json.loads(text))


def is_sum(node: ast.expr, text: str) -> bool:
    """Of two terms or more, with single spaces around each +."""
    numbers = all(isinstance(each, ast.BinOp | ast.Add | ast.Constant) for each in ast.walk(node))
    return isinstance(node, ast.BinOp) and numbers and re.fullmatch(r"[0-9()]+( \+ [0-9()]+)+", text) is not None
