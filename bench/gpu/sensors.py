"""Clock, power and temperature of the card while each figure is taken, by one nvidia-smi that runs beside."""

import statistics
import subprocess
from collections.abc import Iterable
from threading import Lock, Thread

FIELDS = {"clocks.sm": "mhz", "power.draw": "watts", "temperature.gpu": "celsius"}
COMMAND = ("nvidia-smi", "-i", "0", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits", "-lms", "100")


class Sensors:
    """`lap` after each figure; `close` when done."""

    def __init__(self, command: Iterable[str] = COMMAND) -> None:
        self._seen: list[list[float]] = []
        self._lock = Lock()
        self._process = subprocess.Popen([*command], stdout=subprocess.PIPE, text=True)
        self._thread = Thread(target=self._follow, daemon=True)
        self._thread.start()

    def lap(self) -> dict[str, float]:
        """Medians since the last one; empty where nothing came."""
        with self._lock:
            seen, self._seen = self._seen, []
        return {name: statistics.median(each) for name, each in zip(FIELDS.values(), zip(*seen, strict=True))}

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                values = [float(value) for value in line.split(",")]
            except ValueError:  # "[N/A]"
                continue
            if len(values) == len(FIELDS):
                with self._lock:
                    self._seen.append(values)
