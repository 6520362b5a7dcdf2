"""The file of --api-key-file: what it may contain, and that no message about it shows a key."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ramet.runtime.access import key_file
from ramet.runtime.access.key_file import MAX_BYTES, NamedKey, check_keys, read_key_file
from ramet.runtime.config import make_args, resolve
from ramet.runtime.errors import ConfigError

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str | bytes, mode: int = 0o600) -> str:
        path = tmp_path / "keys"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        return str(path)

    return write


def test_a_line_is_a_name_and_a_key(write: Write) -> None:
    path = write("# clients\n\nfirst  sk-12345678\n\tsecond_2.x\tanother#key \r\n   # the end")
    assert read_key_file(path, "admin") == [NamedKey("first", "sk-12345678"), NamedKey("second_2.x", "another#key")]


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "has no key: a line must be NAME KEY"),
        ("# nothing\n", "has no key"),
        ("SECRET-of-a\n", "line 1 has 1 word, must be NAME KEY"),
        ("a SECRET-of-a b\n", "line 1 has 3 words, must be NAME KEY"),
        ("\na: SECRET-of-a\n", "line 2: the name must be 1 to 64 letters, digits"),
        ("é SECRET-of-a\n", "the name must be"),
        ("a SECRET-1\n\na SECRET-2\n", "gives 2 keys to a, must give one"),
        ("a SECRET-of-a\nb SECRET-of-a\n", "line 2: b has the same key as a"),
        ("a SHORT\n", "line 1: the key must be 8 to 512 printable ASCII characters"),
        (f"a {'S' * 513}\n", "the key must be 8 to 512"),
        ("a SÉCRET-of-a\n", "the key must be"),
        ("SECRET-of-a a\n", "line 1: the key must be"),
        ("a SECRET-admin\n", "line 1: the key of a is the admin key"),
        ("admin SECRET-of-a\n", "line 1: the name admin is reserved for the admin key"),
        (b"a \xff\xfe\xfd\xff\xfe\xfd\xff\xff\n", "is not UTF-8 text"),
        ("#" * (MAX_BYTES + 1), f"is larger than {MAX_BYTES} bytes"),
    ],
)
def test_what_is_wrong_is_said_without_a_key(write: Write, text: str, said: str) -> None:
    path = write(text)
    with pytest.raises(ConfigError) as error:
        read_key_file(path, "SECRET-admin")
    assert said in str(error.value) and f"--api-key-file {path}" in str(error.value)
    assert "SECRET" not in str(error.value) and "SHORT" not in str(error.value)


def test_there_is_a_bound_on_keys(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "MAX_KEYS", 2)
    path = write("a SECRET-of-a\nb SECRET-of-b\nc SECRET-of-c\n")
    with pytest.raises(ConfigError, match="line 3: there are more than 2 keys"):
        read_key_file(path, "")


def test_a_file_that_is_none_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, said in (("missing", "No such file"), (".", "directory"), ("fifo", "is not a regular file")):
        with pytest.raises(ConfigError, match=said):
            read_key_file(str(tmp_path / name), "")


def test_who_may_read_and_change_the_file_counts(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "ramet")
    check_keys(write("a SECRET-of-a\n", 0o640), "", "the-admin-key")
    assert not caplog.messages
    path = write("a SECRET-of-a\n", 0o644)
    check_keys(path, "", "the-admin-key")
    assert (
        len(read_key_file(path, "")) == len(caplog.messages) == 1
    )  # the server, which reads it again, does not repeat
    assert "can be read by every user of this machine: chmod 600" in caplog.text and "SECRET" not in caplog.text
    with pytest.raises(ConfigError, match="can be changed by every user of this machine: chmod 600"):
        read_key_file(write("a SECRET-of-a\n", 0o646), "")


@pytest.mark.parametrize(
    "options, said",
    [
        ({"api_key": "one"}, "--api-key and --api-key-file are both set"),
        ({}, "--api-key-file needs --admin-api-key"),
        ({"admin_api_key": "SECRET-of-a"}, "the key of a is the admin key"),
    ],
)
def test_a_file_takes_the_place_of_the_api_key_and_needs_an_admin_key(
    write: Write, options: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(make_args(api_key_file=write("a SECRET-of-a\n"), **options))


def test_holders_of_keys_are_kept_apart_unless_the_operator_says_otherwise(write: Write) -> None:
    keys = {"api_key_file": write("a SECRET-of-a\n"), "admin_api_key": "admin"}
    assert resolve(make_args(**keys)).keeps_keys_apart
    assert resolve(make_args(cache_isolation="key", **keys)).keeps_keys_apart
    assert not resolve(make_args(cache_isolation="none", **keys)).keeps_keys_apart
    assert not resolve(make_args(api_key="one", admin_api_key="admin")).keeps_keys_apart
    with pytest.raises(ConfigError, match="--cache-isolation key needs --api-key-file"):
        resolve(make_args(cache_isolation="key", api_key="one"))
