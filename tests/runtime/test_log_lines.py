"""Files of lines: they rotate, are deleted, reopened and bounded; lines wait for no disk, and what is lost is said."""

import logging
import threading
from pathlib import Path

import pytest

from ramet.runtime.engine_client.log_lines import MAX_WAITING, MAX_WAITING_BYTES, LineWriter, RotatingFile


class Kept:
    """A sink that waits, while it is told to, as a slow disk does."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.may_write = threading.Event()
        self.began = threading.Event()
        self.may_write.set()

    def write(self, lines: list[bytes]) -> None:
        self.began.set()
        assert self.may_write.wait(20)
        self.lines += lines


class Broken:
    def write(self, lines: list[bytes]) -> None:
        raise OSError(28, "No space left on device")


def lines_of(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().splitlines() for path in sorted(folder.iterdir())}


def test_a_full_file_is_put_aside_and_the_oldest_is_deleted(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path, 12, 3)
    for number in range(9):
        file.write([f"line {number}".encode()])  # 7 bytes with its end: one in each file
    assert lines_of(tmp_path) == {
        "requests.log": ["line 8"], "requests.log.1": ["line 7"], "requests.log.2": ["line 6"]
    }  # fmt: skip


def test_many_lines_of_one_write_are_divided(tmp_path: Path) -> None:
    RotatingFile(tmp_path, 14, 2).write([f"line {number}".encode() for number in range(5)])
    assert lines_of(tmp_path) == {"requests.log": ["line 4"], "requests.log.1": ["line 2", "line 3"]}


def test_a_single_file_begins_anew(tmp_path: Path) -> None:
    RotatingFile(tmp_path, 14, 1).write([f"line {number}".encode() for number in range(5)])
    assert lines_of(tmp_path) == {"requests.log": ["line 4"]}


def test_a_line_that_is_longer_than_a_file_is_whole(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path, 4, 3)
    file.write([b"a", b"a long line", b"b"])
    assert lines_of(tmp_path) == {"requests.log": ["b"], "requests.log.1": ["a long line"], "requests.log.2": ["a"]}


def test_a_later_writer_goes_on_with_the_file(tmp_path: Path) -> None:
    for number in range(3):
        RotatingFile(tmp_path, 14, 2).write([f"line {number}".encode()])
    assert lines_of(tmp_path) == {"requests.log": ["line 2"], "requests.log.1": ["line 0", "line 1"]}


@pytest.mark.parametrize("by", ["moving", "deleting"])
def test_a_file_that_logrotate_took_is_opened_anew(tmp_path: Path, by: str) -> None:
    file = RotatingFile(tmp_path / "logs", 1 << 20, 3)
    file.write([b"before"])
    path = tmp_path / "logs" / "requests.log"
    if by == "moving":
        path.rename(tmp_path / "taken")
    else:
        path.unlink()
    file.write([b"after"])
    assert lines_of(tmp_path / "logs") == {"requests.log": ["after"]}


def test_its_owner_alone_can_read_a_file(tmp_path: Path) -> None:
    RotatingFile(tmp_path, 1 << 20, 3).write([b"secret"])
    assert (tmp_path / "requests.log").stat().st_mode & 0o777 == 0o600


def test_every_sink_gets_every_line_in_order(tmp_path: Path) -> None:
    first, second = Kept(), Kept()
    writer = LineWriter([first, second])
    for number in range(1000):
        writer.put(lambda number=number: f"{number}".encode(), 10)  # type: ignore[misc]
    writer.close()
    assert first.lines == second.lines == [f"{number}".encode() for number in range(1000)]


def test_a_slow_disk_holds_nobody_up_and_what_it_loses_is_said(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    kept.may_write.clear()
    writer = LineWriter([kept])
    writer.put(lambda: b"first", 10)
    assert kept.began.wait(20)
    for _ in range(MAX_WAITING + 50):  # none of them waits
        writer.put(lambda: b"more", 10)
    kept.may_write.set()
    writer.close()
    assert len(kept.lines) == MAX_WAITING + 1
    assert "50 lines of the log of requests were dropped" in caplog.text


def test_long_lines_are_bounded_by_their_bytes(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    kept.may_write.clear()
    writer = LineWriter([kept])
    for _ in range(4):
        writer.put(lambda: b"long", MAX_WAITING_BYTES // 2)
    kept.may_write.set()
    writer.close()
    assert len(kept.lines) == 2 and "2 lines" in caplog.text


def test_a_full_disk_is_said_and_other_sinks_go_on(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    writer = LineWriter([Broken(), kept])
    writer.put(lambda: b"line", 4)
    writer.close()
    assert kept.lines == [b"line"] and "1 lines of the log of requests cannot be written" in caplog.text
    assert "No space left" in caplog.text


def test_a_line_that_cannot_be_made_keeps_no_other_back(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    writer = LineWriter([kept])
    with caplog.at_level(logging.ERROR, logger="ramet"):
        writer.put(lambda: bytes(1 // 0), 4)
        writer.put(lambda: b"next", 4)
        writer.close()
    assert kept.lines == [b"next"] and "cannot be made" in caplog.text
