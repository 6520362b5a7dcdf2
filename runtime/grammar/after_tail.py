"""Constraints that begin inside a token: its first bytes end the prompt, what it has beyond them begins the output.

A grammar reads tokens, so what is beyond is spelled by other tokens, which have the same bytes. W words of a mask.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.output import ConstrainedOutput
from ramet.runtime.text.token_bytes import TokenBytes


def may_begin(
    output: ConstrainedOutput, texts: Sequence[bytes], table: TokenBytes, bits: Ints
) -> npt.NDArray[np.bool_]:
    """Whether `output`, which has no token yet, may begin with each of the texts.

    bits [W] int32 are the mask of its first token. What no tokens of the vocabulary spell may not be.
    """
    known: dict[bytes, bool] = {b"": True}
    for text in texts:
        if text not in known:
            known[text] = _may_begin(output, text, table, bits)
    return np.fromiter((known[text] for text in texts), np.bool_, len(texts))


def _may_begin(output: ConstrainedOutput, text: bytes, table: TokenBytes, bits: Ints) -> bool:
    if not output.active:
        return output.thinks(text)
    if output.grammar.must_end:
        return False
    whole = table.equal(text)
    spelled = [whole[0]] if len(whole) else table.spell(text)
    if spelled is None or not bits.view(np.uint32)[spelled[0] >> 5] >> np.uint32(spelled[0] & 31) & 1:
        return False
    if len(spelled) == 1:
        return True
    grammar = output.grammar.fork()
    return all(map(grammar.accept, spelled))
