"""A program in a terminal: keys go in, what it would show comes out."""

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

SHOWN_WITHIN_S = 60.0
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # what is compiled stays so
ROOT = Path(__file__).resolve().parents[2]


def _takes_the_terminal() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as of a shell's foreground; tests may run in a background
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """`ramet ARGV` with a terminal of its own, so that Ctrl-C is a key."""

    def __init__(self, *argv: str, home: Path, **env: str) -> None:
        self._keys, theirs = pty.openpty()
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RAMET_", "XDG_"))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ramet", *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env=clean | {"HOME": str(home), "XDG_CACHE_HOME": CACHE, "TERM": "xterm", "LANG": "C.UTF-8"} | env,
            start_new_session=True,
            preexec_fn=_takes_the_terminal,
        )
        os.close(theirs)
        self._shown = ""

    def press(self, keys: str) -> None:
        os.write(self._keys, keys.encode())

    def until(self, text: str) -> str:
        """What is shown up to this text, which must come."""
        ends = time.monotonic() + SHOWN_WITHIN_S
        while text not in self._shown:
            ready, _, _ = select.select([self._keys], [], [], max(0.0, ends - time.monotonic()))
            assert ready, f"{text!r} was not shown:\n{self._shown}"
            try:
                more = os.read(self._keys, 65536)
            except OSError:  # Linux's end of a terminal
                more = b""
            assert more, f"it ended before {text!r} was shown:\n{self._shown}"
            self._shown += more.decode(errors="replace")
        before, _, self._shown = self._shown.partition(text)
        return before

    def ask(self, line: str) -> str:
        """Types a line at a prompt; what is shown up to the next one."""
        self.press(line + "\r")
        self.until(line)
        return self.until(">>> ")

    def end(self) -> int:
        """Ctrl-D, and the exit code."""
        self.press("\x04")
        return self.process.wait(30)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._keys)
