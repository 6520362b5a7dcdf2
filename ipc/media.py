"""Pictures, films and sound of a prompt on their way to the tower that reads them.

Decides what is known of each: what it is (`key`), what stands for it among the prompt's tokens, and where its arrays
are. Arrays are large and travel once, as files that whoever computes the features reads; messages only name them.
"""

from enum import Enum

import msgspec


class MediaKind(Enum):
    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"


class MediaToken(msgspec.Struct, frozen=True, array_like=True):
    """What stands for one piece of a kind in a text, and the token that has features, `id` in the vocabulary."""

    placeholder: str
    text: str
    id: int


MediaTokens = dict[MediaKind, MediaToken]  # of the kinds that a model takes


class ArrayAt(msgspec.Struct, frozen=True, array_like=True):
    """An array in a file, its numbers as this machine has them, row by row."""

    name: str  # as the tower's class names its input
    dtype: str  # float32, int64, bool
    shape: tuple[int, ...]
    offset: int  # bytes


class Grid(msgspec.Struct, frozen=True, array_like=True):
    """Where tokens lie for a model that turns by time, height and width: frame by frame, and row by row in each."""

    times: tuple[int, ...]  # of each frame, from the first
    height: int  # tokens
    width: int

    @property
    def num_tokens(self) -> int:
        return len(self.times) * self.height * self.width


class Prepared(msgspec.Struct, frozen=True, array_like=True):
    """One piece as the model's processor left it. Equal keys have equal features.

    `expansion` is what its placeholder in a prompt becomes: texts, and numbers of tokens that have features.
    """

    kind: MediaKind
    key: bytes  # of what was decoded and of the processor's settings
    expansion: tuple[str | int, ...]
    arrays: tuple[ArrayAt, ...]
    file: str  # its path; the arrays are there as long as the request lives
    place: str = ""  # the field that a client wrote it in, for errors
    grids: tuple[Grid, ...] = ()  # of a model that turns by them: one for each number of the expansion
    are_features: bool = False  # the one array is what a tower would make
    is_given: bool = False  # a client computed the arrays
    is_expanded: bool = False  # and its prompt has the tokens: the texts between them its arrays do not say

    @property
    def num_tokens(self) -> int:
        """The number of tokens that have features."""
        return sum(part for part in self.expansion if isinstance(part, int))


class PlacedMedia(msgspec.Struct, frozen=True, array_like=True):
    """One piece in a prompt of ids."""

    item: Prepared
    spans: tuple[tuple[int, int], ...]  # (first, number) of the tokens that have its features, in order
