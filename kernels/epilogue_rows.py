"""What the logits epilogue reads and answers, for kernels/reference.py and kernels/logits_epilogue.py alike.

Q rows, V vocabulary, S penalty slots, M grammar masks, W = ceil(V / 32) words, R sequences that run.
"""

from dataclasses import dataclass

from torch import Tensor

from ramet.kernels.draw_params import DrawParams


@dataclass(frozen=True, slots=True)
class EpilogueRows:
    """What each of the Q rows asks, as tensors of the logits' device."""

    draw_params: DrawParams[Tensor]  # [Q] in each column
    positions: Tensor  # [Q] int64 index of the token to draw in the row's own output
    slots: Tensor  # [Q] int32 penalty slot; 0: no penalties
    frequency: Tensor  # [Q] float32
    presence: Tensor  # [Q] float32
    repetition: Tensor  # [Q] float32
    bias_starts: Tensor  # [Q + 1] int32: row q owns bias_ids[bias_starts[q] : bias_starts[q + 1]]
    bias_ids: Tensor  # int32
    biases: Tensor  # float32
    ban_starts: Tensor  # [Q + 1] int32
    ban_ids: Tensor  # int32
    masks: Tensor  # [Q] int32 row of `allowed`; -1: everything is allowed
    table_rows: Tensor  # [Q] int32 place in `lengths` and `next_ids`; -1: none
    penalises: bool  # some row has a penalty slot or a bias
    ranks: bool  # some row leaves tokens out by their rank
    floors: bool  # some row leaves out what is too unlikely beside the best one


@dataclass(frozen=True, slots=True)
class EpilogueState:
    """Lives on the device from step to step."""

    counts: Tensor  # [S, V] uint8; slot 0 belongs to no request
    seen: Tensor  # [S, W] int32
    allowed: Tensor  # [M, W] int32, a bit for each token that a grammar allows
    lengths: Tensor  # [R] int32 tokens of each sequence; the draw adds one
    next_ids: Tensor  # [R] int32 what each sequence reads next: what the draw gave


@dataclass(frozen=True, slots=True)
class DrawnRows:
    tokens: Tensor  # [Q] int64
    logprobs: Tensor  # [Q] float32, after temperature (1 for a greedy row), before tokens are left out
    finite: Tensor  # [Q] bool; False: the token means nothing
