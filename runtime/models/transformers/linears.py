"""Linear layers, embeddings and experts of transformers' modules, in the form that our kernels multiply.

Decides which of them are replaced: plain ones, whose weights nobody but their own forward reads. Their parameters stay
where they are until they are packed. T tokens, N in, M out, E experts, I numbers inside an expert.
"""

import inspect
import re
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.integrations.moe import _default_apply_gate
from transformers.pytorch_utils import Conv1D

from ramet.kernels.reference_experts import Mixture
from ramet.runtime.layers.activation import gated_activation
from ramet.runtime.layers.experts import ExpertLinears
from ramet.runtime.layers.modules import Embedding, Linear
from ramet.runtime.layers.ops import Ops

ROUTERS = re.compile(r"(^|\.)(gate|router|shared_expert_gate)(\.|$)")  # paths of what chooses experts: not rounded
ACTIVATIONS = {  # classes of transformers' activations that multiply a gate -> as config.json names them
    "SiLUActivation": "silu", "SiLU": "silu", "GELUActivation": "gelu", "GELUTanh": "gelu_pytorch_tanh",
}  # fmt: skip


class AnyLinear(Linear):
    """x [..., N] -> [..., M]"""

    def forward(self, x: Tensor) -> Tensor:
        flat = super().forward(x.reshape(-1, x.shape[-1]))
        return flat.view(*x.shape[:-1], -1)


class AnyEmbedding(Embedding):
    """ids [...] -> [..., N]"""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids.reshape(-1)).view(*ids.shape, -1)


class TiedHead(nn.Module):
    """x [..., N] -> [..., V] by the embedding's weight."""

    def __init__(self, embedding: AnyEmbedding) -> None:
        super().__init__()
        self._embedding = (embedding,)  # no module of its own: it is counted once

    def forward(self, x: Tensor) -> Tensor:
        return self._embedding[0].wide(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)


class GivenExperts(nn.Module):
    """x [T, N], experts and their weights [T, K] -> [T, N], as transformers' modules of experts are called."""

    def __init__(self, gate_up: ExpertLinears, down: ExpertLinears, activation: str, ops: Ops) -> None:
        super().__init__()
        self.gate_up, self.down = gate_up, down
        self._activation, self._ops = gated_activation(activation, ops), ops
        self._mixture: Mixture | None = None  # once the weights are in

    def forward(self, x: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        if self._mixture is None:
            self._mixture = self._ops.mixture(self.gate_up, self._activation, self.down)
        return self._mixture(x.contiguous(), top_k_index.int().contiguous(), top_k_weights.float().contiguous())


def replace_modules(causal: Any, ops: Ops) -> None:
    """WRITES causal: its plain linear layers, its embedding and its experts become ours, with the same parameters."""
    head, table = causal.get_output_embeddings(), causal.get_input_embeddings()
    tied = head is not None and type(head) is nn.Linear and head.weight is table.weight and head.bias is None
    for path, module in list(causal.named_modules()):
        if _is_plain_linear(causal, path, module) and not (module is head and tied):
            _put(causal, path, _linear_of(path, module))
        elif _are_gated_experts(module):
            _put(causal, path, _experts_of(module, ops))
        elif module is table and type(module) is nn.Embedding and _is_read_by_itself(causal, path):
            embedding = _embedding_of(module, tied, ops)
            _put(causal, path, embedding)
            if tied:
                _put(causal, _path_of(causal, head), TiedHead(embedding))


def _is_plain_linear(causal: Any, path: str, module: nn.Module) -> bool:
    return type(module) in (nn.Linear, Conv1D) and _is_read_by_itself(causal, path)


def _is_read_by_itself(causal: Any, path: str) -> bool:
    """The module above does not read its weight or what else a linear layer of torch has."""
    above, _, name = path.rpartition(".")
    return name not in _read_inside(cast(Hashable, type(causal.get_submodule(above))))


@lru_cache(maxsize=1024)
def _read_inside(above: Hashable) -> frozenset[str]:
    """Names of modules whose parameters are read by the class that owns them."""
    try:
        source = inspect.getsource(cast(type, above))
    except (OSError, TypeError):
        return frozenset()
    return frozenset(re.findall(r"self\.(\w+)\.(?:weight|bias|in_features|out_features)\b", source))


def _linear_of(path: str, module: Any) -> AnyLinear:
    weight = module.weight.t().contiguous() if isinstance(module, Conv1D) else module.weight
    num_out, num_in = weight.shape
    options: Any = dict(dtype=weight.dtype, may_round=not ROUTERS.search(path))
    with torch.device("meta"):
        made = AnyLinear(num_in, num_out, bias=module.bias is not None, **options)
    made.weight, made.bias = nn.Parameter(weight, requires_grad=False), module.bias
    return made


def _embedding_of(module: nn.Embedding, tied: bool, ops: Ops) -> AnyEmbedding:
    with torch.device("meta"):
        made = AnyEmbedding(module.num_embeddings, module.embedding_dim, tied=tied, dtype=module.weight.dtype, ops=ops)
    made.weight = nn.Parameter(module.weight, requires_grad=False)
    return made


def _are_gated_experts(module: Any) -> bool:
    """What transformers' experts interface knows, in the layout that most have and with an activation of ours."""
    if not getattr(module, "has_gate", False) or not hasattr(type(module), "_apply_gate"):
        return False
    odd = module.has_bias or module.is_transposed or not module.is_concatenated or module.has_post_expert_norm
    return not odd and type(module)._apply_gate is _default_apply_gate and _activation_of(module) is not None


def _activation_of(module: Any) -> str | None:
    act = getattr(module, "act_fn", None)
    if act is None or getattr(act, "use_gelu_python", False) or getattr(act, "use_gelu_tanh_python", False):
        return None
    return ACTIVATIONS.get(type(act).__name__)


def _experts_of(module: Any, ops: Ops) -> GivenExperts:
    """gate_up_proj [E, 2 I, N] and down_proj [E, N, I] become a linear layer for each expert."""
    activation = _activation_of(module)
    assert activation is not None, "these experts have an activation of ours"
    return GivenExperts(_linears(module.gate_up_proj), _linears(module.down_proj), activation, ops)


def _linears(weights: Tensor) -> ExpertLinears:
    """weights [E, M, N]"""
    num, num_out, num_in = weights.shape
    with torch.device("meta"):
        made = ExpertLinears(num, num_in, num_out, weights.dtype)
    for layer, part in zip(made, weights.detach(), strict=True):
        layer.weight = nn.Parameter(part, requires_grad=False)
    if weights.is_cuda:
        made.stack()
    return made


def _put(causal: Any, path: str, module: nn.Module) -> None:
    causal.set_submodule(path, module)


def _path_of(causal: Any, wanted: nn.Module) -> str:
    return next(path for path, module in causal.named_modules() if module is wanted)
