"""What a cache could find at best: the hit rate that a policy and a pool of a given size are measured against.

An infinite cache computes every distinct token prefix once. When a request arrives, it finds the longest prefix of its
prompt that is a prefix of a prompt which arrived before (that one computes it, whether or not it has got there), or of
prompt and output of a request that ended before. A runtime computes at least the last token of a prompt, to draw what
comes next, and never the last token of an output: so neither is found. Requests that arrive together count in the
order given; another order moves hits between them, and their sum by a token a request at most.
"""

from collections.abc import Sequence
from typing import NamedTuple


class SentRequest(NamedTuple):
    """A request as it was served: ids, and when it arrived and ended, by any clock."""

    prompt: Sequence[int]
    output: Sequence[int]
    arrived: float
    ended: float


class Prefixes:
    """A trie of all sequences that were added: a node for each distinct prefix."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], int] = {}  # (node, token) -> the node behind it; the root is 0

    def __len__(self) -> int:
        return len(self._nodes)

    def match(self, ids: Sequence[int]) -> int:
        """Length of the longest known prefix."""
        node = 0
        for length, token in enumerate(ids):
            if (found := self._nodes.get((node, token))) is None:
                return length
            node = found
        return len(ids)

    def add(self, ids: Sequence[int]) -> None:
        node = 0
        for token in ids:
            node = self._nodes.setdefault((node, token), len(self._nodes) + 1)


def best_cached(sent: Sequence[SentRequest]) -> list[int]:
    """Prompt tokens of each request that an infinite cache would find."""
    known, best = Prefixes(), [0] * len(sent)
    arrivals = [(each.arrived, 1, i) for i, each in enumerate(sent)]
    ends = [(each.ended, 0, i) for i, each in enumerate(sent)]  # of an end and an arrival at once the end comes first
    for _, arrives, i in sorted(arrivals + ends):
        prompt, output = sent[i].prompt, sent[i].output
        if arrives:
            best[i] = known.match(prompt[:-1])
            known.add(prompt)
        elif len(output) > 1:
            known.add([*prompt, *output[:-1]])
    return best


def best_hit_rate(sent: Sequence[SentRequest]) -> float:
    """Share of all prompt tokens that an infinite cache would find; 0 without prompts."""
    total = sum(len(each.prompt) for each in sent)
    return sum(best_cached(sent)) / total if total else 0.0
