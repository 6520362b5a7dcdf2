"""`ramet grammar check` as somebody types it: real processes, the bundled tokenizer."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ramet.runtime.commands.grammar_report import marked
from ramet.runtime.grammar.backends import BACKENDS

ROOT = Path(__file__).resolve().parents[3]
OTHERS = [name for name in BACKENDS if name != "llguidance"]
HIDING = """
import sys
sys.modules.update(dict.fromkeys({absent!r}))
from ramet.__main__ import main
sys.exit(main({argv!r}))
"""

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "house": {"enum": ["Gryffindor", "Slytherin"]},
        "age": {"type": "integer"},
    },
    "required": ["name", "house", "age"],
    "additionalProperties": False,
}
HARRY = '{"name": "Harry é", "house": "Gryffindor", "age": 12}'


def started(command: list[str], stdin: str = "", **env: str) -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAMET_")} | {"PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, cwd=ROOT, env=clean | env, input=stdin, capture_output=True, text=True, check=False)


def check(*argv: str, stdin: str = "", **env: str) -> "subprocess.CompletedProcess[str]":
    """Where llguidance is the only backend that is installed."""
    absent = [BACKENDS[name][0] for name in OTHERS]
    script = HIDING.format(absent=absent, argv=["grammar", "check", *argv])
    return started([sys.executable, "-c", script], stdin, **env)


def written(folder: Path, name: str, content: str | dict[str, Any]) -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def reported(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert not done.stderr, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report | {"backends": {verdict["backend"]: verdict for verdict in report["backends"]}}


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("check"), "order.json", SCHEMA)


def test_every_installed_backend_compiles_and_tries_the_same_text(schema: str) -> None:
    done = started([sys.executable, "-m", "ramet", "grammar", "check", schema, "--sample", HARRY, "--json"])
    report = reported(done)
    assert done.returncode == 0 and report["sample"] == HARRY and report["made_by"] is None
    assert set(report["backends"]) == set(BACKENDS)
    for name, verdict in report["backends"].items():
        assert verdict["state"] == "compiles", verdict
        tried, steps = verdict["sample"], verdict["sample"]["steps"]
        assert tried["accepted"] and steps["off"] == len(report["tokens"]) + 1
        assert report["tokens"][:2] == ['{"', "name"]
        assert (steps["ff"] is None) == (name != "llguidance")
        assert steps["retokenize"] < steps["off"] and tried["saved"]["retokenize"] == steps["off"] - steps["retokenize"]


def test_forced_text_is_marked_and_saves_steps(schema: str) -> None:
    done = check(schema, "--sample", HARRY)
    assert done.returncode == 0, done.stderr
    assert '⟦{"name": "⟧Harry é",⟦ "house": "⟧G⟦ryffindor", "age": ⟧12}' in done.stdout
    table = [line.split() for line in done.stdout.splitlines() if line.startswith(("  off ", "  ff ", "  retokenize "))]
    assert [row[0] for row in table] == ["off", "ff", "retokenize"]
    steps = [int(row[1]) for row in table]
    assert [int(row[2]) for row in table] == [steps[0] - each for each in steps]
    assert steps[0] > 2 * steps[1] > 0


def test_without_a_sample_a_short_one_is_made(schema: str) -> None:
    report = reported(check(schema, "--json"))
    made = json.loads(report["sample"])
    assert report["made_by"] == "llguidance" and report["backends"]["llguidance"]["sample"]["accepted"]
    assert len(made["name"]) == 2 and len(report["sample"]) < 60


def test_a_backend_that_is_not_installed_is_told_apart(schema: str) -> None:
    done = check(schema)
    assert done.returncode == 0 and OTHERS
    for name in OTHERS:
        assert f"  {name:<12}not installed: " in done.stdout and f"ramet[{BACKENDS[name][1]}]" in done.stdout


def test_the_backend_that_is_asked_for_decides_the_exit_code(schema: str) -> None:
    assert check(schema, "--grammar-backend", OTHERS[0]).returncode == 1
    assert check(schema, RAMET_GRAMMAR_BACKEND=OTHERS[0]).returncode == 1


def test_a_keyword_that_is_not_enforced_is_named(tmp_path: Path) -> None:
    done = check(written(tmp_path, "bad.json", {"type": "string", "not": {"const": "x"}}))
    assert done.returncode == 1 and "refused" in done.stdout and "'not'" in done.stdout
    assert "sample" not in done.stdout


def test_a_text_that_is_not_allowed_is_refused_where_it_leaves(schema: str) -> None:
    done = check(schema, "--sample", HARRY.replace("Gryffindor", "Gryffonia"))
    assert done.returncode == 1
    assert f'refuses it at character {HARRY.index("indor")}: \'onia", "age": 12}}\'' in done.stdout
    assert 'may follow: \'indor", "age": \'' in done.stdout
    cut = check(schema, "--sample", HARRY[:-1])
    assert "refuses it at its end: more must follow" in cut.stdout and "may follow: '}', '0'" in cut.stdout
    more = check(schema, "--sample", HARRY + " ")
    assert f"refuses it at character {len(HARRY)}: ' '" in more.stdout and "may follow: the end" in more.stdout


FILES: dict[str, tuple[str | dict[str, Any], str, str]] = {  # name -> content, kind, a text that it allows
    "name.regex": ("(Mr|Ms) [A-Z][a-z]+\n", "regex", "Mr Li"),
    "name.txt": ("[0-9]{3}", "regex", "123"),
    "sum.gbnf": ('root ::= [0-9]+ "+" [0-9]+\n', "ebnf", "1+2"),
    "sum.lark": ('start: /[0-9]+/ "+" /[0-9]+/\n', "ebnf", "1+2"),
    "schema.json": ({"type": "boolean"}, "json_schema", "true"),
}


@pytest.mark.parametrize("name", FILES)
def test_the_ending_of_a_file_says_what_it_is(tmp_path: Path, name: str) -> None:
    content, kind, text = FILES[name]
    report = reported(check(written(tmp_path, name, content), "--sample", text, "--json"))
    verdict = report["backends"]["llguidance"]
    assert report["kind"] == kind and verdict["state"] == "compiles" and verdict["sample"]["accepted"], verdict


@pytest.mark.parametrize(
    "content",
    [
        {"type": "structural_tag", "format": {"type": "const_string", "value": "yes"}},
        {"structures": [{"begin": "<f>", "schema": {"type": "boolean"}, "end": "</f>"}], "triggers": ["<f"]},
    ],
)
def test_json_that_is_a_structural_tag_is_known_as_one(tmp_path: Path, content: dict[str, Any]) -> None:
    assert reported(check(written(tmp_path, "tag.json", content), "--json"))["kind"] == "structural_tag"


PATTERNS_OF_ONE_TEXT = [
    {"pattern": rf"{begin}[^\n]{{10}}{end}"} for begin, end in ("ab", "cd", "ef", ("[0-9]", "[a-z]"))
]


def test_why_there_is_no_sample_is_said(tmp_path: Path) -> None:
    done = check(written(tmp_path, "long.regex", "[0-9a-f]{500}"))
    assert done.returncode == 0
    assert "no sample: llguidance found none of at most 400 draws in 1 s; --sample tries one" in done.stdout
    report = reported(check(written(tmp_path, "long.regex", "[0-9a-f]{500}"), "--json"))
    assert report["sample"] is report["made_by"] is None and "400 draws" in report["no_sample"]


def test_a_constraint_that_becomes_too_complex_for_a_text_says_so(tmp_path: Path) -> None:
    file = written(tmp_path, "all.json", {"type": "string", "allOf": PATTERNS_OF_ONE_TEXT})
    made = check(file)
    assert made.returncode == 0 and "no sample: the constraint became too complex: " in made.stdout, made.stderr
    tried = check(file, "--sample", '"' + "ace0" * 20 + '"')
    assert tried.returncode == 1, tried.stderr
    assert "llguidance cannot follow it: the constraint became too complex: " in tried.stdout


def test_kind_and_whitespace_override(tmp_path: Path) -> None:
    file = written(tmp_path, "tag.json", "[0-9]{3}")
    assert reported(check(file, "--kind", "regex", "--json"))["kind"] == "regex"
    pair = written(tmp_path, "pair.json", {"const": {"a": [1, 2]}})
    assert reported(check(pair, "--json"))["sample"] == '{"a": [1, 2]}'
    assert reported(check(pair, "--json-whitespace", "compact", "--json"))["sample"] == '{"a":[1,2]}'


def test_a_constraint_comes_from_stdin() -> None:
    found = reported(check("-", "--kind", "regex", "--json", stdin="[é]{3}\n"))
    assert (found["kind"], found["sample"]) == ("regex", "ééé")


def test_who_reads_only_the_beginning_gets_no_traceback(schema: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ramet", "grammar", "check", schema]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["no-such-file.json"], "no-such-file.json cannot be read"),
        (["README.md"], "has an unknown ending"),
        (["README.md", "--kind", "poem"], "--kind"),
        (["-"], "- is stdin, which needs --kind: "),
        (["LICENSE", "--grammar-backend", "none", "--kind", "regex"], "--grammar-backend is none"),
        (["LICENSE", "--kind", "regex", "--tokenizer-path", "docs"], "has no tokenizer.json"),
        (["LICENSE", "--kind", "regex", "--sample", "a\udcff"], "--sample is not UTF-8 at character 1"),
        (["a.json", "--sampel", "x"], "--sampel is not an option; did you mean --sample?"),
        ([], "file"),
    ],
)
def test_wrong_usage_is_one_line(argv: list[str], named: str) -> None:
    done = check(*argv)
    assert done.returncode == 2 and named in done.stderr and len(done.stderr.splitlines()) == 1
    assert not done.stdout


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_file_is_no_constraint(tmp_path: Path, content: str) -> None:
    file = written(tmp_path, "empty.regex", content)
    done = check(file)
    assert done.returncode == 2 and f"{file} is empty, must hold " in done.stderr and len(done.stderr.splitlines()) == 1
    piped = check("-", "--kind", "json_schema")
    assert piped.returncode == 2 and "- is empty, must hold " in piped.stderr


def test_a_refusal_has_a_subject(tmp_path: Path) -> None:
    grammar, schema = written(tmp_path, "sum.gbnf", "root = 1"), written(tmp_path, "bad.json", {"tpye": "string"})
    assert f"refused: {grammar} has neither a rule " in check(grammar).stdout
    assert f"refused: {schema}# has the unknown keyword " in check(schema).stdout
    assert "refused: stdin# has the unknown keyword " in check("-", "--kind", "json_schema", stdin='{"tpye": 1}').stdout


def test_how_much_more_may_follow_is_said(tmp_path: Path) -> None:
    file = written(tmp_path, "digit.regex", "([0-9a-c])?")
    done = check(file, "--sample", "x")
    assert "may follow: the end, 'a', 'b', 'c', '0', '1', '2', '3', '4' and 5 more tokens\n" in done.stdout
    few = check(written(tmp_path, "few.regex", "[0-7]"), "--sample", "x")
    assert "may follow: '0', '1', '2', '3', '4', '5', '6', '7'\n" in few.stdout


def test_the_literals_of_the_constraint_lead_out_of_free_text(tmp_path: Path) -> None:
    file = written(tmp_path, "end.regex", r"(.|\n)*</answer>")
    assert reported(check(file, "--json"))["sample"] == "</answer>"


def test_the_group_of_commands_says_what_it_has() -> None:
    done = started([sys.executable, "-m", "ramet", "grammar"])
    assert done.returncode == 2 and "grammar check FILE" in done.stdout
    assert started([sys.executable, "-m", "ramet", "grammar", "chekc"]).returncode == 2


def test_marks_stand_around_forced_text() -> None:
    assert marked("a\nbc", ((0, 1), (2, 4))) == "⟦a⟧\\n⟦bc⟧"
    assert marked("", ()) == ""
