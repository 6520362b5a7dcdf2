"""What `ramet doctor` finds, and when it says that serving cannot work."""

import hashlib
import os
import re
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from ramet.kernels.cpu import build, measured
from ramet.kernels.cpu.classes import CLASSES
from ramet.kernels.cpu.measured import MachineLimits, Measured
from ramet.runtime.commands import doctor
from ramet.runtime.config import Args, CacheArgs, ExecArgs, ModelArgs

ROOT = Path(__file__).resolve().parents[3]


def all_installed(name: str) -> str:
    return "1.0"


def nothing_installed(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


def test_a_needed_package_that_is_absent_is_missing_with_the_command_that_installs_it() -> None:
    findings = list(doctor.packages(nothing_installed))
    missing = {f.what: f.remedy for f in findings if f.kind == "missing"}
    assert set(missing) == set(doctor.NEEDED) and set(missing.values()) == {doctor.INSTALL}
    assert {f.what for f in findings if f.kind == "note"} == set(doctor.USEFUL)


def test_what_serving_processes_import_is_asked_for_and_nothing_else() -> None:
    """Packages that the extra `serve` installs."""
    modules = "server.routes", "scheduler.process.start", "text.chat_template", "engine.runner", "metrics"
    program = "import sys\n" + "".join(f"import ramet.runtime.{name}\n" for name in modules) + "print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    of_modules = metadata.packages_distributions()
    imported = {name.lower() for module in printed.split() for name in of_modules.get(module, ())}
    imported = {name.replace("_", "-") for name in imported} | {"llguidance"}  # which a start asks for by its name
    asked = [each for each in metadata.requires("ramet") or () if "extra" not in each or '"serve"' in each]
    assert imported & {re.split(r"[^\w.-]", each)[0].lower() for each in asked} <= {
        *doctor.NEEDED,
        *doctor.USEFUL,
        "triton",
    }
    assert set(doctor.NEEDED) <= imported


def test_every_installed_package_is_shown_with_its_version() -> None:
    text = " ".join(f.found for f in doctor.packages(all_installed))
    assert [n for n in (*doctor.NEEDED, *doctor.USEFUL) if f"{n} 1.0" not in text] == []


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


def test_an_address_of_another_machine_is_missing() -> None:
    finding = doctor.port("192.0.2.1", 0)
    assert finding.kind == "missing" and "cannot listen on 192.0.2.1" in finding.found


def args(**model: str) -> Args:
    return Args(model=ModelArgs(**model))


def test_a_model_folder_without_weights_is_missing(tmp_path: Path) -> None:
    asked = args(model_path=str(tmp_path))
    found = doctor.model(asked).found
    assert [name in found for name in ("config.json", "tokenizer.json", "*.safetensors")] == [True] * 3
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).touch()
    finding = doctor.model(asked)
    assert finding.kind == "missing" and "*.safetensors" in finding.found and "config.json" not in finding.found
    assert doctor.model(args(model_path=str(tmp_path), load_format="dummy")).kind == "ok"
    (tmp_path / "model.safetensors").touch()
    assert doctor.model(asked).kind == "ok"


