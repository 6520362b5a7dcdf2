"""Inboxes and outboxes: one Receiver binds an inbox, any number of Senders push to it.

Decides blocking, bounds, order and the encoding: one msgpack encoder, one typed decoder per inbox, no pickle. Knows
messages, not what they mean. Order holds between one sender and one receiver. A full queue makes the sender wait
(back-pressure); nothing is dropped and nothing polls.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import msgspec
import zmq
import zmq.asyncio

from ramet.ipc.message import Message

M = TypeVar("M")
MAX_QUEUED = 100_000  # messages in one queue before its sender waits
BURST = 8  # messages delivered before other tasks may run: a server that is behind writes several tokens at once
LARGE = 1 << 16  # bytes from which zmq sends a message without a copy of it
BURST_BYTES = 1 << 15  # of them: about 3 ms, where each opens or closes hundreds of sequences
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


class Codec(Generic[M]):
    """Decodes the messages of one union; anything else raises msgspec.ValidationError."""

    def __init__(self, union: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(union)

    def decode(self, data: bytes | memoryview) -> M:
        return self._decoder.decode(data)


class Outbox(Protocol):
    """Where a process puts what it has to say."""

    def send(self, message: Message) -> None: ...


class BatchOutbox(Outbox, Protocol):
    def send_all(self, messages: Iterable[Message]) -> None:
        """In this order. Messages between threads arrive together."""


class Sender:
    """Pushes messages to one inbox. `send` blocks while that inbox is full. Not for two threads at once."""

    def __init__(self, address: str) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
        self._socket.set_hwm(MAX_QUEUED)
        self._socket.setsockopt(zmq.LINGER, 500)  # ms that close waits for unsent messages
        self._socket.connect(address)

    def send(self, message: Message) -> None:
        data = encode(message)
        if len(data) < LARGE:
            self._socket.send(data)
        else:
            self._socket.send(data, copy=False)

    def send_all(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.send(message)

    def close(self) -> None:
        self._socket.close()


class Receiver(Generic[M]):
    """Binds one inbox and reads it without ever spinning."""

    def __init__(self, address: str, union: Any, large: bool = False) -> None:
        """`large`: messages may be as large as bodies, so they are not copied. That takes 0.4 us more for each."""
        self._codec: Codec[M] = Codec(union)
        self._large = large
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
        self._socket.set_hwm(MAX_QUEUED)
        self._socket.bind(address)

    def recv(self, timeout_s: float | None = None) -> M | None:
        """The next message; None when `timeout_s` passed first. Without a timeout it waits for ever."""
        if timeout_s is not None and not self._socket.poll(max(0, ceil(timeout_s * 1000))):
            return None
        return self._received()

    def _received(self, flags: int = 0) -> M:
        if self._large:
            return self._codec.decode(self._socket.recv(flags, copy=False).buffer)
        return self._codec.decode(self._socket.recv(flags))

    def drain(self, block: bool, timeout_s: float | None = None, most: int | None = None) -> list[M]:
        """Everything that has arrived; if `block`, at least one message, or none when `timeout_s` passed first.

        `most`: of so many messages; the others are not read and come with the next calls.
        """
        first = self.recv(timeout_s) if block else None
        messages = [first] if first is not None else []
        while most is None or len(messages) < most:
            try:
                messages.append(self._received(zmq.NOBLOCK))
            except zmq.Again:
                break
        return messages

    def close(self) -> None:
        self._socket.close(linger=0)


class AsyncReceiver(Generic[M]):
    """An inbox like Receiver, for an asyncio process."""

    def __init__(self, address: str, union: Any) -> None:
        self._codec: Codec[M] = Codec(union)
        self._socket = zmq.asyncio.Context.instance().socket(zmq.PULL)
        self._socket.set_hwm(MAX_QUEUED)
        self._socket.bind(address)

    async def recv(self) -> M:
        return self._codec.decode(await self._socket.recv())

    async def deliver_to(self, handle: Callable[[M], None]) -> NoReturn:
        """Hand over what arrives, for ever. Other tasks may run after a burst of messages, or when none is waiting."""
        while True:
            num = size = 0
            while num < BURST and size < BURST_BYTES:
                data = await self._socket.recv()
                handle(self._codec.decode(data))
                num, size = num + 1, size + len(data)
            await asyncio.sleep(0)

    def close(self) -> None:
        self._socket.close(linger=0)


class InboxStopped(Exception):
    """The inbox was stopped; its reader ends."""


class ThreadInbox(Generic[M]):
    """An inbox between threads of one process, with one reader. Messages that are sent together arrive together."""

    def __init__(self) -> None:
        self._queue: deque[Any] = deque()
        self._changed = threading.Condition()
        self._stopped = False

    def send(self, message: Message) -> None:
        with self._changed:
            self._queue.append(message)
            self._changed.notify()

    def send_all(self, messages: Iterable[Message]) -> None:
        with self._changed:
            self._queue.extend(messages)
            self._changed.notify()

    def drain(self, block: bool, timeout_s: float | None = None, most: int | None = None) -> list[M]:
        """Takes messages as Receiver.drain does. Raises InboxStopped."""
        with self._changed:
            while block and not self._queue and not self._stopped:
                block = self._changed.wait(timeout_s)  # until something is sent, or the time has passed
            if self._stopped:
                raise InboxStopped
            return _first(self._queue, most)

    def stop(self) -> None:
        """The reader's next drain raises InboxStopped, whatever has arrived."""
        with self._changed:
            self._stopped = True
            self._changed.notify()


class MemoryChannel(Generic[M]):
    """An inbox of one thread, which sends to itself. For tests and measurements.

    With a `union` every message crosses the wire format on its way.
    """

    def __init__(self, union: Any = None) -> None:
        self._queue: deque[Any] = deque()
        self._codec: Codec[M] | None = Codec(union) if union is not None else None

    def send(self, message: Message) -> None:
        self._queue.append(self._codec.decode(encode(message)) if self._codec else message)

    def send_all(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.send(message)

    @property
    def is_empty(self) -> bool:
        return not self._queue

    def drain(self, block: bool = False, timeout_s: float | None = None, most: int | None = None) -> list[M]:
        waits = block and timeout_s is None
        assert self._queue or not waits, "nothing will ever arrive: the only sender is this thread"
        return _first(self._queue, most)


def _first(queue: deque[M], most: int | None) -> list[M]:
    """Take out the first `most` messages; None: all of them."""
    messages: list[M] = []
    while queue and len(messages) != most:
        messages.append(queue.popleft())
    return messages
