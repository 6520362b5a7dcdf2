"""The process that parses slow outputs beside the scheduler, by forking a child process for each output.

It loads each library once and forks: a child starts within milliseconds, shares the vocabulary's memory, and can be
killed at any time without affecting another output. A kernel timer bounds a child's processor time, and ends the child
even in the middle of a library call. Decides nothing.
"""

import gc
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from ramet.runtime.errors import describe
from ramet.runtime.grammar.backends import build
from ramet.runtime.grammar.base import BackendName, Grammar, GrammarBackend, GrammarError, Vocabulary
from ramet.runtime.text.tokenizer import Tokenizer
from ramet.runtime.workers.subordinate import be_subordinate, end_with_parent, limit, read_frame, write_frame

MEMORY_BYTES = 1 << 30  # address space that an output's process may map beyond what it starts with
COMMAND_BYTES = 1 << 12  # size of the longest command


class ForkParser(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Fork a child for the socket that is passed with this message, after loading its library."""

    key: int
    backend: BackendName
    budget_s: float  # processor time that the child may take


class Kill(msgspec.Struct, frozen=True, tag=True, array_like=True):
    key: int


class GiveWay(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The output is slow: its child runs where a core has nothing else to do, which others then find free."""

    key: int


class ParserEnded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A child has ended. `returncode` is that of subprocess; `fact`: why the child could not be started."""

    key: int
    returncode: int
    fact: str = ""


class BeginParser(msgspec.Struct, frozen=True, tag=True, array_like=True):
    prepared: bytes  # what `GrammarBackend.load` reads
    tokens: list[int]  # the output's tokens so far


class Accept(msgspec.Struct, frozen=True, tag=True, array_like=True):
    tokens: list[int]


class Reads(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The question which of these texts may follow. A text is a list of parts with their tokens."""

    texts: list[list[tuple[bytes, int]]]


class ParserState(msgspec.Struct, frozen=True, tag=True, array_like=True):
    mask: bytes  # int32 [W]
    may_end: bool
    must_end: bool
    cpu_s: float  # processor time that the child has taken so far


class ParserFlags(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to Reads: a byte for each text, 1 if it may follow."""

    allowed: bytes


class ParserFailure(msgspec.Struct, frozen=True, tag=True, array_like=True):
    fact: str
    hint: str = ""
    is_ours: bool = False


Reply = ParserState | ParserFlags | ParserFailure


def main(argv: list[str]) -> None:
    be_subordinate(int(argv[4]))
    folder, size, eos = Path(argv[1]), int(argv[2]), argv[3]
    tokenizer = Tokenizer.from_folder(folder)
    vocabulary = Vocabulary(tokenizer, folder, size, frozenset(int(each) for each in eos.split(",") if each))
    Parent(socket.socket(fileno=int(argv[5])), vocabulary).serve()


class Parent:
    def __init__(self, control: socket.socket, vocabulary: Vocabulary) -> None:
        self._control, self._vocabulary = control, vocabulary
        self._backends: dict[str, GrammarBackend] = {}
        self._children: dict[int, int] = {}  # process -> key

    def serve(self) -> None:
        """Serve until the scheduler's end of the socket is closed."""
        ended, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            sources: list[socket.socket | int] = [self._control, ended]
            readable, _, _ = select.select(sources, [], [])
            if ended in readable:
                os.read(ended, 1 << 12)
                self._reap()
            if self._control in readable:
                try:
                    data, descriptors, _, _ = socket.recv_fds(self._control, COMMAND_BYTES, 1)
                except ConnectionError:  # the scheduler has exited without a look at our news
                    return
                if not data:
                    return
                self._obey(msgspec.msgpack.decode(data, type=ForkParser | Kill | GiveWay), descriptors)

    def _obey(self, command: ForkParser | Kill | GiveWay, descriptors: list[int]) -> None:
        if not isinstance(command, ForkParser):
            for process in [process for process, key in self._children.items() if key == command.key]:
                if isinstance(command, Kill):
                    os.kill(process, signal.SIGKILL)
                else:
                    os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))
            return
        (descriptor,) = descriptors
        try:
            self._fork(command, descriptor)
        except Exception as error:  # noqa: BLE001 - a library may raise anything; the request ends
            self._tell(ParserEnded(command.key, 1, describe(error)))
        finally:
            os.close(descriptor)

    def _fork(self, command: ForkParser, descriptor: int) -> None:
        if command.backend not in self._backends:
            self._backends[command.backend] = build(command.backend, self._vocabulary)
            gc.freeze()  # a collection in a child would write to all memory that it shares
        process = os.fork()
        if process:
            self._children[process] = command.key
            return
        try:
            self._control.close()
            become_child(command.budget_s)
            with os.fdopen(os.dup(descriptor), "rb") as source, os.fdopen(descriptor, "wb") as target:
                Child(self._backends[command.backend], self._vocabulary.size).serve(source, target)
        finally:
            os._exit(0)

    def _reap(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            self._tell(ParserEnded(self._children.pop(process), os.waitstatus_to_exitcode(status)))

    def _tell(self, news: ParserEnded) -> None:
        with suppress(ConnectionError):  # the scheduler has exited: the next read notices
            self._control.send(msgspec.msgpack.encode(news))


def become_child(budget_s: float) -> None:
    end_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, even inside a library call
    signal.setitimer(signal.ITIMER_PROF, budget_s)
    with suppress(OSError, ValueError):  # no such file outside of Linux
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit(resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY_BYTES)


class Child:
    """Parses one output."""

    def __init__(self, backend: GrammarBackend, vocabulary_size: int) -> None:
        self._backend, self._num_words = backend, -(-vocabulary_size // 32)
        self._grammar: Grammar | None = None

    def serve(self, source: BinaryIO, target: BinaryIO) -> None:
        while (data := read_frame(source)) is not None:
            write_frame(target, msgspec.msgpack.encode(self._reply(data)))

    def _reply(self, data: bytes) -> Reply:
        try:
            return self._do(msgspec.msgpack.decode(data, type=BeginParser | Accept | Reads))
        except GrammarError as error:
            return ParserFailure(error.fact, error.hint)
        except MemoryError:
            return ParserFailure("needs more memory to parse its output than a constraint may take")
        except Exception as error:  # noqa: BLE001 - a library may raise anything
            return ParserFailure(f"failed: internal error: {describe(error)}", is_ours=True)

    def _do(self, message: BeginParser | Accept | Reads) -> Reply:
        if isinstance(message, BeginParser):
            self._grammar = self._backend.load(message.prepared).start()
        grammar = self._grammar
        assert grammar is not None, "its first message is not Begin"
        if isinstance(message, Reads):
            return ParserFlags(bytes(self._reads(grammar, each) for each in message.texts))
        for token in message.tokens:
            if not grammar.accept(token):
                return ParserFailure(f"failed: internal error: token {token} is not allowed by it", is_ours=True)
        mask = np.empty(self._num_words, np.int32)
        grammar.fill_mask(mask)
        return ParserState(mask.tobytes(), grammar.may_end, grammar.must_end, time.process_time())

    @staticmethod
    def _reads(grammar: Grammar, text: list[tuple[bytes, int]]) -> bool:
        """Whether the text may follow. An empty text may not."""
        taken = 0
        for _, token in text:
            if not grammar.accept(token):
                break
            taken += 1
        grammar.rollback(taken)
        return 0 < taken == len(text)


if __name__ == "__main__":
    main(sys.argv)
