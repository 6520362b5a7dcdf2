"""What lets the tokens of a step see other tokens: attention, or a state.

It has two stages, so that a decoder can go on with a few of the tokens after the first.

T new tokens, N hidden size, P numbers that the first stage leaves of a token.
"""

from abc import abstractmethod
from typing import Generic, TypeVar

from torch import Tensor, nn

from ramet.kernels.reference import RopeTables
from ramet.runtime.attention.base import ForwardInputs, StepBackend

Backend = TypeVar("Backend", bound=StepBackend)


class TokenMixer(nn.Module, Generic[Backend]):
    """x [T, N] -> [T, N]. What later tokens need of the new ones is kept in the first stage."""

    @abstractmethod
    def store(self, x: Tensor, rope: RopeTables, attention: Backend, inputs: ForwardInputs) -> Tensor:
        """Keep what later tokens need of x [T, N] -> [T, P], what `attend` reads of each token."""

    @abstractmethod
    def attend(self, held: Tensor, rope: RopeTables, attention: Backend, inputs: ForwardInputs) -> Tensor:
        """held [T, P] of `store` -> [T, N]; of some rows of it, `attention` is planned for the tokens of `inputs`."""

    def forward(self, x: Tensor, rope: RopeTables, attention: Backend, inputs: ForwardInputs) -> Tensor:
        return self.attend(self.store(x, rope, attention, inputs), rope, attention, inputs)
