"""`ramet bench intake`: how long a large body keeps a server from its other clients. No model runs: --runner scripted.

  server_s  CPU time of the server process for one body, its transfer included
  wait_s    the longest time that /health took meanwhile

Valid and invalid bodies of up to 30 MiB are sent to a server of our own, one after the other.
"""

import argparse
import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.server import Server, cpu_seconds, started
from ramet.bench.values import positive

SIZE = 30 << 20
POLL_S = 0.005
ANSWER_WITHIN_S = 600.0
PAIR = SIZE // 2  # one-digit numbers in a list that fills a body
ROW = [1234] * 1000
PARAMS = {"sampling_params": {"max_new_tokens": 1}}


class Case(NamedTuple):
    path: str
    body: Callable[[], Any]


CASES = {
    "a prompt of 15.7M ids": Case("/generate", lambda: {"input_ids": [5] * PAIR}),
    "the last of 15.7M ids is a text": Case("/generate", lambda: {"input_ids": [*[5] * PAIR, "x"]}),
    "a prompt of 2M ids": Case("/generate", lambda: {"input_ids": ROW * 2000}),
    "2000 prompts of 1000 ids": Case("/generate", lambda: {"input_ids": [ROW] * 2000, **PARAMS}),
    "the last of 2000 prompts is wrong": Case("/generate", lambda: {"input_ids": [*[ROW] * 1999, [*ROW[1:], "x"]]}),
    "400k prompts of one id": Case("/generate", lambda: {"input_ids": [[5]] * 400_000}),
    "7.8M prompts of one character": Case("/generate", lambda: {"text": ["a"] * (SIZE // 4)}),
    "a text of 30 MiB": Case("/generate", lambda: {"text": "a" * SIZE}),
    "a prompt of 2M numbers": Case("/generate", lambda: {"input_embeds": [[0.0125] * 100] * 20_000}),
    "7.8M stop texts": Case("/generate", lambda: {"text": "a", "sampling_params": {"stop": ["a"] * (SIZE // 4)}}),
    "260k biases": Case("/v1/completions", lambda: {"prompt": "a", "logit_bias": {str(i): 1 for i in range(260_000)}}),
    "2M ids to decode": Case("/detokenize", lambda: {"tokens": ROW * 2000}),
    "30 MiB to tokenize": Case("/tokenize", lambda: {"prompt": "a" * SIZE}),
    "a chat of 30 MiB": Case("/v1/chat/completions", lambda: {"messages": [_said("a" * SIZE)]}),
    "80k messages": Case("/v1/chat/completions", lambda: {"messages": [_said("a")] * 80_000}),
}


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    try:
        with started(["--runner", "scripted", *options.serve]) as server:
            found = {name: measure(server, case, options.rounds) for name, case in CASES.items()}
    except BadOption as error:
        print(f"ramet bench intake: {error}", file=sys.stderr)
        return 1
    print(f"{'body':<36}{'MiB':>6}{'status':>8}{'server (s)':>12}{'wait (s)':>10}")
    for name, one in found.items():
        print(f"{name:<36}{one['mib']:>6.1f}{one['status']:>8}{one['server_s']:>12.2f}{one['wait_s']:>10.2f}")
    record = {"bench": "intake", **stamp.stamp(stamp.command_line("intake", argv)), "bodies": found}
    report.append_line(options.output_file, record)
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench intake", description=__doc__, formatter_class=formatter)
    p.add_argument("--rounds", type=positive, default=3, help="times each body is sent; the least counts; default 3")
    p.add_argument("--output-file", type=Path, default=report.results_file("intake"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    return p


def measure(server: Server, case: Case, rounds: int) -> dict[str, Any]:
    """The least of a few rounds: others at work on the machine only add to both figures."""
    data = json.dumps(case.body(), separators=(",", ":")).encode()
    sent = [_send(server, case.path, data) for _ in range(rounds)]
    figures = {name: min(one[name] for one in sent) for name in ("server_s", "wait_s")}
    return {"mib": len(data) / 2**20, "status": sent[0]["status"], **figures}


def _send(server: Server, path: str, data: bytes) -> dict[str, Any]:
    waits, ended = [0.0], threading.Event()
    polling = threading.Thread(target=_poll, args=(server.url, waits, ended))
    before = cpu_seconds(server.pid)["server"]
    polling.start()
    status = ask(server.url, path, data)
    ended.set()
    polling.join()
    return {"status": status, "server_s": cpu_seconds(server.pid)["server"] - before, "wait_s": max(waits)}


def _poll(url: str, waits: list[float], ended: threading.Event) -> None:
    while not ended.wait(POLL_S):
        start = time.perf_counter()
        ask(url, "/health")
        waits.append(time.perf_counter() - start)


def ask(url: str, path: str, data: bytes | None = None) -> int:
    """The status of the reply, whose body is read."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_WITHIN_S)
    try:
        connection.request("POST" if data is not None else "GET", path, data, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
        return reply.status
    except OSError as error:
        raise BadOption(f"{url}{path} gives no answer: {error}") from None
    finally:
        connection.close()


def _said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
