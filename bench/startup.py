"""How long `ramet serve` takes until it is ready, and what each process spends it on.

  ready_s         from the start of the command until it has announced its address; all processes are up by then
  first_answer_s  from the same moment until a first request, for one token, has been answered

Measured several times, each with fresh processes. Prints the phases of the last start.
"""

import argparse
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.server import started
from ramet.bench.values import positive

TARGET_S = 6.0


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    try:
        rounds = [measure(options.serve) for _ in range(options.rounds)]
    except BadOption as error:
        print(f"ramet bench startup: {error}", file=sys.stderr)
        return 1
    ready = [one["ready_s"] for one in rounds]
    answered = [one["first_answer_s"] for one in rounds]
    print("ready (s)        ", "  ".join(f"{s:.2f}" for s in ready), f"  median {statistics.median(ready):.2f}")
    print("first answer (s) ", "  ".join(f"{s:.2f}" for s in answered), f"  median {statistics.median(answered):.2f}")
    for role, phases in rounds[-1]["phases"].items():
        print(f"  {role:<12} {phases}")
    print(f"target: ready within {TARGET_S:g} s")
    record = {"bench": "startup", **stamp.stamp(stamp.command_line("startup", argv))}
    record |= {"ready_s": ready, "first_answer_s": answered}
    record |= {"median_ready_s": statistics.median(ready), "phases": rounds[-1]["phases"]}
    report.append_line(options.output_file, record)
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench startup", description=__doc__, formatter_class=formatter)
    p.add_argument("--rounds", type=positive, default=5, help="starts, default 5")
    p.add_argument("--output-file", type=Path, default=report.results_file("startup"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    return p


def measure(serve: Sequence[str]) -> dict[str, Any]:
    """One start: seconds until the address is announced and until a token came back, and the phases."""
    start = time.perf_counter()
    with started(serve) as server:
        ready_s = time.perf_counter() - start
        ask(server.url)
        return {"ready_s": ready_s, "first_answer_s": time.perf_counter() - start, "phases": server.phases}


def ask(url: str) -> None:
    body = json.dumps({"text": "Hello", "sampling_params": {"max_new_tokens": 1}}).encode()
    request = urllib.request.Request(f"{url}/generate", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            reply.read()
    except OSError as error:  # which an HTTP status of 400 or more is as well
        raise BadOption(f"{url}/generate gives no answer: {error}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