@pytest.fixture
def quick_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests about something else: the real one takes seconds to take the kernels."""
    monkeypatch.setenv("RAMET_CXX", str(tool(tmp_path, "exit 0")))


@pytest.mark.usefixtures("quick_compiler")
def test_the_variables_that_serve_reads_are_looked_at(tmp_path: Path) -> None:
    env = {"RAMET_MODEL_PATH": str(tmp_path / "gone"), "RAMET_PORT": "0", "RAMET_HOST": "localhost"}
    found = {f.what: f for f in doctor.examine(env, deep=False)}
    assert found["model"].kind == "missing" and str(tmp_path / "gone") in found["model"].found
    assert "localhost" in found["port 0"].found


@pytest.mark.usefixtures("quick_compiler")
def test_a_wrong_variable_is_missing_and_the_rest_is_still_examined() -> None:
    found = {f.what: f for f in doctor.examine({"RAMET_PORT": "many"}, deep=False)}
    assert found["options"].kind == "missing" and "RAMET_PORT is 'many'" in found["options"].found
    assert found["bundled model"].kind == "ok"


def tool(folder: Path, script: str) -> Path:
    path = folder / "mycc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_compiler_is_the_one_that_the_kernels_are_built_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tool(tmp_path, "exit 0")
    monkeypatch.setenv("RAMET_CXX", str(path))
    assert doctor.compiler() == doctor.Finding("ok", "c++ compiler", f"{path}, takes the kernels")
    monkeypatch.setenv("RAMET_CXX", "/nowhere/g++")
    monkeypatch.setenv("CXX", str(path))  # which build.py does not read
    finding = doctor.compiler()
    assert finding.kind == "note" and "none of /nowhere/g++" in finding.found


def test_a_compiler_that_refuses_the_kernels_is_a_note_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "vector.h:1: error: use of undeclared identifier"
    monkeypatch.setenv("RAMET_CXX", str(tool(tmp_path, f"echo '{words}' >&2; exit 1")))
    finding = doctor.compiler()
    assert finding.kind == "note" and words in finding.found and "g++" in finding.remedy


@pytest.mark.usefixtures("quick_compiler")
def test_examining_loads_no_torch() -> None:
    script = "import sys; from ramet.runtime.commands.doctor import main; main([], {}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.usefixtures("quick_compiler")
def test_anything_missing_makes_the_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "NEEDED", (*doctor.NEEDED, "no-such-package-anywhere"))
    assert doctor.main([], {}) == 1
    assert "serving cannot work: no-such-package-anywhere" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("found", "torch", "triton", "lacking"),
    [
        ("NVIDIA H100, 81559 MiB, 580.1, 9.0", "2.13.0", "3.9.0", ""),
        ("NVIDIA A100, 81559 MiB, 580.1, 8.0; NVIDIA V100, 16384 MiB, 580.1, 7.0", "2.13.0+cu130", "3.6.0", ""),
        ("NVIDIA V100, 16384 MiB, 580.1, 7.0", "2.13.0", "3.9.0", "its compute capability is 7.0"),
        ("NVIDIA H100, 81559 MiB, 580.1, 9.0", "2.13.0+cpu", "3.9.0", "torch 2.13.0+cpu was built without CUDA"),
        ("NVIDIA H100, 81559 MiB, 580.1, [N/A]", "2.13.0", "3.9.0", "its compute capability is [N/A]"),
        ("NVIDIA H100, 81559 MiB, 580.1, 9.0", "", "", "torch "),
        ("NVIDIA H100, 81559 MiB, 580.1, 9.0", "2.13.0", "", "the kernels of a GPU need the package triton"),
    ],
)
def test_a_card_is_chosen_where_a_start_takes_it(found: str, torch: str, triton: str, lacking: str) -> None:
    lacks = doctor.lacks_of_cuda(doctor.Finding("ok", "gpu", found), torch, triton)
    assert lacks[0].startswith(lacking) and bool(lacks[0]) == bool(lacks[1]) == bool(lacking)
    chosen = doctor.choice(Args(), lacks, has_card=True)
    device = "cpu" if lacking else "cuda"
    assert chosen.found.startswith(f"--device {device} --attention-backend {'cpu' if lacking else 'triton'}")
    assert (chosen.kind, lacking in chosen.found) == ("note" if lacking else "ok", True)


NO_DRIVER = doctor.lacks_of_cuda(doctor.Finding("note", "gpu", ""), "2.13.0", "3.9.0")


def test_what_a_start_refuses_is_missing() -> None:
    on_gpu = Args(execute=ExecArgs(device="cuda"), cache=CacheArgs(kv_cache_dtype="int8"))
    refused = doctor.choice(on_gpu, NO_DRIVER, has_card=False)
    assert (refused.kind, refused.what, refused.found) == ("missing", "--device cuda", "no NVIDIA driver was seen here")
    found = doctor.choice(on_gpu, ("", ""), has_card=True).found
    assert "--attention-backend reference --kv-cache-dtype int8" in found
    old = doctor.lacks_of_cuda(doctor.Finding("ok", "gpu", "V100, 16384 MiB, 580.1, 7.0"), "2.13.0", "3.9.0")
    assert doctor.choice(Args(execute=ExecArgs(device="cuda")), old, has_card=True).kind == "note"
    for backend in ("triton", "flashinfer"):
        asked = Args(execute=ExecArgs(attention_backend=backend))
        assert doctor.choice(asked, NO_DRIVER, has_card=False).kind == "missing"
        assert doctor.choice(asked, ("", ""), has_card=True).kind == "ok"


def test_this_machine_can_serve(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main([], {}) == 0
    assert "ready: `ramet serve` will work" in capsys.readouterr().out


def test_what_the_cpu_was_measured_to_do_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    unknown = doctor.speed(3, has_kernels=True)
    assert unknown.kind == "note" and "not yet for 3 threads" in unknown.found and "doctor --measure" in unknown.remedy
    assert doctor.speed(1, has_kernels=True).found == "not yet for 1 thread"
    measured.write(Measured(MachineLimits(3, 2e10, 1e11, 0.0, 0.0), {"float32": [1.0, 1.0, 1.0, 1.0]}))
    found = doctor.speed(3, has_kernels=True).found
    assert found.startswith("20.0 GB/s read, 100 Gflop/s in float32 on 3 threads")


@pytest.mark.parametrize("again", [False, True])
def test_without_kernels_nothing_is_measured_and_nobody_is_told_to(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("RAMET_CXX", "/nowhere/g++")
    monkeypatch.setattr(build, "BUILT", tmp_path)
    found = {f.what: f for f in doctor.examine({"RAMET_QUANTIZATION": "int8"}, deep=False, again=again)}
    assert found["cpu measured"].found == "nothing: only our kernels are measured"
    assert "int8 layers" not in found and not any("--measure" in f.remedy for f in found.values())


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache has kernels, of a compiler that would say when it is called."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "BUILT", tmp_path / "no wheel")
    compiler = tool(tmp_path, f"touch {tmp_path}/called")
    monkeypatch.setenv("RAMET_CXX", str(compiler))
    library = build.cache_folder() / f"kernels-{build.cache_key(compiler)}.so"
    content = b"not to be loaded"
    library.write_bytes(content + hashlib.sha256(content).digest())
    library.chmod(0o700)
    return library


def test_kernels_that_are_compiled_are_named_and_no_compiler_is_tried(kept: Path) -> None:
    assert list(doctor.kernels()) == [doctor.Finding("ok", "cpu kernels", "already compiled for this CPU")]
    assert not (kept.parents[2] / "called").exists()


def test_kernels_that_are_still_to_be_compiled_are_announced(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.unlink()
    compiler, kernels = doctor.kernels()
    assert compiler.what == "c++ compiler" and compiler.kind == "ok" and (kept.parents[2] / "called").exists()
    assert kernels.kind == "ok" and "not compiled yet: the first start does it for this CPU" in kernels.found
    monkeypatch.setattr(build, "class_asked_for", lambda features: CLASSES[0])
    assert f"for CPUs with {CLASSES[0].name}" in list(doctor.kernels())[-1].found
    kept.parent.chmod(0o777)  # others may write to it
    kernels = list(doctor.kernels())[-1]
    assert kernels.kind == "note" and "by every start" in kernels.found and "XDG_CACHE_HOME" in kernels.remedy


@pytest.mark.usefixtures("kept")
def test_threads_are_those_of_the_cores_that_the_model_has() -> None:
    core = min(os.sched_getaffinity(0))
    found = {f.what: f for f in doctor.examine({"RAMET_CPU_AFFINITY": str(core)}, deep=False)}
    assert found["cpu measured"].found == "not yet for 1 thread"
    wrong = {f.what: f for f in doctor.examine({"RAMET_CPU_AFFINITY": "4096"}, deep=False)}
    assert wrong["placement"].kind == "missing" and "cpu measured" in wrong


def test_instructions_that_decide_how_fast_bytes_are_multiplied_are_named() -> None:
    finding = doctor.cpu(frozenset({"avx2", "avx512_vnni", "amx_bf16", "amx_int8", "sse2"}), 1)
    assert finding.found == "1 core usable, avx2 avx512_vnni amx_bf16 amx_int8"


@pytest.mark.parametrize(
    ("quantization", "kv_cache", "lines"),
    [
        (None, "auto", {}),
        ("int8", "auto", {"int8 layers": "byte products, inputs rounded to 8 bits"}),
        ("awq", "auto", {"awq layers": "byte products, inputs rounded to 8 bits"}),
        ("int8wo", "auto", {"int8wo layers": "float32 products, inputs as they are"}),
        (None, "int8", {"int8 keys, values": "byte products for one or two queries of a head, floats for more"}),
    ],
)
def test_how_quantised_numbers_are_multiplied_is_said(
    quantization: str | None, kv_cache: str, lines: dict[str, str]
) -> None:
    asked = Args(model=ModelArgs(quantization=quantization), cache=CacheArgs(kv_cache_dtype=kv_cache))
    assert {f.what: f.found for f in doctor.quantised(asked)} == lines


def test_float8_is_said_to_need_a_gpu() -> None:
    plain = Args(execute=ExecArgs(attention_backend="reference"), cache=CacheArgs(kv_cache_dtype="fp8"))
    assert not list(doctor.quantised(plain))
    asked = Args(model=ModelArgs(quantization="fp8"), cache=CacheArgs(kv_cache_dtype="fp8"))
    assert [(f.kind, f.found) for f in doctor.quantised(asked)] == [
        ("missing", "--quantization is fp8, for which a CPU has no kernel"),
        ("missing", "--kv-cache-dtype is fp8, for which a CPU has no kernel"),
    ]
