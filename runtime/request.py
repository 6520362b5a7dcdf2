"""One sequence to generate: what was asked, the tokens that are known, and how far its side results have come.

Written by the scheduler alone. A request has no prefill or decode phase: it has `prompt_len` tokens that were given and
`len(tokens)` that are known, and whoever runs it computes until they have all been read. What it holds while it runs
(row, slots, room for its output) is its RunningRequest (scheduler/running.py).
"""

import numpy as np

from ramet.ipc.messages import Uid
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import HiddenMode, RequestSpec
from ramet.runtime.arrays import Floats, Ints

_MASK = (1 << 64) - 1
_NO_TOKENS: Ints = np.empty(0, dtype=np.int32)
EVERY_STATE = (HiddenMode.ALL, HiddenMode.MEAN)  # what needs the hidden state of every prompt token


class Request:
    """`tokens` is what was known when it last began to wait: the prompt, which the samples of one prompt share, or
    after a retraction the output as well. It is never written.
    """

    __slots__ = (
        "arrival_s",
        "cached_tokens",
        "embeds",
        "epoch",
        "match_length",
        "match_version",
        "next_hidden",
        "next_logprob",
        "num_retractions",
        "opened",
        "prompt_len",
        "seed",
        "spec",
        "tokens",
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
        self.uid, self.spec, self.seed, self.arrival_s = uid, spec, seed, arrival_s
        self.tokens = prompt
        self.prompt_len = len(prompt)
        self.embeds = embeds  # [prompt_len, hidden size]: what stands for the prompt's ids, which are zeros then
        self.epoch = 0  # raised by a retraction: results of steps that were planned before it are dropped
        self.next_hidden = 0  # index of the first token whose hidden state was not returned yet (ALL, MEAN)
        # index of the next prompt token whose log-probability is to be returned; None: none is left, or none is asked
        start = spec.logprobs.start if spec.logprobs is not None else None
        self.next_logprob = None if start is None or start + 1 >= self.prompt_len else start + 1
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
    def limit(self) -> int:
        """Tokens of prompt and output together that it may have."""
        return self.prompt_len + self.params.max_new_tokens

    @property
    def remaining(self) -> int:
        """New tokens it may still get, as of when it last began to wait."""
        return self.limit - len(self.tokens)

    @property
    def prompt(self) -> Ints:
        """Its token ids; none if it came as embeddings."""
        return self.tokens[: self.prompt_len] if self.embeds is None else _NO_TOKENS

    @property
    def reusable(self) -> Ints:
        """The known tokens of which all but the last may come from the cache: what is returned must be computed."""
        end = len(self.tokens) if self.next_logprob is None else self.next_logprob
        return self.tokens[: min(end, self.next_hidden + 1) if self.spec.hidden in EVERY_STATE else end]


def seed_of_sample(seed: int, sample: int) -> int:
    """The seed of the sample-th sequence of one prompt; sample 0 keeps the client's. uint64 (splitmix64 steps)."""
    z = (seed + sample * 0x9E3779B97F4A7C15) & _MASK
    if sample == 0:
        return z
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
