"""Where transformers' attention modules call us: queries, keys and values of all new tokens of a step, as one row.

Decides what the call means: the new keys and values are stored in the pool, then every row attends to its own there.
What a layer does with its scores has been found before (facts.py).
T new tokens, H query heads, G kv heads, D head size.
"""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ramet.kernels import reference
from ramet.runtime.attention.base import AttentionBackend, ForwardInputs

ATTENTION = "ramet"  # as config._attn_implementation spells it; without an entry for masks, transformers makes none
LAYER, ANSWERS = "ramet_layer", "ramet_answers"  # attributes of an attention module: its number, and who answers it

Attended = tuple[Tensor, None]  # [1, T, H, Dv], and no weights


class Answers(Protocol):
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> Tensor:
        """q [T, H, D], k and v [T, G, D], sinks [H] of a layer -> [T, H, D]"""


class Stepping:
    """Answers with the tokens of one step, `begin` by `begin`."""

    def __init__(self, store: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None]) -> None:
        self._store = store
        self._sinks: dict[int, Tensor] = {}  # layer -> [H] float32, as backends take them

    def begin(self, inputs: ForwardInputs, attention: AttentionBackend) -> None:
        self._inputs, self._attention = inputs, attention

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> Tensor:
        inputs, attention = self._inputs, self._attention
        q, k, v = (x.contiguous() for x in (q, k, v))
        store = self._store if k.shape == v.shape else reference.store_kv
        store(k, v, *attention.cache(layer), inputs.slots)
        if sinks is not None:
            sinks = self._sinks.setdefault(layer, sinks.float().contiguous())
        return attention.forward(q, k, v, layer, inputs, sinks)


def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **of_layer: Any) -> Attended:
    """query [1, H, T, D], key and value [1, G, T, D], of_layer["s_aux"] [H] where a layer has sinks"""
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    answers: Answers = getattr(module, ANSWERS)
    return answers.attend(getattr(module, LAYER), q, k, v, of_layer.get("s_aux"))[None], None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, attend)
