"""`ramet bench abuse`: what one abusive client costs everybody else, compared with one that sends plain text.

One server of the bundled model. Shapes of bodies: those that are mostly refused (shapes.py), those that are accepted
and are the work of many requests (heavy.py), small requests that are much work (work.py).

- *cost*: CPU seconds of server and tokenizer for a MiB of the body, over those of a plain text of the same size to
  /generate, and of one to the shape's own route. Where a body costs much and its texts are tokenised, the time of the
  tokenizers library alone is measured too.
- *beside*: the 99th percentile of the time between two tokens of 16 streams, and the slowest probe of /health. Each
  ratio has an interval over the rounds. With --limit, also what the machine makes of as much CPU time in processes
  that have nothing to do with the server.
- *flood* (some shapes): the memory of server and tokenizer after each of three floods of 64 large bodies.

cost.py, beside.py and flood.py say how each is measured. At the end stands a table of the criteria (judged.py), each
with its worst shape. If a bound is missed, it is printed and the exit code is 1, unless the figure is within 10 % of
its limit. A ratio holds unless its whole interval lies above the bound; after one round that is not known. `controls`
are the machine's noise: the 99th percentile beside one control over that beside the previous one.

On two quiet cores, all shapes in both sizes take about 12 minutes in cost, 6 in flood, and 20 for each round of beside
(12 more with --limit). For a first look: --part beside --size small --rounds 1. Then, for the shapes that are near a
bound: --shape NAME --size small --rounds 5 --limit.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.abuse import beside, cost, flood
from ramet.bench.abuse.heavy import HEAVY
from ramet.bench.abuse.judged import as_record, at_limit, misses, not_known, table, verdicts
from ramet.bench.abuse.load import MIB, AbuseLoad
from ramet.bench.abuse.shapes import CONTROL, SHAPES
from ramet.bench.abuse.work import WORK
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.server import started
from ramet.bench.values import positive, rate

SMALL, LARGE = MIB, 32 * MIB - 256  # bytes of bodies; the second is within --max-body-mb with its headers
SIZES = "small", "large"
COST_MIB = 128  # MiB of bodies that are sent for one cost figure, at most
SETTLE_S = 0.8
PARTS = {"cost": cost.cost, "beside": beside.of_shapes, "flood": flood.flood}


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    shapes = options.shape or [name for name in (*SHAPES, *HEAVY, *WORK) if name != CONTROL]
    try:
        with started([*_server_options(), *options.serve]) as server:
            record = run_fast(measured(_load(server.url, server.pid, options), shapes, options.part or list(PARTS)))
    except BadOption as error:
        print(f"ramet bench abuse: {error}", file=sys.stderr)
        return 1
    missed, limited, unknown, found = misses(record), at_limit(record), not_known(record), verdicts(record)
    beyond = [*missed, *limited, *unknown]
    print("\n".join([*beyond, table(found), *([] if beyond else ["every bound holds"])]))
    made = stamp.stamp(stamp.command_line("abuse", argv))
    load = {name: getattr(options, name) for name in ("streams", "rounds", "window_s", "rate_mib_s", "limit")}
    judged = {"criteria": as_record(found), "missed": missed, "at_limit": limited, "not_known": unknown}
    report.append_line(options.output_file, {"bench": "abuse", **made, **load, **record, **judged})
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench abuse", description=__doc__, formatter_class=formatter)
    p.add_argument("--shape", choices=[*SHAPES, *HEAVY, *WORK], action="append", help="default: all")
    p.add_argument("--part", choices=list(PARTS), action="append", help="default: all")
    p.add_argument("--size", choices=SIZES, action="append", help="1 or 32 MiB, of cost and beside, default: both")
    p.add_argument("--streams", type=positive, default=16, help="streams that run meanwhile, default 16")
    p.add_argument("--rounds", type=positive, default=3, help="of the part beside, default 3")
    p.add_argument("--window-s", type=rate, default=3.0, help="seconds that a client sends, default 3")
    p.add_argument("--rate-mib-s", type=rate, default=32.0, help="MiB a second of a client's bodies, default 32")
    p.add_argument("--limit", action="store_true", help="also measure what the machine makes of as much CPU time")
    p.add_argument("--output-file", type=Path, default=report.results_file("abuse"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    return p


def _server_options() -> list[str]:
    return ["--random-seed", "0", "--log-level", "warning", "--max-running-requests", "64"]


def _load(url: str, pid: int, options: argparse.Namespace) -> AbuseLoad:
    sizes = tuple(size for name, size in zip(SIZES, (SMALL, LARGE), strict=True) if name in (options.size or SIZES))
    return AbuseLoad(
        url,
        pid,
        SMALL,
        LARGE,
        options.streams,
        options.rounds,
        options.window_s,
        SETTLE_S,
        options.rate_mib_s,
        COST_MIB,
        sizes,
        options.limit,
    )


async def measured(load: AbuseLoad, shapes: Sequence[str], parts: Sequence[str]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for part in parts:
        print(f"-- {part}", flush=True)
        record[part] = await PARTS[part](load, shapes)
    return record


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
