"""Connections that go no further, all in this process: idle ones, half requests, readers that never read.

Decides what each kind sends, without an HTTP library, and when the server has ended it. Measures nothing.
"""

import asyncio
import resource
import socket
import time
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from ramet.bench.errors import BadOption

SPARE_FILES = 256
POLL_S = 0.25
TABLE = Path("/proc/net/tcp")  # only Linux has it; IPv4
# a stream of some 200 KB, which costs the model little: more than the buffers of server and kernel take
UNREAD = {
    "input_ids": [5, 6, 7],
    "stream": True,
    "return_logprob": True,
    "top_logprobs_num": 256,
    "sampling_params": {"max_new_tokens": 8, "ignore_eos": True},
}
RECEIVE_BYTES = 4096  # of a reader's socket


class Kind(Enum):
    """What a connection does, in the words of a report."""

    IDLE = "idle after a request"
    HEADER = "half a header"
    BODY = "half a body"
    READER = "never reads its stream"


@dataclass
class Member:
    kind: Kind
    socket: socket.socket
    port: int
    opened_s: float
    ended_s: float | None = None


def request_of(kind: Kind) -> bytes:
    match kind:
        case Kind.IDLE:
            return b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        case Kind.HEADER:
            return b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-"
        case Kind.BODY:
            return b'POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"text": "half of'
        case Kind.READER:
            body = orjson.dumps(UNREAD)
            return b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Crowd:
    """Open connections to one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.members: list[Member] = []

    async def open(self, kind: Kind, num: int) -> None:
        """So many of this kind more. BadOption where the system or the server refuses one."""
        loop = asyncio.get_running_loop()
        for _ in range(num):
            client = socket.socket()
            client.setblocking(False)
            if kind is Kind.READER:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            await loop.sock_connect(client, self._address)
            self.members.append(Member(kind, client, client.getsockname()[1], time.perf_counter()))
            await loop.sock_sendall(client, request_of(kind))
            if kind is Kind.IDLE and b" 200 " not in await loop.sock_recv(client, 1 << 16):
                raise BadOption("the server refused a connection: raise its --max-connections")

    def num_open(self) -> Counter[Kind]:
        """Those that the server process still holds, by kind.

        The kernel's table says so. A client cannot see it: an end does not reach one that reads nothing.
        """
        held, now = self._held_ports(), time.perf_counter()
        for each in self.members:
            if each.ended_s is None and each.port not in held:
                each.ended_s = now
        return Counter(each.kind for each in self.members if each.ended_s is None)

    def _held_ports(self) -> set[int]:
        """The clients' ports of connections that a process holds at the server's side."""
        held: set[int] = set()
        for line in TABLE.read_text().splitlines()[1:]:
            _, local, remote, _, _, _, _, _, _, inode, *_ = line.split()
            if int(local.rpartition(":")[2], 16) == self._address[1] and inode != "0":
                held.add(int(remote.rpartition(":")[2], 16))
        return held

    async def until_ended(self, within_s: float) -> Counter[Kind]:
        """Waits until the server has ended all, or so long. Returns those that are still open, by kind."""
        limit = time.perf_counter() + within_s
        while (left := self.num_open()) and time.perf_counter() < limit:
            await asyncio.sleep(POLL_S)
        return left

    def longest_s(self) -> dict[Kind, float]:
        """The longest life of those that have ended, by kind."""
        lives: dict[Kind, float] = {}
        for each in self.members:
            if each.ended_s is not None:
                lives[each.kind] = max(lives.get(each.kind, 0.0), each.ended_s - each.opened_s)
        return lives

    def close(self) -> None:
        for each in self.members:
            each.socket.close()

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def provide_files(num: int) -> None:
    """Let this process open so many files. BadOption where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = num + SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BadOption(f"{needed} open files are needed, the hard limit is {hard} (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
