"""`ramet completion`: bash completes with what it prints; the other shells' scripts name the same."""

import re
import subprocess

import pytest

from ramet.__main__ import BENCHES, COMMANDS, main
from ramet.runtime.commands.completion import SHELLS
from ramet.runtime.flags import OPTIONS

ASK = """
{script}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_ramet
printf '%s\\n' "${{COMPREPLY[@]}}"
complete -p ramet
"""


@pytest.fixture(params=SHELLS)
def script(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", request.param]) == 0
    return capsys.readouterr().out


def proposed(script: str, *words: str) -> list[str]:
    """By bash, for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    asked = ["bash", "--norc", "-c", ASK.format(script=script, words=quoted)]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[-1] == "complete -o bashdefault -o default -F _ramet ramet"
    return [line for line in lines[:-1] if line]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ramet", "se"), ["serve"]),
        (("ramet", "serve", "--sched"), ["--schedule-conservativeness", "--schedule-policy"]),
        (("ramet", "serve", "--dtype", ""), ["float16", "bfloat16", "auto", "float32"]),
        (("ramet", "serve", "--dtype", "=", "bf"), ["bfloat16"]),
        (("ramet", "serve", "--dtype", "="), ["float16", "bfloat16", "auto", "float32"]),
        (("ramet", "serve", "--model-path", "x"), []),  # then bash completes files
        (("ramet", "serve", "--port", "1", "--page-size", ""), ["1", "16", "64"]),
        (("ramet", "chat", "http://127.0.0.1", "--no-hist"), ["--no-history"]),
        (("ramet", "doctor", "--mea"), ["--measure"]),
        (("ramet", "run", "hello", "--top-"), ["--top-k", "--top-p"]),
        (("ramet", "bench", "stal"), ["stalls"]),
        (("ramet", "grammar", ""), ["check"]),
        (("ramet", "completion", ""), ["bash", "zsh", "fish"]),
    ],
)
def test_bash_completes(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: list[str]) -> None:
    main(["completion", "bash"])
    assert sorted(proposed(capsys.readouterr().out, *words)) == sorted(expected)


def test_every_command_and_option_is_in_each_script(script: str) -> None:
    found = set(re.findall(r"[a-z][a-z0-9-]+", script))
    assert {*COMMANDS, *BENCHES, *(option.flag[2:] for option in OPTIONS)} <= found


def test_a_shell_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "csh"]) == 2 and "one of bash, zsh, fish" in capsys.readouterr().err
