"""The comparison with other engines: its limit, its processes, who is in turn, and that a missing one is named."""

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from compiled import compiled_kernels

from ramet.bench import peer_engines, peer_sides, peer_tables, peers
from ramet.bench.errors import BadOption
from ramet.bench.loads import PEER_LOADS, SHAPE, SHAPE_1B, Load
from ramet.bench.offline import _weight_sizes, doublings
from ramet.bench.peer_engines import PEERS, Peer
from ramet.bench.peer_limits import kv_bytes, kv_token_bytes, least_seconds
from ramet.bench.peer_sides import MissingPeer, side
from ramet.kernels.cpu.limits import int8_flops, measure

NEVER = float("inf")
TOKEN_BYTES = 2 * 768 * 12 * 2  # keys and values of SHAPE
WORKERS = Path(__file__).resolve().parents[2] / "bench" / "peer_workers"
ENGINE = """
import os, sys
sys.path.insert(0, WORKERS)
from protocol import arguments, serve
o = arguments(short="0", memory="0")
if o.prepare:
    (o.work / "converted").write_text("yes")
    raise SystemExit
held = bytearray(b"1") * int(o.memory)
def generate(prompts, output):
    print("what an engine prints")
    os.system("echo and its processes")
    return [output - int(o.short) for ids in prompts]
serve("7.1", generate)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Peers whose worker is ENGINE, broken or absent; the folder of a model that none of them reads."""
    (tmp_path / "peer_workers").mkdir()
    (tmp_path / "peer_workers" / "engine_worker.py").write_text(ENGINE.replace("WORKERS", repr(str(WORKERS))))
    (tmp_path / "peer_workers" / "broken_worker.py").write_text("raise ValueError('no /such/folder/file here')")
    for name in ("engine", "broken"):
        (tmp_path / ".peers" / name / "bin").mkdir(parents=True)
        (tmp_path / ".peers" / name / "bin" / "python").symlink_to(sys.executable)
    model = tmp_path / "work" / "160m"
    model.mkdir(parents=True)
    monkeypatch.setattr(peer_engines, "ROOT", tmp_path)
    monkeypatch.setattr(peer_sides, "WORKERS", tmp_path / "peer_workers")
    return model


def test_one_request_reads_its_weights_and_keys_once_a_step() -> None:
    matrices = sum(a * b for name, (a, *rest) in _weight_sizes(SHAPE).items() for b in rest if "embed" not in name)
    keys = sum(2 * 768 * 12 * 2 * (100 + step) for step in range(1, 5))
    found = least_seconds(Load("", 1, 0, 100, 5, 1.0, 1), SHAPE, 2.0, TOKEN_BYTES, 1e9, NEVER)
    assert found == pytest.approx((5 * matrices * 2 + keys) / 1e9)


def test_a_shared_prefix_is_computed_once() -> None:
    alone, many = (
        least_seconds(Load("", num, 1000, 10, 1, 1.0, 1), SHAPE_1B, 2.0, TOKEN_BYTES, NEVER, 1e12) for num in (1, 11)
    )
    assert alone < many < 1.5 * alone
    assert least_seconds(Load("", 11, 0, 1010, 1, 1.0, 1), SHAPE_1B, 2.0, TOKEN_BYTES, NEVER, 1e12) > 10 * alone
    assert kv_bytes(Load("", 2, 100, 10, 5, 1.0, 1), SHAPE, "two-byte") == 130 * TOKEN_BYTES


def test_eight_bits_are_half_of_what_is_read() -> None:
    two, one = (
        least_seconds(Load("", 1, 0, 1, 64, 1.0, 1), SHAPE, each, TOKEN_BYTES, 1e9, NEVER) for each in (2.0, 1.0)
    )
    assert 0.5 <= one / two < 0.52


def test_keys_and_values_of_eight_bits_have_a_scale_for_each_head() -> None:
    assert kv_token_bytes(SHAPE, "int8") == 2 * 12 * (768 + 12 * 4)
    assert kv_token_bytes(SHAPE, "int4") == TOKEN_BYTES


def test_the_limits_of_this_machine_are_found() -> None:
    found = measure(compiled_kernels().library, 2, tiles=False, read_bytes=1 << 24)
    assert found.read_bytes_per_s > 1e8 and found.flops >= found.float32_flops > 1e9
    assert int8_flops(compiled_kernels().library, 2) > 1e9


