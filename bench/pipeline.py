"""`ramet bench pipeline`: what all processes but the model can carry. 128 streams, one SSE event per token.

The server runs with --runner scripted: tokens by a formula, in no time. So the figure is the cost of receiving,
tokenising, scheduling, detokenising, framing and sending. Tokens/s counts from the first request sent to the last byte
received. CPU per token is each process's user and system time over the same span, divided by the tokens; of a server
that was started elsewhere (--base-url), or where there is no /proc, only the client's is known.

The client is no HTTP library, on purpose: it costs little, or it would be the thing that is measured. It writes one
request per connection and counts the blank lines that end events; only the last event, which has the usage, is parsed.
Events (less the usage and [DONE]) and completion tokens must be the same number for every stream, or the run fails.

With --chat the streams are chats: two events more (the role, the end), none for a token without text; the prompt goes
through the chat template, the output through the parser of reasoning, with --tools through that of calls as well.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from ramet.bench import report, stamp
from ramet.bench.errors import BadOption
from ramet.bench.loop import run_fast
from ramet.bench.server import cpu_seconds, started
from ramet.bench.values import positive

ROUND_WITHIN_S = 120.0
CLOSING_EVENTS = 2  # the usage and [DONE]
_USAGE = re.compile(rb'"completion_tokens":\s*(\d+)')
_TAIL = 2048  # bytes kept of each stream's end: enough for the usage event


@dataclass(frozen=True)
class Round:
    """One load of all streams."""

    seconds: float
    tokens: int
    events: int
    cpu_us: dict[str, float]  # microseconds per token, by process

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def server_cpu_us(self) -> float:
        """Microseconds per token of the server's processes together."""
        return sum(us for role, us in self.cpu_us.items() if role != "client")


class PipelineStream(asyncio.Protocol):
    """One connection, one request; counts events as bytes arrive. `ended` is its future result."""

    def __init__(self, request: bytes, ended: "asyncio.Future[None]", chat: bool = False) -> None:
        self._request, self.ended, self._chat = request, ended, chat
        self.status = b""
        self.events = 0
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        if len(self.status) < len(b"HTTP/1.1 200"):
            self.status = (self.status + data)[: len(b"HTTP/1.1 200")]
        # an event's end may be cut in two by a read: look at the seam as well
        self.events += data.count(b"\n\n") + (self.tail[-1:] == b"\n" and data[:1] == b"\n")
        self.tail = (self.tail + data)[-_TAIL:]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    @property
    def tokens(self) -> int:
        """Of the usage event; BadOption if the stream is not what this bench must have."""
        usage = _USAGE.findall(self.tail)
        if not self.status.endswith(b"200") or not usage or b"[DONE]" not in self.tail:
            raise BadOption(f"a stream failed: {self.status!r} ... {self.tail[-300:]!r}")
        events, tokens = self.events - CLOSING_EVENTS, int(usage[-1])
        if self._chat and not 2 < events <= tokens + 2:
            raise BadOption(
                f"{events} events for {tokens} tokens of a chat: more than one per token, a role and an end"
            )
        if not self._chat and events != tokens:
            raise BadOption(
                f"{self.events - CLOSING_EVENTS} events for {int(usage[-1])} tokens: not one event per token"
            )
        return int(usage[-1])


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    try:
        with contextlib.ExitStack() as stack:
            if options.base_url:
                url, parent = options.base_url, None
            else:
                server = stack.enter_context(started(scripted(options)))
                url, parent = server.url, server.pid
            options.model = first_model(url)
            run_fast(one_round(url, options, parent))  # warm-up
            rounds = [run_fast(one_round(url, options, parent)) for _ in range(options.rounds)]
    except BadOption as error:
        print(f"ramet bench pipeline: {error}", file=sys.stderr)
        return 1
    middle = median_round(rounds)
    _print(options, rounds, middle)
    report.append_line(options.output_file, _record(options, argv, rounds, middle))
    return 0


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="ramet bench pipeline", description="What all processes but the model can carry.")
    p.add_argument("--base-url", help="of a running server, instead of starting one (then without CPU per process)")
    p.add_argument("--streams", type=positive, default=128, help="concurrent streams, default 128")
    p.add_argument("--input-len", type=positive, default=16, help="tokens of each prompt, default 16")
    p.add_argument("--output-len", type=positive, default=1024, help="tokens of each stream, default 1024")
    p.add_argument("--chat", action="store_true", help="chats instead of completions; --input-len counts words then")
    p.add_argument("--tools", action="store_true", help="chats that offer a tool")
    p.add_argument("--rounds", type=positive, default=3, help="measured rounds after one warm-up, default 3")
    p.add_argument("--output-file", type=Path, default=report.results_file("pipeline"), help=report.RESULTS_HELP)
    p.add_argument("serve", nargs="*", help="after --: options for the server")
    return p


def scripted(options: argparse.Namespace) -> list[str]:
    """Options of a server without a model that has room for every stream."""
    tokens = options.streams * (options.input_len + options.output_len + 64)
    return ["--runner", "scripted", "--log-level", "warning", "--max-running-requests", str(options.streams),
            "--max-total-tokens", str(tokens), *options.serve]  # fmt: skip


