"""One request with parallel contexts while it runs: which sequences are computed apart, in what order, and their slots.

Decides how a prompt is cut into parts, group by group:

    stage   the text before the group, then the contexts side by side
    base    slots of that text + slots of context 1 + slots of context 2 + ...: what the next stage or the rest follows

A part of the first group is found in the tree under its own tokens, as if it was sent alone. Parts of later groups and
the rest follow a base: their tokens after it are in a namespace made of everything that the base has. A page of the
tree never holds tokens of two parts. Where a part ends inside a page, that page belongs to this request alone, and the
rest begins with a page of its own. Where the text before a group ends inside a page, each context computes the few
tokens of that page once more. Knows no tree and no rows.
"""

from collections.abc import Iterator
from itertools import count

import numpy as np

from ramet.ipc.message import Uid
from ramet.ipc.messages import Logprobs
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.cache.node import Namespace
from ramet.runtime.scheduler.features.contexts import (
    NO_SLOTS,
    Base,
    Group,
    Part,
    copied_tokens,
    groups_in,
    memory_of_parts,
    namespace_after,
)
from ramet.runtime.scheduler.features.returned import (
    ReturnedLogprobs,
    ReturnedStates,
    next_hidden,
    next_logprob,
    returns_early_states,
    unknown_logprob,
)
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest

_NO_OUTPUT = SamplingParams(max_new_tokens=0)
_uids = count(1)  # of parts, as negative numbers


class Assembly:
    """`owner` runs and has a row, but no slots until all its parts are computed."""

    def __init__(self, owner: RunningRequest, namespace: Namespace, *, cached: bool, copies: bool) -> None:
        """`namespace`: that of the request. `cached`: what is computed may be found in the tree. `copies`: copied."""
        request = owner.request
        self.owner, self._namespace, self._cached = owner, namespace, cached
        self._copies = copies
        self.base = Base(NO_SLOTS, 0, namespace)
        self.stage: list[Part] = []  # those that may be computed now
        self.parts: list[Part] = []  # all so far, in the order of the prompt; one that occurs twice is there twice
        self.is_open = True  # the rest of the prompt has no slots yet
        self.after_contexts: list[Logprobs] = []  # of the first token after the contexts
        self._stages = self._cut()
        self._waiting: list[Part] = []  # those of this stage that have not begun, the next one last
        self._num_begun = 0
        # tokens of parts that have not begun, and of the rest
        self._missing = len(request.tokens) + (copied_tokens(groups_in(request)) if copies else 0)

    @property
    def is_computed(self) -> bool:
        """Its stage is."""
        return not self._waiting and all(part.lease is not None for part in self.stage)

    def advance(self) -> bool:
        """To the next stage, once this one is computed; False: there is none, `base` is whole."""
        self.stage = next(self._stages, [])
        self.parts += self.stage
        self._waiting = list(dict.fromkeys(self.stage))[::-1]
        return bool(self.stage)

    @property
    def next_part(self) -> Part | None:
        """The first of this stage that has not begun."""
        return self._waiting[-1] if self._waiting else None

    def begun(self, part: Part) -> None:
        """`next_part` has."""
        assert part is self._waiting.pop(), part
        self._num_begun += 1
        self._missing -= part.stop - part.at + (part.own - part.base.length if self._copies else 0)

    def promised(self, page_size: int) -> int:
        """Tokens of memory that it will need at most, beyond what it has."""
        if not self.is_open:
            return 0
        groups = groups_in(self.owner.request)
        pages = memory_of_parts(groups, page_size, copies=False) - 2 * page_size * self._num_begun
        return self._missing + pages + page_size

    @property
    def num_cached(self) -> int:
        """Tokens of its parts that were in the tree."""
        return sum(part.num_cached for part in dict.fromkeys(self.parts))

    @property
    def logprobs(self) -> list[Logprobs]:
        """Of its parts, in the order of the prompt, and of what follows them at once."""
        return [each for part in self.parts for each in part.logprobs] + self.after_contexts

    @property
    def states(self) -> list[Floats]:
        """As `logprobs`, the hidden states that are returned."""
        return [each for part in self.parts for each in part.states]

    # -- inside -----------------------------------------------------------------------------------------------------

    def _cut(self) -> Iterator[list[Part]]:
        """Stage by stage; every part of a stage must be computed before the next is asked for."""
        ids, groups, base = self.owner.request.tokens, groups_in(self.owner.request), self.base
        for num, group in enumerate(groups, start=1):
            before, follows = base.slots, base
            if group.start > base.length:
                text = _part(base, base.length, base.length, group.start)
                yield [text]
                before = np.concatenate([base.slots, text.slots])
                if not self._cached:  # the last token is computed again: what it says of a context's first one is asked
                    follows = Base(before[:-1], base.shift, base.namespace)
            contexts = self._contexts(follows, ids, group)
            yield contexts
            slots = np.concatenate([before, *(part.slots for part in contexts)])
            namespace = namespace_after(self._namespace, ids[: group.stop], groups[:num])
            self.base = base = Base(slots, base.shift + group.shift, namespace)

    def _contexts(self, base: Base, ids: Ints, group: Group) -> list[Part]:
        """A context that occurs twice is computed once, unless something is returned of each."""
        request, made, parts = self.owner.request, dict[bytes, Part](), list[Part]()
        asked, hidden = next_logprob(request), next_hidden(request)
        for at, stop in group.spans:
            text, is_told = ids[at:stop].tobytes(), returns_early_states(request) and hidden <= at
            part = None if is_told or (asked is not None and asked < stop) else made.get(text)
            if part is None:
                part = made[text] = _part(base, group.start, at, stop)
            parts.append(part)
        return parts


def _part(base: Base, own: int, at: int, stop: int) -> Part:
    return Part(Uid(-next(_uids)), base, own, at, stop)


def request_of_part(request: Request, part: Part) -> Request:
    """One without output, to compute a part of its prompt. What it returns of these tokens is returned here."""
    tokens = np.concatenate([request.tokens[: part.own], request.tokens[part.at : part.stop]])
    states = request.spec.hidden if returns_early_states(request) and next_hidden(request) <= part.at else None
    spec = RequestSpec(_NO_OUTPUT, request.spec.logprobs, hidden=states, lora=request.spec.lora)
    made = Request(part.uid, tokens, spec, seed=0, arrival_s=request.arrival_s)
    made.own[Part] = part
    made.flags |= RowFlag.PART | (request.flags & (RowFlag.ADAPTER | RowFlag.LOGPROBS))
    if states is not None:
        made.own[ReturnedStates] = ReturnedStates(states, part.own)
        made.flags |= RowFlag.HIDDEN
    asked = next_logprob(request)
    if asked is not None and asked < part.stop:
        first = part.own + max(asked - part.at, 0)
        if first == part.base.length:  # nothing that it follows is computed with it
            part.logprobs = [unknown_logprob(request, int(tokens[first]))]
            first += 1
        if first < len(tokens):
            made.own[ReturnedLogprobs] = ReturnedLogprobs(first)
    return made
