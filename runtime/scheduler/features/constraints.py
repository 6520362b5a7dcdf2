"""Requests whose outputs keep to a constraint: each waits until its constraint is compiled, or ends if it cannot be."""

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice

import numpy as np
from msgspec.structs import replace

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import Constraint, RequestSpec
from ramet.runtime.config import Args
from ramet.runtime.grammar.aside import AsideFailed
from ramet.runtime.grammar.base import GrammarBackend, GrammarError
from ramet.runtime.grammar.compile import Compiling, GrammarSource
from ramet.runtime.grammar.compiled import Failed, Loaded
from ramet.runtime.grammar.ending import EndTokens
from ramet.runtime.grammar.jump import Retokenizer
from ramet.runtime.grammar.output import ConstrainedOutput, JumpMode, ThoughtRule
from ramet.runtime.log import LOGGER
from ramet.runtime.scheduler.feature import TurnFeature
from ramet.runtime.scheduler.features.constrained import Constrained
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.text.tokenizer import Tokenizer

MAX_SETTLED = 256  # requests that begin with a compiled constraint in one turn: 5 ms


class Constraints(TurnFeature):
    """`source` None: --grammar-backend none. `compiled_for` gets a request that waited, and why it ends, if it does."""

    keeps_awake = True
    work: deque[Compiling]
    compiled_for: Callable[[Request, Finish | None], None]  # set when the scheduler is composed

    def __init__(
        self, args: Args, source: GrammarSource | None, tokenizer: Tokenizer | None, eos_ids: frozenset[int]
    ) -> None:
        self._source, self._tokenizer, self._eos_ids = source, tokenizer, eos_ids
        self._backend, self._whitespace = args.grammar.grammar_backend, args.grammar.json_whitespace
        self._jump_forward, self._raw = args.grammar.jump_forward, args.execute.logprobs_mode == "raw"
        self._retokenizer: Retokenizer | None = None
        if self._jump_forward == "retokenize" and tokenizer is not None:
            self._retokenizer = Retokenizer(tokenizer)
        self.compiling: dict[Compiling, dict[Uid, tuple[Constraint, Request]]] = {}  # who waits for what is compiled
        self._compiling_of: dict[Uid, Compiling] = {}  # what each of them waits for
        self.work = deque[Compiling]()  # those that have an outcome and for which somebody waits
        self.apart = self.compiling
        self.is_used = False  # by any request since the start

    def attach(self, request: Request) -> Finish | bool:
        """True: it may run. False: it waits until its constraint is compiled. Or why it never will."""
        constraint = self._key(request.spec)
        if self._source is None or self._tokenizer is None:
            hint = "start with another --grammar-backend, or LLM with another grammar_backend"
            return _refused(constraint, Failed("cannot be kept to: the grammar backend is none", hint))
        self.is_used = True
        found = self._source.get(constraint, request.spec.key_name)
        if isinstance(found, Compiling):
            self.compiling.setdefault(found, {})[request.uid] = constraint, request
            self._compiling_of[request.uid] = found
            return False
        refused = self._begin(request, constraint, found)
        return True if refused is None else refused

    def wake(self) -> None:
        """Some are done, or cannot be compiled."""
        self.work += self._source.take_compiled() if self._source is not None else ()

    def after_messages(self) -> None:
        """Requests whose constraint is compiled by now, or cannot be, wait no longer; of thousands some in a turn."""
        left = MAX_SETTLED
        while self.work and left:
            compiling = self.work[0]
            assert compiling.outcome is not None
            waiting = self.compiling.get(compiling, {})
            for uid in list(islice(waiting, left)):
                constraint, request = waiting.pop(uid)
                del self._compiling_of[uid]
                left -= 1
                self.compiled_for(request, self._begin(request, constraint, compiling.outcome))
            if not waiting:
                self.compiling.pop(compiling, None)
                self.work.popleft()

    def why_apart(self, uid: Uid) -> str:
        """Why a request waits, if its constraint is being compiled."""
        compiling = self._compiling_of.get(uid)
        return "" if compiling is None else self._why_it_waits(compiling, *self.compiling[compiling][uid])

    def all_waiting(self) -> list[tuple[Request, str]]:
        """Requests whose constraints are being compiled, and why each waits."""
        return [
            (request, self._why_it_waits(compiling, constraint, request))
            for compiling, waiting in self.compiling.items()
            for constraint, request in waiting.values()
        ]

    def _why_it_waits(self, compiling: Compiling, constraint: Constraint, request: Request) -> str:
        assert self._source is not None
        kind = constraint.kind.value
        if compiling.begun or self._source.has_room(request.spec.key_name):
            return f"its {kind} is being compiled"
        return f"its {kind} is compiled when others have ended: theirs take the memory of --grammar-held-mb"

    def remove(self, uid: Uid) -> Request | None:
        """A request that waits for its constraint, which it does no longer."""
        compiling = self._compiling_of.pop(uid, None)
        if compiling is None:
            return None
        waiting = self.compiling[compiling]
        constraint, request = waiting.pop(uid)
        if not waiting:
            del self.compiling[compiling]
        assert self._source is not None
        self._source.give_up(constraint, compiling)
        return request

    @property
    def num_bytes(self) -> int:
        """Of compiled constraints that requests have, estimated."""
        return 0 if self._source is None else self._source.num_bytes

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def _key(self, spec: RequestSpec) -> Constraint:
        asked = spec.constraint
        assert asked is not None
        backend, whitespace = asked.backend or self._backend, asked.whitespace or self._whitespace
        return replace(asked, backend=backend, whitespace=whitespace, scope=spec.scope)

    def _begin(self, request: Request, constraint: Constraint, found: Loaded | Failed) -> Finish | None:
        if isinstance(found, Failed):
            return _refused(constraint, found)
        assert self._tokenizer is not None and self._source is not None
        leave, mode = partial(self._source.leave, constraint), self._mode(request, found.backend)
        try:
            output = ConstrainedOutput(
                found.compiled,
                found.backend,
                self._tokenizer,
                _ending(request.params, self._eos_ids),
                mode,
                ThoughtRule(constraint.after.encode(), constraint.opens),
                self._retokenizer,
                found.fsm,
            )
        except Exception as error:  # noqa: BLE001 - of a library, which raises anything
            leave()
            return failed(request, error)
        request.own[Constrained] = Constrained(output, leave)
        request.flags |= RowFlag.CONSTRAINED
        return None

    def _mode(self, request: Request, backend: GrammarBackend) -> JumpMode:
        mode = JumpMode(self._jump_forward or ("ff" if backend.canonical else "off"))
        steps = _needs_each_step(request.spec, self._raw) or (mode is JumpMode.FF and not backend.canonical)
        return JumpMode.OFF if steps else mode


