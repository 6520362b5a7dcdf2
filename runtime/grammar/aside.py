"""Outputs that are parsed aside, each in a process of its own: the scheduler's side, which never blocks.

A library may take seconds for one token of an ambiguous grammar, and cannot be interrupted. So an output that needs
more time than a step allows continues in a process that can be killed (aside_process.py): each drawn token is sent
there, and the mask of the next one is received some time later. Until then the output is `pending`, and its row is held
out of steps. Decides how many such processes run, and how much processor time an output may take.
"""

import signal
import socket
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from select import select

import msgspec
import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.aside_process import (
    Accept,
    BeginParser,
    ForkParser,
    GiveWay,
    Kill,
    ParserEnded,
    ParserFlags,
    ParserState,
    Reads,
    Reply,
)
from ramet.runtime.grammar.base import BackendName, Grammar, GrammarError, Vocabulary
from ramet.runtime.workers.subordinate import LENGTH, NICENESS, ending

MAX_PROCESSES = 32  # outputs that have a process; others wait until one of these has ended
QUICK_S = 1e-3  # processor time for a token, up to which the scheduler waits briefly for the output
SLOW_S = 0.1  # time for a token beyond which its process gives way to all others
SLOW_TOKEN_S = 2e-3  # mean processor time of tokens beyond which it does too, once they have taken SLOW_S
READ_BYTES = 1 << 16
EMPTY = np.empty(0, np.int32)
Texts = list[list[tuple[bytes, int]]]


class AsideFailed(Exception):
    """The process failed, not the constraint."""


class AsideGrammar:
    """A Grammar that answers from the process's last reply. `accept` returns before the next reply arrives."""

    def __init__(self, parsers: "Parsers", backend: BackendName, prepared: bytes, tokens: Sequence[int]) -> None:
        self.parsers, self._backend, self._prepared, self._tokens = parsers, backend, prepared, list(tokens)
        self.spent_s = 0.0  # processor time, as far as it is known
        self._before_s = 0.0  # the part of `spent_s` that earlier processes took
        self.is_quick = False  # its last token took less than QUICK_S
        self._state: ParserState | None = None
        self._mask: Ints = EMPTY
        self._failure: Exception | None = None
        self._link: Link | None = None
        self._flags: tuple[bytes, bytes | None] | None = None  # the last key of `reads`, and its answer
        self._asked = 0  # replies that have not arrived yet

    @property
    def pending(self) -> bool:
        """Whether a reply is awaited, so that the next token's mask is not known yet."""
        return self._failure is None and (self._state is None or self._asked > 0)

    @property
    def is_slow(self) -> bool:
        return self.spent_s > max(SLOW_S, SLOW_TOKEN_S * len(self._tokens))

    @property
    def runs(self) -> bool:
        return self._link is not None

    def begin(self) -> None:
        """Parse all tokens of the output, as soon as a process is free for it."""
        if self._link is None and self._failure is None:
            self._state, self._asked, self._before_s = None, 1, self.spent_s
            self._link = self.parsers.open(self, self._backend, BeginParser(self._prepared, self._tokens))

    def rest(self) -> None:
        """End its process. `begin` continues the output in another one."""
        if self._link is not None:
            self.parsers.end(self._link)
            self._link, self._state, self._flags = None, None, None

    def check(self) -> None:
        """Raise the error that made the output fail, if any."""
        if self._failure is not None:
            raise self._failure

    def accept(self, token: int) -> bool:
        self.check()
        assert self._link is not None and not self.pending, "its last token is still being parsed"
        if not self.allows(token):
            return False
        self._tokens.append(token)
        self._asked += 1
        self._link.send(Accept([token]))
        return True

    def allows(self, token: int) -> bool:
        return 0 <= token < 32 * len(self._mask) and bool(self._mask[token >> 5] >> (token & 31) & 1)

    def fill_mask(self, bits: Ints) -> None:
        self.check()
        assert not self.pending, "its last token is still being parsed"
        bits[:] = self._mask

    def reads(self, key: bytes, texts: Callable[[], Texts]) -> bytes | None:
        """A byte for each of the texts that belong to `key`: whether it may follow. None: pending, ask again later."""
        self.check()
        if self._flags is not None and self._flags[0] == key:
            return self._flags[1]
        assert self._link is not None and not self.pending, "its last token is still being parsed"
        self._flags = key, None
        self._asked += 1
        self._link.send(Reads(texts()))
        return None

    def forced(self) -> list[int]:
        return []

    def forced_text(self) -> bytes:
        return b""

    def rollback(self, num_tokens: int) -> None:
        assert not num_tokens, "nothing replaces tokens that are parsed aside"

    def fork(self) -> Grammar:
        raise GrammarError("is parsed in a process of its own, so its output cannot be copied")

    @property
    def may_end(self) -> bool:
        return self._state is not None and not self.pending and self._state.may_end

    @property
    def must_end(self) -> bool:
        return self._state is not None and not self.pending and self._state.must_end

    # -- called by Parsers -----------------------------------------------------------------------------------------

    def got(self, reply: Reply) -> None:
        self._asked -= 1
        if isinstance(reply, ParserState):
            spent_s = self._before_s + reply.cpu_s
            self.is_quick, self.spent_s = spent_s - self.spent_s < QUICK_S, spent_s
            self._state, self._mask = reply, np.frombuffer(reply.mask, np.int32)
        elif isinstance(reply, ParserFlags):
            assert self._flags is not None
            self._flags = self._flags[0], reply.allowed
        else:
            self.fail(AsideFailed(reply.fact) if reply.is_ours else GrammarError(reply.fact, reply.hint))

    def fail(self, error: Exception) -> None:
        self._failure = self._failure or error

    def ended(self, news: ParserEnded) -> None:
        """Note that its process ended without being asked to."""
        self._link = None
        if news.fact:
            self.fail(AsideFailed(f"cannot be parsed aside: {news.fact}"))
        elif news.returncode == -signal.SIGPROF:
            limit = self.parsers.budget_s
            fact = f"takes longer to parse than the {limit:g} s of --grammar-output-s, in {len(self._tokens)} tokens"
            self.fail(GrammarError(fact, "make it less ambiguous: one way to read each text"))
        elif news.returncode in (-signal.SIGKILL, -signal.SIGTERM):
            self.fail(AsideFailed(f"was not parsed: its process ended with {ending(news.returncode)}"))
        else:
            self.fail(GrammarError(f"is too large to parse: its process ended with {ending(news.returncode)}"))


