"""`ramet bench peers`: the same load on ramet and on other engines, each in an environment of its own, in one run.

`make peers` installs those that the registry has; one that is missing or does not start is named with its reason, never
guessed. ramet is compared with each other engine by itself, so that two models are in memory at a time: both get the
same prompts in turn, round by round, and a noisy machine is noisy for both. A ratio is the other's seconds over
ramet's in each round, and its median. The share of the limit says how close a figure is to what the machine can do:
bytes read and products made a second, measured in the same run (kernels/cpu/limits.py).

  single   1 request    128 in              128 out
  batch    32 requests  256 in              128 out
  shared   64 requests  1,024 shared + 32    16 out, all at once, nothing cached

--http    instead: `ramet serve`, streaming, beside ramet in process
--busy    instead: each side beside a process that keeps a core busy, and without it
--starts  instead: from the start of the command to the first token, and the most memory of all processes (PSS) from
          there to the end of the load `batch`
"""

import argparse
import copy
import json
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from ramet.bench import peer_tables, report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loads import PEER_LOADS, SHAPE, SHAPE_1B, Load
from ramet.bench.offline import make_checkpoint
from ramet.bench.peer_engines import NAMES, PEERS, WEIGHTS, Peer, ramet, ramet_http
from ramet.bench.peer_limits import kv_bytes, limit_s
from ramet.bench.peer_sides import MissingPeer, PeerSide, busy_core, side
from ramet.bench.rounds import interval
from ramet.bench.values import positive

