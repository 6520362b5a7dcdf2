"""Which sequence of tokens makes up for a prompt's tail: best first over the tokens inside it, exact.

A node is a sequence of inner tokens. Looking at it takes one step of the model, which says how probable each inner
token is that may follow, that some token covers the rest of the tail, and which one that would be. No sequence is more
probable than its beginning, so the first that is complete when it is the best of all that are known is the answer.

temperature 0: the best is the one of the largest product of probabilities. Above, it is a draw from the distribution of
all sequences, given that they begin with the tail, by the same search: instead of its probability a node has the
largest of the Gumbel-perturbed log-probabilities of all that begin with it, drawn from the top down (Maddison, Tarlow
and Minka, A* sampling, 2014, section 4). It passes to one of a node's parts, each being the one with its share of the
probability (what leaves the tail has a share as well, and is never looked at); those of the others are below it.
W words of a mask.
"""

import heapq
import math

import numpy as np
from msgspec.structs import replace

from ramet.ipc.messages import Logprobs
from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.grammar.after_tail import may_begin
from ramet.runtime.grammar.output import ConstrainedOutput
from ramet.runtime.sampling.columns import HealedPlace
from ramet.runtime.scheduler.request import FeatureState, Request
from ramet.runtime.text.healing import Inner, Tail

Path = tuple[int, ...]  # the first tokens of an output
MAX_NODES = 2048  # steps of one search: no client may make all sequences equal and have them tried for ever
_STREAM = 0x7A11  # tells these random numbers from all that have the same seed


class TailSearch:
    """`seed` None: temperature 0. `at` is the node to look at, until `found`: then it is the answer."""

    def __init__(self, tail: Tail, seed: int | None) -> None:
        self._tail = tail
        self._random = None if seed is None else np.random.default_rng([seed, _STREAM])
        self.at: Path = ()
        self.found = self.failed = False  # `failed`: nothing is left to look at, or too much was
        self.offset = 0  # bytes of the tail that `at` spells; of an answer, all but its last token
        self._value = self._best = 0.0  # log-probability of `at`; the same perturbed, or all that may be known of it
        self.num_nodes = 0  # that were looked at
        # (-best, whether it is a node, tokens, offset, log-probability): equals go to what is complete
        self._open: list[tuple[float, bool, Path, int, float]] = []

    @property
    def inner(self) -> list[Inner]:
        """Tokens inside the tail that may follow `at`."""
        return self._tail.inner(self.offset, len(self.at))

    def learn(self, place: HealedPlace, token: int, covers: bool) -> None:
        """`at` was looked at, and `token` is what covers the rest of the tail, if something `covers` it."""
        self.num_nodes += 1
        inner = self.inner
        covered = (place.drawn if self._random is None else place.covered) if covers else -math.inf
        logprobs = [float(value) for value in place.inner[: len(inner)]]
        values = [self._value + each for each in (*logprobs, covered)]
        bests = values if self._random is None else self._perturbed(values, [*logprobs, covered])
        for each, value, best in zip(inner, values, bests):  # the last is none of them
            if best > -math.inf:
                heapq.heappush(self._open, (-best, True, (*self.at, each.token), each.offset, value))
        if bests[-1] > -math.inf:
            heapq.heappush(self._open, (-bests[-1], False, (*self.at, token), self.offset, values[-1]))
        self.failed = not self._open or self.num_nodes >= MAX_NODES
        if self._open:
            best, is_node, self.at, self.offset, self._value = heapq.heappop(self._open)
            self._best, self.found = -best, not is_node
            self.failed &= is_node

    def _perturbed(self, values: list[float], logprobs: list[float]) -> list[float]:
        """The largest of each part. What leaves the tail is the part that is not among them."""
        assert self._random is not None
        winner = int(np.searchsorted(np.cumsum(np.exp(logprobs)), self._random.random(), side="right"))
        waits = np.log(self._random.standard_exponential(len(values))).tolist()
        return [
            self._best
            if i == winner
            else value - float(np.logaddexp(value - self._best, waits[i]))
            if value > -math.inf
            else value
            for i, value in enumerate(values)
        ]


class Healing(FeatureState):
    """What a request has beyond others until its output begins with the prompt's tail."""

    def __init__(self, tail: Tail, seed: int | None) -> None:
        self.tail, self._seed = tail, seed
        self.restart()

    def waits_again(self, request: Request) -> None:
        """Its output is not known: it waits with its prompt alone."""
        request.tokens = request.tokens[: request.prompt_len]
        self.restart()

    def restart(self) -> None:
        """All that was looked at is forgotten; the same will be found."""
        self.search = TailSearch(self.tail, self._seed)
        self.covers = False  # the mask of the step that is drawn next lets through what covers the rest of the tail
        self._logprobs: dict[Path, Logprobs] = {}
        self.states: dict[Path, Floats] = {}  # states of the last token of each [n, N]

    def inner_ids(self, output: Ints) -> Ints:
        """Tokens of which the step that follows `output` must say how probable they are."""
        looks = tuple(output.tolist()) == self.search.at
        return np.array([each.token for each in self.search.inner] if looks else [], dtype=np.int32)

    def fill_mask(self, output: Ints, bits: Ints, constrained: ConstrainedOutput | None) -> bool:
        """WRITES bits [W] int32, which allow what the constraint does: what covers the rest of the tail after `output`.

        Everything, where nothing covers it, or where nothing is to be learnt. False: the constraint is pending, and
        nothing was written.
        """
        ids = np.frombuffer(self.tail.covering(self.search.offset), dtype=np.int32)
        if tuple(output.tolist()) != self.search.at:
            ids = ids[:0]
        elif constrained is not None:
            flags = may_begin(constrained, self.tail.text[self.search.offset :], self.tail.table, bits)
            if flags is None:
                return False
            ids = ids[flags]
        self.covers = bool(len(ids))
        allowed = np.full(32 * len(bits), not self.covers)
        allowed[ids] = True
        bits[:] = np.packbits(allowed, bitorder="little").view(np.int32)
        return True

    @property
    def spelling_ids(self) -> set[int]:
        """Tokens that may follow what is looked at and have nothing beyond the tail."""
        whole = self.tail.table.equal(self.tail.text[self.search.offset :])
        return {*whole, *(each.token for each in self.search.inner)}

    def keep(self, path: Path, logprobs: Logprobs | None) -> None:
        """What the client gets of whichever token follows `path`."""
        if logprobs is not None:
            self._logprobs[path] = logprobs

    def logprobs_of(self, path: Path, num_asked: int) -> Logprobs | None:
        """Of the last token of `path`. `num_asked`: ids of which the client gets a log-probability at each place."""
        kept = self._logprobs.get(path[:-1])
        if kept is None:
            return None
        ids, chosen = np.array(path[-1:], dtype=np.int32), np.frombuffer(kept.chosen, dtype=np.float32)
        values = kept.values
        if ids.tobytes() != kept.ids:
            after = [each.token for each in self.tail.inner(self.tail.spelled(path[:-1]), len(path) - 1)]
            values = chosen[num_asked + after.index(path[-1]) :][:1].tobytes()
        return replace(kept, ids=ids.tobytes(), values=values, chosen=chosen[:num_asked].tobytes())
