"""A model's heads beside the one for tokens, applied to states that were pooled on the host. Knows no request.

They are a few matrices of float32, multiplied by torch on the scheduler's thread. n states, N hidden size.
"""

from collections.abc import Mapping

import torch

from ramet.ipc.spec import PoolingTask
from ramet.runtime.arrays import Floats
from ramet.runtime.weights.heads import Heads


class HostPooler:
    """The heads of a model that make something else of a hidden state than logits."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads

    @property
    def sizes(self) -> Mapping[PoolingTask, int]:
        """Numbers that each of its heads makes."""
        return {task: len(layers[-1].weight) for task, layers in self._heads.items()}

    def take(self, heads: Heads) -> None:
        """Others of the same sizes."""
        self._heads = heads

    @torch.inference_mode()
    def apply(self, task: PoolingTask, states: Floats) -> Floats:
        """states [n, N] -> [n, sizes[task]]"""
        x = torch.from_numpy(states)
        for layer in self._heads[task]:
            x = layer(x)
        made: Floats = x.numpy()
        return made
