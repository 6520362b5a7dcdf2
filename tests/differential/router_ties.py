"""Where a router of transformers is in doubt: the last score that it takes and the best that it leaves are nearly one.

Such a token may go to other experts after a rounding, so it and what follows may differ. Places that do are counted, so
that a test can say how many it has excused.
"""

from typing import Any

import torch
from torch import Tensor

from ramet.kernels.reference_experts import SIGMOID, RouteRule
from ramet.runtime.models.shape import ModelShape

DOUBT = 1e-6  # between two scores


class RouterTies:
    """`num` of the `places` that were looked at."""

    def __init__(self, model: Any, shape: ModelShape) -> None:
        self._model, self.num, self.places = model, 0, 0
        self._gaps: list[Tensor] = []  # [T] of each layer
        for i in shape.sparse:
            of, layer = shape.layers[i].experts, model.model.layers[i]
            assert of is not None
            router = layer.router.proj if of.beside else getattr(layer.mlp, "gate", None) or layer.mlp.router
            router.register_forward_pre_hook(lambda module, args, rule=of.rule: self._look(module, args[0], rule))

    def _look(self, router: Any, x: Tensor, rule: RouteRule) -> None:
        """x [.., N]: the router's input."""
        logits = torch.nn.functional.linear(
            x.flatten(0, -2).float(), router.weight.float(), getattr(router, "bias", None)
        )
        scores = torch.sigmoid(logits) if rule.scores == SIGMOID else logits  # a softmax keeps their order
        choice = scores + getattr(router, "e_score_correction_bias", 0.0)
        gaps = torch.full((len(choice),), float("inf"))
        if rule.groups > 1:
            of_groups = choice.unflatten(1, (rule.groups, -1))
            sums = of_groups.topk(2, -1).values.sum(-1)
            gaps = _gap(sums, rule.kept_groups)
            kept = torch.zeros_like(sums, dtype=torch.bool).scatter(1, sums.topk(rule.kept_groups, -1).indices, True)
            choice = choice.masked_fill(~kept.repeat_interleave(of_groups.shape[2], 1), float("-inf"))
        self._gaps.append(torch.minimum(gaps, _gap(choice, rule.per_token)))

    def check(self, ids: list[int], got: list[float], want: list[float], near: float) -> None:
        """What follows each token is as wanted, but for places from the first token in doubt on, which are counted."""
        differ = [i for i, (one, other) in enumerate(zip(got, want, strict=True)) if not abs(one - other) <= near]
        first = self.first_doubt(ids)
        assert not differ or differ[0] >= first, (differ, first, got[differ[0]], want[differ[0]])
        self.num += len(differ)
        self.places += len(got)

    @torch.inference_mode()
    def first_doubt(self, ids: list[int]) -> int:
        """Tokens before it."""
        self._gaps.clear()
        self._model(torch.tensor([ids]))
        if not self._gaps:
            return len(ids)
        doubtful = (torch.stack(self._gaps) < DOUBT).any(0).nonzero().flatten().tolist()
        return min(doubtful, default=len(ids))

    def __str__(self) -> str:
        return f"{self.num} of {self.places} places are excused, for router scores closer than {DOUBT:g}"


def _gap(scores: Tensor, num: int) -> Tensor:
    """scores [T, E]: of each row how far the num-th is above the next. [T]"""
    if num >= scores.shape[1]:
        return torch.full((len(scores),), float("inf"))
    best = scores.topk(num + 1, -1).values
    return best[:, -2] - best[:, -1]
