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

from ramet.ipc.messages import HiddenStates, Logprobs, Uid
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.radix import Namespace
from ramet.runtime.scheduler.contexts import NO_SLOTS, Base, Part, copied_tokens, memory_of_parts, namespace_after
from ramet.runtime.scheduler.request import Request, RunningRequest, made_part

_uids = count(1)  # of parts, as negative numbers


class Assembly:
    """`owner` runs and has a row, but no slots until all its parts are computed."""

    def __init__(self, owner: RunningRequest, cached_in: Namespace, *, cached: bool, copies: bool) -> None:
        """`cached_in`: that of the request. `cached`: what is computed may be found in the tree. `copies`: copied."""
        request = owner.request
        self.owner, self._cached_in, self._cached = owner, cached_in, cached
        self._copies = copies
        self.base = Base(NO_SLOTS, 0, cached_in)
        self.stage: list[Request] = []  # parts that may be computed now
        self.parts: list[Request] = []  # all so far, in the order of the prompt; one that occurs twice is there twice
        self.is_open = True  # the rest of the prompt has no slots yet
        self.of_rest: list[Logprobs] = []  # of the first token after the contexts
        self._stages = self._cut()
        self._begun: set[Uid] = set()
        # tokens of parts that have not begun, and of the rest
        self._missing = len(request.tokens) + (copied_tokens(request.groups) if copies else 0)

    def advance(self) -> bool:
        """To the next stage, if this one is computed; False: there is none, `base` is whole."""
        if any(not part_of(each).lease for each in self.stage):
            return True
        self.stage = next(self._stages, [])
        self.parts += self.stage
        return bool(self.stage)

    @property
    def waiting(self) -> list[Request]:
        """Parts of this stage that have not begun."""
        return [each for each in dict.fromkeys(self.stage) if each.uid not in self._begun]

    def begun(self, request: Request) -> None:
        assert request.base is not None, request.uid
        self._begun.add(request.uid)
        self._missing -= len(request.tokens) - (request.base.length if self._copies else part_of(request).own)

    def promised(self, page_size: int) -> int:
        """Tokens of memory that it will need at most, beyond what it has."""
        if not self.is_open:
            return 0
        pages = memory_of_parts(self.owner.request.groups, page_size, copies=False) - 2 * page_size * len(self._begun)
        return self._missing + pages + page_size

    @property
    def num_cached(self) -> int:
        """Tokens of its parts that were in the tree."""
        return sum(part_of(each).num_cached for each in dict.fromkeys(self.parts))

    @property
    def logprobs(self) -> list[Logprobs]:
        """Of its parts, in the order of the prompt, and of what follows them at once."""
        return [each for request in self.parts for each in part_of(request).logprobs] + self.of_rest

    @property
    def states(self) -> list[HiddenStates]:
        """As `logprobs`, the hidden states that are returned."""
        return [each for request in self.parts for each in part_of(request).states]

    # -- inside -----------------------------------------------------------------------------------------------------

    def _cut(self) -> Iterator[list[Request]]:
        """Stage by stage; every part of a stage must be computed before the next is asked for."""
        ids, groups, base = self.owner.request.tokens, self.owner.request.groups, self.base
        for num, group in enumerate(groups, start=1):
            before, follows = base.slots, base
            if group.start > base.length:
                text = self._part(base, ids[: group.start], base.length, base.length)
                yield [text]
                before = part_of(text).slots
                if not self._cached:  # the last token is computed again: what it says of a context's first one is asked
                    follows = Base(before[:-1], base.shift, base.cached_in)
            contexts = self._contexts(follows, ids, group.start, list(group.spans))
            yield contexts
            slots = np.concatenate([before, *(part_of(each).slots[group.start :] for each in contexts)])
            cached_in = namespace_after(self._cached_in, ids[: group.stop], groups[:num])
            self.base = base = Base(slots, base.shift + group.shift, cached_in)

    def _contexts(self, base: Base, ids: Ints, start: int, spans: list[tuple[int, int]]) -> list[Request]:
        """A context that occurs twice is computed once, unless something is returned of each."""
        asked = self.owner.request.next_logprob
        made: dict[bytes, Request] = {}
        parts: list[Request] = []
        for at, stop in spans:
            part = made.get(ids[at:stop].tobytes())
            if part is None or part.returns_every_state or (asked is not None and asked < stop):
                part = self._part(base, np.concatenate([ids[:start], ids[at:stop]]), start, at)
            made[ids[at:stop].tobytes()] = part
            parts.append(part)
        return parts

    def _part(self, base: Base, tokens: Ints, own: int, at: int) -> Request:
        """`own`: index of its first own token, which is the prompt's token `at`."""
        request = self.owner.request
        uid, returns_states = Uid(-next(_uids)), request.returns_every_state and request.next_hidden <= at
        made = made_part(request, uid, tokens, base, own, returns_states)
        asked = request.next_logprob
        if asked is not None and asked < at + len(tokens) - own:
            first = own + max(asked - at, 0)
            if first == base.length:  # nothing that it follows is computed with it
                part_of(made).logprobs.append(request.unknown_logprob(int(tokens[first])))
                first += 1
            made.next_logprob = first if first < len(tokens) else None
        return made


def part_of(request: Request) -> Part:
    assert request.part is not None, f"request {request.uid} is not a part of another"
    return request.part