def test_what_an_engine_prints_is_no_answer(model: Path) -> None:
    with side(Peer("Engine", "engine", "two-byte"), model, model.parent) as found:
        assert found.version == "7.1" and found.start_s > 0
        assert all(found.run(Load("x", 2, 0, 3, output, 1.0, 1), 0) >= 0 for output in (3, 4))
    log = (model.parent / "engine.log").read_text()
    assert log.count("what an engine prints") == log.count("and its processes") == 3
    assert not (model.parent / "converted").exists()


def test_a_checkpoint_is_converted_before_the_start(model: Path) -> None:
    with side(Peer("Engine", "engine", "two-byte", prepares=True), model, model.parent):
        assert (model.parent / "converted").read_text() == "yes"


def test_an_engine_that_makes_other_tokens_than_asked_is_an_error(model: Path) -> None:
    with (
        side(Peer("Engine", "engine", "two-byte", ("--short", "1")), model, model.parent) as found,
        pytest.raises(BadOption, match=r"Engine made \[4\] tokens, must make 5"),
    ):
        found.run(Load("x", 1, 0, 3, 5, 1.0, 1), 0)


def test_the_peak_is_of_all_memory_that_a_process_had(model: Path) -> None:
    with side(Peer("Engine", "engine", "two-byte", ("--memory", str(1 << 28))), model, model.parent, True) as found:
        found.run(Load("x", 1, 0, 3, 5, 1.0, 1), 0)
        assert found.peak is not None and 1 << 28 < found.peak.bytes() < 3 << 27


def test_an_engine_that_is_stopped_takes_no_time_and_goes_on_later(model: Path) -> None:
    with side(Peer("Engine", "engine", "two-byte"), model, model.parent) as found:
        found.pause()
        while (state := Path(f"/proc/{found.pid}/stat").read_text().rpartition(")")[2].split()[0]) != "T":
            assert state in "RS"
        found.resume()
        assert found.run(Load("x", 1, 0, 3, 5, 1.0, 1), 0) >= 0
        found.pause()


def test_nothing_of_an_engine_is_left(model: Path) -> None:
    with side(Peer("Engine", "engine", "two-byte"), model, model.parent) as found:
        pid = found.pid
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


def test_an_engine_that_is_missing_or_does_not_start_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rivals = [Peer(name, name.lower(), "two-byte") for name in ("Absent", "Broken")]
    options = argparse.Namespace(load=["no load"], rounds=1)
    found = peers._against(Peer("Engine", "engine", "two-byte"), rivals, model, options)
    assert found["loads"] == [] and list(found["peers"]) == ["Engine"]
    assert found["missing"] == [
        "Absent is not installed (make peers)", "Broken ended with exit code 1: ValueError: no file here",
    ]  # fmt: skip
    assert capsys.readouterr().out.count("not measured: ") == 2
    assert list(model.parent.iterdir()) == [model], "what an engine made of the model is removed"


def test_an_entry_that_needs_more_packages_is_not_installed_without_them(model: Path) -> None:
    with (
        pytest.raises(MissingPeer, match="not installed"),
        side(Peer("E", "engine", "int8", extra="more"), model, model),
    ):
        pass


def sides(times: dict[str, Callable[[int], float]], client: str = "") -> list[Any]:
    """Sides whose rounds take the seconds that a function of the seed says."""
    asked: list[tuple[str, int]] = []

    awake = set[str]()

    def run(name: str, load: Load, seed: int) -> float:
        assert awake <= {name}, "the other one is stopped"
        asked.append((name, seed))
        return times[name](seed)

    return [
        SimpleNamespace(
            peer=SimpleNamespace(name=name, has_client=name == client), cpu_s=[0.5] * 9, asked=asked,
            run=lambda load, seed, name=name: run(name, load, seed),
            resume=lambda name=name: awake.add(name), pause=lambda name=name: awake.discard(name),
        )
        for name in times
    ]  # fmt: skip