async def one_round(url: str, options: argparse.Namespace, parent: int | None) -> Round:
    """All streams at once, from connecting to the last byte."""
    loop = asyncio.get_running_loop()
    where = urlsplit(url)
    chat = options.chat or options.tools
    streams = [
        PipelineStream(request_bytes(where.netloc, options, i), loop.create_future(), chat)
        for i in range(options.streams)
    ]
    before, start = _cpu_seconds(parent), time.perf_counter()
    host, port = where.hostname or "127.0.0.1", where.port or 80
    await asyncio.gather(*(loop.create_connection(partial(itself, stream), host, port) for stream in streams))
    await _all_ended(streams)
    seconds, after = time.perf_counter() - start, _cpu_seconds(parent)
    tokens = sum(s.tokens for s in streams)
    if tokens != options.streams * options.output_len:
        raise BadOption(f"{tokens} tokens came, {options.streams} x {options.output_len} were asked for")
    cpu = {role: (after[role] - before.get(role, 0.0)) / tokens * 1e6 for role in after}  # some start meanwhile
    return Round(seconds, tokens, sum(s.events for s in streams) - CLOSING_EVENTS * len(streams), cpu)


async def _all_ended(streams: Sequence[PipelineStream]) -> None:
    try:
        async with asyncio.timeout(ROUND_WITHIN_S):
            await asyncio.gather(*(stream.ended for stream in streams))
    except TimeoutError:
        left = sum(not stream.status or b"[DONE]" not in stream.tail for stream in streams)
        raise BadOption(f"{left} of {len(streams)} streams had not ended after {ROUND_WITHIN_S:.0f} s") from None


def itself(stream: PipelineStream) -> PipelineStream:
    """The protocol factory that asyncio asks for, where the protocol exists already."""
    return stream


def request_bytes(host: str, options: argparse.Namespace, number: int) -> bytes:
    """HTTP/1.1, closed at the end of the answer. Each prompt begins differently, so the streams share no prefix."""
    chat = options.chat or options.tools
    body = json.dumps({
        "model": options.model, "max_tokens": options.output_len, "temperature": 0, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True},
        **(_chat(options, number) if chat else _prompt(options, number)),
    }).encode()  # fmt: skip
    path = "/v1/chat/completions" if chat else "/v1/completions"
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _prompt(options: argparse.Namespace, number: int) -> dict[str, Any]:
    return {"prompt": [8 + (number * 31 + i) % 200 for i in range(options.input_len)]}


def _chat(options: argparse.Namespace, number: int) -> dict[str, Any]:
    words = " ".join(str((number * 31 + i) % 200) for i in range(options.input_len))
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    return {"messages": [{"role": "user", "content": words}], **({"tools": [tool]} if options.tools else {})}


def median_round(rounds: Sequence[Round]) -> Round:
    """The round of median speed (the lower of the two in the middle)."""
    return sorted(rounds, key=lambda r: r.tokens_per_s)[(len(rounds) - 1) // 2]


def _cpu_seconds(parent: int | None) -> dict[str, float]:
    """User and system seconds by role: of this client, and of the processes that a server's parent has started."""
    return {"client": time.process_time()} | (cpu_seconds(parent) if parent is not None else {})


def first_model(url: str) -> str:
    """The name to ask for: servers refuse a name that they do not serve."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "127.0.0.1", where.port or 80, timeout=30)
    try:
        connection.request("GET", "/v1/models")
        name: str = json.loads(connection.getresponse().read())["data"][0]["id"]
    except (OSError, ValueError, LookupError) as error:
        raise BadOption(f"{url}/v1/models names no model: {error!r}") from None
    return name


def _print(options: argparse.Namespace, rounds: Sequence[Round], middle: Round) -> None:
    print(f"{options.streams} streams x {options.output_len} tokens, one event per token, {len(rounds)} rounds")
    print(
        "tokens/s       "
        + "  ".join(f"{r.tokens_per_s:,.0f}" for r in rounds)
        + f"   median {middle.tokens_per_s:,.0f}"
    )
    print(f"events/s       {middle.events / middle.seconds:,.0f}")
    for role, us in sorted(middle.cpu_us.items(), key=lambda item: -item[1]):
        print(f"CPU us/token   {us:6.2f}  {role}")
    print(f"CPU us/token   {sum(middle.cpu_us.values()):6.2f}  together")


def _record(options: argparse.Namespace, argv: Sequence[str], rounds: Sequence[Round], middle: Round) -> dict[str, Any]:
    return {
        "bench": "pipeline",
        **stamp.stamp(stamp.command_line("pipeline", argv)),
        "streams": options.streams,
        "input_len": options.input_len,
        "output_len": options.output_len,
        "tokens_per_s": round(middle.tokens_per_s),
        "rounds_tokens_per_s": [round(r.tokens_per_s) for r in rounds],
        "spread": round(statistics.pstdev([r.tokens_per_s for r in rounds]) / middle.tokens_per_s, 3),
        "events": middle.events,
        "tokens": middle.tokens,
        "cpu_us_per_token": {role: round(us, 2) for role, us in middle.cpu_us.items()},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
