"""How long `ramet serve` takes until it is ready, and what each process spends it on.

Ready means: the line that announces the address has been printed, and a first request for one token has been answered.
Measured from the start of the command, several times, each with fresh processes. Prints the phases of the last start.
"""

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from ramet.bench.report import append_line
from ramet.bench.stamp import stamp

ADDRESS = re.compile(r"at (http://\S+) \(ready in")
PHASES = re.compile(r"(\S+)\s+ready \(s\): (.*)")
TARGET_S = 6.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ramet bench startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="starts, default 5")
    parser.add_argument("--output-file", default="bench/results/startup.jsonl", help="JSON lines")
    parser.add_argument("serve", nargs="*", help="after --: options for the server")
    options = parser.parse_args(argv)
    rounds = [measure(options.serve) for _ in range(options.rounds)]
    ready = [one["ready_s"] for one in rounds]
    answered = [one["first_answer_s"] for one in rounds]
    print("ready (s)        ", "  ".join(f"{s:.2f}" for s in ready), f"  median {statistics.median(ready):.2f}")
    print("first answer (s) ", "  ".join(f"{s:.2f}" for s in answered), f"  median {statistics.median(answered):.2f}")
    for role, phases in rounds[-1]["phases"].items():
        print(f"  {role:<12} {phases}")
    print(f"target: ready within {TARGET_S:g} s")
    command = ["python", "-m", "ramet", "bench", "startup", *(sys.argv[1:] if argv is None else argv)]
    record = {"bench": "startup", **stamp(command), "ready_s": ready, "first_answer_s": answered}
    append_line(
        Path(options.output_file),
        {**record, "median_ready_s": statistics.median(ready), "phases": rounds[-1]["phases"]},
    )
    return 0


def measure(serve: list[str]) -> dict[str, Any]:
    """One start: seconds until the address is announced and until a token came back, and the phases."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "ramet", "serve", "--port", "0", *serve]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    phases: dict[str, str] = {}
    try:
        for line in server.stdout:
            if found := PHASES.search(line):
                phases[found.group(1)] = found.group(2)
            if found := ADDRESS.search(line):
                ready_s = time.perf_counter() - started
                ask(found.group(1))
                return {"ready_s": ready_s, "first_answer_s": time.perf_counter() - started, "phases": phases}
        raise SystemExit("the server did not start")
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)


def ask(url: str) -> None:
    body = json.dumps({"text": "Hello", "sampling_params": {"max_new_tokens": 1}}).encode()
    request = urllib.request.Request(f"{url}/generate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert reply.status == 200, reply.status


if __name__ == "__main__":
    sys.exit(main())
