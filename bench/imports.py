"""`ramet bench imports`: how long `import ramet` takes, and what it brings along.

  python_s   an interpreter that does nothing
  import_s   what `import ramet` adds to that
  words_s    what the first use of the language adds: function, gen, select, Endpoint

Each is the median over fresh interpreters, which take turns.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ramet.bench import report, stamp
from ramet.bench.values import positive

TARGET_S = 0.15
PROGRAMS = {
    "python_s": "",
    "import_s": "import ramet",
    "words_s": "import ramet; ramet.function, ramet.gen, ramet.select, ramet.Endpoint",
}
HEAVY = ("torch", "transformers", "numpy", "triton")
SHOW = "; import sys; print([m for m in {heavy!r} if m in sys.modules])"


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(options.rounds):
        for name, program in PROGRAMS.items():
            seconds[name].append(measure(program))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    import_s, words_s = medians["import_s"] - medians["python_s"], medians["words_s"] - medians["import_s"]
    heavy = brought(PROGRAMS["words_s"])
    print(f"python alone {medians['python_s'] * 1e3:.0f} ms")
    print(f"import ramet +{import_s * 1e3:.0f} ms (target: under {TARGET_S * 1e3:g})")
    print(f"first use of the language +{words_s * 1e3:.0f} ms; of {', '.join(HEAVY)} it imports {heavy or 'none'}")
    record = {"bench": "imports", **stamp.stamp(stamp.command_line("imports", argv))}
    record |= {"python_s": medians["python_s"], "import_s": import_s, "words_s": words_s, "heavy": heavy}
    report.append_line(options.output_file, record)
    return 0


def measure(program: str) -> float:
    """Seconds of one interpreter from its start to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


def brought(program: str) -> list[str]:
    """Which heavy packages it imports."""
    command = [sys.executable, "-c", program + SHOW.format(heavy=HEAVY)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [name for name in HEAVY if f"'{name}'" in said]


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench imports", description=__doc__, formatter_class=formatter)
    p.add_argument("--rounds", type=positive, default=15, help="interpreters of each kind, default 15")
    p.add_argument("--output-file", type=Path, default=report.results_file("imports"), help=report.RESULTS_HELP)
    return p


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
