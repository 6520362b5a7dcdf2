"""A process that reads large bodies: `python -m ramet.runtime.server.http.body_worker NICENESS`, ended by its parent.

It parses a body and calls a handler's function with the object, so that all the Python of that work is done beside the
server, and below decoding in priority. body_reader.py is the parent's side.
"""

import gc
import io
import pickle
import select
import sys
from importlib import import_module
from typing import Any

import msgspec

from ramet.runtime.errors import RametError
from ramet.runtime.intake.body import made_of
from ramet.runtime.machine import trim_heap
from ramet.runtime.workers.subordinate import be_subordinate, private_stdout, read_frame, write_frame

HANDLERS = "ramet.runtime.server.routes"  # imports every handler, so that no body waits for an import
TRIM_AFTER_S = 1.0  # without a body, after which freed memory goes back to the system
UNREAD = b""  # an answer: the parent has to read the body itself


class BodyJob(msgspec.Struct, frozen=True, array_like=True):
    """The body is in a frame of its own."""

    how: bytes  # pickled: the function of the object that the body is
    max_items: int


def main(argv: list[str]) -> None:
    be_subordinate(int(argv[1]))
    stdin, stdout = sys.stdin.buffer, private_stdout()
    import_module(HANDLERS)
    gc.disable()  # what a body becomes has no cycles, and is searched for them once it is gone
    gc.collect()
    gc.freeze()
    write_frame(stdout, msgspec.msgpack.encode(UNREAD))
    while (job := read_frame(stdin)) is not None and (body := read_frame(stdin)) is not None:
        write_frame(stdout, msgspec.msgpack.encode(answer(msgspec.msgpack.decode(job, type=BodyJob), body)))
        del job, body
        gc.collect()
        if not select.select([stdin], [], [], TRIM_AFTER_S)[0]:
            trim_heap()


def answer(job: BodyJob, body: bytes) -> bytes:
    """What was made of the body or why it is refused, pickled."""
    try:
        make = pickle.loads(job.how)
        try:
            made = made_of(make, body, job.max_items, in_pieces=False)  # no other thread waits for the lock
            return _pickled((made, None))
        except RametError as error:
            return _pickled((None, error))
    except Exception:  # noqa: BLE001  where the parent meets it as well, it says so
        return UNREAD


def _pickled(value: Any) -> bytes:
    """What is read is a tree: to look for parts that stand in it twice would take nearly all of the time."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
    pickler.fast = True
    pickler.dump(value)
    return stream.getvalue()


if __name__ == "__main__":
    main(sys.argv)
