"""`ramet bench watching`: what it costs that a page can look at a running server, and what one viewer costs.

The load is that of `ramet bench pipeline`: a server without a model, 128 streams, one event per token. Its tree has
10,000 nodes and more. Each round runs the load in every variant, another one first in each: on the server of an older
commit (--before, a checkout of it), with nobody looking, and with one viewer that reads /ui/live. A noisy machine is
noisy for all variants of a round, so figures are ratios within a round: of tokens/s, and of the CPU time of all of the
server's processes per token. The viewer is a thread of this process that reads and drops, no browser.

A share of one hundredth is below what such rounds resolve on a busy machine. So the viewer's own cost is measured as
well, where nothing else uses the CPU: the same streams and the same tree, but each step waits (--scripted-step-ms), and
the CPU time of each process is read over some seconds, in turn without and with a viewer, and of the older commit
beside it. A process has one core at most, so what a viewer takes of a core is the most that it takes of the throughput.
"""

import argparse
import contextlib
import http.client
import json
import selectors
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.pipeline import Round, first_model, one_round, request_bytes
from ramet.bench.rounds import told, turned
from ramet.bench.server import Server, cpu_seconds, started
from ramet.bench.values import positive

BEFORE, NOBODY, VIEWER = "before", "nobody looks", "one viewer"
LEAF = 8  # tokens of a leaf of the tree
BELOW = 100  # leaves of a node
BATCH = 250  # prompts of a request
PENDING_S = 30.0
WINDOW_S = 5.0  # over which CPU time is read
STEP_MS = 250
MAX_STEPS = 4000  # more than there are in all windows


@dataclass
class Watcher:
    """What a viewer has read."""

    events: int = 0
    bytes: int = 0
    ended: threading.Event = field(default_factory=threading.Event)


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    options.chat = options.tools = False
    try:
        with contextlib.ExitStack() as stack:
            now = stack.enter_context(started(_server_options(options)))
            servers = {NOBODY: now, VIEWER: now}
            if options.before:
                older = stack.enter_context(started(_server_options(options), checkout=options.before))
                servers = {BEFORE: older, **servers}
            runs, told = _measure(servers, options)
        alone = cost_alone(options)
    except BadOption as error:
        print(f"ramet bench watching: {error}", file=sys.stderr)
        return 1
    variants = {name: _figures(runs[name], runs[NOBODY]) for name in runs}
    for name, figures in variants.items():
        print(_line(name, figures))
    print(f"the viewer read {told['events']} events of {told['bytes_per_event']:,} bytes; {told['nodes']:,} nodes")
    for name, costs in alone.items():
        print(f"{name:<13} {', '.join(f'{role} {ms:.2f}' for role, ms in costs.items())} ms of CPU a second")
    made = stamp.stamp(stamp.command_line("watching", argv))
    load = {name: getattr(options, name) for name in ("streams", "input_len", "output_len", "rounds", "nodes")}
    before = {"before": stamp.commit(options.before)} if options.before else {}
    record = {"bench": "watching", **made, **load, **before, "variants": variants, "viewer": told}
    record["cpu_ms_per_s"] = alone
    report.append_line(options.output_file, record)
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench watching", description=__doc__, formatter_class=formatter)
    p.add_argument("--before", type=Path, metavar="FOLDER", help="a checkout of an older commit, measured as well")
    p.add_argument("--nodes", type=positive, default=10_000, help="of the tree at least, default 10000")
    p.add_argument("--streams", type=positive, default=128, help="concurrent streams, default 128")
    p.add_argument("--input-len", type=positive, default=16, help="tokens of each prompt, default 16")
    p.add_argument("--output-len", type=positive, default=1024, help="tokens of each stream, default 1024")
    p.add_argument("--rounds", type=positive, default=15, help="default 15")
    p.add_argument("--windows", type=positive, default=6, help=f"of {WINDOW_S:g} s, without and with, default 6")
    p.add_argument("--output-file", type=Path, default=report.results_file("watching"), help=report.RESULTS_HELP)
    return p


