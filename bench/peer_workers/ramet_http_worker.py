"""A process of `ramet bench peers`: `ramet serve` in processes of its own, and a client of it that streams.

The client takes CPU time from the server, so it does what it must and no more: it writes each request whole, looks in
what arrives for the end of the stream only, and reads the count of tokens from the last event.
"""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from protocol import arguments, serve

import ramet

ADDRESS = re.compile(r"at http://([^:/]+):(\d+)\S* \(ready in")
END = b"\r\n0\r\n\r\n"  # of a chunked body; in JSON a line's end is escaped
TAIL_BYTES = 1 << 13  # that hold the last event
PATHS = {"generate": "/generate", "completions": "/v1/completions"}


class HttpStream(asyncio.Protocol):
    """One request, from its connection to the end of its stream."""

    def __init__(self, request: bytes, done: "asyncio.Future[bytes]") -> None:
        self._request, self._done = request, done
        self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._last = (self._last + data)[-TAIL_BYTES:]
        if self._last.endswith(END) and not self._done.done():
            self._done.set_result(self._last)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError(f"the stream ended early: {self._last[-300:]!r}"))


def request(address: tuple[str, int], path: str, ids: list[int], output: int) -> bytes:
    body: dict[str, object]
    if path == "generate":
        params = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
        body = {"input_ids": ids, "sampling_params": params, "stream": True}
    else:
        body = {"model": "default", "prompt": ids, "max_tokens": output, "temperature": 0, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    sent = json.dumps(body).encode()
    head = f"POST {PATHS[path]} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent


def count(last: bytes) -> int:
    """Tokens of a stream, as its end says."""
    found = re.findall(rb'"completion_tokens":\s*(\d+)', last)
    if not found:
        raise ValueError(f"a stream ends without a count of tokens: {last[-300:]!r}")
    return int(found[-1])


async def ask_all(address: tuple[str, int], requests: list[bytes]) -> list[int]:
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[bytes]] = [loop.create_future() for _ in requests]
    pairs = zip(requests, ends, strict=True)
    made = [await loop.create_connection(lambda r=r, e=e: HttpStream(r, e), *address) for r, e in pairs]  # type: ignore[misc]
    try:
        return [count(last) for last in await asyncio.gather(*ends)]
    finally:
        for transport, _ in made:
            transport.close()


def driven(address: tuple[str, int], path: str) -> Callable[[list[list[int]], int], list[int]]:
    def generate(prompts: list[list[int]], output: int) -> list[int]:
        return asyncio.run(ask_all(address, [request(address, path, ids, output) for ids in prompts]))

    return generate


def started(command: list[str]) -> tuple["subprocess.Popen[str]", tuple[str, int]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        if found := ADDRESS.search(line):
            return process, (found[1], int(found[2]))
    raise SystemExit(f"`ramet serve` ended with exit code {process.wait()}")


if __name__ == "__main__":
    o = arguments(quantization="", kv_cache_dtype="auto", path="generate")
    options = ["--model-path", str(o.model), "--port", "0", "--max-total-tokens", "32768", "--random-seed", "0"]
    options += ["--chunked-prefill-size", "2048", "--kv-cache-dtype", o.kv_cache_dtype]
    options += ["--quantization", o.quantization] if o.quantization else []
    since = time.time()
    process, address = started([sys.executable, "-m", "ramet", "serve", *options])
    try:
        serve(ramet.__version__, driven(address, o.path), since)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
