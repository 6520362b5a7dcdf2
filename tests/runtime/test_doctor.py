"""What `ramet doctor` finds, and when it says that serving cannot work."""

import socket
from importlib import metadata
from pathlib import Path

import pytest

from ramet.runtime import doctor


def all_installed(name: str) -> str:
    return "1.0"


def nothing_installed(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


def test_a_needed_package_that_is_absent_is_missing_with_the_command_that_installs_it() -> None:
    findings = list(doctor.packages(nothing_installed))
    missing = {f.what: f.remedy for f in findings if f.kind == "missing"}
    assert set(missing) == set(doctor.NEEDED) and set(missing.values()) == {doctor.INSTALL}
    assert {f.what for f in findings if f.kind == "note"} == set(doctor.USEFUL)


def test_every_installed_package_is_shown_with_its_version() -> None:
    text = " ".join(f.found for f in doctor.packages(all_installed))
    assert [n for n in (*doctor.NEEDED, *doctor.USEFUL) if f"{n} 1.0" not in text] == []


def groups(root: Path, available_kib: int, files: dict[str, str]) -> Path:
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 4096 * 1024),
        ({"memory.max": "max\n", "memory.current": "7\n"}, 4096 * 1024),
        ({"memory.max": "1000000\n", "memory.current": "400000\n"}, 600_000),
        ({"memory/memory.limit_in_bytes": "500\n", "memory/memory.usage_in_bytes": "900\n"}, 0),
    ],
)
def test_a_containers_limit_counts_where_it_is_smaller(tmp_path: Path, files: dict[str, str], available: int) -> None:
    assert doctor.available_memory(groups(tmp_path, 4096, files)) == available


def test_too_little_memory_is_missing() -> None:
    assert doctor.memory(100 << 20).kind == "missing" and doctor.memory(8 << 30).kind == "ok"


def test_a_taken_port_is_a_note_with_a_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        finding = doctor.port("127.0.0.1", number)
        assert finding.kind == "note" and "--port 0" in finding.remedy
    assert doctor.port("127.0.0.1", number).kind == "ok"


def test_a_model_folder_without_weights_is_missing(tmp_path: Path) -> None:
    assert "config.json, tokenizer.json" in doctor.model(tmp_path).found
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).touch()
    assert doctor.model(tmp_path).kind == "missing" and "*.safetensors" in doctor.model(tmp_path).found
    (tmp_path / "model.safetensors").touch()
    assert doctor.model(tmp_path).kind == "ok"


def test_no_compiler_is_a_note_because_torch_alone_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.compiler({}).kind == "note"
    tool = tmp_path / "mycc"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert doctor.compiler({"CXX": "mycc"}).found == str(tool)


def test_anything_missing_makes_the_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "NEEDED", (*doctor.NEEDED, "no-such-package-anywhere"))
    assert doctor.main([], {}) == 1
    assert "serving cannot work: no-such-package-anywhere" in capsys.readouterr().out


def test_this_machine_can_serve(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main([], {}) == 0
    assert "ready: `ramet serve` will work" in capsys.readouterr().out
