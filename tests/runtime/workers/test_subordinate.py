"""A worker process whose parent has gone, or reads no longer, ends without a word."""

import subprocess
import sys

import pytest

WORKERS = [("ramet.runtime.text.render_worker", "1", "64", "0"), ("ramet.runtime.server.http.body_worker", "0")]


@pytest.mark.parametrize("command", WORKERS)
def test_a_worker_that_nobody_reads_ends_quietly(command: tuple[str, ...]) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", *command], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()  # as on Ctrl-C, before it has loaded its libraries
        assert process.stderr.read() == b""
    assert process.returncode == 0
