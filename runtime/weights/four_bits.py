"""4-bit weights as AWQ and GPTQ checkpoints have them. N in, M out, G groups of inputs.

AWQ   qweight [N, M/8]   qzeros [G, M/8]   scales [G, M]              weight = (q - zero) * scale
GPTQ  qweight [N/8, M]   qzeros [G, M/8]   scales [G, M]   g_idx [N]  the same; before v2, zeros are stored less one
"""

import torch
from torch import Tensor

from ramet.kernels.int4_words import Int4Words, WordLayout, awq_columns, columns, group_of
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.shape import CheckpointQuantization
from ramet.runtime.weights.bundle import FLOATS, Bundle, Facts, FourBits, Parts, check_kind, check_shape, facts_of

WEIGHT, WORDS, ZEROS, SCALES, GROUP_OF_INPUT = ".weight", ".qweight", ".qzeros", ".scales", ".g_idx"
IN_A_WORD = 8
SYMMETRIC_ZERO = 8


def bundle(stem: str, facts: Facts, quantization: CheckpointQuantization) -> Bundle:
    """Raises ConfigError."""
    words, zeros, scales = (facts_of(stem + kind, facts, stem + WORDS) for kind in (WORDS, ZEROS, SCALES))
    for fact in (words, zeros):
        check_kind(fact, (torch.int32,))
    check_kind(scales, FLOATS)
    is_awq = quantization.method == "awq"
    if len(words.shape) != 2 or not min(words.shape):
        raise ConfigError(f"{words.named} is {list(words.shape)}, must have two dimensions")
    num_in = words.shape[0] * (1 if is_awq else IN_A_WORD)
    num_out = words.shape[1] * (IN_A_WORD if is_awq else 1)
    size = quantization.group_size or num_in
    groups, beside = -(-num_in // size), f"beside {stem}{WORDS} in groups of {size}"
    check_shape(scales, ((groups, num_out),), beside)
    check_shape(zeros, ((groups, num_out // IN_A_WORD),), beside)
    names = {kind: stem + kind for kind in (WORDS, ZEROS, SCALES, GROUP_OF_INPUT) if stem + kind in facts}
    if GROUP_OF_INPUT in names:
        check_kind(facts[stem + GROUP_OF_INPUT], (torch.int32,))
        check_shape(facts[stem + GROUP_OF_INPUT], ((num_in,),), beside)

    layout = WordLayout.AWQ if is_awq else WordLayout.GPTQ

    def widen(parts: Parts, dtype: torch.dtype) -> Tensor:
        group = torch.arange(num_in) // size if GROUP_OF_INPUT not in parts else parts[GROUP_OF_INPUT].long()
        if not bool(((group >= 0) & (group < groups)).all()):
            raise ConfigError(f"{words.named}: {GROUP_OF_INPUT[1:]} must be from 0 to {groups - 1}")
        wholes = Int4Words(layout, parts[WORDS], parts[SCALES], parts[ZEROS], None, dtype).wholes()  # [M, N]
        zeros, scales = zeros_of(parts[ZEROS], quantization).float(), parts[SCALES].float()
        return ((wholes.float() - zeros.T[:, group]) * scales.T[:, group]).to(dtype)

    def as_kept(parts: Parts) -> FourBits:
        zeros = zeros_of(parts[ZEROS], quantization)
        return FourBits(layout, parts[WORDS], parts[SCALES], zeros, parts.get(GROUP_OF_INPUT), size)

    kept = "int4" if fits_kernel(num_out, num_in, size) else None
    return Bundle(stem + WEIGHT, (num_out, num_in), names, widen, quantization.method, kept, as_kept)


def fits_kernel(num_out: int, num_in: int, size: int) -> bool:
    """Whether a kernel of 4-bit weights reads them in groups of so many inputs, or in parts of these."""
    return num_out % IN_A_WORD == 0 and group_of(num_in, size & -size) is not None


def zeros_of(words: Tensor, quantization: CheckpointQuantization) -> Tensor:
    """words [G, M/8] int32 -> [G, M] float16"""
    if quantization.method == "awq":
        return awq_columns(words).half()
    stored = columns(words)
    # some say the older format and store what the newer one does; with the zero of symmetric weights it shows
    meant = quantization.is_symmetric and bool((stored == SYMMETRIC_ZERO).all())
    return stored.half() + (1 if quantization.zeros_less_one and not meant else 0)
