"""A compile worker: `python -m ramet.runtime.grammar.worker FOLDER VOCAB_SIZE EOS_IDS MEMORY_MB NICENESS`.

A process of its own, because no library can be told to stop compiling, and of low priority, because decoding goes
first (runtime/workers/subordinate.py). Loads a library when a job needs it; from then on its memory is bounded. It
ends where its parent ends it, or by itself after a constraint that left much memory in use.
"""

import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.grammar.backends import build
from ramet.runtime.grammar.base import BackendName, GrammarBackend, GrammarError, Vocabulary, Whitespace
from ramet.runtime.grammar.byte_fsm import build_byte_fsm
from ramet.runtime.grammar.regex import normal_form
from ramet.runtime.text.tokenizer import Tokenizer
from ramet.runtime.workers import subordinate

LEFT = 0.25  # the part of its memory which, if still in use after a job, makes the process end: later jobs need it all
STACK_BYTES = 4 << 20  # less than any thread of the scheduler has: what is nested too deeply ends this process only


class CompilerReady(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The first frame of a worker, and the first one for each job, when its library is loaded: compiling begins."""


class CompileJob(msgspec.Struct, frozen=True, array_like=True):
    constraint: Constraint
    wants_fsm: bool  # the compressed finite state machine as well, of what a regular expression describes


class PreparedConstraint(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What `GrammarBackend.load` reads."""

    data: memoryview
    fsm: bytes = b""  # what ByteFsm.from_bytes reads, where it was asked for and there is one


class ConstraintRefused(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Why it cannot be compiled."""

    fact: str
    hint: str = ""


Outcome = PreparedConstraint | ConstraintRefused
Frame = CompilerReady | Outcome


def main(argv: list[str]) -> None:
    subordinate.be_subordinate(int(argv[5]))
    subordinate.limit(resource.RLIMIT_STACK, STACK_BYTES)
    stdin, stdout = sys.stdin.buffer, subordinate.private_stdout()
    folder, size, eos = Path(argv[1]), int(argv[2]), argv[3]
    tokenizer = Tokenizer.from_folder(folder)
    vocabulary = Vocabulary(tokenizer, folder, size, frozenset(int(each) for each in eos.split(",") if each))
    compiler = JobRunner(vocabulary, float(argv[4]))
    subordinate.write_frame(stdout, msgspec.msgpack.encode(CompilerReady()))
    while (data := subordinate.read_frame(stdin)) is not None:
        for frame in compiler.run(msgspec.msgpack.decode(data, type=CompileJob)):
            subordinate.write_frame(stdout, msgspec.msgpack.encode(frame))
            del frame
        if compiler.is_spent:
            return


class JobRunner:
    """Keeps the libraries that were used: each reads the whole vocabulary once."""

    def __init__(self, vocabulary: Vocabulary, memory_mb: float) -> None:
        self._vocabulary, self._memory_mb = vocabulary, memory_mb
        self._backends: dict[str, GrammarBackend] = {}
        self._loaded_bytes = 0  # mapped when the last library was loaded

    @property
    def is_spent(self) -> bool:
        """A job left so much memory in use, or in pieces, that a later one might not get what it may take."""
        return subordinate.mapped_bytes() - self._loaded_bytes > LEFT * self._memory_mb * (1 << 20)

    def run(self, job: CompileJob) -> Iterator[Frame]:
        constraint = job.constraint
        try:
            backend = self._backend(cast(BackendName, constraint.backend))
        except ConfigError as error:
            yield ConstraintRefused(f"cannot be compiled: {error}")
            return
        yield CompilerReady()
        yield self._compile(backend, constraint, job.wants_fsm)

    def _compile(self, backend: GrammarBackend, constraint: Constraint, wants_fsm: bool) -> Outcome:
        try:
            prepared = backend.prepare(constraint, cast(Whitespace, constraint.whitespace))
            backend.load(prepared).start()  # what kills a process, or takes too long, does it here first
            is_regex = constraint.kind is ConstraintKind.REGEX
            return PreparedConstraint(memoryview(prepared), _fsm(constraint.text) if wants_fsm and is_regex else b"")
        except GrammarError as error:
            return ConstraintRefused(error.fact, error.hint)
        except MemoryError:
            return self._too_large()
        except RecursionError:
            return ConstraintRefused("is nested too deeply to compile")
        except Exception as error:  # noqa: BLE001 - a library raises anything; its words go to the client
            if "bad_alloc" in str(error):  # how C++ says it
                return self._too_large()
            return ConstraintRefused(f"cannot be compiled: {describe(error)}")

    def _too_large(self) -> ConstraintRefused:
        most = f"the {self._memory_mb:g} MiB of --grammar-memory-mb"
        return ConstraintRefused(f"needs more memory to compile than {most}", "make it smaller")

    def _backend(self, name: BackendName) -> GrammarBackend:
        if name not in self._backends:
            self._backends[name] = build(name, self._vocabulary)
            self._loaded_bytes = subordinate.mapped_bytes()
            subordinate.limit_memory(int(self._memory_mb * (1 << 20)))
        return self._backends[name]


def _fsm(pattern: str) -> bytes:
    """Nothing for a pattern that is too large for it: the library then says what is forced."""
    try:
        return build_byte_fsm(normal_form(pattern)).to_bytes()  # what the libraries are given
    except GrammarError:
        return b""


if __name__ == "__main__":
    main(sys.argv)
