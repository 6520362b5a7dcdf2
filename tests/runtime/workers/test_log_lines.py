"""Files of lines: they rotate, are deleted, reopened and bounded; lines wait for no disk, and what is lost is said."""

import logging
import os
import threading
from pathlib import Path

import pytest

from ramet.runtime.workers.log_lines import (
    FILE_NAME,
    MAX_BATCH,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    Descriptor,
    LineWriter,
    RotatingFile,
)
from tests.fakes.file_size import largest_file


class Kept:
    """A sink that waits, while it is told to, as a slow disk does."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.may_write = threading.Event()
        self.began = threading.Event()
        self.may_write.set()

    def write(self, line: bytes) -> None:
        self.began.set()
        assert self.may_write.wait(20)
        self.lines.append(line)


class Disk:
    """A sink that has room for some lines, then for none, then for all."""

    def __init__(self, room: int, refused: int) -> None:
        self.lines: list[bytes] = []
        self._room, self._refused = room, refused

    def write(self, line: bytes) -> None:
        if len(self.lines) >= self._room and self._refused:
            self._refused -= 1
            raise OSError(28, "No space left on device")
        self.lines.append(line)


def lines_of(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().splitlines() for path in sorted(folder.iterdir())}


def test_a_full_file_is_put_aside_and_the_oldest_is_deleted(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path, 12, 3)
    for number in range(9):
        file.write(f"line {number}".encode())  # 7 bytes with its end: one in each file
    assert lines_of(tmp_path) == {
        "requests.log": ["line 8"], "requests.log.1": ["line 7"], "requests.log.2": ["line 6"]
    }  # fmt: skip


def write(file: RotatingFile, *lines: str) -> None:
    for line in lines:
        file.write(line.encode())


def numbered(num: int) -> list[str]:
    return [f"line {number}" for number in range(num)]


def test_many_lines_are_divided(tmp_path: Path) -> None:
    write(RotatingFile(tmp_path, 14, 2), *numbered(5))
    assert lines_of(tmp_path) == {"requests.log": ["line 4"], "requests.log.1": ["line 2", "line 3"]}


def test_a_single_file_begins_anew(tmp_path: Path) -> None:
    write(RotatingFile(tmp_path, 14, 1), *numbered(5))
    assert lines_of(tmp_path) == {"requests.log": ["line 4"]}


def test_a_line_that_is_longer_than_a_file_is_whole(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path, 4, 3)
    write(file, "a", "a long line", "b")
    assert lines_of(tmp_path) == {"requests.log": ["b"], "requests.log.1": ["a long line"], "requests.log.2": ["a"]}


def test_a_later_writer_goes_on_with_the_file(tmp_path: Path) -> None:
    for number in range(3):
        write(RotatingFile(tmp_path, 14, 2), f"line {number}")
    assert lines_of(tmp_path) == {"requests.log": ["line 2"], "requests.log.1": ["line 0", "line 1"]}


@pytest.mark.parametrize("by", ["moving", "deleting"])
def test_a_file_that_logrotate_took_is_opened_anew(tmp_path: Path, by: str) -> None:
    file = RotatingFile(tmp_path / "logs", 1 << 20, 3)
    write(file, "before")
    path = tmp_path / "logs" / "requests.log"
    if by == "moving":
        path.rename(tmp_path / "taken")
    else:
        path.unlink()
    write(file, "after")
    assert lines_of(tmp_path / "logs") == {"requests.log": ["after"]}


def test_its_owner_alone_can_read_a_file(tmp_path: Path) -> None:
    write(RotatingFile(tmp_path, 1 << 20, 3), "secret")
    assert (tmp_path / "requests.log").stat().st_mode & 0o777 == 0o600


def test_every_line_is_written_in_order() -> None:
    kept = Kept()
    writer = LineWriter(kept, "the log")
    for number in range(1000):
        writer.put(lambda number=number: f"{number}".encode(), 10)  # type: ignore[misc]
    writer.close()
    assert kept.lines == [f"{number}".encode() for number in range(1000)]


def test_a_slow_disk_holds_nobody_up_and_what_it_loses_is_said(caplog: pytest.LogCaptureFixture) -> None:
    kept, lost = Kept(), list[int]()
    kept.may_write.clear()
    writer = LineWriter(kept, "the log of requests", lost.append)
    writer.put(lambda: b"first", 10)
    assert kept.began.wait(20)
    for _ in range(MAX_WAITING + 50):  # none of them waits
        writer.put(lambda: b"more", 10)
    assert sum(lost) == 50  # while nothing can be written
    kept.may_write.set()
    writer.close()
    assert len(kept.lines) == MAX_WAITING + 1
    assert "50 lines of the log of requests were dropped" in caplog.text


def test_long_lines_are_bounded_by_their_bytes(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    kept.may_write.clear()
    writer = LineWriter(kept, "the log")
    for _ in range(4):
        writer.put(lambda: b"long", MAX_WAITING_BYTES // 2)
    kept.may_write.set()
    writer.close()
    assert len(kept.lines) == 2 and "2 lines" in caplog.text


def test_a_full_disk_is_said_once_and_its_lines_when_it_has_room_again(caplog: pytest.LogCaptureFixture) -> None:
    disk, lost = Disk(room=1, refused=3), list[int]()
    writer = LineWriter(disk, "the log of requests", lost.append)
    for number in range(6):
        writer.put(lambda number=number: b"%d" % number, 4)  # type: ignore[misc]
    writer.close()
    assert disk.lines == [b"0", b"4", b"5"] and sum(lost) == 3
    refused, counted = caplog.messages
    assert refused.startswith("the log of requests cannot be written: [Errno 28] No space left on device")
    assert counted.startswith("3 lines of the log of requests were dropped")


def test_a_disk_that_stays_full_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    writer = LineWriter(Disk(room=0, refused=1 << 20), "the log")
    for _ in range(3 * MAX_BATCH):
        writer.put(lambda: b"line", 4)
    writer.close()
    assert len(caplog.messages) == 1


def test_that_lines_were_dropped_is_in_a_log_that_was_full(caplog: pytest.LogCaptureFixture) -> None:
    """The log that says so is the one that is written."""
    kept = Kept()
    kept.may_write.clear()
    writer = LineWriter(kept, "stderr", most=2 * MAX_BATCH)

    class Own(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            writer.put(lambda: record.getMessage().encode(), 10)

    logger, handler = logging.getLogger("ramet"), Own()
    logger.addHandler(handler)
    try:
        writer.put(lambda: b"first", 10)
        assert kept.began.wait(20)
        for _ in range(2 * MAX_BATCH + 50):
            writer.put(lambda: b"more", 10)
        kept.may_write.set()
        writer.close()
    finally:
        logger.removeHandler(handler)
    assert [line for line in kept.lines if line.startswith(b"50 lines of stderr were dropped")]


def test_a_file_that_nobody_reads_holds_nobody_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A FIFO: opening it waits for a reader."""
    os.mkfifo(tmp_path / FILE_NAME)
    lost = list[int]()
    writer = LineWriter(RotatingFile(tmp_path, 1 << 20, 3), "the log of requests", lost.append, most=300)
    for _ in range(1000):
        writer.put(lambda: b"line", 4)
    assert sum(lost) >= 1000 - 300 - MAX_BATCH
    with (tmp_path / FILE_NAME).open("rb") as reader:
        writer.close()
        assert len(os.read(reader.fileno(), 1 << 16).splitlines()) == 1000 - sum(lost)
    assert f"{sum(lost)} lines of the log of requests were dropped" in caplog.text