class AsideMasks:
    """Fills the masks of outputs that are parsed aside."""

    def fill_masks(self, grammars: Sequence[Grammar], rows: Sequence[int], bits: Ints) -> None:
        for grammar, row in zip(grammars, rows, strict=True):
            grammar.fill_mask(bits[row])


class Link:
    """The socket to one process. Sending never waits."""

    def __init__(self, key: int, grammar: AsideGrammar, backend: BackendName) -> None:
        self.key, self.grammar, self.backend = key, grammar, backend
        self.socket: socket.socket | None = None  # None: it waits for a process
        self._out, self._in = bytearray(), bytearray()
        self._sent_s = 0.0  # when the last message was sent
        self.is_slow = False

    def fileno(self) -> int:
        assert self.socket is not None
        return self.socket.fileno()

    @property
    def has_more(self) -> bool:
        return bool(self._out)

    def send(self, message: BeginParser | Accept | Reads) -> None:
        data = msgspec.msgpack.encode(message)
        self._sent_s = time.monotonic()
        self._out += LENGTH.pack(len(data)) + data
        if self.socket is not None:
            self.flush()

    def flush(self) -> None:
        assert self.socket is not None
        with suppress(BlockingIOError, ConnectionError):  # a message Ended will say why
            del self._out[: self.socket.send(self._out)]

    @property
    def late(self) -> bool:
        if self.is_slow:
            return False
        return self.grammar.is_slow or (self.grammar.pending and time.monotonic() - self._sent_s > SLOW_S)

    def receive(self) -> bool:
        """Receive replies. False: nothing more can be received now."""
        assert self.socket is not None
        try:
            data = self.socket.recv(READ_BYTES)
        except (BlockingIOError, ConnectionError):
            return False
        self._in += data
        while len(self._in) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._in)
            if len(self._in) < LENGTH.size + size:
                break
            self.grammar.got(msgspec.msgpack.decode(self._in[LENGTH.size : LENGTH.size + size], type=Reply))
            del self._in[: LENGTH.size + size]
        return bool(data)

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()


