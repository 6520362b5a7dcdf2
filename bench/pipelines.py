"""`ramet bench pipelines CHECKOUT`: the load of `bench pipeline` on a server of this checkout and on one of another.

Both servers stay alive and get their rounds in turn, the first of a pair in the next one last, so that a noisy machine
is noisy for both. A ratio is this checkout's figure over the other's in the same pair; the median over the pairs comes
with an interval that holds it in 95 of 100 cases. CPU is that of the server's processes together, without the client.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.pipeline import Round, first_model, one_round, scripted
from ramet.bench.rounds import told
from ramet.bench.server import Server, started
from ramet.bench.values import positive

HERE = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    try:
        record = measure(options)
    except BadOption as error:
        print(f"ramet bench pipelines: {error}", file=sys.stderr)
        return 1
    made = stamp.stamp(stamp.command_line("pipelines", argv))
    report.append_line(options.output_file, {"bench": "pipelines", **made, **record})
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    if not (options.checkout / "ramet" / "runtime").is_dir():
        raise BadOption(f"{options.checkout} is no checkout of ramet: it has no ramet/runtime")
    with started(scripted(options), HERE) as this, started(scripted(options), options.checkout) as other:
        options.model = first_model(this.url)
        pairs = [_pair(this, other, number, options) for number in range(-1, options.pairs)][1:]  # the first warms up
    record: dict[str, Any] = {
        "other_commit": stamp.commit(options.checkout),
        "streams": options.streams,
        "output_len": options.output_len,
    }
    for name, figure in (("tokens_per_s", _speed), ("cpu_us_per_token", _cpu)):
        values = [[round(figure(each), 3) for each in pair] for pair in pairs]
        ratio = told([mine / its for mine, its in values])
        print(f"{name:<17} ratio {ratio['median']:.4f}  [{ratio['low']:.4f}, {ratio['high']:.4f}]", flush=True)
        record[name] = {"ratio": ratio, "pairs": values}
    return record


def _pair(this: Server, other: Server, number: int, options: argparse.Namespace) -> tuple[Round, Round]:
    """A round of each: (this checkout's, the other's)."""
    order = [this, other] if number % 2 == 0 else [other, this]
    rounds = {server.pid: run_fast(one_round(server.url, options, server.pid)) for server in order}
    return rounds[this.pid], rounds[other.pid]


def _speed(made: Round) -> float:
    return made.tokens_per_s


def _cpu(made: Round) -> float:
    return made.server_cpu_us


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="ramet bench pipelines", description="Two checkouts, all processes, no model.")
    p.add_argument("checkout", type=Path, help="folder of the other one, such as a git worktree")
    p.add_argument("--pairs", type=positive, default=15, help="of rounds, default 15")
    p.add_argument("--streams", type=positive, default=128, help="concurrent streams, default 128")
    p.add_argument("--output-len", type=positive, default=512, help="tokens of each stream, default 512")
    p.add_argument("--output-file", type=Path, default=report.results_file("pipelines"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for both servers")
    p.set_defaults(input_len=16, chat=False, tools=False)
    return p


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
