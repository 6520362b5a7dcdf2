"""Temporary folders: private, of one owner, and gone after it, however it ended. Sockets fit into the path."""

import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ramet.ipc import paths
from ramet.ipc.channel import Receiver, Sender
from ramet.ipc.folders import OwnedFolder, remove_stale
from ramet.ipc.messages import Abort, ToScheduler
from ramet.ipc.paths import NoPlace, PathTooLong, SocketFolder
from tests.fakes.file_size import largest_file

OWNER = """
import sys
from pathlib import Path
from ramet.ipc.folders import OwnedFolder
folder = OwnedFolder.make(Path(sys.argv[1]), "one-")
(folder.path / "file").touch()
print(folder.path, flush=True)
sys.stdin.read()
"""


def owner(place: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A process that owns a folder until its stdin is closed."""
    command = [sys.executable, "-c", OWNER, str(place)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def kill(child: "subprocess.Popen[str]") -> None:
    child.kill()
    child.communicate()


def test_a_killed_owners_folder_is_removed_by_the_next_one(tmp_path: Path) -> None:
    child, left = owner(tmp_path)
    kill(child)
    assert (left / "file").exists()
    with OwnedFolder.make(tmp_path, "one-") as folder:
        assert list(tmp_path.iterdir()) == [folder.path]
    assert not list(tmp_path.iterdir())


def test_a_living_owner_keeps_its_folder(tmp_path: Path) -> None:
    child, kept = owner(tmp_path)
    try:
        OwnedFolder.make(tmp_path, "one-").remove()
        assert (kept / "file").exists()
    finally:
        kill(child)


def test_a_process_that_an_owner_started_does_not_keep_its_folder(tmp_path: Path) -> None:
    folder = OwnedFolder.make(tmp_path, "one-")
    child = subprocess.Popen(["sleep", "60"])
    try:
        os.close(folder._lock)  # type: ignore[arg-type]  # as the kernel does when the owner ends
        remove_stale(tmp_path, "one-")
        assert not folder.path.exists()
    finally:
        child.kill()
        child.wait()


def test_links_files_and_other_names_stay(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "one-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "one-file").touch()
    (tmp_path / "two-folder").mkdir()
    remove_stale(tmp_path, "one-")
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", "one-link", "one-file", "two-folder"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_stays(tmp_path: Path) -> None:
    (tmp_path / "one-theirs").mkdir()
    os.chown(tmp_path / "one-theirs", 12345, 12345)
    remove_stale(tmp_path, "one-")
    assert (tmp_path / "one-theirs").exists()


def test_starts_at_the_same_moment_take_no_folder_from_each_other(tmp_path: Path) -> None:
    num = 8
    barrier = threading.Barrier(num)

    def start(_: int) -> list[OwnedFolder]:
        barrier.wait()
        made = [OwnedFolder.make(tmp_path, "one-") for _ in range(20)]
        assert all(folder.path.is_dir() for folder in made)
        return made

    with ThreadPoolExecutor(num) as pool:
        folders = [folder for made in pool.map(start, range(num)) for folder in made]
    assert len({folder.path for folder in folders}) == num * 20 and all(folder.path.is_dir() for folder in folders)
    for folder in folders:
        folder.remove()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_removed_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    make, made = tempfile.mkdtemp, []

    def make_and_lose_the_first(**where: object) -> str:
        made.append(make(**where))  # type: ignore[call-overload]
        if len(made) == 1:
            remove_stale(tmp_path, "one-")
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose_the_first)
    with OwnedFolder.make(tmp_path, "one-") as folder:
        assert len(made) == 2 and folder.path.is_dir()


def test_a_socket_folder_is_private_and_leaves_nothing(short_tmp: Path) -> None:
    folder = SocketFolder.create()
    assert folder.path.parent == short_tmp and stat.S_IMODE(os.stat(folder.path).st_mode) == 0o700
    folder.remove()
    assert not list(short_tmp.iterdir())


def test_every_socket_of_the_longest_folder_that_fits_can_be_bound(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare = paths.MAX_SOCKET_PATH - len(paths.LONGEST_NAME)
    place = short_tmp / ("x" * (spare - len(str(short_tmp)) - 1))
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = SocketFolder.create()
    assert folder.path.parent == place
    inbox: Receiver[ToScheduler] = Receiver(folder.address(paths.tokenizer(999)), ToScheduler)
    inbox.close()
    folder.remove()


def long_place(below: Path) -> Path:
    place = below / ("ü" * 60)  # 60 characters, 120 bytes
    place.mkdir()
    return place


def test_a_long_tmpdir_is_passed_over_for_a_shorter_place(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = short_tmp / "run"
    runtime.mkdir()
    monkeypatch.setenv("TMPDIR", str(long_place(short_tmp)))
    monkeypatch.setattr("tempfile.tempdir", None)
    for value, place in ((str(runtime), runtime), ("", Path("/tmp")), ("not/absolute", Path("/tmp"))):
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        folder = SocketFolder.create()
        inbox: Receiver[Abort] = Receiver(folder.address(paths.SCHEDULER), ToScheduler)
        sender = Sender(folder.address(paths.SCHEDULER))
        sender.send(Abort([1]))
        assert folder.path.parent == place and inbox.recv(5.0) == Abort([1])
        sender.close(), inbox.close(), folder.remove()


def test_no_short_place_is_an_error_that_names_tmpdir(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = long_place(short_tmp)
    monkeypatch.setattr(paths, "places", lambda: iter([place]))
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(PathTooLong, match=r"TMPDIR is .*üüü.* at most 107 bytes, so the folder's has at most 69"):
        SocketFolder.create()


SMALL_DISK = """
import sys
from ramet.ipc.paths import SocketFolder
folder = SocketFolder.create(1 << 20)
print(folder.path.parent)
folder.remove()
"""


def test_a_tmpdir_without_room_is_passed_over_for_another_place(short_tmp: Path) -> None:
    mount = f"mount -t tmpfs -o size={{}} tmpfs {short_tmp} && exec \"$0\" -c '{SMALL_DISK}'"
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    found = {}
    for size in ("64k", "4m"):
        command = ["unshare", "-rm", "sh", "-c", mount.format(size), sys.executable]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env={**os.environ, "TMPDIR": str(short_tmp)}
        )
        assert done.returncode == 0, done.stderr
        found[size] = done.stdout.strip()
    assert found["4m"] == str(short_tmp) != found["64k"]


def test_no_place_with_room_is_an_error_that_says_what_is_needed(short_tmp: Path) -> None:
    with largest_file(1 << 16), pytest.raises(NoPlace, match=rf"1.0 MiB.*{short_tmp}: File too large.*; set TMPDIR"):
        SocketFolder.create(1 << 20)
    assert not list(short_tmp.iterdir())


def test_no_place_that_can_be_written_to_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(NoPlace, match="no folder for temporary files can be written to"):
        SocketFolder.create()
