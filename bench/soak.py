"""`ramet bench soak`: whether the memory of a server's processes grows under a steady load of all kinds of request.

One server of the bundled model with small caches, so that what they may hold is reached early, and a seeded mix of
requests (mixed_load.py) at a low rate. The memory of each process is read every few seconds: RSS, PSS, anonymous pages,
and the size of all mapped files. A line is fitted to the samples of the last half; the figure is its slope in MiB an
hour, with its standard error.

RSS alone shows no leak: the system drops pages of libraries when memory is short, and reads them again later. It is at
most the anonymous pages and the mapped files, so the run fails if a slope of one of these is above --most-mib-per-hour,
or if a request got an unexpected answer. The files whose pages grew are named with their size.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.mixed_load import MixedLoad
from ramet.bench.server import file_pages, memory_by_process, started
from ramet.bench.values import positive, rate

KINDS = ("rss", "pss", "anonymous", "mapped")
LIMITED = ("anonymous", "mapped")
NAMED = 5  # files of a process that are named
POINTS = 60  # points of each series that a record keeps
MIB = 1 << 20
SMALL_CACHES = ["--max-total-tokens", "16384", "--stored-responses-mb", "1", "--grammar-cache-mb", "1"]

FilePages = dict[str, dict[str, tuple[int, int]]]  # of each file by process: bytes in memory, bytes mapped
Sample = tuple[float, dict[str, dict[str, int]]]  # seconds since the start, bytes by process and kind


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    try:
        with started([*SMALL_CACHES, "--log-level", "warning", *options.serve]) as server:
            samples, load, files = run_fast(soaked(server.url, server.pid, options))
    except BadOption as error:
        print(f"ramet bench soak: {error}", file=sys.stderr)
        return 1
    processes = summed(samples)
    print(table(processes))
    made = stamp.stamp(stamp.command_line("soak", argv))
    shape = {"minutes": options.minutes, "rate": options.rate, "seed": options.seed}
    requests = {"answered": dict(load.answered), "failed": dict(load.failed), "replies": load.replies}
    report.append_line(options.output_file, {"bench": "soak", **made, **shape, "requests": requests,
                                             "processes": processes, "files": grown_files(*files)})  # fmt: skip
    for fact in [
        *(f"{num} x {what}: {load.replies[what]}" for what, num in load.failed.items()),
        *grown(processes, options.limit),
    ]:
        print(f"ramet bench soak: {fact}", file=sys.stderr)
    return 1 if load.failed or any(grown(processes, options.limit)) else 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench soak", description=__doc__, formatter_class=formatter)
    p.add_argument("--minutes", type=rate, default=60.0, help="default 60")
    p.add_argument("--rate", type=rate, default=4.0, help="requests a second, default 4")
    p.add_argument("--every-s", type=positive, default=10, help="seconds between two samples, default 10")
    p.add_argument("--seed", type=int, default=0, help="default 0")
    p.add_argument("--most-mib-per-hour", dest="limit", type=float, default=2.0, help="for any process, default 2")
    p.add_argument("--output-file", type=Path, default=report.results_file("soak"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    return p


async def soaked(
    url: str, pid: int, options: argparse.Namespace
) -> tuple[list[Sample], MixedLoad, tuple[FilePages, FilePages]]:
    """The samples, the load, and the pages of files when the last half began and at the end."""
    load, began_s = MixedLoad(url, options.rate, options.seed), time.monotonic()
    samples: list[Sample] = []
    half = FilePages()

    async def look_at_half() -> None:
        await asyncio.sleep(options.minutes * 30)
        half.update(file_pages(pid))

    async def sample() -> None:
        while True:
            samples.append((time.monotonic() - began_s, memory_by_process(pid)))
            if len(samples) % POINTS == 0:
                print(_progress(samples), flush=True)
            await asyncio.sleep(options.every_s)

    looking = [asyncio.create_task(sample()), asyncio.create_task(look_at_half())]
    try:
        await load.run(options.minutes * 60)
    finally:
        for each in looking:
            each.cancel()
    return samples, load, (half, file_pages(pid))


def _progress(samples: Sequence[Sample]) -> str:
    at_s, now = samples[-1]
    return f"{at_s / 60:5.1f} min  " + ", ".join(f"{name} {of['rss'] / MIB:.1f}" for name, of in now.items()) + " MiB"


def summed(samples: Sequence[Sample]) -> dict[str, Any]:
    """The slopes and a thinned series of each process that was running when the last half began."""
    half = [each for each in samples if each[0] >= samples[-1][0] / 2]
    found: dict[str, Any] = {}
    for name in half[0][1]:
        lived = [each for each in samples if name in each[1]]
        slopes = {kind: slope([(at_s, now[name][kind]) for at_s, now in half if name in now]) for kind in KINDS}
        thin = lived[:: max(1, len(lived) // POINTS)]
        series = {kind: [round(now[name][kind] / MIB, 2) for _, now in thin] for kind in KINDS}
        found[name] = {"mib_per_hour": slopes, "minutes": [round(at_s / 60, 1) for at_s, _ in thin], "mib": series}
    return found


def grown_files(before: FilePages, after: FilePages) -> dict[str, dict[str, list[float]]]:
    """MiB in memory before and after, and MiB mapped, of the files of each process that grew most."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, files in after.items():
        had = before.get(name, {})
        grew = {path: pages - had.get(path, (0, 0))[0] for path, (pages, _) in files.items()}
        for path in sorted((path for path in grew if grew[path] > 0), key=grew.__getitem__, reverse=True)[:NAMED]:
            sizes = (had.get(path, (0, 0))[0], *files[path])
            found.setdefault(name, {})[Path(path).name] = [round(size / MIB, 2) for size in sizes]
    return found


def slope(points: Sequence[tuple[float, int]]) -> dict[str, float]:
    """MiB an hour of a line fitted to bytes over seconds, and the standard error of the slope."""
    if len(points) < 3:
        raise BadOption("there are too few samples for a slope: raise --minutes or lower --every-s")
    hours = np.array([at_s for at_s, _ in points]) / 3600
    mib = np.array([size for _, size in points]) / MIB
    hours -= hours.mean()
    spread = float((hours**2).sum())
    fitted = float((hours * mib).sum()) / spread
    left = mib - mib.mean() - fitted * hours
    error = float(np.sqrt((left**2).sum() / (len(points) - 2) / spread))
    return {"slope": round(fitted, 3), "error": round(error, 3)}


def grown(processes: dict[str, Any], limit: float) -> list[str]:
    """A message for each process that grew faster than `limit`."""
    slopes = [(name, kind, of["mib_per_hour"][kind]["slope"]) for name, of in processes.items() for kind in LIMITED]
    return [f"{name}: {kind} grew by {value:.2f} MiB an hour" for name, kind, value in slopes if value > limit]


def table(processes: dict[str, Any]) -> str:
    lines = [f"{'MiB an hour, last half':<28}" + "".join(f"{kind:>18}" for kind in KINDS)]
    for name, of in processes.items():
        cells = (of["mib_per_hour"][kind] for kind in KINDS)
        lines.append(f"{name:<28}" + "".join(f"{cell['slope']:>10.2f} ± {cell['error']:<5.2f}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
