"""A scheduler, its requests and its runner in one thread, for benches that need every step: no socket, no process."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec.structs import replace

from ramet.bench.errors import BadOption
from ramet.ipc.channel import MemoryChannel
from ramet.ipc.content import Content
from ramet.ipc.message import Uid
from ramet.ipc.messages import (
    Abort,
    Finish,
    Generate,
    ModelFacts,
    ToDetokenizer,
    TokenStep,
    ToScheduler,
    ToServer,
    Wake,
    pack_ids,
    unpack_ids,
)
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import Constraint, RequestSpec
from ramet.runtime.arrays import Ints
from ramet.runtime.config import make_args
from ramet.runtime.engine.batch import LoadedRunner
from ramet.runtime.grammar.backends import build
from ramet.runtime.grammar.base import (
    BackendName,
    CompiledConstraint,
    GrammarBackend,
    GrammarError,
    Vocabulary,
    Whitespace,
)
from ramet.runtime.grammar.compile import Compiling
from ramet.runtime.grammar.compiled import Failed, Loaded
from ramet.runtime.scheduler.process.compose import SchedulerChannels, compose
from ramet.runtime.text.tokenizer import Tokenizer

DEFAULT_BACKEND = make_args().grammar.grammar_backend


def vocabulary_of(folder: Path) -> Vocabulary:
    tokenizer = Tokenizer.from_folder(folder)
    return Vocabulary(tokenizer, folder, tokenizer.vocab_size, tokenizer.eos_ids)


def legal(bits: Ints, size: int) -> Ints:
    """The tokens below `size` that a mask [W] int32 allows."""
    return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")[:size]).astype(np.int32)


class Grammars:
    """Compiles a constraint when it is asked for. `wrap` stands between the scheduler and a backend."""

    def __init__(
        self, vocabulary: Vocabulary, wrap: Callable[[GrammarBackend], GrammarBackend] = lambda backend: backend
    ) -> None:
        self._vocabulary, self._wrap = vocabulary, wrap
        self._backends: dict[str, GrammarBackend] = {}
        self._done: dict[Constraint, Loaded | Failed] = {}

    def get(self, constraint: Constraint, owner: str = "") -> Loaded | Failed:
        if constraint not in self._done:
            self._done[constraint] = self._compile(constraint)
        return self._done[constraint]

    num_bytes = 0

    def leave(self, constraint: Constraint) -> None:
        pass

    def give_up(self, constraint: Constraint, compiling: Compiling) -> None:
        pass

    def has_room(self, owner: str) -> bool:
        return True

    def compiled(self, constraint: Constraint) -> CompiledConstraint:
        """Raises BadOption where it cannot be compiled."""
        found = self.get(constraint if constraint.backend else replace(constraint, backend=DEFAULT_BACKEND))
        if isinstance(found, Failed):
            raise BadOption(f"a {constraint.kind.value} {found.fact}")
        return found.compiled

    def take_compiled(self) -> list[Compiling]:
        return []

    def close(self) -> None:
        pass

    def _compile(self, constraint: Constraint) -> Loaded | Failed:
        name = cast(BackendName, constraint.backend)
        if name not in self._backends:
            self._backends[name] = self._wrap(build(name, self._vocabulary))
        backend = self._backends[name]
        try:
            return Loaded(backend.load(backend.prepare(constraint, cast(Whitespace, constraint.whitespace))), backend)
        except GrammarError as error:
            return Failed(error.fact, error.hint)


class KnownRunner:
    """What a scheduler asks of a runner that has no model. Subclasses launch."""

    asynchronous = False
    cost = routes = adapters = weights = memory = media = pooler = None

    def __init__(self, vocab_size: int, rows: int, context_length: int) -> None:
        self.facts = ModelFacts(context_length, rows * context_length, vocab_size, rows)

    @property
    def resolved(self) -> dict[str, object]:
        return {"device": "none", "attention_backend": "none"}

    def close(self) -> None:
        pass

    def refusal(self, name: str, custom_params: dict[str, Any]) -> str:
        return f"is {name!r}, but there are no logits to process"


class OneThread:
    """`options` are those of `ramet serve`. Steps run one after the other."""

    def __init__(self, runner: LoadedRunner, grammars: Grammars | None, tokenizer: Tokenizer, **options: Any) -> None:
        self._inbox: MemoryChannel[Any] = MemoryChannel(ToScheduler)
        self._steps: MemoryChannel[Any] = MemoryChannel(ToDetokenizer)
        self._uids = count(1)
        self.outputs: dict[int, list[int]] = {}  # uid -> its tokens so far
        self.finished: dict[int, Finish] = {}  # why it ended
        args = make_args(random_seed=0, overlap="off", **options)
        server: MemoryChannel[Any] = MemoryChannel(ToServer)
        channels = SchedulerChannels(self._inbox, self._steps, server, wake=lambda: self._inbox.send(Wake()))
        composed = compose(args, runner, channels, tokenizer, tokenizer.eos_ids, grammars=grammars)
        self.scheduler, self.reporter = composed.scheduler, composed.reporter

    def submit(self, constraint: Constraint | None, max_new_tokens: int, prompt: list[int]) -> int:
        uid = next(self._uids)
        self.outputs[uid] = []
        params = SamplingParams(max_new_tokens=max_new_tokens, temperature=0.0, ignore_eos=constraint is None)
        spec = RequestSpec(params, constraint=constraint)
        self._inbox.send(Generate([Uid(uid)], spec, Content(ids=pack_ids(prompt))))
        return uid

    def turns(self) -> Iterator[None]:
        """Until nothing is left to run; the caller may submit more between two of them."""
        while True:
            self.scheduler.receive(block=False)
            idle = self.scheduler.idle
            self.scheduler.turn()
            steps = self.take_steps()
            if idle and not steps:  # an idle scheduler still says which requests it refused
                return
            yield

    def abort(self, uid: int) -> None:
        self._inbox.send(Abort([Uid(uid)]))

    def take_steps(self) -> list[TokenStep]:
        """What the scheduler has sent since the last time."""
        steps: list[TokenStep] = self._steps.drain()
        for step in steps:
            self._take(step)
        return steps

    def _take(self, step: TokenStep) -> None:
        for uid, token in zip(step.uids, unpack_ids(step.tokens), strict=True):
            self.outputs[uid].append(token)
        self.finished.update((closed.uid, closed.finish) for closed in step.closed)
