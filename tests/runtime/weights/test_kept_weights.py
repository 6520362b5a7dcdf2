"""Packed weights that are kept: mapped by the next start, made again when they do not fit or are damaged, bounded."""

import logging
import os
import resource
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from compiled import compiled_kernels
from tiny_families import make_family
from tiny_model import make_tiny

from ramet.kernels.cpu.weight_file import Damaged, is_on_huge_pages, mapped, read, write
from ramet.runtime.config import Args, CacheArgs, ExecArgs, ModelArgs, ScheduleArgs
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.engine.startup import padding_batch
from ramet.runtime.weights import ahead, kept


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where weights are kept, those of tiny models as well."""
    compiled_kernels()
    monkeypatch.setattr(kept, "MIN_BYTES", 0)
    return tmp_path / "cache"


def start(model: Path, folder: Path, **options: Any) -> ModelRunner:
    options = {"weights_cache_dir": str(folder), "context_length": 64} | options
    args = Args(
        model=ModelArgs(model_path=str(model), **options),
        cache=CacheArgs(max_total_tokens=256),
        schedule=ScheduleArgs(max_running_requests=2, random_seed=0),
        execute=ExecArgs(num_threads=2),
    )
    runner = ModelRunner(args, lambda name, seconds: None)
    runner.close()  # weights are kept behind the start
    return runner


def logits(runner: ModelRunner) -> torch.Tensor:
    batch: Batch = padding_batch(0, 5)
    drawn = runner.forward(batch).drawn()
    assert drawn is not None
    return drawn


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix != ahead.NOTE)


@pytest.mark.parametrize("quantization", [None, "int8", "int8wo", "int4"])
@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen2", "deepseek-v3"])
def test_the_next_start_computes_the_same_from_the_file_alone(
    family: str, quantization: str | None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_tiny(tmp_path / "model") if family == "llama" else make_family(tmp_path / "model", family)
    first = logits(start(model, folder, quantization=quantization))
    (written,) = files(folder)
    changed = written.stat().st_mtime_ns
    monkeypatch.setattr("ramet.runtime.engine.startup.load_weights", None)  # it would fail
    assert torch.equal(first, logits(start(model, folder, quantization=quantization)))
    assert files(folder) == [written] and written.stat().st_mtime_ns > changed  # when it was used last
    assert written.stat().st_mode & 0o077 == 0 and folder.stat().st_mode & 0o077 == 0


def test_the_start_that_keeps_weights_does_not_say_that_an_earlier_one_has(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, said = make_tiny(tmp_path / "model"), []
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.INFO, "ramet"):
            start(model, folder)
        said.append([line.partition(":")[0] for line in caplog.messages if "packed" in line])
    assert said == [["packed weights are kept for the next start"], ["weights as an earlier start has packed them"]]


def test_another_dtype_quantization_or_checkpoint_is_another_file(folder: Path, tmp_path: Path) -> None:
    model = make_tiny(tmp_path / "model")
    for number, options in enumerate(({}, {"dtype": "bfloat16"}, {"quantization": "int8"}), 1):
        start(model, folder, **options)
        assert len(files(folder)) == number
    os.utime(model / "model.safetensors", ns=(1, 1))
    start(model, folder)
    assert len(files(folder)) == 4


@pytest.mark.parametrize("options", [{"load_format": "dummy"}, {"weights_cache_gb": 0.0}], ids=str)
def test_nothing_is_kept_of_random_weights_or_when_it_is_off(
    options: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    start(make_tiny(tmp_path / "model"), folder, **options)
    assert not folder.exists()


def test_small_models_are_not_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    start(make_tiny(tmp_path / "model"), folder)
    assert files(folder) == []


def damaged_tail(data: bytearray) -> bytearray:
    data[-70] ^= 1
    return data


def damaged_header(data: bytearray) -> bytearray:
    data[40] ^= 1
    return data


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "bytes instead of"),
        (lambda data: data[:10], "does not begin"),
        (lambda data: bytearray(), "does not begin"),
        (damaged_header, "header"),
        (damaged_tail, "is not as it was written"),
    ],
    ids=["cut", "short", "empty", "header", "tensor"],
)
def test_a_damaged_file_is_made_again_and_the_log_says_why(
    damage: Any, said: str, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_tiny(tmp_path / "model")
    first = logits(start(model, folder))
    (path,) = files(folder)
    whole = path.read_bytes()
    path.write_bytes(damage(bytearray(whole)))
    with caplog.at_level(logging.WARNING, "ramet"):
        assert torch.equal(first, logits(start(model, folder)))
    assert said in caplog.text and path.read_bytes() == whole


def test_a_file_or_folder_that_others_may_write_to_is_not_used(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_tiny(tmp_path / "model")
    start(model, folder)
    (path,) = files(folder)
    path.chmod(0o622)
    with caplog.at_level(logging.WARNING, "ramet"):
        start(model, folder)
    assert "others may write to it" in caplog.text and path.stat().st_mode & 0o777 == 0o600
    folder.chmod(0o777)
    path.unlink()
    start(model, folder)
    assert files(folder) == [] and "packed weights are not kept" in caplog.text


def test_a_disk_that_takes_no_more_costs_only_the_file(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_tiny(tmp_path / "model")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with caplog.at_level(logging.WARNING, "ramet"):
            runner = start(model, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert files(folder) == [] and "packed weights are not kept" in caplog.text
    assert torch.equal(logits(runner), logits(start(model, folder)))


def test_the_files_used_longest_ago_go_first(folder: Path, tmp_path: Path) -> None:
    model = make_tiny(tmp_path / "model")
    start(model, folder)
    size = files(folder)[0].stat().st_size
    most_gb = 2.5 * size / kept.GIB
    oldest = files(folder)[0]
    os.utime(oldest, ns=(1, 1))
    start(model, folder, json_model_override_args='{"rope_theta": 4000.0}', weights_cache_gb=most_gb)
    newer = next(path for path in files(folder) if path != oldest)
    os.utime(newer, ns=(2, 2))
    start(model, folder, weights_cache_gb=most_gb)  # the oldest is used: now it is the newest
    start(model, folder, json_model_override_args='{"rope_theta": 5000.0}', weights_cache_gb=most_gb)
    assert len(files(folder)) == 2 and oldest in files(folder) and newer not in files(folder)


def test_a_model_larger_than_all_that_may_be_kept_removes_nothing(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_tiny(tmp_path / "model")
    start(model, folder, quantization="int8")
    with caplog.at_level(logging.INFO, "ramet"):
        start(model, folder, weights_cache_gb=1e-6)
    assert len(files(folder)) == 1 and "more than --weights-cache-gb" in caplog.text


def test_two_starts_at_once_leave_one_file(folder: Path, tmp_path: Path) -> None:
    model = make_tiny(tmp_path / "model")
    starts = [threading.Thread(target=start, args=(model, folder)) for _ in range(3)]
    for each in starts:
        each.start()
    for each in starts:
        each.join()
    (path,) = files(folder)
    assert read(path)[1]


def test_tensors_of_every_kind_come_back_on_lines_of_their_own(tmp_path: Path) -> None:
    kinds = (torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64)
    tensors = {str(kind): torch.arange(15).view(3, 5).to(kind) for kind in kinds} | {"none": torch.empty(0, 4)}
    write(tmp_path / "file", tensors, {"a": [1, "b"]})
    found, facts = read(tmp_path / "file")
    assert facts == {"a": [1, "b"]} and found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype
        assert found[name].data_ptr() % 64 == 0


@pytest.mark.parametrize("huge", [False, True])
def test_a_file_that_the_system_does_not_map_by_huge_pages_is_copied(
    huge: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {"a": torch.randn(3 << 20)}
    write(tmp_path / "file", tensors, {})
    monkeypatch.setattr("ramet.kernels.cpu.weight_file.is_on_huge_pages", lambda tensor: huge)
    monkeypatch.setattr("ramet.kernels.cpu.weight_file.gives_huge_pages", lambda: True)
    found, _ = read(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"")  # pages of the file are gone: to read them would end the process
    lines = Path("/proc/self/maps").read_text().splitlines()
    bounds = [[int(bound, 16) for bound in line.split()[0].split("-")] for line in lines if str(tmp_path) in line]
    assert any(start <= found["a"].data_ptr() < end for start, end in bounds) == huge
    assert huge or torch.equal(found["a"], tensors["a"])


def test_sums_see_what_moved_from_one_tensor_to_another(tmp_path: Path) -> None:
    write(tmp_path / "file", {"a": torch.zeros(64), "b": torch.ones(64)}, {})
    data = bytearray((tmp_path / "file").read_bytes())
    data[-512:-256], data[-256:] = data[-256:], data[-512:-256]
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(Damaged, match="a is not as it was written"):
        read(tmp_path / "file")


@pytest.mark.parametrize("size", [4096, 64, 1])
def test_what_moved_inside_of_a_tensor_is_seen(size: int, tmp_path: Path) -> None:
    """Whole pages, and what is behind the last of them."""
    write(tmp_path / "file", {"a": (torch.arange(4096 * 3 + 256) * 7 % 251).to(torch.uint8)}, {})
    data = bytearray((tmp_path / "file").read_bytes())
    first, last = (-256 - 3 * 4096, -256 - 4096) if size == 4096 else (-256, -64)
    data[first : first + size], data[last : last + size] = data[last : last + size], data[first : first + size]
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(Damaged, match="a is not as it was written"):
        read(tmp_path / "file")


def test_huge_pages_are_seen_where_they_are(tmp_path: Path) -> None:
    lines = "7f0000000000-7f0000400000 r--s 0 00:01 5 /file\nRss:  4096 kB\nFilePmdMapped: {} kB\nVmFlags: rd sh\n"
    (tmp_path / "file").write_bytes(bytes(1 << 22))
    with (tmp_path / "file").open("rb") as file:
        tensor = mapped(file.fileno(), 1 << 22)
    place = f"{tensor.data_ptr():x}-{tensor.data_ptr() + (1 << 22):x}"
    for size, expected in ((4096, True), (2048, True), (1024, False), (0, False)):
        (tmp_path / "smaps").write_text(lines.format(size).replace("7f0000000000-7f0000400000", place))
        assert is_on_huge_pages(tensor, tmp_path / "smaps") == expected
    assert not is_on_huge_pages(tensor, tmp_path / "none")