Record = dict[str, Any]
MODELS: dict[str, dict[str, Any]] = {"160m": SHAPE, "1b": SHAPE_1B}
LOADS = {load.name: load for load in PEER_LOADS}
HTTP_ROUNDS, ROUNDS = 7, 5
TOKENIZER = {  # what converters ask for
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    kind = "http" if options.http else "busy" if options.busy else "starts" if options.starts else "engines"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # engines would stay
    options.rounds = options.rounds or (HTTP_ROUNDS if options.http else ROUNDS)
    try:
        for record in measure(kind, options):
            made = stamp.stamp(stamp.command_line("peers", argv))
            report.append_line(options.output_file, {"bench": "peers", **made, "kind": kind, **record})
    except (BadOption, MissingPeer) as error:
        print(f"ramet bench peers: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="ramet bench peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--model", choices=MODELS, action="append", help="default: 160m")
    p.add_argument("--load", choices=LOADS, action="append", help="default: all")
    p.add_argument("--weights", choices=WEIGHTS, action="append", help="default: two-byte")
    p.add_argument("--peer", choices=NAMES, action="append", help="beside ramet; default: all, with --busy none")
    p.add_argument("--rounds", type=positive, help=f"default {ROUNDS}, with --http {HTTP_ROUNDS}")
    which = p.add_mutually_exclusive_group()
    which.add_argument("--http", action="store_true", help="ramet through HTTP, streaming, beside ramet in process")
    which.add_argument("--busy", action="store_true", help="beside a process that keeps one core busy, and without")
    which.add_argument("--starts", action="store_true", help="seconds to the first token, and peak memory")
    p.add_argument("--output-file", type=Path, default=report.results_file("peers"), help=report.RESULTS_HELP)
    return p


def measure(kind: str, options: argparse.Namespace) -> Iterator[Record]:
    """A record for each model and kind of weights."""
    compare = {"engines": engines, "http": http, "busy": busy, "starts": starts}[kind]
    with tempfile.TemporaryDirectory(prefix="ramet-peers-") as work:
        for name in options.model or ["160m"]:
            model = Path(work) / name
            model.mkdir()
            make_checkpoint(model, MODELS[name])
            (model / "tokenizer_config.json").write_text(json.dumps(TOKENIZER))
            for weights in options.weights or ["two-byte"]:
                record = {"model": name, "weights": weights, **compare(model, weights, options)}
                peer_tables.show(kind, record)
                yield record


def engines(model: Path, weights: str, options: argparse.Namespace) -> Record:
    """ramet against each other engine of such weights."""
    rivals = [peer for peer in PEERS if peer.weights == weights and (not options.peer or peer.name in options.peer)]
    return _against(ramet(weights), rivals, model, options)


def http(model: Path, weights: str, options: argparse.Namespace) -> Record:
    return _against(ramet(weights), [ramet_http(weights, path) for path in ("generate", "completions")], model, options)


def _against(first: Peer, rivals: list[Peer], model: Path, options: argparse.Namespace) -> Record:
    missing: list[str] = []
    empty: Record = {"seconds": {}, "ratios": {}, "limits_s": []}
    loads: dict[str, Record] = {load.name: _lengths(load) | copy.deepcopy(empty) for load in _loads(options)}
    limit = partial(limit_s, shape=MODELS[model.name], weights=first.weights)
    with _side(first, model) as ours:
        ours.pause()
        peers = {ours.peer.name: _start(ours)}
        for number, peer in enumerate(rivals):
            try:
                with _side(peer, model) as theirs:
                    theirs.pause()
                    peers[peer.name] = _start(theirs)
                    for load in _loads(options):
                        _compare(ours, theirs, load, options.rounds, 1000 * number, limit, loads[load.name])
            except MissingPeer as why:
                missing.append(str(why))
                print(f"not measured: {why}", flush=True)
    for load in _loads(options):
        record = loads[load.name]
        record["limit_s"] = statistics.median(record["limits_s"] or [round(limit(load), 4)])
        record["best"] = min(record["ratios"], key=lambda name: record["ratios"][name][0], default=None)
        record["ratio"] = record["ratios"][record["best"]][0] if record["best"] else None
    return {"peers": peers, "missing": missing, "loads": list(loads.values())}


def _compare(
    ours: PeerSide,
    theirs: PeerSide,
    load: Load,
    rounds: int,
    first_seed: int,
    limit: Callable[[Load], float],
    record: Record,
) -> None:
    """Both sides in turn, each while the other is stopped; adds their seconds and ratio to the load's record.

    The limit is measured in each round, because it changes within minutes where others use the same memory.
    """
    found: dict[str, list[float]] = {each.peer.name: [] for each in (ours, theirs)}
    for number in range(rounds):
        for each in (ours, theirs) if number % 2 == 0 else (theirs, ours):
            each.resume()
            found[each.peer.name].append(round(each.run(load, first_seed + number), 4))
            each.pause()
            if each is theirs:
                record["limits_s"].append(round(limit(load), 4))
    for name, seconds in found.items():
        record["seconds"].setdefault(name, []).extend(seconds)
    mine, other = found.values()
    ratio = record["ratios"][theirs.peer.name] = _spread([b / a for a, b in zip(mine, other)])
    print(f"{load.name}: {theirs.peer.name} takes {peer_tables.spread(ratio)} times ramet's seconds", flush=True)
    if theirs.peer.has_client:
        cpu = sum(theirs.cpu_s[-rounds:]) / sum(other)
        record.setdefault("client_cores", {})[theirs.peer.name] = round(cpu, 3)


def busy(model: Path, weights: str, options: argparse.Namespace) -> Record:
    """Each side alone and beside a busy process, in turn."""
    loads: list[Record] = []
    started, missing = {}, []
    named = [peer for peer in PEERS if peer.weights == weights and peer.name in (options.peer or ())]
    for peer in (ramet(weights), *named):
        try:
            with _side(peer, model) as only:
                started[peer.name] = _start(only)
                loads += [_beside_busy(only, load, options.rounds) for load in _loads(options)]
        except MissingPeer as why:
            missing.append(str(why))
            print(f"not measured: {why}", flush=True)
    return {"peers": started, "missing": missing, "loads": loads}


def _beside_busy(only: PeerSide, load: Load, rounds: int) -> Record:
    quiet, beside = list[float](), list[float]()
    for number in range(rounds):
        for taken in (False, True) if number % 2 == 0 else (True, False):
            with busy_core() if taken else nullcontext():
                seconds = only.run(load, 2 * number + taken)
            (beside if taken else quiet).append(round(seconds, 4))
    kept = _spread([a / b for a, b in zip(quiet, beside)])
    return _lengths(load) | {"engine": only.peer.name, "quiet_s": quiet, "busy_s": beside, "kept": kept}


def starts(model: Path, weights: str, options: argparse.Namespace) -> Record:
    """Alone, from files that are converted and in the page cache."""
    asked = [peer for peer in PEERS if peer.weights == weights and (not options.peer or peer.name in options.peer)]
    load, found, missing = LOADS["batch"], dict[str, Record](), dict[str, str]()
    held = kv_bytes(load, MODELS[model.name], weights)
    with tempfile.TemporaryDirectory(prefix="ramet-peers-") as work:
        for number in range(options.rounds + 1):  # the first one has its memory watched, and warms caches
            for peer in (ramet_http(weights, "generate"), *asked):
                if peer.name in missing:
                    continue
                try:
                    with side(peer, model, Path(work), watched=number == 0) as only:
                        if only.peak is not None:
                            only.run(load, 0)
                            found[peer.name] = {"version": only.version, "start_s": []}
                            found[peer.name] |= {"peak_bytes": only.peak.bytes(), "kv_bytes": only.pool_bytes or held}
                        else:
                            found[peer.name]["start_s"].append(round(only.start_s, 2))
                except MissingPeer as why:
                    missing[peer.name] = str(why)
                    print(f"not measured: {why}", flush=True)
    return {"peers": found, "missing": list(missing.values())}


@contextmanager
def _side(peer: Peer, model: Path) -> Iterator[PeerSide]:
    """With a folder of its own for what it converts."""
    with ExitStack() as stack:
        work = Path(tempfile.mkdtemp(prefix=f"{peer.worker}-", dir=model.parent))
        stack.callback(shutil.rmtree, work)
        yield stack.enter_context(side(peer, model, work))


def _start(found: PeerSide) -> Record:
    return {"version": found.version, "start_s": round(found.start_s, 2)}


def _loads(options: argparse.Namespace) -> list[Load]:
    return [load for name, load in LOADS.items() if not options.load or name in options.load]


def _lengths(load: Load) -> Record:
    return {
        "load": load.name, "requests": load.requests, "shared": load.shared, "own": load.own, "output": load.output,
    }  # fmt: skip


def _spread(values: list[float]) -> list[float]:
    """Median and its interval (rounds.interval)."""
    return [round(value, 3) for value in (statistics.median(values), *interval(values))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
