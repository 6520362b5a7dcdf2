"""One sequence to generate: its tokens, its parameters and how far it has come. Knows no memory and no device.

A request has no prefill or decode phase: it has `prompt_len` tokens that were given, `total` tokens that are known, and
whoever runs it computes until they have all been seen. What it holds in the KV pool is its Seat (scheduler/running.py).
"""

import numpy as np

from ramet.ipc.params import SamplingParams
from ramet.runtime.arrays import Ints

_MASK = (1 << 64) - 1


class Request:
    """`tokens[:total]` are known: the prompt, then the output. Written by the scheduler alone."""

    __slots__ = (
        "arrival_s",
        "cached_tokens",
        "match_length",
        "match_version",
        "namespace",
        "num_retractions",
        "opened",
        "params",
        "prompt_len",
        "seed",
        "tokens",
        "total",
        "uid",
    )

    def __init__(
        self,
        uid: int,
        prompt: Ints,
        params: SamplingParams,
        *,
        seed: int,
        namespace: tuple[str, ...] = (),
        arrival_s: float = 0.0,
    ) -> None:
        self.uid, self.params, self.namespace, self.arrival_s = uid, params, namespace, arrival_s
        self.prompt_len = self.total = len(prompt)
        self.tokens: Ints = np.empty(len(prompt) + params.max_new_tokens, dtype=np.int32)
        self.tokens[: self.total] = prompt
        self.seed = seed
        self.cached_tokens: int | None = None  # of the prompt, when it was first admitted
        self.num_retractions = 0
        self.opened = False  # its Opened message has been sent
        self.match_length, self.match_version = 0, -1  # cached prefix as of that version of the tree

    @property
    def known(self) -> Ints:
        return self.tokens[: self.total]

    @property
    def output(self) -> Ints:
        return self.tokens[self.prompt_len : self.total]

    @property
    def num_output(self) -> int:
        return self.total - self.prompt_len

    @property
    def remaining(self) -> int:
        """New tokens it may still get."""
        return len(self.tokens) - self.total

    def append(self, token: int) -> None:
        self.tokens[self.total] = token
        self.total += 1


def seed_of_sample(seed: int, sample: int) -> int:
    """The seed of the sample-th sequence of one prompt; sample 0 keeps the client's. uint64 (splitmix64 steps)."""
    z = (seed + sample * 0x9E3779B97F4A7C15) & _MASK
    if sample == 0:
        return z
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
