"""One msgpack encoder, and one typed decoder per inbox. Knows messages, not sockets. No pickle, ever."""

from typing import Any, Generic, TypeVar

import msgspec

from ramet.ipc.message import Message

M = TypeVar("M")
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


class Codec(Generic[M]):
    """Decodes the messages of one union; anything else raises msgspec.ValidationError."""

    def __init__(self, union: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(union)

    def decode(self, data: bytes) -> M:
        return self._decoder.decode(data)