def _server_options(options: argparse.Namespace) -> list[str]:
    """Room for the tree and for every output of every round, so that nothing is evicted."""
    of_rounds = options.streams * (options.input_len + options.output_len + 64) * 2 * (options.rounds + 2)
    total = 2 * options.nodes * LEAF + of_rounds
    rows = max(options.streams, BATCH)
    return ["--runner", "scripted", "--log-level", "warning", "--max-running-requests", str(rows),
            "--max-total-tokens", str(total)]  # fmt: skip


def _measure(servers: dict[str, Server], options: argparse.Namespace) -> tuple[dict[str, list[Round]], dict[str, Any]]:
    """The rounds of each variant, and what the viewer was told."""
    for server in {server.pid: server for server in servers.values()}.values():
        options.model = first_model(server.url)
        fill(server.url, options.nodes)
        run_fast(one_round(server.url, options, server.pid))  # warm-up
    runs: dict[str, list[Round]] = {name: [] for name in servers}
    read = Watcher()
    for number in range(options.rounds):
        for name in turned(list(servers), number):
            server = servers[name]
            with watching(server.url, read) if name == VIEWER else contextlib.nullcontext():
                runs[name].append(run_fast(one_round(server.url, options, server.pid)))
        print(f"round {number + 1}: {', '.join(f'{runs[n][-1].tokens_per_s:,.0f} {n}' for n in runs)}", flush=True)
    nodes = _tree_of(servers[VIEWER].url)["num_nodes"]
    return runs, {"events": read.events, "bytes_per_event": read.bytes // max(read.events, 1), "nodes": nodes}


def cost_alone(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """CPU milliseconds of each process in a second, over all windows: of the older commit, of nobody and of a viewer.

    The older commit's server runs beside this one's and is read over the windows in which nobody looks.
    """
    load = argparse.Namespace(**{**vars(options), "output_len": MAX_STEPS})
    slow = [*_server_options(options), "--scripted-step-ms", str(STEP_MS)]
    used: dict[str, list[dict[str, float]]] = {}
    with contextlib.ExitStack() as stack:
        servers = {NOBODY: stack.enter_context(started(slow))}
        if options.before:
            servers[BEFORE] = stack.enter_context(started(slow, checkout=options.before))
        for server in servers.values():
            fill(server.url, options.nodes)
            stack.enter_context(streaming(server.url, load))
        time.sleep(WINDOW_S)  # until all of them run
        for _ in range(options.windows):
            for name, cost in _window(servers).items():
                used.setdefault(name, []).append(cost)
            with watching(servers[NOBODY].url, Watcher()):
                used.setdefault(VIEWER, []).append(_window(servers)[NOBODY])
    return {name: {role: round(statistics.fmean(each[role] for each in some), 2) for role in some[0]}
            for name, some in used.items()}  # fmt: skip


def _window(servers: dict[str, Server]) -> dict[str, dict[str, float]]:
    """CPU milliseconds a second of each server's processes, in the same seconds."""
    before = {name: cpu_seconds(server.pid) for name, server in servers.items()}
    time.sleep(WINDOW_S)
    after = {name: cpu_seconds(server.pid) for name, server in servers.items()}
    return {
        name: {role: (seconds - before[name][role]) / WINDOW_S * 1e3 for role, seconds in used.items()}
        for name, used in after.items()
    }


@contextlib.contextmanager
def streaming(url: str, load: argparse.Namespace) -> Iterator[None]:
    """Streams that run until they are left: a thread reads and drops what comes."""
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for number in range(load.streams):
            stream = stack.enter_context(_connected(url))
            stream.sendall(request_bytes(urlsplit(url).netloc, load, number))
            selector.register(stream, selectors.EVENT_READ)
        left = threading.Event()
        thread = threading.Thread(target=_drop, args=(selector, left), daemon=True)
        thread.start()
        yield
        left.set()
        thread.join()


def _drop(selector: selectors.BaseSelector, left: threading.Event) -> None:
    while not left.is_set():
        for key, _ in selector.select(timeout=0.5):
            assert isinstance(key.fileobj, socket.socket)
            if not key.fileobj.recv(1 << 16):
                selector.unregister(key.fileobj)


def fill(url: str, num_nodes: int) -> None:
    """So many leaves, BELOW of them under each of their parents."""
    prompts = [[8 + i // BELOW, 8 + i % BELOW, *[9] * (LEAF - 1)] for i in range(num_nodes)]
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "127.0.0.1", where.port or 80, timeout=120)
    for start in range(0, len(prompts), BATCH):
        body = {"input_ids": prompts[start : start + BATCH], "sampling_params": {"max_new_tokens": 1}}
        connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            raise BadOption(f"the tree was not filled: {reply.status} {reply.read()[:300]!r}")
        reply.read()


@contextlib.contextmanager
def watching(url: str, read: Watcher) -> Iterator[None]:
    """A thread reads the stream from here on, after its first event."""
    first = threading.Event()
    thread = threading.Thread(target=_read, args=(url, read, first), daemon=True)
    read.ended.clear()
    thread.start()
    if not first.wait(PENDING_S):
        raise BadOption(f"{url}/ui/live sends nothing")
    try:
        yield
    finally:
        read.ended.set()
        thread.join()


def _read(url: str, read: Watcher, first: threading.Event) -> None:
    with _stream(url) as stream:
        while not read.ended.is_set():
            data = stream.recv(1 << 18)
            if not data:
                return
            read.bytes += len(data)
            if found := data.count(b"event: state"):
                read.events += found
                first.set()


def _stream(url: str) -> socket.socket:
    stream = _connected(url)
    stream.sendall(f"GET /ui/live HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
    return stream


def _connected(url: str) -> socket.socket:
    where = urlsplit(url)
    return socket.create_connection((where.hostname or "127.0.0.1", where.port or 80), timeout=PENDING_S)


def _tree_of(url: str) -> dict[str, Any]:
    """Of the first event of a stream."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "127.0.0.1", where.port or 80, timeout=PENDING_S)
    connection.request("GET", "/ui/live")
    reply = connection.getresponse()
    line = next(line for line in iter(reply.readline, b"") if line.startswith(b"data: "))
    connection.close()
    tree: dict[str, Any] = json.loads(line[6:])["state"]["tree"]
    return tree


def _figures(runs: list[Round], base: list[Round]) -> dict[str, Any]:
    """Medians, and of the ratios to `base` in the same round their interval as well."""
    rates = [run.tokens_per_s / other.tokens_per_s for run, other in zip(runs, base, strict=True)]
    costs = [run.server_cpu_us / other.server_cpu_us for run, other in zip(runs, base, strict=True)]
    return {
        "tokens_per_s": round(statistics.median(run.tokens_per_s for run in runs)),
        "cpu_us_per_token": round(statistics.median(run.server_cpu_us for run in runs), 3),
        "scheduler_us_per_token": round(statistics.median(run.cpu_us["scheduler"] for run in runs), 3),
        "server_us_per_token": round(statistics.median(run.cpu_us["server"] for run in runs), 3),
        "tokens_per_s_ratio": told(rates),
        "cpu_ratio": told(costs),
    }


def _line(name: str, figures: dict[str, Any]) -> str:
    rate, cost = _words(figures["tokens_per_s_ratio"]), _words(figures["cpu_ratio"])
    speed, cpu = f"{figures['tokens_per_s']:9,} tokens/s", f"{figures['cpu_us_per_token']:6.2f} us CPU"
    return f"{name:<13} {speed}, {rate}; {cpu}, {cost}"


def _words(ratio: dict[str, float]) -> str:
    return f"x {ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
