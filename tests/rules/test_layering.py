"""The import arrows of docs/architecture.md. A module imports its own level and lower ones, never a higher one."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("ipc", "kernels", "runtime", "frontend", "bench", "ramet")
# what the language knows of ipc
OF_IPC = {
    "ipc/choices.py", "ipc/errors.py", "ipc/params.py", "ipc/loop_thread.py", "ipc/owned.py", "ipc/waits.py",
    "ipc/__init__.py",
}  # fmt: skip
PICKLES = {"runtime/server/http/body_reader.py", "runtime/server/http/body_worker.py"}  # to each other, through a pipe
CONVERTS_PICKLES = "runtime/weights/convert.py"  # the one file that reads some, of weights alone, on command
DOOR = "frontend/backends/inprocess.py"  # the one file of the language that knows the runtime

LEVELS = {  # runtime/...: the first match counts
    "arrays.py": 0, "errors.py": 0, "log.py": 0, "machine.py": 0, "__init__.py": 0, "file_bytes.py": 0,
    "exact_json.py": 0, "access": 0, "workers": 0,
    "gguf": 1, "options": 1, "config.py": 1, "metrics": 1,
    "replies": 2, "media": 2, "text": 2, "intake": 2, "engine_client": 2, "language": 2,
    "cache": 3,
    "attention": 4, "layers": 4, "sampling": 4, "grammar": 4,
    "models": 5, "weights": 5, "lora": 5,
    "engine": 6,
    "scheduler": 7,
    "server": 8,
}  # fmt: skip
TOP = 9  # commands, processes, terminal, llm, flags
SERVER_SEES = (0, 1, 2, 8)


BENCH_SEES = {"runtime/llm.py", "runtime/config.py", "runtime/__init__.py"}
SIMULATIONS = {  # a bench that plays a part of the runtime in its own thread -> what else of the runtime it imports
    "bench/programs/backlog.py": {
        "runtime/scheduler/process/compose.py", "runtime/engine/batch.py", "runtime/engine/scripted.py",
        "runtime/scheduler/process/__init__.py", "runtime/engine/__init__.py",
    },
    "bench/one_thread.py": {
        "runtime/arrays.py", "runtime/text/tokenizer.py", "runtime/grammar/base.py", "runtime/grammar/backends.py",
        "runtime/grammar/compile.py", "runtime/grammar/compiled.py", "runtime/engine/batch.py",
        "runtime/scheduler/process/compose.py", "runtime/text/__init__.py", "runtime/grammar/__init__.py",
        "runtime/engine/__init__.py", "runtime/scheduler/process/__init__.py",
    },
    "bench/programs/queue.py": {
        "runtime/engine/batch.py", "runtime/text/tokenizer.py", "runtime/text/__init__.py",
        "runtime/engine/__init__.py",
    },
    "bench/programs/overhead.py": {
        "runtime/engine/batch.py", "runtime/scheduler/process/start.py", "runtime/text/tokenizer.py",
        "runtime/text/__init__.py", "runtime/engine/__init__.py", "runtime/scheduler/process/__init__.py",
    },
    "bench/kernels/masks.py": {
        "runtime/arrays.py", "runtime/grammar/base.py", "runtime/grammar/backends.py", "runtime/engine/batch.py",
        "runtime/engine/devices/cpu_kernels.py", "runtime/grammar/__init__.py", "runtime/engine/__init__.py",
        "runtime/engine/devices/__init__.py",
    },
    "bench/programs/structured.py": {
        "runtime/arrays.py", "runtime/text/tokenizer.py", "runtime/grammar/base.py", "runtime/engine/batch.py",
        "runtime/scheduler/process/start.py", "runtime/text/__init__.py", "runtime/grammar/__init__.py",
        "runtime/engine/__init__.py", "runtime/scheduler/process/__init__.py",
    },
}  # fmt: skip


@cache
def modules() -> list[Path]:
    return [p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py")) if not p.is_symlink() and not _linked(p)]


def _linked(path: Path) -> bool:
    """ramet/X is a link to X: look at each file once."""
    return any(parent.is_symlink() for parent in path.parents)


@cache
def imports(path: Path) -> set[str]:
    """Dotted names of everything a file imports, lazily or under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names if node.module)
    return found


@cache
def ours(path: Path) -> set[Path]:
    """Files of this repository that a file imports."""
    files = set()
    for name in imports(path):
        if name.startswith("ramet."):
            base = ROOT.joinpath(*name.split(".")[1:])
            files.update(p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file())
    return files


