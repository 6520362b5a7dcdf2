"""The arithmetic that is chosen by what was measured, and what is kept of a measurement."""

import resource
from pathlib import Path

import pytest
from compiled import compiled_kernels

from ramet.kernels.cpu import measured
from ramet.kernels.cpu.limits import measure_all
from ramet.kernels.cpu.measured import TOKENS, ArithmeticChoice, MachineLimits, Measured

LIMITS = MachineLimits(2, 2.5e10, 2e11, 4e11, 0.0)
PLAIN = [2.0, 2.0, 5.0, 20.0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ramet" / "kernels"


@pytest.mark.parametrize(
    ("others", "wanted"),
    [
        ({}, ArithmeticChoice("float32", "float32", 0)),
        ({"dots": [2.0, 2.0, 3.0, 10.0]}, ArithmeticChoice("dots", "dots", 0)),  # never slower
        ({"dots": [2.05, 2.0, 3.0, 10.0]}, ArithmeticChoice("dots", "dots", 0)),  # hardly slower
        ({"dots": [2.0, 3.0, 8.0, 40.0]}, ArithmeticChoice("float32", "float32", 0)),
        ({"dots": [1.9, 1.9, 4.9, 19.0]}, ArithmeticChoice("float32", "float32", 0)),  # hardly faster
        ({"tiles": [3.0, 2.5, 2.6, 5.0]}, ArithmeticChoice("float32", "tiles", 16)),
        ({"tiles": [3.0, 2.0, 2.6, 5.0]}, ArithmeticChoice("float32", "tiles", 4)),
        ({"dots": [1.0, 2.0, 3.0, 10.0], "tiles": [3.0, 2.5, 3.5, 5.0]}, ArithmeticChoice("dots", "tiles", 64)),
    ],
)
def test_the_fastest_is_chosen(others: dict[str, list[float]], wanted: ArithmeticChoice) -> None:
    assert Measured(LIMITS, {"float32": PLAIN, **others}).choice == wanted


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ({}, "float32"),
        (
            {"dots": [1.0, 1.0, 3.0, 10.0]},
            "bfloat16 dot products: a large one takes 10000.0 ms for 64 tokens, 20000.0 in float32",
        ),
        (
            {"dots": [1.9, 1.9, 4.9, 19.0]},
            "float32: a large one takes 20000.0 ms for 64 tokens, 19000.0 in bfloat16 dot products, too small a "
            "gain for rounding more often",
        ),
        (
            {"tiles": [3.0, 2.5, 2.6, 5.0]},
            "float32, tile registers from 16 tokens on: a large one takes 2000.0 ms for 1 token, 3000.0 in tile "
            "registers, and 5000.0 ms for 64 tokens, 20000.0 in float32",
        ),
    ],
)
def test_a_choice_is_shown_with_the_times_it_was_made_by(others: dict[str, list[float]], why: str) -> None:
    shown = str(Measured(LIMITS, {"float32": PLAIN, **others}))
    assert shown.partition("; ")[2] == f"bfloat16 layers are computed in {why}"


@pytest.mark.parametrize(("threads", "shown"), [(1, "on 1 thread;"), (2, "on 2 threads;")])
def test_threads_are_counted_in_words(threads: int, shown: str) -> None:
    assert shown in str(Measured(MachineLimits(threads, 2.5e10, 2e11, 0.0, 0.0), {"float32": PLAIN}))


@pytest.mark.parametrize(
    ("dots", "tiles", "pay"),
    [
        (0.0, 0.0, (False, False)),
        (2.1e11, 0.0, (False, False)),  # hardly faster than float32
        (4e11, 7e11, (True, False)),  # what is around them would take longer than they save
        (1e11, 2e12, (False, True)),
        (4e11, 2e12, (True, True)),
    ],
)
def test_attention_takes_what_pays(dots: float, tiles: float, pay: tuple[bool, bool]) -> None:
    limits = MachineLimits(2, 2.5e10, 2e11, dots, tiles)
    assert (limits.dots_pay, limits.tiles_pay) == pay


def test_what_was_measured_is_read_again(folder: Path) -> None:
    made = Measured(LIMITS, {"float32": PLAIN, "dots": PLAIN})
    assert measured.read(2) is None
    measured.write(made)
    assert measured.read(2) == made and measured.read(1) is None
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"limits": {}, "seconds": {}}', "[" * 100_000])
def test_a_damaged_file_counts_as_none(content: str, folder: Path) -> None:
    measured.write(Measured(LIMITS, {"float32": PLAIN}))
    (path,) = folder.iterdir()
    path.write_text(content)
    assert measured.read(2) is None


@pytest.mark.parametrize("number", ["null", '"x"', "[]", "-1", "NaN", "Infinity", "1" + "0" * 400])
@pytest.mark.parametrize(
    "old", ["25000000000.0", "400000000000.0", "0.0", "5.0"], ids=["read", "dots", "tiles", "time"]
)
def test_a_file_with_a_number_that_cannot_be_counts_as_none(old: str, number: str, folder: Path) -> None:
    measured.write(Measured(LIMITS, {"float32": PLAIN}))
    (path,) = folder.iterdir()
    text = path.read_text()
    path.write_text(text.replace(f": {old}", f": {number}").replace(f", {old},", f", {number},"))
    assert path.read_text() != text and measured.read(2) is None


def test_a_file_that_others_may_write_counts_as_none(folder: Path) -> None:
    measured.write(Measured(LIMITS, {"float32": PLAIN}))
    (path,) = folder.iterdir()
    path.chmod(0o622)
    assert measured.read(2) is None


def test_a_disk_that_is_full_keeps_nothing_of_a_measurement(folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        measured.write(Measured(LIMITS, {"float32": PLAIN}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert measured.read(2) is None and list(folder.iterdir()) == []


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ramet").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured.write(Measured(LIMITS, {"float32": PLAIN}))
    assert measured.read(2) is None


def test_this_machine_is_measured() -> None:
    library = compiled_kernels().library
    found = measure_all(library, 1, tiles=False)
    assert set(found.seconds) == {"float32", "dots"} if library.ramet_has_arithmetic(1) else {"float32"}
    assert all(len(each) == len(TOKENS) and min(each) > 0 for each in found.seconds.values())
    assert (found.limits.dot_flops > 0) == ("dots" in found.seconds) and found.limits.threads == 1
    assert found.limits.tile_flops == 0  # never tried, whatever the CPU says it has
