"""`ramet run` as somebody types it: real processes and the bundled model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from ramet.__main__ import main

GREEDY = ("--temperature", "0", "--max-new-tokens", "8", "--ignore-eos")


def run(*argv: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAMET_")}
    command = [sys.executable, "-m", "ramet", "run", *argv]
    return subprocess.run(command, env=clean, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def run_here(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """The same in this process, where torch is loaded already: exit code, stdout, stderr."""
    code = main(["run", *argv])
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def answered() -> "subprocess.CompletedProcess[str]":
    return run("Once upon a time", *GREEDY)


def test_the_answer_is_on_stdout_and_its_usage_on_stderr(answered: "subprocess.CompletedProcess[str]"):
    assert answered.returncode == 0, answered.stderr
    assert len(answered.stdout.strip()) > 4 and answered.stdout.endswith("\n") and "tokens" not in answered.stdout
    assert "8 new tokens" in answered.stderr and "finish: length" in answered.stderr
    assert len(answered.stderr.splitlines()) == 1


def test_a_dash_reads_the_prompt_from_stdin(answered: "subprocess.CompletedProcess[str]"):
    piped = run("-", *GREEDY, stdin="Once upon a time\n")  # as echo writes it
    assert (piped.returncode, piped.stdout) == (0, answered.stdout)


def test_a_picture_without_a_model_is_answered_by_the_bundled_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = Image.new("RGB", (300, 200), "white")
    pen = ImageDraw.Draw(picture)
    pen.ellipse((30, 60, 110, 140), fill="red")
    pen.rectangle((180, 50, 260, 130), fill="blue")
    picture.save(tmp_path / "two.png")
    asked = ("--image", str(tmp_path / "two.png"), "What colour is the circle?", "--temperature", "0")
    assert run_here(capsys, *asked)[:2] == (0, "red\n")


def test_a_picture_that_cannot_be_used_is_named_by_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    Image.new("RGB", (8, 8)).save(good)
    bad.write_bytes(b"%PDF-1.7")
    code, _, err = run_here(capsys, "--image", str(good), "--image", str(bad), "What is it?")
    assert code == 2 and f"--image {bad} is no picture that is read, but PDF" in err


def test_a_stop_string_is_not_printed(capsys: pytest.CaptureFixture[str], answered: "subprocess.CompletedProcess[str]"):
    text = answered.stdout.removesuffix("\n")
    code, out, err = run_here(capsys, "Once upon a time", *GREEDY, "--stop", text[3:5])
    assert code == 0 and out == text[: text.index(text[3:5])] + "\n" and "finish: stop" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("hello", "--max-new-tokens", "many"), "--max-new-tokens is 'many', must be an integer"),
        (("hello", "--top-q", "1"), "--top-q"),
        (("-",), "the prompt is empty"),
        (
            ("--image", "https://a.example/b.png", "What is it?"),
            "--image https://a.example/b.png is a URL, must be a file",
        ),
    ],
)
def test_wrong_usage_ends_with_2_and_prints_no_answer(argv: tuple[str, ...], message: str):
    ended = run(*argv)
    assert ended.returncode == 2 and message in ended.stderr and ended.stdout == ""


def test_what_only_the_model_can_refuse_ends_with_2_too():
    ended = run("hello", *GREEDY, "--logit-bias", '{"999999": 1}')
    assert ended.returncode == 2 and "--logit-bias" in ended.stderr and "999999" in ended.stderr
    assert ended.stdout == "" and "Traceback" not in ended.stderr


def test_flags_that_begin_with_no_are_not_negations(
    capsys: pytest.CaptureFixture[str], answered: "subprocess.CompletedProcess[str]"
):
    text = answered.stdout.removesuffix("\n")
    _, out, _ = run_here(capsys, "Once upon a time", *GREEDY, "--stop", text[3:5], "--no-stop-trim")
    assert out == text[: text.index(text[3:5]) + 2] + "\n"


def test_a_logit_processor_is_named_by_its_flag(capsys: pytest.CaptureFixture[str]):
    named = (*GREEDY, "--custom-logit-processor", "allow_tokens", "--custom-params", '{"token_ids": [275]}')
    assert "custom-logit-processor" in run_here(capsys, "Hello", *named)[2]
    code, out, _ = run_here(capsys, "Hello", *named, "--enable-custom-logit-processor")
    assert code == 0 and len(set(out.split())) <= 1