def level(path: Path) -> int:
    inside = path.relative_to(ROOT / "runtime")
    return LEVELS.get(inside.parts[0], TOP)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path):
    room = path.relative_to(ROOT).parts[0]
    seen = {target.relative_to(ROOT).parts[0] for target in ours(path)}
    match room:
        case "ipc":
            assert seen <= {"ipc"}
            foreign = {name.split(".")[0] for name in imports(path)} - set(__import__("sys").stdlib_module_names)
            assert foreign <= {"ramet", "msgspec", "zmq"}, foreign
        case "kernels":
            assert {t for t in ours(path) if not t.is_relative_to(ROOT / "kernels")} <= {ROOT / "ipc" / "folders.py"}
            foreign = {name.split(".")[0] for name in imports(path)} - set(__import__("sys").stdlib_module_names)
            assert foreign <= {"ramet", "torch", "triton", "numpy"}, foreign
        case "runtime":
            assert seen <= {"runtime", "ipc", "kernels"}
            _check_levels(path)
        case "frontend":
            door = str(path.relative_to(ROOT)) == DOOR
            assert seen <= ({"frontend", "ipc", "runtime"} if door else {"frontend", "ipc"})
            inside = {str(t.relative_to(ROOT)) for t in ours(path) if not t.is_relative_to(ROOT / "frontend")}
            assert inside <= {*OF_IPC, *(("runtime/llm.py", "runtime/__init__.py") if door else ())}, inside
        case "bench":
            assert seen <= {"bench", "runtime", "kernels", "ipc", "version.py", "ramet"}
            inside = [t for t in ours(path) if t.is_relative_to(ROOT / "runtime")]
            names = {str(t.relative_to(ROOT)) for t in inside}
            assert names <= BENCH_SEES | SIMULATIONS.get(str(path.relative_to(ROOT)), set()), names


def _check_levels(path: Path) -> None:
    mine = level(path)
    for target in ours(path):
        if not target.is_relative_to(ROOT / "runtime"):
            continue
        theirs = level(target)
        name = f"{path.relative_to(ROOT)} (level {mine}) imports {target.relative_to(ROOT)} (level {theirs})"
        assert theirs <= mine, name
        if mine == 8:
            assert theirs in SERVER_SEES, name


def test_nobody_imports_a_second_copy():
    for path in [*modules(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]:
        tops = {name.split(".")[0] for name in imports(path)}
        assert not tops & {"runtime", "frontend", "ipc", "kernels", "bench"}, path


def test_no_init_holds_code_but_the_public_one():
    for path in modules():
        if path.name == "__init__.py" and path.relative_to(ROOT).parts[0] != "ramet":
            assert not path.read_text().strip(), path


def test_kernels_is_no_package_of_its_own():
    assert not (ROOT / "kernels" / "__init__.py").exists()


def test_no_pickle_but_between_a_server_and_its_body_workers():
    for path in modules():
        tops = {name.split(".")[0] for name in imports(path)}
        if path.relative_to(ROOT).as_posix() in PICKLES:
            tops.remove("pickle")
        assert not tops & {"pickle", "cloudpickle", "dill", "marshal", "shelve", "multiprocessing"}, path
        text = path.read_text()
        assert "send_pyobj" not in text and "recv_pyobj" not in text, path
        if path.relative_to(ROOT).as_posix() == CONVERTS_PICKLES:
            assert text.count("torch.load(") == text.count("weights_only=True, mmap=") == 1
        else:
            assert "torch.load" not in text, path


def test_every_module_says_what_it_decides():
    for path in modules():
        if path.name != "__init__.py":
            doc = ast.get_docstring(ast.parse(path.read_text()))
            assert doc and len(doc) > 20, path


SURFACES = {"native", "openai", "anthropic", "language"}  # each speaks to clients of its own
SHARED = "http"  # what surfaces share


@pytest.mark.parametrize("path", sorted((ROOT / "runtime" / "server").rglob("*.py")), ids=lambda p: p.stem)
def test_a_surface_imports_neither_another_nor_what_composes_them(path: Path):
    server = ROOT / "runtime" / "server"
    room = path.relative_to(server).parts[0]
    seen = {target.relative_to(server).parts[0] for target in ours(path) if target.is_relative_to(server)}
    if room == SHARED:
        assert seen <= {SHARED}
    elif room in SURFACES:
        assert seen <= {SHARED, room}


def package(path: Path) -> str:
    """The folder of a module; one directly in a room stands for itself."""
    inside = path.relative_to(ROOT)
    return str(inside.with_suffix("") if len(inside.parts) <= 2 else inside.parent)


def test_packages_do_not_import_each_other_in_a_circle():
    below: dict[str, set[str]] = {}
    for path in modules():
        seen = {package(target) for target in ours(path) if target.name != "__init__.py"}
        below.setdefault(package(path), set()).update(seen - {package(path)})
    while free := {name for name, seen in below.items() if not seen & below.keys()}:
        below = {name: seen for name, seen in below.items() if name not in free}
    assert not below, f"a circle runs through {', '.join(sorted(below))}"
