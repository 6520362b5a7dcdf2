"""Whether tokens of a step meet in attention alone, asked of the model itself once its weights are in.

A state between tokens, a position that is counted and not given, or a rope that looks at the longest sequence would mix
rows that share a step, without an error. So attention is left out: each token gets a mixture of its own query, key and
value, and its states must be the same whatever its place in the step, its neighbours and their positions are.
T tokens, N states of a token.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ramet.runtime.models.transformers.classes import NotServed

States = Callable[[Tensor, Tensor], Tensor]  # ids and positions [T] int64 -> [T, N]

OWN = -1  # where the token is whose states are compared
STEPS = ((5, OWN, 11, 13), (17, 3, OWN, 2))  # ids
FAR = ((0.001, OWN, 0.002, 0.0), (0.4, 0.0, OWN, 0.97))  # their positions, as parts of the context
OWN_ID, OWN_POSITION = 23, 3
TRIES = 3  # tokens, as two experts may be equally good for one
NEAR, NEAR_16_BITS = 1e-4, 3e-2  # of the largest state


class AloneAnswers:
    """In the place of attention: every token for itself."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> Tensor:
        """q [T, H, D], k [T, G, D], v [T, G, Dv] -> [T, H, Dv]"""
        said, asked = (torch.tanh(x[..., : x.shape[2] // 2].float().mean(-1, keepdim=True)).to(v.dtype) for x in (k, q))
        return (v * (1 + said)).repeat_interleave(q.shape[1] // k.shape[1], 1) * (1 + asked)


def check_apart(states: States, num_positions: int, vocab_size: int, device: torch.device, name: str) -> None:
    """`states` of a model whose attention answers with AloneAnswers. Raises NotServed."""

    def own_state(step: int, shift: int) -> Tensor:
        ids = [(OWN_ID if one == OWN else one) + shift for one in STEPS[step]]
        at = [OWN_POSITION if part == OWN else int(part * num_positions) for part in FAR[step]]
        columns = torch.tensor([[one % vocab_size for one in ids], [min(p, num_positions - 1) for p in at]])
        return states(*columns.to(device))[STEPS[step].index(OWN)]

    distances = []
    for shift in range(TRIES):
        one, other = own_state(0, shift), own_state(1, shift)
        distances.append(float((one - other).float().abs().max() / one.float().abs().max().clamp(min=1e-12)))
        if distances[-1] <= (NEAR if one.dtype == torch.float32 else NEAR_16_BITS):
            return
    raise NotServed(
        f"{name}: a token's states depend on the other tokens of a step, by {min(distances):.1e} of the largest, "
        "though attention is left out: its modules keep a state, count positions, or look at the longest sequence"
    )