def test_both_sides_get_the_same_prompts_in_turn_and_ratios_are_of_a_round() -> None:
    ours, theirs = sides({"ramet": lambda seed: 1.0 + seed % 3, "B": lambda seed: 2.0 * (1 + seed % 3)}, client="B")
    record: dict[str, Any] = {"seconds": {"ramet": [9.0]}, "ratios": {}, "limits_s": [0.4]}
    limits = iter([0.5, 0.7, 0.60001])
    peers._compare(ours, theirs, PEER_LOADS[0], 3, 30, lambda _: next(limits), record)
    assert record["limits_s"] == [0.4, 0.5, 0.7, 0.6]
    assert ours.asked == [("ramet", 30), ("B", 30), ("B", 31), ("ramet", 31), ("ramet", 32), ("B", 32)]
    assert record["seconds"] == {"ramet": [9.0, 1.0, 2.0, 3.0], "B": [2.0, 4.0, 6.0]}
    assert record["ratios"] == {"B": [2.0, 2.0, 2.0]} and record["client_cores"] == {"B": 0.125}


def test_a_busy_process_is_there_in_every_second_round_only() -> None:
    (only,) = sides({"ramet": lambda seed: 4.0 if seed % 2 else 1.0})
    record = peers._beside_busy(only, PEER_LOADS[0], 2)
    assert record["quiet_s"] == [1.0, 1.0] and record["busy_s"] == [4.0, 4.0] and record["kept"] == [0.25] * 3
    assert [seed for _, seed in only.asked] == [0, 1, 3, 2]


def test_a_table_for_each_load(capsys: pytest.CaptureFixture[str]) -> None:
    load = {"load": "single", "requests": 2, "shared": 0, "own": 3, "output": 5, "limit_s": 0.5, "best": "B"}
    load |= {"seconds": {"ramet": [1.0], "B": [2.0]}, "ratios": {"B": [2.0, 1.5, 2.5]}, "ratio": 2.0}
    record = {"model": "160m", "weights": "int8", "missing": [], "loads": [load]}
    peer_tables.show("engines", record | {"peers": {name: {"version": "1"} for name in ("ramet", "B")}})
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == "160m, int8 weights, single: 2 requests, 3 in, 5 out"
    assert printed[3].split() == ["ramet", "1", "1.000", "10.0", "2.00", "50%"]
    assert printed[4].split()[-4:] == ["2.00", "(1.50", "to", "2.50)"]


def test_each_engine_has_a_worker_and_a_name_of_its_own() -> None:
    assert all((WORKERS / f"{peer.worker}_worker.py").is_file() for peer in PEERS)
    assert len({peer.name for peer in PEERS}) == len(PEERS)
    assert {peer.weights for peer in PEERS} == set(peer_engines.WEIGHTS)


def test_what_prompts_share_is_found_and_leaves_each_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORKERS))
    from protocol import shared_length

    for load in (PEER_LOADS[1], PEER_LOADS[2]):
        assert shared_length(load.prompts(0)) == load.shared
    assert [shared_length(each) for each in ([[1, 2]], [[1, 2], [1, 2]], [[1, 2, 3], [1, 2, 4]])] == [0, 1, 2]


def test_doublings_are_of_batches_and_of_contexts() -> None:
    growth = [
        {"load": f"batch of {num}", "requests": num, "own": 8, "output": 4, "seconds": {"ramet": [s]}}
        for num, s in ((1, 1.0), (2, 1.5), (4, 3.5))
    ]
    growth += [
        {"load": f"context of {num}", "requests": 1, "own": num, "output": 4, "cached": True, "seconds": {"ramet": [s]}}
        for num, s in ((64, 1.0), (128, 1.2))
    ]
    found = doublings(growth)
    assert found["context"] == (1.2, "context of 128")
    assert found["requests"] == (pytest.approx(3.5 / 1.5), "batch of 4")


class Streams(BaseHTTPRequestHandler):
    """Answers as `ramet serve` does, in pieces that end anywhere."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        num = body["sampling_params"]["max_new_tokens"] if self.path == "/generate" else body["max_tokens"]
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        events = [b'data: {"completion_tokens": %d}\n\n' % (at + 1) for at in range(num)] + [b"data: [DONE]\n\n"]
        for piece in (b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in events), b"0\r", b"\n\r\n"):
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("path", ["generate", "completions"])
def test_the_client_reads_each_stream_to_its_end(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORKERS))
    from ramet_http_worker import driven

    with ThreadingHTTPServer(("127.0.0.1", 0), Streams) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.server_address[:2]
        assert driven((str(host), port), path)([[1, 2], [3]], 5) == [5, 5]
        server.shutdown()
