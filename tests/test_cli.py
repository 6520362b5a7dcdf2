"""The command line as a person meets it: a real process each time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ramet.__main__ import BENCHES, COMMANDS

ROOT = Path(__file__).resolve().parent.parent


def run(*argv: str, module: str = "ramet", **env: str) -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAMET_")}
    command = [sys.executable, "-m", module, *argv]
    return subprocess.run(command, cwd=ROOT, env=clean | env, capture_output=True, text=True, timeout=60, check=False)


def loaded_after(code: str) -> set[str]:
    """Top-level modules of a fresh interpreter that ran `code`."""
    script = f"{code}\nimport sys; print(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0 and all(
        f"  {c} " in done.stdout for c in ("serve", "run", "chat", "bench", "grammar", "doctor", "version")
    )


def test_help_loads_nothing_but_the_standard_library() -> None:
    loaded = loaded_after("from ramet.__main__ import main; main(['-h'])") - loaded_after("")
    assert loaded - sys.stdlib_module_names == {"ramet"}


def test_importing_ramet_loads_nothing_heavy() -> None:
    assert not {"torch", "msgspec", "numpy"} & loaded_after("import ramet; ramet.__version__, dir(ramet)")


def test_bench_serving_does_not_load_torch() -> None:
    assert not {"torch", "transformers"} & loaded_after("import ramet.bench.serving")


WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from ramet.__main__ import main
sys.exit(main({argv!r}))
"""
SERVE_EXTRA = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "prometheus_client",
    "uvloop",
    "prometheus_client",
    "yaml",
)


def without(absent: tuple[str, ...], *argv: str) -> "subprocess.CompletedProcess[str]":
    """A command where some packages are not installed."""
    script = WITHOUT.format(absent=absent, argv=list(argv))
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["run", "hello"], "prometheus_client"),
        (["bench", "serving"], "tokenizers"),
        (["bench", "offline", "--rounds", "1"], "torch"),
    ],
)
def test_without_the_serve_extra_a_command_says_what_to_install(argv: list[str], name: str) -> None:
    done = without(SERVE_EXTRA, *argv)
    assert done.returncode == 1 and done.stdout == ""
    assert f"No module named '{name}" in done.stderr and 'pip install "ramet[serve]"' in done.stderr
    assert done.stderr.startswith(f"ramet: {name} ") and done.stderr.count("\n") == 1, done.stderr


def test_a_chat_with_a_server_needs_no_serve_extra() -> None:
    done = without((*SERVE_EXTRA, "numpy"), "chat", "http://127.0.0.1:1")
    assert done.returncode == 1 and "no answer from http://127.0.0.1:1" in done.stderr


def test_an_import_of_our_own_that_fails_keeps_its_traceback() -> None:
    script = "from ramet.__main__ import guarded\ndef broken(argv): import ramet.nothing\nguarded(broken, [])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" in done.stderr and "ramet.nothing" in done.stderr


def test_public_names_resolve_and_others_do_not() -> None:
    import ramet
    from ramet.runtime.config import Args

    assert ramet.Args is Args
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        ramet.Nonsense  # noqa: B018


@pytest.mark.parametrize("module", ["ramet", "ramet.launch_server"])
def test_print_config_prints_yaml_and_leaves(module: str) -> None:
    command = ["serve"] if module == "ramet" else []
    done = run(*command, "--model-path", "/m", "--print-config", module=module, RAMET_PORT="4", RAMET_PRT="5")
    assert done.returncode == 0 and "RAMET_PRT is not an option; did you mean RAMET_PORT?" in done.stderr
    assert 'model_path: "/m"  # from --model-path' in done.stdout and "port: 4  # from RAMET_PORT" in done.stdout


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["srve"],
            "srve is not a command: one of serve, run, chat, bench, convert, grammar, trace, backends,",
        ),
        (["serve", "--port", "99999"], "--port is '99999', must be an integer in [0, 65535]"),
        (["serve", "--model-path", "/nowhere"], "--model-path /nowhere "),
        (["serve", "--trace-dir", "/proc/x"], "--trace-dir is /proc/x, which cannot be written to"),
        (["serve", "--trace-dir", __file__], f"--trace-dir is {__file__}, which cannot be written to"),
        (["run", "hello", "--temperature", "-1"], "--temperature is -1.0, must be finite and >= 0"),
        (["run", ""], "the prompt is empty"),
        (["run", "hello", "--image", "/nowhere.png"], "--image /nowhere.png cannot be read: No such file or directory"),
        (["bench", "nothing"], "bench nothing is not one of serving, pipeline, offline, against"),
        (["bench", "serving", "--num-prompts", "0"], "must be an integer >= 1"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(argv: list[str], message: str) -> None:
    done = run(*argv)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("command", [["serve"], ["run"], ["chat"], ["bench"], ["bench", "serving"],
                                     ["bench", "pipeline"], ["bench", "offline"], ["bench", "startup"],
                                     ["doctor"]])  # fmt: skip
def test_every_command_has_help(command: list[str]) -> None:
    done = run(*command, "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: ")


def test_the_help_of_bench_has_a_line_for_each() -> None:
    done = run("bench", "--help")
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  ")]
    assert [words[0] for words in lines] == list(BENCHES) and all(
        len(words[1]) > 20 and words[1][0].islower() for words in lines
    )
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_the_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    assert not [command for command in COMMANDS if f"| `.venv/bin/ramet {command}" not in readme]


def test_version_is_the_packages() -> None:
    import ramet as package

    assert run("version").stdout == package.__version__ + "\n"


def test_bench_serving_has_the_fields_own_spelling() -> None:
    done = run("--help", module="ramet.bench_serving")
    assert done.returncode == 0 and "--request-rate" in done.stdout
