"""`pip install` of the plain package into a fresh environment: the language is there, and nothing heavy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from live import Live

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import importlib.util, sys
import ramet
from ramet import Endpoint, Mock, function, gen, select

assert importlib.util.find_spec("torch") is None and importlib.util.find_spec("numpy") is None

@function
def program(s):
    s += "A question?" + gen("answer", max_tokens=8, temperature=0)
    forks = s.fork(2)
    forks += gen("more", max_tokens=4)
    forks.join()
    s += select("mood", ["good", "bad"])

for backend in (Mock(), Endpoint(sys.argv[1])):
    state = program.run(backend=backend)
    print(len(state["more"]), state["mood"] in ("good", "bad"), isinstance(state["answer"], str))
exec("from ramet import *")
try:
    LLM()
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of an environment that has the package without extras."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    fresh = str(folder / "venv" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", fresh, "--disable-pip-version-check", "install", "-q"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(ROOT)], check=True)
    return fresh


def test_the_plain_package_runs_programs_against_a_server_without_torch(python: str, tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with Live() as server:
        done = subprocess.run(
            [python, "-c", PROGRAM, server.url], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["2 True True"] * 2
    assert 'pip install "ramet[serve]"' in done.stdout.splitlines()[2], done.stdout


def test_the_package_has_every_file_of_the_page(python: str, tmp_path: Path):
    program = "import json; from ramet.runtime.server.ui.assets import table; print(json.dumps(sorted(table())))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = [python, "-c", program]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    folder = ROOT / "runtime" / "server" / "ui" / "assets"
    there = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert there and json.loads(done.stdout) == there


def test_a_script_beside_the_clone_imports_the_package_and_not_the_clone_s_folder(tmp_path: Path):
    (line,) = (line for line in (ROOT / "scripts" / "install.sh").read_text().splitlines() if '-e ".[serve' in line)
    options = line.partition('-e ".[serve,dev]"')[2].split()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (tmp_path / "ramet").symlink_to(ROOT)
    fresh = str(tmp_path / "venv" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", fresh, "--disable-pip-version-check", "install", "-q", "--no-deps"]
    subprocess.run([*pip, "-e", str(tmp_path / "ramet"), *options], check=True)
    (tmp_path / "script.py").write_text("import ramet; print(ramet.__file__)")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [fresh, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).samefile(ROOT / "ramet" / "__init__.py")
