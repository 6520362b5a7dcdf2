"""`ramet bench soak`: the slope of a growing process, the memory of each process, and one complete run."""

import json
import random
from pathlib import Path

import pytest
from test_own_server import process

from ramet.bench import soak
from ramet.bench.errors import BadOption
from ramet.bench.mixed_load import KINDS
from ramet.bench.server import memory_by_process
from ramet.bench.soak import MIB, grown, grown_files, slope, summed


def samples(per_hour_mib: float, jump_mib: float) -> list[soak.Sample]:
    """An hour of one process, whose memory jumps after ten minutes and grows steadily."""
    sizes = [int((100 + jump_mib * (i >= 10) + per_hour_mib * i / 60) * MIB) for i in range(61)]
    return [(60.0 * i, {"server": dict.fromkeys(soak.KINDS, size)}) for i, size in enumerate(sizes)]


def test_a_slope_is_that_of_the_line_through_the_points() -> None:
    assert slope([(0.0, 0), (1800.0, 2 * MIB), (3600.0, 4 * MIB)]) == {"slope": 4.0, "error": 0.0}
    uneven = slope([(0.0, 0), (1200.0, 3 * MIB), (2400.0, 0), (3600.0, 3 * MIB)])
    assert uneven["slope"] == pytest.approx(1.8) and uneven["error"] > 1


def test_what_caches_take_in_the_first_half_is_no_growth() -> None:
    found = summed(samples(per_hour_mib=0.0, jump_mib=50.0))
    assert found["server"]["mib_per_hour"]["rss"]["slope"] == 0.0 and grown(found, 2.0) == []


def test_a_process_that_grows_is_named() -> None:
    found = summed(samples(per_hour_mib=3.0, jump_mib=0.0))
    assert grown(found, 2.0) == [f"server: {kind} grew by 3.00 MiB an hour" for kind in ("anonymous", "mapped")]


def test_pages_of_libraries_that_are_read_again_are_no_growth() -> None:
    """Their files were mapped before."""
    growing = samples(per_hour_mib=3.0, jump_mib=0.0)
    found = summed([(at_s, {"server": {**now["server"], "anonymous": 1, "mapped": 2}}) for at_s, now in growing])
    assert found["server"]["mib_per_hour"]["rss"]["slope"] == 3.0 and grown(found, 2.0) == []


def test_files_whose_pages_grew_are_named_with_their_size() -> None:
    before = {"server": {"/lib/a.so": (MIB, 4 * MIB), "/lib/b.so": (MIB, MIB)}}
    after = {"server": {"/lib/a.so": (2 * MIB, 4 * MIB), "/lib/b.so": (MIB, MIB), "/tmp/c.ring": (MIB, MIB)}}
    assert grown_files(before, after) == {"server": {"a.so": [1.0, 2.0, 4.0], "c.ring": [0.0, 1.0, 1.0]}}


def test_too_few_samples_have_no_slope() -> None:
    with pytest.raises(BadOption, match="--minutes"):
        summed(samples(0.0, 0.0)[:2])


def test_memory_is_by_role_and_what_a_role_starts_is_beside_it(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 0, 0, "python", "-m", "ramet", "serve")
    process(tmp_path, 11, 10, 0, 0, "python", "/x", "scheduler")
    process(tmp_path, 12, 11, 0, 0, "python", "worker")
    process(tmp_path, 13, 12, 0, 0, "python", "its own")
    process(tmp_path, 14, 1, 0, 0, "python", "/x", "server")
    for pid in range(10, 15):
        rollup = (
            f"00400000-7fff ---p 0 [rollup]\nRss:  {pid} kB\nPss:  {2 * pid} kB\nPss_Anon: 5 kB\nAnonymous:   1 kB\n"
        )
        (tmp_path / str(pid) / "smaps_rollup").write_text(rollup)
        maps = "1000-3000 r--p 00000000 fe:00 26723      /lib/a.so\n4000-9000 rw-p 00000000 00:00 0  [heap]\n"
        (tmp_path / str(pid) / "maps").write_text(maps)
    kib = {
        name: [size // 1024 for size in sizes.values()]  # rss, pss, anonymous, mapped
        for name, sizes in memory_by_process(10, tmp_path).items()
    }
    assert kib == {"parent": [10, 20, 1, 8], "scheduler": [11, 22, 1, 8], "scheduler's": [25, 50, 2, 16]}


def test_every_kind_of_request_of_one_seed_is_the_same() -> None:
    for kind in KINDS:
        assert kind(random.Random(1)) == kind(random.Random(1))


def test_a_run_makes_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "lines.jsonl"
    argv = ["--minutes", "0.1", "--rate", "30", "--every-s", "1", "--most-mib-per-hour", "1e9"]
    assert soak.main([*argv, "--output-file", str(lines), "--", "--runner", "scripted"]) == 0, capsys.readouterr()
    (record,) = map(json.loads, lines.read_text().splitlines())
    assert record["bench"] == "soak" and record["requests"]["failed"] == {}
    assert {"parent", "server", "scheduler", "tokenizer", "detokenizer"} <= set(record["processes"])
    assert record["processes"]["scheduler"]["mib"]["mapped"][-1] > 10
    assert "MiB an hour" in capsys.readouterr().out