def test_a_line_that_was_cut_is_followed_by_a_whole_one(tmp_path: Path) -> None:
    """As on a disk that has room for a part of it."""
    with (tmp_path / "lines").open("wb") as file:
        out = Descriptor(file.fileno())
        with largest_file(3), pytest.raises(OSError, match="File too large"):
            out.write(b"a long line")
        out.write(b"next")
        out.write(b"last")
    assert (tmp_path / "lines").read_bytes() == b"a l\nnext\nlast\n"


def test_a_descriptor_that_does_not_block_is_waited_for() -> None:
    """Whoever shares the terminal or the pipe may have made it so."""
    reader, number = os.pipe()
    os.set_blocking(number, False)
    text, got = b"x" * (1 << 20), list[bytes]()

    def read() -> None:
        while sum(map(len, got)) < len(text) + 1:
            got.append(os.read(reader, 1 << 16))

    thread = threading.Thread(target=read)
    thread.start()
    Descriptor(number).write(text)
    thread.join(20)
    assert b"".join(got) == text + b"\n"
    os.close(reader)
    os.close(number)


def test_a_line_that_cannot_be_made_keeps_no_other_back(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    writer = LineWriter(kept, "the log")
    with caplog.at_level(logging.ERROR, logger="ramet"):
        writer.put(lambda: bytes(1 // 0), 4)
        writer.put(lambda: b"next", 4)
        writer.close()
    assert kept.lines == [b"next"] and "cannot be made" in caplog.text
