"""What a step does beyond tokens, as plain host values: commands before it, inputs of some rows, and questions.

A step without any of them runs no code for them. A runner has a table from the type to what it does. A new kind is a
type here, a line of that table, and the scheduler's feature that adds it to steps. R rows, T new tokens, N hidden size.
"""

from dataclasses import dataclass
from typing import Any

from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.cache.state_places import StateCopy, StateSaves
from ramet.runtime.sampling.columns import Forget, PenaltyReset, PlaceLogprobs

# -- commands: done before the step, in their order ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlotUpdate:
    """Slots the runner's table does not hold yet (a cached prefix): table[row, start : start + len(slots)] = slots."""

    row: int
    start: int
    slots: Ints


@dataclass(frozen=True, slots=True)
class SlotCopy:
    """Keys and values of `source` are copied to `target` before the batch writes any."""

    source: Ints
    target: Ints


@dataclass(frozen=True, slots=True)
class AdapterPlacement:
    """From this step on the adapter of `generation` is in `slot`, 1 or more."""

    slot: int
    generation: int


Command = SlotUpdate | SlotCopy | StateCopy | PenaltyReset | AdapterPlacement | Forget


# -- inputs that only some rows bring --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Embeds:
    """Tokens [first, first + len(values)) of the T are these embeddings, whatever their ids."""

    first: int
    values: Floats  # [n, N]


@dataclass(frozen=True, slots=True)
class Features:
    """What the model sees of one piece of media: a tensor [n, N or more], which the runner alone looks into."""

    values: Any

    @property
    def num_bytes(self) -> int:
        return int(self.values.nbytes)


@dataclass(frozen=True, slots=True)
class FeatureRows:
    """Tokens [first, first + num) of the T have rows [start, start + num) of the features, whatever their ids."""

    first: int
    num: int
    features: Features
    start: int
    is_whole: bool = False  # these tokens see each other


@dataclass(frozen=True, slots=True)
class PositionOffsets:
    """A token's index less its position to the model. Without it these are equal."""

    values: Ints  # [R]


@dataclass(frozen=True, slots=True)
class MropePositions:
    """Where each token is in time, height and width. Without it all three are its position."""

    values: Ints  # [3, T]


@dataclass(frozen=True, slots=True)
class RowAdapters:
    """The slot of each row's adapter, 0 for none."""

    values: Ints  # [R]


RowInput = Embeds | FeatureRows | PositionOffsets | MropePositions | RowAdapters | StateSaves


# -- questions, each of which has an answer --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of prompt tokens: the token at index first + i of the T predicts targets[i]."""

    first: int
    targets: Ints  # [n]
    num_top: int
    ids: Ints  # [m] tokens whose log-probability is returned at each place


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """Tokens [first, first + num) of the T whose hidden states are returned, each by itself or only their sum."""

    first: int
    num: int
    summed: bool = False


Ask = PromptLogprobs | HiddenRows
Answer = PlaceLogprobs | Floats  # the log-probabilities of a prompt; [num, N] hidden states, or [1, N] if summed