def _ending(params: SamplingParams, eos_ids: frozenset[int]) -> EndTokens:
    """What ends an output inside a constraint."""
    eos = sorted(eos_ids)
    stops = sorted({*params.stop_token_ids, *eos})
    own, every = np.array(eos, dtype=np.int32), np.array(stops, dtype=np.int32)
    return EndTokens(own, every, params.ignore_eos, params.min_new_tokens)


def _needs_each_step(spec: RequestSpec, raw_logprobs: bool) -> bool:
    """Something of each output token is returned, or done to it, that only a step of its own computes."""
    returned = spec.hidden is not None or spec.expert_routes is not None
    return spec.processor is not None or returned or (raw_logprobs and spec.logprobs is not None)


def place_of(request: Request) -> str:
    """The field that its constraint came in."""
    constraint = request.spec.constraint
    assert constraint is not None, request.uid
    return constraint.place or constraint.kind.value


def _refused(constraint: Constraint, failed: Failed) -> Finish:
    fact = failed.fact + (f" ({failed.hint})" if failed.hint else "")
    return Finish.abort(constraint.place or constraint.kind.value, fact, status=failed.status)


def failed(request: Request, error: Exception) -> Finish:
    """Of a request whose grammar failed: the client's fault where the constraint became too complex, ours otherwise."""
    constraint = request.spec.constraint
    assert constraint is not None, request.uid
    if isinstance(error, GrammarError):
        return _refused(constraint, Failed(error.fact, error.hint))
    if isinstance(error, AsideFailed):
        LOGGER.error("a %s %s", constraint.kind.value, error)
        return _refused(constraint, Failed(str(error), status=500))
    LOGGER.error("a grammar failed", exc_info=error)
    return _refused(constraint, Failed(f"failed: internal error: {type(error).__name__}", status=500))
