"""Each program of examples/ runs on the bundled model and prints what has the right form; words are the model's."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from effective_lines import effective_lines
from live import Live
from tiny_media import make_llava

from ramet import LLM, Mock

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
FORMS = {
    "essay_judge": r"Clarity: .*\nOriginality: .*\nEvidence: .*\nSummary: .*\nGrade: [ABCD] of( \d\.\d\d){4}\n",
    "tip_suggestion": (
        r"Here are 2 concise tips for staying healthy\.\n1\.[^\n:.]*\.\n2\.[^\n:.]*\.\n"
        r"Tip 1: .*\nTip 2: .*\nIn summary,.*\n"
    ),
    "few_shot_qa": r"(What.*\n|Which.*\n){6}[0-6] of 6 are right\n",
    "react": r"(Question: .*\n(Thought \d: ?.*\nAction \d: (Search|Calculate|Finish)\[.*\]\n(Observation \d: .*\n)?)+\n"
    r"Answer: .*\n\n){2}",
    "tree_of_thought": r"Question: Ben has .*\nAnswer: [-+]?\d+\n",
    "multi_turn_chat": r"(User: .*\nAssistant: .*\n){3}",
    "parallel_documents": r"Where does Omar Novak live\? ?.*\nWhat is the job of Mei Tanaka\? ?.*\n",
    "json_extraction": r"(Person\(name='.*', age=-?\d+, job='.*', city='.*'\) is -?\d+ years old\n){3}",
    "article_analysis": r"About person\nPerson\(.*\)\nIntroduction:.*\n\n"
    r"About weather\nParagraph 1:.*\nParagraph 2:.*\nSummary:.*\n\n",
}
SEEING = {  # on a model that takes pictures
    "image_essay_judge": (
        r'Related: (no|yes\nSummary: [\s\S]*\n\{"summary": "[A-Za-z ,]{1,60}\.", "grade": "[ABCD][+-]?"\})\n'
    ),
}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_total_tokens=16384) as llm:
        yield llm


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(max_total_tokens=16384) as live:
        yield live


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(name: str, *arguments: str) -> str:
    """By the program as users start it."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("name", FORMS)
def test_an_example_prints_its_form(llm: LLM, capsys: pytest.CaptureFixture[str], name: str):
    example(name).main(llm)
    out = capsys.readouterr().out
    assert re.fullmatch(FORMS[name], out), out


def test_parallel_documents_are_read_before_the_questions(capsys: pytest.CaptureFixture[str]):
    mock = Mock([" Oslo\n", " pilot\nQuestion"])
    parallel_documents = example("parallel_documents")
    parallel_documents.main(mock)
    assert capsys.readouterr().out == "Where does Omar Novak live? Oslo\nWhat is the job of Mei Tanaka? pilot\n"
    assert all("".join(parallel_documents.DOCUMENTS) in prompt for prompt, _ in mock.calls)


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*FORMS, *SEEING, "article_analysis_openai"}


def test_an_essay_about_a_picture_is_judged_on_a_server_that_sees(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    [(name, form)] = SEEING.items()
    with Live(model_path=make_llava(tmp_path / "model"), max_total_tokens=8192, dtype="float32") as live:
        for number in range(20):  # weights are random, and so is what they choose
            example(name).main(live.url, essay=f"The sea has {number} waves.")
            out = capsys.readouterr().out
            assert re.fullmatch(form, out), out
            if out.startswith("Related: yes"):
                break
        assert out.startswith("Related: yes")
        shown = printed(name, "--backend", live.url)
    assert re.fullmatch(form, shown), shown


def test_an_example_loads_the_bundled_model_itself():
    assert re.fullmatch(FORMS["multi_turn_chat"], printed("multi_turn_chat"))


@pytest.mark.parametrize("name", FORMS)
def test_an_example_runs_on_a_server(server: Live, capsys: pytest.CaptureFixture[str], name: str):
    example(name).main(server.url)
    out = capsys.readouterr().out
    assert re.fullmatch(FORMS[name], out), out


def test_a_chat_is_the_same_on_a_server_and_in_process(llm: LLM, server: Live, capsys: pytest.CaptureFixture[str]):
    example("multi_turn_chat").main(llm)
    assert printed("multi_turn_chat", "--backend", server.url) == capsys.readouterr().out


def test_the_agent_calls_its_tools(llm: LLM, capsys: pytest.CaptureFixture[str]):
    """At temperature 0 the bundled model calculates and searches, and ends with what it was told."""
    example("react").main(llm)
    out = capsys.readouterr().out
    assert "Observation 1: 42\n" in out and "Observation 1: Ada Silva is a doctor." in out


def test_article_analysis_without_the_language_does_the_same_in_more_lines(
    server: Live, capsys: pytest.CaptureFixture[str]
):
    out = printed("article_analysis_openai", "--backend", server.url)
    assert re.fullmatch(FORMS["article_analysis"], out), out
    ours, theirs = (effective_lines((EXAMPLES / f"article_analysis{end}.py").read_text()) for end in ("", "_openai"))
    with capsys.disabled():
        print(f"\narticle analysis: {ours} lines in the language, {theirs} on the plain interface")
    assert ours < 0.6 * theirs


def test_without_a_server_the_plain_program_says_in_a_line_what_to_start():
    command = [sys.executable, str(EXAMPLES / "article_analysis_openai.py"), "--backend", "http://127.0.0.1:9"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and ran.stdout == ""
    assert re.fullmatch(r"http://127.0.0.1:9 does not answer \(.*\): start `ramet serve`\n", ran.stderr), ran.stderr


def test_lines_are_counted_without_comments_docstrings_and_empty_lines():
    source = (
        '"""Doc\nstring."""\n\n# comment\nx = (1 +\n     2)  # counts\n\n\ndef f():\n    """Doc."""\n    return x\n'
    )
    assert effective_lines(source) == 4
