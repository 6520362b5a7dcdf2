"""One sequence to generate: its tokens, its parameters and how far it has come. Knows no memory and no device.

A request has no prefill or decode phase: it has `prompt_len` tokens that were given, `total` tokens that are known, and
whoever runs it computes until they have all been seen. What it holds in the KV pool is its Seat (scheduler/running.py).
"""

from typing import Any

import numpy as np

from ramet.ipc.messages import Uid
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import HiddenMode, RequestSpec
from ramet.runtime.arrays import Floats, Ints

_MASK = (1 << 64) - 1
EVERY_STATE = (HiddenMode.ALL, HiddenMode.MEAN)  # what needs the hidden state of every prompt token


class Request:
    """`tokens[:total]` are known: the prompt, then the output. Written by the scheduler alone."""

    __slots__ = (
        "arrival_s",
        "cached_tokens",
        "embeds",
        "match_length",
        "match_version",
        "next_hidden",
        "next_scored",
        "num_retractions",
        "opened",
        "processor_memory",
        "processor_prompt",
        "prompt_len",
        "seed",
        "spec",
        "tokens",
        "total",
        "uid",
    )

    def __init__(
        self,
        uid: Uid,
        prompt: Ints,
        spec: RequestSpec,
        *,
        seed: int,
        arrival_s: float = 0.0,
        embeds: Floats | None = None,
    ) -> None:
        self.uid, self.spec, self.arrival_s = uid, spec, arrival_s
        self.prompt_len = self.total = len(prompt)
        self.tokens: Ints = np.empty(len(prompt) + spec.params.max_new_tokens, dtype=np.int32)
        self.tokens[: self.total] = prompt
        self.seed = seed
        self.processor_memory: dict[str, Any] = {}
        self.processor_prompt: Ints | None = None  # the prompt once more, if a logit processor was shown it
        self.embeds = embeds  # [prompt_len, hidden size]: what stands for the prompt's ids, which are zeros then
        self.next_hidden = 0  # index of the next token whose hidden state is to be told, unless the last alone is
        # index of the next prompt token whose log-probability is to be told; None: none is left, or none is asked for
        start = spec.logprobs.start if spec.logprobs is not None else None
        self.next_scored = None if start is None or start + 1 >= self.prompt_len else start + 1
        self.cached_tokens: int | None = None  # of the prompt, when it was first admitted
        self.num_retractions = 0
        self.opened = False  # its Opened message has been sent
        self.match_length, self.match_version = 0, -1  # cached prefix as of that version of the tree

    @property
    def params(self) -> SamplingParams:
        return self.spec.params

    @property
    def rank(self) -> tuple[int, float, Uid]:
        """Who goes first: the highest priority, then the earliest arrival. Sorts ascending."""
        return -self.spec.priority, self.arrival_s, self.uid

    @property
    def known(self) -> Ints:
        return self.tokens[: self.total]

    @property
    def reusable(self) -> Ints:
        """The known tokens of which all but the last may come from the cache: what is told must be computed."""
        end = self.total if self.next_scored is None else self.next_scored
        return self.tokens[: min(end, self.next_hidden + 1) if self.spec.hidden in EVERY_STATE else end]

    @property
    def prompt(self) -> Ints:
        """Its token ids; none if it came as embeddings."""
        return self.tokens[: self.prompt_len if self.embeds is None else 0]

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
