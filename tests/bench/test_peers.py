"""The comparison with other engines: its limit, what its processes say, and that a missing one is named."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
from compiled import compiled_kernels

from ramet.bench import peers
from ramet.bench.loads import SHAPE, SHAPE_1B, Load
from ramet.bench.offline import _weight_sizes
from ramet.bench.peer_limits import least_seconds
from ramet.kernels.cpu.limits import measure

NEVER = float("inf")
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from protocol import serve
def generate(prompts, output):
    print("what an engine prints")
    os.system("echo and its processes")
    return [output + len(ids) for ids in prompts]
serve("7.1", generate)
"""


def test_one_request_reads_its_weights_and_keys_once_a_step() -> None:
    matrices = sum(a * b for name, (a, *rest) in _weight_sizes(SHAPE).items() for b in rest if "embed" not in name)
    keys = sum(2 * 768 * 12 * 2 * (100 + step) for step in range(1, 5))
    found = least_seconds(Load("", 1, 0, 100, 5, 1.0, 1), SHAPE, 2.0, 1e9, NEVER)
    assert found == pytest.approx((5 * matrices * 2 + keys) / 1e9)


def test_a_shared_prefix_is_computed_once() -> None:
    alone, many = (least_seconds(Load("", num, 1000, 10, 1, 1.0, 1), SHAPE_1B, 2.0, NEVER, 1e12) for num in (1, 11))
    assert alone < many < 1.5 * alone
    assert least_seconds(Load("", 11, 0, 1010, 1, 1.0, 1), SHAPE_1B, 2.0, NEVER, 1e12) > 10 * alone


def test_eight_bits_are_half_of_what_is_read() -> None:
    two, one = (least_seconds(Load("", 1, 0, 1, 64, 1.0, 1), SHAPE, each, 1e9, NEVER) for each in (2.0, 1.0))
    assert 0.5 <= one / two < 0.52


def test_the_limits_of_this_machine_are_found() -> None:
    found = measure(compiled_kernels().library, 2, read_bytes=1 << 24)
    assert found.read_bytes_per_s > 1e8 and found.flops >= found.float32_flops > 1e9


def test_what_an_engine_prints_is_no_answer() -> None:
    asked = "".join(json.dumps({"prompts": [[1], [1, 2]], "output": output}) + "\n" for output in (3, 4))
    command = [sys.executable, "-c", PROGRAM, str(peers.WORKERS)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=60, check=True)
    ready, *answers = map(json.loads, done.stdout.splitlines())
    assert ready["version"] == "7.1" and [answer["lengths"] for answer in answers] == [[4, 5], [5, 6]]
    assert done.stderr.count("what an engine prints") == done.stderr.count("and its processes") == 2


def test_an_engine_that_is_missing_or_does_not_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "peer_workers").mkdir()
    (tmp_path / "peer_workers" / "broken_worker.py").write_text("raise SystemExit(3)")
    (tmp_path / ".peers" / "broken" / "bin").mkdir(parents=True)
    (tmp_path / ".peers" / "broken" / "bin" / "python").symlink_to(sys.executable)
    model = tmp_path / "160m"
    model.mkdir()
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    monkeypatch.setattr(peers, "WORKERS", tmp_path / "peer_workers")
    chosen = (peers.Peer("Absent", "absent", "two-byte"), peers.Peer("Broken", "broken", "two-byte"))
    monkeypatch.setattr(peers, "PEERS", chosen)
    options = argparse.Namespace(peer=None, load=["no load"], rounds=1)
    found = peers.compare(model, "two-byte", tmp_path, options)
    assert found == {
        "peers": {}, "loads": [],
        "missing": ["Absent is not installed (make peers)", "Broken ended with exit code 3"],
    }  # fmt: skip
    assert capsys.readouterr().out.count("not measured: ") == 2