class Parsers:
    """The processes of all outputs that are parsed aside. The first output starts the process that forks the others."""

    def __init__(self, vocabulary: Vocabulary, budget_s: float, step_items: int, niceness: int = NICENESS) -> None:
        """`budget_s`: processor time of an output. `step_items`: Earley items for a step before it is moved aside."""
        self.budget_s, self.step_items = budget_s, step_items
        eos = ",".join(map(str, sorted(vocabulary.eos_ids)))
        module = "ramet.runtime.grammar.aside_process"
        self._command = [sys.executable, "-m", module, str(vocabulary.folder), str(vocabulary.size), eos, str(niceness)]
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._links: dict[int, Link] = {}  # links that have a process
        self._waiting: OrderedDict[int, Link] = OrderedDict()  # by key; thousands of rows may wait, and leave at once
        self._silent: set[int] = set()  # keys whose sockets are closed, but whose message Ended has not arrived
        self.num_opened = 0

    def open(self, grammar: AsideGrammar, backend: BackendName, begin: BeginParser) -> Link:
        self.num_opened += 1
        link = Link(self.num_opened, grammar, backend)
        link.send(begin)
        self._waiting[link.key] = link
        self._start_some()
        return link

    def end(self, link: Link) -> None:
        """End the process of an output that has ended or rests."""
        if self._waiting.pop(link.key, None) is not None:
            return
        if self._drop(link.key) is not None:
            link.close()
            self._command_parent(Kill(link.key))
        self._start_some()

    @property
    def num_open(self) -> int:
        """How many outputs have a process or wait for one."""
        return len(self._links) + len(self._waiting)

    def poll(self, timeout_s: float) -> None:
        """Receive messages, waiting for the first one for at most `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self._links:
            assert self._control is not None
            links = [link for key, link in self._links.items() if key not in self._silent]
            more = [link for link in links if link.has_more]
            left_s = max(deadline - time.monotonic(), 0.0)
            sources: list[socket.socket | Link] = [self._control, *links]
            readable, writable, _ = select(sources, more, [], left_s)
            for link in writable:
                link.flush()
            for link in links:
                if link in readable and not link.receive():
                    self._silent.add(link.key)
            if self._control in readable:
                self._hear()
            for link in links:
                if link.late:
                    link.is_slow = True
                    self._command_parent(GiveWay(link.key))
            if readable or not left_s:
                return

    def close(self) -> None:
        """End all processes, for good."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for link in list(self._links.values()):
            link.close()
        self._links.clear()
        if self._control is not None:
            self._control.close()
            self._control = None

    def _start_some(self) -> None:
        while self._waiting and len(self._links) < MAX_PROCESSES:
            _, link = self._waiting.popitem(last=False)
            self._start_parent()
            own, childs = socket.socketpair()
            own.setblocking(False)
            link.socket = own
            self._links[link.key] = link
            budget_s = max(self.budget_s - link.grammar.spent_s, 1e-3)
            self._command_parent(ForkParser(link.key, link.backend, budget_s), childs.fileno())
            childs.close()
            link.flush()

    def _start_parent(self) -> None:
        if self._process is not None:
            return
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        command, nothing = [*self._command, str(theirs.fileno())], subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=nothing, pass_fds=[theirs.fileno()])
        theirs.close()

    def _command_parent(self, command: ForkParser | Kill | GiveWay, *descriptors: int) -> None:
        assert self._control is not None
        with suppress(ConnectionError):  # it has ended: `_hear` notices
            socket.send_fds(self._control, [msgspec.msgpack.encode(command)], list(descriptors))

    def _hear(self) -> None:
        assert self._control is not None and self._process is not None
        try:
            data = self._control.recv(1 << 12)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if data:
            news = msgspec.msgpack.decode(data, type=ParserEnded)
            if (link := self._drop(news.key)) is not None:
                while link.receive():
                    pass
                link.close()
                link.grammar.ended(news)
                self._start_some()
            return
        self._process.kill()
        returncode = self._process.wait()
        self._process = None
        self._control.close()
        self._control = None
        for key in list(self._links):
            link = self._links.pop(key)
            link.close()
            link.grammar.ended(ParserEnded(key, returncode, f"the process ended with {ending(returncode)}"))
        self._start_some()

    def _drop(self, key: int) -> Link | None:
        link = self._links.pop(key, None)
        self._silent.discard(key)
        return link
