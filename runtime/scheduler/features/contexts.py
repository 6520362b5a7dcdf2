"""Parallel contexts: groups of a prompt's tokens, and what a row begins with where they were computed apart.

Section 6.2.5 of the SGLang paper, parallel context windows (Ratner et al., 2023). Each context of a group sees what
comes before the group and itself. Its positions begin where the group begins; what follows the group sees everything,
and its positions go on after the longest context. Knows no memory and no step.

    ids     [ before | context 1 | context 2 | after ]        index of a token: its place here and in its row
    part    [ before | context 1 ]                            a sequence like any other: cached under its own tokens
    part    [ before | context 2 ]
    row     [ before | context 1 | context 2 | after ]        the slots of the parts, then its own
                                                              position of a token: index - shift
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ramet.ipc.content import Contexts
from ramet.ipc.message import Uid
from ramet.ipc.messages import Logprobs, ModelFacts
from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.cache.node import Namespace
from ramet.runtime.cache.prefix import Lease
from ramet.runtime.scheduler.request import FeatureState, Request

NO_SLOTS: Ints = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Group:
    """Contexts that lie one after the other from index `start` on."""

    start: int
    lengths: tuple[int, ...]

    @property
    def stop(self) -> int:
        return self.start + sum(self.lengths)

    @property
    def shift(self) -> int:
        """How much smaller than its index a later token's position is because of this group."""
        return sum(self.lengths) - max(self.lengths)

    @property
    def spans(self) -> Iterator[tuple[int, int]]:
        """[start, stop) of each context."""
        at = self.start
        for length in self.lengths:
            yield at, at + length
            at += length


def groups_of(contexts: Contexts) -> tuple[Group, ...]:
    """A single context is text like any other."""
    return tuple(Group(start, tuple(lengths)) for start, *lengths in contexts if len(lengths) > 1)


def num_parts(groups: Sequence[Group]) -> int:
    """Sequences that are computed apart: each context, and the text before each group."""
    return sum(len(group.lengths) + 1 for group in groups)


def memory_of_parts(groups: Sequence[Group], page_size: int, copies: bool) -> int:
    """Tokens that a prompt with `groups` needs beyond its own, at most: pages at the ends of its parts.

    `copies`: each context has a copy of its own of the text before its group.
    """
    return 2 * page_size * num_parts(groups) + (copied_tokens(groups) if copies else 0)


def copied_tokens(groups: Sequence[Group]) -> int:
    """Tokens of the texts before the groups, once for each context that begins with them."""
    stops = [0, *(group.stop for group in groups)]
    return sum((group.start - stop) * len(group.lengths) for stop, group in zip(stops, groups))


@dataclass(frozen=True, slots=True)
class Base:
    """What a row begins with: slots that others own, for as long as it runs."""

    slots: Ints
    shift: int
    namespace: Namespace  # the tokens that follow

    @property
    def length(self) -> int:
        return len(self.slots)


def namespace_after(outer: Namespace, ids: Ints, groups: Sequence[Group]) -> Namespace:
    """Of tokens that follow `groups`, which are all that ids have. No ordinary prefix has such a namespace."""
    digest = hashlib.sha256(repr([(group.start, group.lengths) for group in groups]).encode())
    digest.update(ids.tobytes())
    return (*outer, f"contexts {digest.hexdigest()}")


@dataclass(frozen=True, eq=False, slots=True)
class FirstGroup:
    """What the contexts of a prompt's first group are cached under: `before`, and then one of `contexts`.

    Made once for all samples of the prompt. All prompts that begin with the same have its `key`.
    """

    before: Ints  # whole pages
    contexts: list[Ints]  # each behind what is left of the text before the group
    key: Namespace

    @classmethod
    def of(cls, ids: Ints, groups: Sequence[Group], page_size: int) -> "FirstGroup":
        first = groups[0]
        whole = first.start - first.start % page_size
        contexts = [np.concatenate([ids[whole : first.start], ids[at:stop]]) for at, stop in first.spans]
        return cls(ids[:whole], contexts, namespace_after((), ids[: first.stop], groups[:1]))

    @property
    def prefixes(self) -> Iterator[Ints]:
        return (np.concatenate([self.before, context]) for context in self.contexts)


@dataclass(eq=False, slots=True)
class RequestContexts(FeatureState):
    """The parallel contexts of a prompt. `base`: what its row begins with while it runs, once they are computed."""

    groups: tuple[Group, ...]
    first: FirstGroup
    base: Base | None = None

    def reusable(self, end: int) -> int:
        """Of contexts that are to be computed only the first is looked up with what comes before."""
        return end if self.base is not None else min(end, self.groups[0].start + self.groups[0].lengths[0] + 1)


def groups_in(request: Request) -> tuple[Group, ...]:
    """The parallel contexts of its prompt; none if it was not asked for any."""
    contexts = request.own.get(RequestContexts)
    return () if contexts is None else contexts.groups


@dataclass(eq=False, slots=True)
class Part(FeatureState):
    """A sequence of a prompt that is computed apart, and what it leaves to its request.

    Its tokens are the prompt's first `own`, which other parts may share, and those in [at, stop).
    """

    uid: Uid
    base: Base
    own: int
    at: int
    stop: int
    lease: Lease | None = None  # None: it is not computed yet
    slots: Ints = field(default_factory=lambda: NO_SLOTS)  # of its own tokens, once it is computed
    pages: Ints = field(default_factory=lambda: NO_SLOTS)  # slots of the pages that are its own
    num_cached: int = 0
    logprobs: list[Logprobs] = field(default_factory=list)
    states: list[Floats] = field(default_factory=list)


def no_contexts(model: ModelFacts) -> str:
    """Why a model cannot have any; empty: it can."""
    if model.windowed:
        return "need a model whose layers see every token, this one's have a sliding window"
    if model.longrope_limit is not None:
        return f"need a model whose keys stay, this one's are others beyond {model.longrope_limit} tokens"
    if model.num_snapshots is not None:
        return "need a model whose layers see every token, some of this one's have a state"
    return ""
